"""The registry of translation rules of JAX primitives.

A rule takes an `Equation` and returns the tracer of its result, or a sequence of tracers. The
other modules of this folder register rules; `primitive_aliases` lists the names of primitives in
other versions of JAX.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import jax
from jax.extend import core

from shardir.errors import ShardirError
from shardir.frontend.arrays.jax_keys import key_dtype_of_implementation
from shardir.frontend.source_locations import with_location
from shardir.frontend.tracing.operands import splat
from shardir.frontend.tracing.promotion import dtype_of
from shardir.frontend.tracing.tracer import Tracer
from shardir.ir.types import TensorType


class UnknownPrimitiveError(ShardirError, NotImplementedError):
    """A primitive, or a form of it, has no rule."""


class ImportedProgramError(ShardirError, TypeError):
    """A program of another library has another meaning in shardir."""


RuleResult: TypeAlias = Tracer | Sequence[Tracer]
"""The results of an equation; one tracer if there is only one result."""

Rule = Callable[["Equation"], RuleResult]
RULES: dict[str, Rule] = {}
"""The rule of each primitive by its name in JAX 0.10."""


@dataclass(frozen=True)
class LiteralScalar:
    """A scalar literal of a jaxpr, which broadcasts to the shape of the other operands."""

    value: bool | int | float | complex
    dtype: str
    weak: bool

    def tracer(self, shape: Sequence[int] = ()) -> Tracer:
        return splat(self.value, TensorType(tuple(shape), self.dtype), self.weak)


Operand: TypeAlias = Tracer | LiteralScalar


class NestedJaxprReader(ABC):
    """The reader of an equation, as rules of primitives with nested jaxprs use it."""

    @abstractmethod
    def read(self, closed: core.ClosedJaxpr, args: Sequence[Operand]) -> list[Tracer]:
        """Return the results of a closed jaxpr for these arguments."""

    @abstractmethod
    def read_open(
        self,
        jaxpr: core.Jaxpr,
        consts: Sequence[jax.typing.ArrayLike],
        args: Sequence[Operand],
    ) -> list[Tracer]:
        """Return the results of a jaxpr with separate constants."""


@dataclass(frozen=True)
class Equation:
    """One equation of a jaxpr: its parameters, operands, results and reader.

    `operands` are tracers, or `Scalar` for literals.
    """

    name: str
    params: dict[str, Any]
    operands: list[Operand]
    results: list[jax.core.ShapedArray]
    reader: NestedJaxprReader
    source: core.JaxprEqn

    @property
    def tracers(self) -> list[Tracer]:
        """Return the operands as tracers; literals have rank 0."""
        return [x.tracer() if isinstance(x, LiteralScalar) else x for x in self.operands]

    def shape(self, number: int = 0) -> tuple[int, ...]:
        """Return the shape of a result."""
        shape: tuple[int, ...] = tuple(self.results[number].shape)
        return shape

    def dtype(self, number: int = 0) -> str:
        """Return the element type of a result."""
        return dtype_name_of(self.results[number].dtype)

    def broadcast_operands(self, shape: Sequence[int] | None = None) -> list[Tracer]:
        """Return the operands as tracers; literals are broadcast to `shape` or that of the
        result.
        """
        target = self.shape() if shape is None else shape
        return [x.tracer(target) if isinstance(x, LiteralScalar) else x for x in self.operands]

    def unsupported_form_error(self, form: str, way_out: str) -> UnknownPrimitiveError:
        """Return the error for an unsupported form of the primitive."""
        return UnknownPrimitiveError(with_location(f"{self.name} of JAX with {form}; {way_out}"))


FLOAT0 = jax.dtypes.float0
"""The element type of the tangents of integers: float0, which has no values."""


def dtype_name_of(dtype: object) -> str:
    """Return the name in the IR of an element type of JAX, also of typed PRNG keys.

    In a jaxpr that JAX differentiated, the tangent of an integer may be a value without content,
    which a bool represents.
    """
    if dtype == FLOAT0:
        return "bool"
    name = str(dtype)
    if name.startswith("key<"):
        return key_dtype_of_implementation(name.removeprefix("key<").removesuffix(">"))
    return dtype_of(dtype)


def register_rule(*names: str) -> Callable[[Rule], Rule]:
    """Return a decorator that registers a rule under these names."""

    def decorate(function: Rule) -> Rule:
        for name in names:
            assert name not in RULES, f"{name} has a rule"
            RULES[name] = function
        return function

    return decorate


def register_elementwise(name: str, function: Callable[..., RuleResult]) -> None:
    """Register an elementwise function as the rule of a primitive."""
    register_rule(name)(lambda equation: function(*equation.broadcast_operands()))


def register_function(name: str, function: Callable[..., RuleResult], **options: str) -> None:
    """Register a function as the rule of a primitive.

    `options` maps parameters of the function to parameters of the primitive.
    """

    def apply_function(equation: Equation) -> RuleResult:
        keywords = {ours: equation.params[theirs] for ours, theirs in options.items()}
        return function(*equation.tracers, **keywords)

    register_rule(name)(apply_function)
