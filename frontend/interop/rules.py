"""The table of JAX's primitives: for each its rule, what it is in our functions.

A rule takes an `Equation` and returns the tracer of its result, or a sequence of them. The modules
`rules_*` fill the table; `aliases.py` says what older and newer JAX call the same primitives.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import jax

from shardir.errors import ShardirError
from shardir.frontend.operands import splat
from shardir.frontend.promotion import dtype_of
from shardir.frontend.tracer import Tracer
from shardir.types import TensorType

if TYPE_CHECKING:
    from shardir.frontend.interop.reading import Reader


class UnknownPrimitiveError(ShardirError, NotImplementedError):
    """A primitive, or a form of one, that nothing here stands for."""


class ImportedProgramError(ShardirError, TypeError):
    """A program of another library that means something else here than there."""


Rule = Callable[["Equation"], Any]
RULES: dict[str, Rule] = {}
"""The rule of each primitive by the name that JAX 0.10 gives it."""


@dataclass(frozen=True)
class Scalar:
    """A number written in a program; it takes the shape of what it is combined with."""

    value: Any
    dtype: str
    weak: bool

    def tracer(self, shape: Sequence[int] = ()) -> Tracer:
        return splat(self.value, TensorType(tuple(shape), self.dtype), self.weak)


@dataclass(frozen=True)
class Equation:
    """One equation: its parameters, the values that it is applied to, and who reads it.

    `operands` are tracers, and `Scalar`s where the program has numbers.
    """

    name: str
    params: dict[str, Any]
    operands: list[Tracer | Scalar]
    results: list[Any]
    reader: "Reader"
    source: Any

    @property
    def tracers(self) -> list[Tracer]:
        """The operands, each with the shape that it has by itself."""
        return [x.tracer() if isinstance(x, Scalar) else x for x in self.operands]

    def shape(self, number: int = 0) -> tuple[int, ...]:
        """The shape of a result."""
        shape: tuple[int, ...] = tuple(self.results[number].shape)
        return shape

    def dtype(self, number: int = 0) -> str:
        """The element type of a result."""
        return dtype_name_of(self.results[number].dtype)

    def aligned(self, shape: Sequence[int] | None = None) -> list[Tracer]:
        """The operands, numbers in the shape of the result."""
        wide = self.shape() if shape is None else shape
        return [x.tracer(wide) if isinstance(x, Scalar) else x for x in self.operands]

    def refuse(self, form: str, way_out: str) -> UnknownPrimitiveError:
        """The error for a form of the primitive that there is nothing for."""
        from shardir.frontend.locations import point

        return UnknownPrimitiveError(point(f"{self.name} of JAX with {form}; {way_out}"))


NO_TANGENT = jax.dtypes.float0
"""The element type of the tangents of integers, which have no values."""


def dtype_name_of(dtype: Any) -> str:
    """Our name of an element type of JAX's; typed random keys are `key`.

    In a program that JAX has differentiated, the tangent of an integer may be a value: it has
    nothing in it, and bools stand for it.
    """
    if dtype == NO_TANGENT:
        return "bool"
    return "key" if str(dtype).startswith("key<") else dtype_of(dtype)


def rule(*names: str) -> Callable[[Rule], Rule]:
    """Put a rule into the table under these names."""

    def decorate(function: Rule) -> Rule:
        for name in names:
            assert name not in RULES, f"{name} has a rule"
            RULES[name] = function
        return function

    return decorate


def elementwise(name: str, function: Callable[..., Any]) -> None:
    """The rule of a primitive that is one of our functions of elements."""
    rule(name)(lambda equation: function(*equation.aligned()))


def shaped(name: str, function: Callable[..., Any], **options: str) -> None:
    """The rule of a primitive that is one of our functions.

    `options` says which parameter of the primitive is which of the function's.
    """

    def called(equation: Equation) -> Any:
        given = {ours: equation.params[theirs] for ours, theirs in options.items()}
        return function(*equation.tracers, **given)

    rule(name)(called)
