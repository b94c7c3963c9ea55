"""Logarithms of probabilities: outside of the support, and of differences from 1."""

from collections.abc import Callable
from math import log as log_of

from shardir.frontend.arrays.array_types import ArrayLike
from shardir.frontend.numpy import dtypes
from shardir.frontend.numpy.elementwise import math_functions, selection
from shardir.frontend.tracing.tracer import Tracer


def minus_inf_outside_support(x: Tracer, good: Tracer, value: ArrayLike) -> Tracer:
    """Return `value`, or -inf outside of the support; NaN stays NaN."""
    return selection.where(good | (x != x), value, -dtypes.inf)


def exponentiate(function: Callable[..., Tracer]) -> Callable[..., Tracer]:
    """Return the density that belongs to the logarithm of a density."""
    return lambda *args, **options: math_functions.exp(function(*args, **options))


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
