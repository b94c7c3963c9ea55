"""The arithmetic that operations do on their elements, which decides how they run on small dtypes.

A declaration states it in `OpSpec.arithmetic`; `shardir.op_rules.widening` applies it.
"""

from dataclasses import dataclass
from typing import Any, Literal, Protocol, get_args

from shardir.errors import RuleError

Extension = Literal["value", "zero", "sign"]
"""How an operand is widened: to its number, or as an integer whose additional bits are 0 or the
highest bit."""


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """The arithmetic of an operation, with the properties on which its wider dtype depends."""

    extension: Extension = "value"
    """How the operands are widened."""
    sums_products: bool = False
    """True if the results are sums of products: sums of small floats are f32, also if the result is
    a 16-bit float."""
    counts_leading_zeros: bool = False
    """True if the results count the leading bits of the wider dtype, too."""
    is_extremum: bool = False
    """True if the results are extrema: the identity element of the wider dtype stands for the one
    of the small dtype."""
    has_fixed_dtypes: bool = False
    """True if the operation takes arrays of the stated dtypes and cannot run on wider ones."""

    def __post_init__(self) -> None:
        if self.extension not in get_args(Extension):
            raise RuleError(
                f"the extension of operands is {self.extension!r}; it must be one of "
                f"{', '.join(get_args(Extension))}"
            )


class ArithmeticRule(Protocol):
    """(attributes) -> the arithmetic; `None`: the operation only moves elements."""

    def __call__(self, *_: Any, **options: Any) -> Arithmetic | None: ...


ORDINARY = Arithmetic()
FIXED_DTYPES = Arithmetic(has_fixed_dtypes=True)
EXTREMUM = Arithmetic(is_extremum=True)


def arithmetic_of_reduction(reduction: str) -> Arithmetic:
    """Return the arithmetic of a reduction, such as `add` or `max`."""
    return EXTREMUM if reduction in ("max", "min") else ORDINARY


def arithmetic_of_attribute(*, attributes: Any) -> Arithmetic:
    """Return the arithmetic of an operation whose attribute `op` names a reduction."""
    return arithmetic_of_reduction(attributes.op)
