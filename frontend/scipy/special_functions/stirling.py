"""Logarithms of gamma functions combined with powers, where both are large and nearly cancel.

f32 resolves log(gamma(1e6)) = 1.3e7 only to integers. With Stirling's formula the large terms
cancel symbolically: the remaining functions are `scaled_log_residual`, which is accurate near zero,
and `stirling_remainder`, which is small (A. DiDonato and A. Morris, 1986 and 1992).
"""

from collections.abc import Callable
from math import inf, log as log_of, pi

from shardir.frontend.arrays.array_types import ArrayLike
from shardir.frontend.numpy.elementwise import complex_parts, math_functions, selection
from shardir.frontend.numpy.tracer_helpers.elementwise_emission import constant_like
from shardir.frontend.scipy.special_functions.double_double import two_product, two_sum
from shardir.frontend.tracing.tracer import Tracer

STIRLING_FROM = 10.0
"""The argument from which on Stirling's formula has the precision of f64."""

_STIRLING_COEFFICIENTS = (
    1 / 12,
    -1 / 360,
    1 / 1260,
    -1 / 1680,
    1 / 1188,
    -691 / 360360,
    1 / 156,
    -3617 / 122400,
)
_LOG_TWO_PI = log_of(2 * pi)


def stirling_remainder(x: Tracer) -> Tracer:
    """Return log(gamma(x)) - ((x - 1/2) log(x) - x + log(2 pi) / 2) for x >= `STIRLING_FROM`."""
    square = 1 / (x * x)
    total = constant_like(x, _STIRLING_COEFFICIENTS[-1])
    for term in reversed(_STIRLING_COEFFICIENTS[:-1]):
        total = total * square + term
    return total / x


def scaled_log_residual(x: Tracer) -> Tracer:
    """Return (x - log(1 + x)) / x^2 for x from -1/2 to 1."""
    return 0.5 - scaled_log_residual_complement(x)


def scaled_log_residual_complement(x: Tracer) -> Tracer:
    """Return the difference of 1/2 and `scaled_log_residual`."""
    inverse = 1 / (2 + x)
    ratio, series = x * inverse, constant_like(x, 0)
    square = ratio * ratio
    for k in range(35, 1, -2):
        series = series * square + 1 / k
    return ratio * (0.5 + 2 * (inverse * inverse) * series)


def poisson_exponent(a: Tracer, x: Tracer) -> tuple[Tracer, Tracer, Tracer]:
    """Return x - a - a log(x / a) in two parts, for x within a half of a, so that exp(-it) is
    accurate.

    Return also its quotient by (x - a)^2 / a, which is less than a half.
    """
    difference, rounding_error = two_sum(x, -a)
    m = difference / a
    rounded, product_error = two_product(m, a)
    m_error = ((difference - rounded) - product_error) + rounding_error
    square, square_error = two_product(rounded, m)
    complement = scaled_log_residual_complement(m)
    high, low = two_sum(0.5 * square, -square * complement)
    low = low + (square_error + product_error * m) * (0.5 - complement) + m_error * (m / (1 + m))
    return high, low, 0.5 - complement


def log1p_residual(x: Tracer, above: ArrayLike) -> Tracer:
    """Return x - log(1 + x); `above` is 1 + x without rounding."""
    is_small = complex_parts.abs(x) < 0.5
    close = selection.where(is_small, x, constant_like(x, 0))
    direct = x - math_functions.log(selection.where(is_small, constant_like(x, 1), above))
    return selection.where(is_small, close * close * scaled_log_residual(close), direct)


def log_poisson(n: Tracer, x: Tracer, plain: Tracer) -> Tracer:
    """Return n log(x) - x - log(gamma(n + 1)), which is `plain` for small n."""
    is_large = n >= STIRLING_FROM
    high = selection.where(is_large, n, constant_like(n, STIRLING_FROM))
    relative_difference = selection.where(is_large, (x - high) / high, constant_like(x, 0))
    ratio = selection.where(is_large, x / high, constant_like(x, 1))
    smooth = (
        -high * log1p_residual(relative_difference, ratio)
        - 0.5 * (math_functions.log(high) + _LOG_TWO_PI)
        - stirling_remainder(high)
    )
    return selection.where(is_large, smooth, plain)


def log_beta(a: Tracer, b: Tracer, gammaln: Callable[[Tracer], Tracer]) -> Tracer:
    """Return the logarithm of the absolute value of the beta function.

    `gammaln` computes the logarithm of the gamma function of arguments close to zero.
    """
    small, large = selection.minimum(a, b), selection.maximum(a, b)
    is_large = (large >= STIRLING_FROM) & (large + small >= STIRLING_FROM) & (large < inf)
    both_large = is_large & (small >= STIRLING_FROM)
    b_far = selection.where(is_large, large, constant_like(b, STIRLING_FROM))
    a_near = selection.where(is_large & ~both_large, small, constant_like(a, 1))
    a_far = selection.where(both_large, small, constant_like(a, STIRLING_FROM))

    def common(a: Tracer) -> Tracer:
        return (
            stirling_remainder(b_far)
            - stirling_remainder(a + b_far)
            - (b_far - 0.5) * math_functions.log1p(a / b_far)
        )

    one = gammaln(a_near) + common(a_near) + a_near - a_near * math_functions.log(a_near + b_far)
    two = common(a_far) + stirling_remainder(a_far) - a_far * math_functions.log1p(b_far / a_far)
    two = two + 0.5 * (_LOG_TWO_PI - math_functions.log(a_far))
    plain = gammaln(a) + gammaln(b) - gammaln(a + b)
    plain = selection.where((large == inf) & (small > 0), constant_like(a, -inf), plain)
    return selection.where(both_large, two, selection.where(is_large, one, plain))


def log_beta_weight(a: Tracer, b: Tracer, x: Tracer, plain: Tracer) -> Tracer:
    """Return a log(x) + b log(1 - x) - log(beta(a, b)), which is `plain` for small a or b."""
    is_large = selection.minimum(a, b) >= STIRLING_FROM
    a, b = (
        selection.where(is_large, a, constant_like(a, STIRLING_FROM)),
        selection.where(is_large, b, constant_like(b, STIRLING_FROM)),
    )
    difference = a * (1 - x) - b * x
    of_a, of_b = (
        log1p_residual(-difference / a, x * ((a + b) / a)),
        log1p_residual(difference / b, (1 - x) * ((a + b) / b)),
    )
    smooth = (
        -a * of_a
        - b * of_b
        - stirling_remainder(a)
        - stirling_remainder(b)
        + stirling_remainder(a + b)
    )
    smooth = smooth + 0.5 * (math_functions.log(a) - math_functions.log1p(a / b) - _LOG_TWO_PI)
    return selection.where(is_large, smooth, plain)
