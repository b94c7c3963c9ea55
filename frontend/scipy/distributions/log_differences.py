"""1 - exp(-x) and its logarithm without cancellation."""

from math import log as log_of

from shardir.frontend.numpy.elementwise import math_functions, selection
from shardir.frontend.tracing.tracer import Tracer


def one_minus_exp(x: Tracer) -> Tracer:
    """Return 1 - exp(-x) for x >= 0; the derivative has no cancellation for small x."""
    return selection.where(
        x < 1, -math_functions.expm1(-selection.minimum(x, 1.0)), 1 - math_functions.exp(-x)
    )


def log_one_minus_exp(x: Tracer) -> Tracer:
    """Return log(1 - exp(-x)) for x >= 0 without cancellation."""
    small, large = selection.minimum(x, log_of(2)), selection.maximum(x, log_of(2))
    return selection.where(
        x < log_of(2),
        math_functions.log(-math_functions.expm1(-small)),
        math_functions.log1p(-math_functions.exp(-large)),
    )
