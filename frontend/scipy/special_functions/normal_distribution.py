"""The normal distribution function and its logarithm, in f32 and f64."""

from functools import partial
from math import erfc, exp, log, pi, sqrt

from shardir.frontend.arrays.array_types import ArrayLike
from shardir.frontend.numpy.creation import filling
from shardir.frontend.numpy.elementwise import math_functions, selection
from shardir.frontend.numpy.tracer_helpers.elementwise_emission import apply_elementwise
from shardir.frontend.scipy.special_functions.double_double import compute_in_double
from shardir.frontend.tracing.tracer import Tracer

SATURATION_ARGUMENT = 40.0
"""The argument beyond which the probability is 0 or 1."""
DEKKER_SPLIT = {4: 2.0**12 + 1, 8: 2.0**27 + 1}
"""The factor of Dekker's split into halves (1971), by element size in bytes."""
SQRT_HALF_PARTS = {
    4: (0.70703125, 7.551908493041992e-05, 1.2101617152815436e-08),
    8: (0.7071067839860916, -2.7995440410322203e-09, -4.833646656726457e-17),
}
"""sqrt(1/2) as a sum of three floats; the first two have half of the bits each."""
ASYMPTOTIC_BELOW = {4: -10.0, 8: -20.0}
"""The argument below which the asymptotic series is used, by element size in bytes."""
ASYMPTOTIC_TERMS = {4: 4, 8: 8}
"""The number of terms of that series, by element size in bytes."""
TAYLOR_CENTRE, TAYLOR_TERMS = 0.375, 8
"""f32 arguments from 0 to twice the first use a Taylor series around it with so many terms, because
a logarithm would amplify the rounding error of its argument."""


def normal_cdf(x: Tracer) -> Tracer:
    """Return the probability of numbers below x."""
    below, correction = _normal_cdf_and_correction(x)
    return below + below * correction


def _normal_cdf_and_correction(x: Tracer) -> tuple[Tracer, Tracer]:
    """Return erfc(z) / 2 for -x sqrt(1/2) = z + e in two parts, and the relative correction by e.

    The logarithm of erfc has the derivative -(z + sqrt(z^2 + 4 / pi)) approximately (Abramowitz and
    Stegun, 7.1.13), which amplifies e for large z.
    """
    inside = selection.clip(x, -SATURATION_ARGUMENT, SATURATION_ARGUMENT)
    first, second, third = SQRT_HALF_PARTS[x.dtype.itemsize]
    scaled = inside * DEKKER_SPLIT[x.dtype.itemsize]
    high = scaled - (scaled - inside)
    low = inside - high
    product = inside * (first + second)
    rest = ((high * first - product) + high * second + low * first) + low * second
    rest = rest + inside * third
    right = selection.maximum(-product, 0.0)
    derivative = selection.where(
        product < 0, right + math_functions.sqrt(right * right + 4 / pi), 0.0
    )
    # erfc of f32 has an error of up to 1.65 ulp, that of f64 is rounded once.
    tail = compute_in_double(partial(apply_elementwise, "erfc"))(-product)
    return 0.5 * tail, rest * derivative


def log_normal_cdf(x: Tracer) -> Tracer:
    """Return the logarithm of the normal distribution function.

    It is log1p of the negative right tail, or the asymptotic series far to the left.
    """
    limit = ASYMPTOTIC_BELOW[x.dtype.itemsize]
    below, correction = _normal_cdf_and_correction(
        selection.where(x > 0, -x, selection.maximum(x, limit))
    )
    is_far_left = x < limit
    logarithm = math_functions.log(selection.where(is_far_left, -x, below))
    near = selection.where(
        x > 0, math_functions.log1p(-(below + below * correction)), logarithm + correction
    )
    if x.dtype.itemsize == 4:
        near = selection.where((x > 0) & (x < 2 * TAYLOR_CENTRE), _log_cdf_taylor(x), near)
    left = selection.minimum(x, limit)
    inverse, total = 1 / (left * left), filling.zeros_like(x)
    for term in reversed(_asymptotic_coefficients(ASYMPTOTIC_TERMS[x.dtype.itemsize])):
        total = (total + term) * inverse
    return selection.where(
        is_far_left, -0.5 * left * left - (logarithm + 0.5 * log(2 * pi)) + total, near
    )


def _log_cdf_taylor(x: ArrayLike) -> Tracer:
    """Return the Taylor series around `TAYLOR_CENTRE`.

    The derivative r of the logarithm is the density over the probability; its derivative is -r (x +
    r).
    """
    below = 0.5 * erfc(-TAYLOR_CENTRE * sqrt(0.5))
    derivatives = [exp(-0.5 * TAYLOR_CENTRE * TAYLOR_CENTRE) / sqrt(2 * pi) / below]
    for n in range(TAYLOR_TERMS):
        square = sum(derivatives[k] * derivatives[n - k] for k in range(n + 1))
        before = derivatives[n - 1] if n else 0.0
        derivatives.append(-(TAYLOR_CENTRE * derivatives[n] + before + square) / (n + 1))
    offset, total = selection.minimum(x, 1.0) - TAYLOR_CENTRE, filling.zeros_like(x)
    for n in reversed(range(TAYLOR_TERMS)):
        total = (total + derivatives[n] / (n + 1)) * offset
    return log(below) + total


def _asymptotic_coefficients(count: int) -> list[float]:
    """Return coefficients of 1 / x^2 of the logarithm of the series 1 - 1 / x^2 + 3 / x^4 - ..."""
    terms, coefficients = [1], [0.0]
    for n in range(1, count + 1):
        terms.append(-terms[-1] * (2 * n - 1))
        coefficients.append(
            terms[n] - sum(k * coefficients[k] * terms[n - k] for k in range(1, n)) / n
        )
    return coefficients[1:]
