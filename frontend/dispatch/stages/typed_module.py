"""Traced programs with the types of their arguments and results, as JAX's programs state them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

from shardir.frontend.arrays.abstract_value import AbstractValue
from shardir.frontend.shardings.sharding import Sharding
from shardir.frontend.tracing.function_tracing import TracedFunction
from shardir.frontend.tracing.typeof import ShapedArray, shaped_array
from shardir.ir.module import Module


@final
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class TypedModule(Module):
    """A traced program, and the types of the arguments and results of its function.

    Unlike the values of the program, these types state whether an element type is weak, and the
    axes of a mesh with Explicit axes.
    """

    in_avals: list[ShapedArray]
    """The type of each array in the arguments, without arrays that the function captures."""
    out_avals: list[ShapedArray]
    """The type of each array in the result."""


def types_of_arguments(traced: TracedFunction, count: int) -> list[ShapedArray]:
    """Return the types of the first `count` parameters, which are not captured."""
    return list(map(_type_of, traced.params[:count]))


def types_of_results(traced: TracedFunction) -> list[ShapedArray]:
    """Return the types of the results."""
    shardings: Sequence[Sharding | None] = traced.typed_results or [None] * len(traced.results)
    return [
        shaped_array(abstract, sharding)
        for abstract, sharding in zip(traced.results, shardings, strict=True)
    ]


def _type_of(abstract: AbstractValue) -> ShapedArray:
    sharding = abstract.sharding
    return shaped_array(abstract, sharding if isinstance(sharding, Sharding) else None)
