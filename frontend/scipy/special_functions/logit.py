"""The logit function in f32 and f64."""

from math import log

from shardir.frontend.numpy.elementwise import complex_parts, math_functions, selection
from shardir.frontend.tracing.tracer import Tracer

INVERSE_OVERFLOW_BELOW = {4: 2.0**-100, 8: 2.0**-1000}
"""The numbers below which inverses may overflow, by element size in bytes."""
SCALING_EXPONENT = 64
"""The power of two by which such numbers are scaled up."""


def logit_of_float(x: Tracer) -> Tracer:
    """Return log(x / (1 - x)) from the difference 2x - 1, which is exact where it is small."""
    small = (x >= 0) & (x < INVERSE_OVERFLOW_BELOW[x.dtype.itemsize])
    smaller = selection.where(
        small, complex_parts.abs(x) * 2.0**SCALING_EXPONENT, selection.minimum(x, 1 - x)
    )
    size = math_functions.log1p(complex_parts.abs(2 * x - 1) / smaller) + selection.where(
        small, SCALING_EXPONENT * log(2), 0.0
    )
    return selection.where(x < 0.5, -size, size)
