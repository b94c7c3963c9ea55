"""The dilogarithm in the form of Spence's function.

It has a power series in u = -log(x) with Bernoulli numbers as coefficients (G. 't Hooft and
M. Veltman, Scalar one-loop integrals, 1979), which is used from 1/2 to 2; elsewhere the argument is
transformed into that interval (DLMF 25.12.6 and 25.12.4).
"""

from math import factorial, pi

import numpy as np

from shardir.frontend.arrays.array_types import ArrayLike
from shardir.frontend.dispatch.eager import public
from shardir.frontend.errors import ArgumentError
from shardir.frontend.numpy import dtypes
from shardir.frontend.numpy.elementwise import math_functions, selection
from shardir.frontend.numpy.tracer_helpers.elementwise_emission import constant_like
from shardir.frontend.pytree_types import PyTree
from shardir.frontend.scipy.special_functions.bernoulli import bernoulli_numbers
from shardir.frontend.scipy.special_functions.double_double import compute_in_double
from shardir.frontend.source_locations import with_location
from shardir.frontend.tracing.operands import as_tracer
from shardir.frontend.tracing.tracer import Tracer
from shardir.frontend.tracing.weak_types import strip_weak_types
from shardir.frontend.transforms.custom_jvp import custom_jvp

SERIES_TERMS = 12
"""The number of even powers; the next one is below the precision of f64."""

_COEFFICIENTS = [
    float(number / factorial(k + 1)) for k, number in enumerate(bernoulli_numbers(2 * SERIES_TERMS))
]


def _spence_of_double(x: Tracer) -> Tracer:
    size = selection.maximum(x, np.finfo(np.float64).tiny)
    is_large = x > 2
    reduced = selection.where(is_large, 1 / size, size)
    is_small = reduced < 0.5
    # Near 0 the argument of the series is 1 minus the reduced one.
    log_of_complement = math_functions.log1p(-selection.minimum(reduced, 0.5))
    log_of_reduced = math_functions.log(reduced)
    u = -selection.where(is_small, log_of_complement, log_of_reduced)
    square = u * u
    total: Tracer | float = 0.0
    for coefficient in reversed(_COEFFICIENTS[2::2]):
        total = total * square + coefficient
    series = u * (1 + u * (_COEFFICIENTS[1] + u * total))
    small = pi * pi / 6 - log_of_reduced * log_of_complement - series
    result = selection.where(is_small, small, series)
    large = -result - log_of_reduced * log_of_reduced / 2
    result = selection.where(is_large, large, result)
    result = selection.where(x == 0, pi * pi / 6, result)
    return selection.where((x < 0) | (x != x), dtypes.nan, result)


@custom_jvp
def _spence(x: Tracer) -> Tracer:
    return compute_in_double(_spence_of_double)(x)


@_spence.defjvp
def _spence_rule(primals: PyTree, tangents: PyTree) -> PyTree:
    (x,) = primals
    is_one = x == 1
    safe = selection.where(is_one, constant_like(x, 2), x)
    slope = selection.where(is_one, constant_like(x, -1), math_functions.log(safe) / (1 - safe))
    return _spence(x), slope * tangents[0]


@public()
@strip_weak_types
def spence(x: ArrayLike) -> Tracer:
    """Return the integral of log(t) / (1 - t) over t from 1 to x, elementwise.

    It is the dilogarithm of 1 - x, NaN for negative x. Raises `ArgumentError` unless x is an array
    of f32 or f64, as in JAX.
    """
    x = as_tracer(x)
    if x.value.type.dtype not in ("f32", "f64"):
        raise ArgumentError(
            with_location(
                f"spence takes float32 or float64, got {x.dtype}; convert it with .astype first"
            )
        )
    return _spence(x)
