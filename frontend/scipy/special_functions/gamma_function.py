"""The gamma function of f64.

From 2 to 3 it is a polynomial, below 10 the recurrence reduces to that range, and beyond it is
Stirling's formula, whose power has the base x / e in two parts: no digit is lost to the size of the
exponent, as in exp(lgamma(x)). Negative arguments use the reflection formula (Abramowitz and Stegun
6.1.15, 6.1.17, 6.1.40). Values of integers are in a table.
"""

from math import factorial, nan, pi

import numpy as np

from shardir.frontend.arrays.array_types import ArrayLike
from shardir.frontend.numpy.creation import array_conversion
from shardir.frontend.numpy.elementwise import complex_parts, math_functions, rounding, selection
from shardir.frontend.numpy.indexing import take
from shardir.frontend.numpy.tracer_helpers.elementwise_emission import constant_like
from shardir.frontend.scipy.special_functions.double_double import DoubleDouble, power_of_quotient
from shardir.frontend.scipy.special_functions.stirling import STIRLING_FROM, stirling_remainder
from shardir.frontend.tracing.tracer import Tracer

# fmt: off
GAMMA_COEFFICIENTS_NEAR_TWO = (
    0.42278433509846747, 0.41184033042639295, 0.08157691924935359, 0.07424901069757656,
    -0.0002669812416007703, 0.011154037675849411, -0.0028525913046309683, 0.0021036653737055763,
    -0.0009185925560690494, 0.00048766072046000156, -0.0002351118004443532, 0.00011201320850965327,
    -4.8305050675779646e-05, 1.7785149543816078e-05, -5.03864299552715e-06, 9.506255855352341e-07,
    -8.76290281144699e-08,
)
"""Coefficients of powers of t of (gamma(2 + t) - 1) / t, t from 0 to 1; see this file's test."""
# fmt: on
E_TWO_PARTS = (2.718281828459045, 1.4456468917292502e-16)
"""e as an unevaluated sum of two floats."""
STIRLING_SCALE = (1.520346901066281, -9.239528122039697e-17)
"""sqrt(2 pi / e) as an unevaluated sum of two floats."""
RECIPROCAL_BELOW = 1e-18
"""The argument below which gamma(x) rounds to 1 / x."""
SPLIT_POWER_FROM = 140.0
"""The argument from which on the reflection uses a product of two powers to prevent overflow."""
OVERFLOW_ARGUMENT = 1000.0
"""An argument for which the function overflows f64."""
FACTORIALS = tuple(float(factorial(n)) for n in range(171))


def is_even(x: Tracer) -> Tracer:
    """Return whether an integral value is even; infinities are even."""
    half = 0.5 * x
    return half == rounding.floor(half)


def gamma_of_double(x: Tracer) -> Tracer:
    """Return the gamma function: infinite at 0, with its sign, and NaN at other poles."""
    left, size = x < 0, complex_parts.abs(x)
    value, second_factor = _gamma_positive(
        selection.where(size < RECIPROCAL_BELOW, constant_like(x, 1), size), left
    )
    nearest = rounding.round(size)
    fraction = size - nearest
    sines = math_functions.sin(pi * complex_parts.abs(fraction))
    # This is -pi / (x sin(pi x)), where the sine changes its sign at each pole.
    sign = selection.where(
        (fraction < 0) ^ is_even(nearest), constant_like(x, -pi), constant_like(x, pi)
    )
    reflected = sign / (size * sines) / value / second_factor
    reflected = selection.where(fraction == 0, constant_like(x, nan), reflected)
    result = selection.where(
        left, reflected, selection.where(_is_tabulated(x), _table_lookup(x), value)
    )
    return selection.where(size < RECIPROCAL_BELOW, 1 / x, result)


def factorial_of_double(n: Tracer) -> Tracer:
    """Return gamma(n + 1), 0 for negative n; n gamma(n) where n + 1 is rounded."""
    is_exact = (n == rounding.floor(n)) | (n < 1)
    value = gamma_of_double(selection.where(is_exact, n + 1, n))
    return selection.where(n < 0, constant_like(n, 0), selection.where(is_exact, value, n * value))


def _is_tabulated(x: Tracer) -> Tracer:
    return (x == rounding.floor(x)) & (x >= 1) & (x <= len(FACTORIALS))


def _table_lookup(x: ArrayLike) -> Tracer:
    table = array_conversion.asarray(np.array(FACTORIALS))
    place = selection.clip(x, 1.0, float(len(FACTORIALS))) - 1
    return take.take(table, place.astype(np.int32), mode="promise_in_bounds")


def _gamma_positive(x: Tracer, halved: object) -> DoubleDouble:
    """Return gamma of positive x as a product; the second factor is 1 unless the first is
    halved.
    """
    is_large = x >= STIRLING_FROM
    large, second_factor = _gamma_by_stirling(
        selection.where(
            is_large, selection.minimum(x, OVERFLOW_ARGUMENT), constant_like(x, STIRLING_FROM)
        ),
        halved,
    )
    return selection.where(
        is_large, large, gamma_by_recurrence(selection.where(is_large, constant_like(x, 1), x))
    ), second_factor


def gamma_by_recurrence(x: Tracer, end: float = STIRLING_FROM) -> Tracer:
    """Return gamma of numbers above 0 and below `end`."""
    t = x - rounding.floor(x)
    total = constant_like(x, GAMMA_COEFFICIENTS_NEAR_TWO[-1])
    for coefficient in reversed(GAMMA_COEFFICIENTS_NEAR_TWO[:-1]):
        total = total * t + coefficient
    product = total * t + 1
    for k in range(1, int(end) - 2):
        product = selection.where(x >= k + 2, product * (x - k), product)
    return product / selection.where(
        x < 1, x * (1 + x), selection.where(x < 2, x, constant_like(x, 1))
    )


def _gamma_by_stirling(x: Tracer, halved: object) -> DoubleDouble:
    is_squared = halved & (x > SPLIT_POWER_FROM)
    y = x - 0.5
    power, correction = power_of_quotient(
        (x, 0.0), E_TWO_PARTS, selection.where(is_squared, 0.5 * y, y)
    )
    correction = selection.where(is_squared, 2 * correction, correction) + stirling_remainder(x)
    value = power * STIRLING_SCALE[0] + power * (
        STIRLING_SCALE[1] + STIRLING_SCALE[0] * math_functions.expm1(correction)
    )
    return value, selection.where(is_squared, power, constant_like(x, 1))
