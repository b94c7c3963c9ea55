"""Logarithms of gamma functions combined with powers, where both are large and nearly cancel.

f32 resolves log(gamma(1e6)) = 1.3e7 only to integers. With Stirling's formula the large terms
cancel symbolically: the remaining functions are `scaled_log_residual`, which is accurate near zero,
and `stirling_remainder`, which is small (A. DiDonato and A. Morris, 1986 and 1992).
"""

from math import log as log_of, pi
from typing import Any

from shardir.frontend import numpy as snp
from shardir.frontend.numpy.pointwise import like
from shardir.frontend.scipy.twofold import two_product, two_sum

FAR = 10.0
"""The argument from which on Stirling's formula has the precision of f64."""

_TERMS = (1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188, -691 / 360360, 1 / 156, -3617 / 122400)
_LOG_TURN = log_of(2 * pi)


def rest(x: Any) -> Any:
    """Return log(gamma(x)) - ((x - 1/2) log(x) - x + log(2 pi) / 2) for x >= `STIRLING_FROM`."""
    square = 1 / (x * x)
    total = like(x, _TERMS[-1])
    for term in reversed(_TERMS[:-1]):
        total = total * square + term
    return total / x


def bend_near(x: Any) -> Any:
    """Return (x - log(1 + x)) / x^2 for x from -1/2 to 1."""
    return 0.5 - bend_less(x)


def bend_less(x: Any) -> Any:
    """Return the difference of 1/2 and `scaled_log_residual`."""
    inverse = 1 / (2 + x)
    ratio, series = x * inverse, like(x, 0)
    square = ratio * ratio
    for k in range(35, 1, -2):
        series = series * square + 1 / k
    return ratio * (0.5 + 2 * (inverse * inverse) * series)


def fall(a: Any, x: Any) -> tuple[Any, Any, Any]:
    """Return x - a - a log(x / a) in two parts, for x within a half of a, so that exp(-it) is
    accurate.

    Return also its quotient by (x - a)^2 / a, which is less than a half.
    """
    difference, rounding_error = two_sum(x, -a)
    m = difference / a
    rounded, product_error = two_product(m, a)
    m_error = ((difference - rounded) - product_error) + rounding_error
    square, square_error = two_product(rounded, m)
    complement = bend_less(m)
    high, low = two_sum(0.5 * square, -square * complement)
    low = low + (square_error + product_error * m) * (0.5 - complement) + m_error * (m / (1 + m))
    return high, low, 0.5 - complement


def bend(x: Any, above: Any) -> Any:
    """Return x - log(1 + x); `above` is 1 + x without rounding."""
    is_small = snp.abs(x) < 0.5
    close = snp.where(is_small, x, like(x, 0))
    direct = x - snp.log(snp.where(is_small, like(x, 1), above))
    return snp.where(is_small, close * close * bend_near(close), direct)


def log_poisson(n: Any, x: Any, plain: Any) -> Any:
    """Return n log(x) - x - log(gamma(n + 1)), which is `plain` for small n."""
    is_large = n >= FAR
    high = snp.where(is_large, n, like(n, FAR))
    relative_difference = snp.where(is_large, (x - high) / high, like(x, 0))
    ratio = snp.where(is_large, x / high, like(x, 1))
    smooth = (
        -high * bend(relative_difference, ratio) - 0.5 * (snp.log(high) + _LOG_TURN) - rest(high)
    )
    return snp.where(is_large, smooth, plain)


def log_beta(a: Any, b: Any, gammaln: Any) -> Any:
    """Return the logarithm of the absolute value of the beta function.

    `gammaln` computes the logarithm of the gamma function of arguments close to zero.
    """
    small, large = snp.minimum(a, b), snp.maximum(a, b)
    is_large = (large >= FAR) & (large + small >= FAR) & (large < snp.inf)
    both_large = is_large & (small >= FAR)
    b_far = snp.where(is_large, large, like(b, FAR))
    a_near = snp.where(is_large & ~both_large, small, like(a, 1))
    a_far = snp.where(both_large, small, like(a, FAR))

    def common(a: Any) -> Any:
        return rest(b_far) - rest(a + b_far) - (b_far - 0.5) * snp.log1p(a / b_far)

    one = gammaln(a_near) + common(a_near) + a_near - a_near * snp.log(a_near + b_far)
    two = common(a_far) + rest(a_far) - a_far * snp.log1p(b_far / a_far)
    two = two + 0.5 * (_LOG_TURN - snp.log(a_far))
    plain = gammaln(a) + gammaln(b) - gammaln(a + b)
    plain = snp.where((large == snp.inf) & (small > 0), like(a, -snp.inf), plain)
    return snp.where(both_large, two, snp.where(is_large, one, plain))


def log_beta_weight(a: Any, b: Any, x: Any, plain: Any) -> Any:
    """Return a log(x) + b log(1 - x) - log(beta(a, b)), which is `plain` for small a or b."""
    is_large = snp.minimum(a, b) >= FAR
    a, b = snp.where(is_large, a, like(a, FAR)), snp.where(is_large, b, like(b, FAR))
    difference = a * (1 - x) - b * x
    of_a, of_b = (
        bend(-difference / a, x * ((a + b) / a)),
        bend(difference / b, (1 - x) * ((a + b) / b)),
    )
    smooth = -a * of_a - b * of_b - rest(a) - rest(b) + rest(a + b)
    smooth = smooth + 0.5 * (snp.log(a) - snp.log1p(a / b) - _LOG_TURN)
    return snp.where(is_large, smooth, plain)
