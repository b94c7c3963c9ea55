"""Terms: IR values with Python operators, for formulas such as `g * (1 - y * y)`.

A `Term` is a value and the builder of its program. Arithmetic between terms and Python numbers
appends operations; other elementwise operations are methods. Vjp rules use terms.
"""

from collections.abc import Callable
from typing import Any, Self

from shardir.ir.builder import Builder
from shardir.ir.module import Value
from shardir.ir.operation import Cotangents

Scalar = complex


class Term:
    __slots__ = ("b", "value")

    def __init__(self, b: Builder, value: Value) -> None:
        self.b = b
        self.value = value

    def apply(self, name: str, *others: "Term | Scalar") -> Self:
        """Return the operation `name` on this term and others; numbers become constants of its
        type.
        """
        operands = [self._operand(other) for other in others]
        return type(self)(self.b, getattr(self.b, name)(self.value, *operands))

    def __getattr__(self, name: str) -> Callable[..., Self]:
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *others: self.apply(name, *others)

    def full(self, number: Scalar) -> Self:
        """Return a constant `number` of the type of this term."""
        return type(self)(self.b, self._full(number))

    def _operand(self, other: "Term | Scalar") -> Value:
        return other.value if isinstance(other, Term) else self._full(other)

    def _full(self, number: Scalar) -> Value:
        value: Value = self.b.full(number, self.value.type)
        return value

    def where(self, condition: "Term", other: "Term | Scalar") -> Self:
        """Return this term where the condition is true, else the other."""
        return type(self)(self.b, self.b.select(condition.value, self.value, self._operand(other)))

    def __neg__(self) -> Self:
        return self.apply("neg")

    def __add__(self, other: "Term | Scalar") -> Self:
        return self.apply("add", other)

    def __sub__(self, other: "Term | Scalar") -> Self:
        return self.apply("sub", other)

    def __mul__(self, other: "Term | Scalar") -> Self:
        return self.apply("mul", other)

    def __truediv__(self, other: "Term | Scalar") -> Self:
        return self.apply("div", other)

    def __radd__(self, other: Scalar) -> Self:
        return self + other

    def __rsub__(self, other: Scalar) -> Self:
        return self.full(other) - self

    def __rmul__(self, other: Scalar) -> Self:
        return self * other

    def __rtruediv__(self, other: Scalar) -> Self:
        return self.full(other) / self


def vjp_from_formula(rule: Callable[..., Any]) -> Callable[..., Any]:
    """Return a vjp rule for a formula over terms: (cotangent, operands..., results...) ->
    cotangents.

    The formula returns one term, or a tuple with `None` for operands without a cotangent.
    """

    def vjp(b: Builder, g: Value, *values: Value) -> Cotangents:
        terms = rule(*(Term(b, value) for value in (g, *values)))
        each = terms if isinstance(terms, tuple) else (terms,)
        return tuple(None if term is None else term.value for term in each)

    return vjp
