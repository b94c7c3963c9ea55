"""Probabilities outside of the support, and from their logarithms."""

from collections.abc import Callable

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
