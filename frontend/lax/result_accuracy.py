"""`accuracy=` of elementary functions: a tolerance is compared with a known error bound.

Each function has one implementation for each element type. Its largest error on CPUs is known
(`docs/numerics.md`); a smaller tolerance is an error.
"""

from dataclasses import dataclass
from enum import Enum
from math import inf, isfinite
from numbers import Real
from typing import TypeAlias

from shardir.frontend.call_signatures import with_constructor_errors
from shardir.frontend.errors import ArgumentError, NumberRangeError
from shardir.frontend.quoting import brief_with_type
from shardir.frontend.source_locations import with_location
from shardir.ir.dtypes import COMPLEX, DTYPE_INFO
from shardir.ir.types import TensorType

ERROR_BOUNDS_ULP = {
    "exp": (1.0, 1.0), "exp2": (1.0, 1.0), "expm1": (1.5, 1.5), "log": (1.0, 0.85),
    "log1p": (1.45, 1.5), "sin": (1.6, 0.9), "cos": (1.6, 0.9), "tan": (3.05, 1.7),
    "tanh": (2.0, 2.0), "logistic": (1.4, 1.5), "cbrt": (0.95, 0.95), "sqrt": (0.5, 0.5),
    "rsqrt": (1.5, 1.5),
}  # fmt: skip
"""The largest errors of f32 and of f64, in units in the last place of the exact result."""
_LARGEST_RESULTS = dict.fromkeys(("sin", "cos", "tanh", "logistic"), 1.0)
"""The largest magnitude of the results of functions that have one; it limits absolute errors."""
_NARROW_BOUND_ULP = 0.51
"""The largest error of narrower floats, which are f32 results that are rounded once."""


class AccuracyMode(Enum):
    """The implementation of an elementary function to use; each function has one."""

    HIGHEST = 1
    """The most exact implementation, which is the only one."""
    DEFAULT = 2
    """The usual implementation, which is the only one."""


@with_constructor_errors
@dataclass(frozen=True)
class Tolerance:
    """The largest error of an elementary function: `atol`, plus the larger of `rtol` times the
    magnitude of the exact result and `ulps` units in its last place.
    """

    atol: float = 0.0
    """The absolute error."""
    rtol: float = 0.0
    """The error relative to the magnitude of the exact result."""
    ulps: int = 0
    """The error in units in the last place of the exact result."""

    def __post_init__(self) -> None:
        parts = (self.atol, self.rtol, self.ulps)
        if not all(isinstance(part, Real) and isfinite(part) and part >= 0 for part in parts):
            raise NumberRangeError(with_location(f"the parts of {self} must be numbers from 0 on"))
        if not any(parts):
            raise NumberRangeError(
                with_location(f"{self} permits no error; set one of atol, rtol and ulps")
            )


Accuracy: TypeAlias = AccuracyMode | Tolerance | None


def check_accuracy(name: str, type: TensorType, accuracy: Accuracy) -> None:
    """Raise an error unless the function `name` of elements of `type` has the accuracy."""
    if accuracy is None or isinstance(accuracy, AccuracyMode):
        return
    if not isinstance(accuracy, Tolerance):
        raise ArgumentError(
            with_location(
                f"accuracy of {name} is {brief_with_type(accuracy)}; pass lax.AccuracyMode.HIGHEST "
                "or DEFAULT, or lax.Tolerance(ulps=...)"
            )
        )
    if type.dtype in COMPLEX:
        raise ArgumentError(
            with_location(
                f"{name} of complex numbers has no error bound to compare with {accuracy}; leave "
                "accuracy out"
            )
        )
    single, double = ERROR_BOUNDS_ULP[name]
    bound = {"f32": single, "f64": double}.get(type.dtype, _NARROW_BOUND_ULP)
    # A unit in the last place is at most `epsilon` times the magnitude of a normal number.
    epsilon = 2.0 ** -DTYPE_INFO[type.dtype].mantissa_bits
    relative = max(accuracy.rtol, accuracy.atol / _LARGEST_RESULTS.get(name, inf))
    if bound > accuracy.ulps and bound * epsilon > relative:
        raise ArgumentError(
            with_location(
                f"{name} of {type} has errors of up to {bound} units in the last place (ulp), and "
                f"{accuracy} permits less; permit more, or convert the operand to a wider type "
                "first (.astype)"
            )
        )
