"""Logarithms of gamma functions together with powers, where both are large and nearly cancel.

Of log(gamma(1e6)), 1.3e7, f32 knows the units. By Stirling's formula the large terms cancel before
they are numbers: what is left are `bend`, which is accurate near zero, and `rest`, which is small
(A. DiDonato and A. Morris, 1986 and 1992).
"""

from math import log as log_of, pi
from typing import Any

from shardir.frontend import numpy as snp
from shardir.frontend.numpy.pointwise import like
from shardir.frontend.scipy.twofold import two_product, two_sum

FAR = 10.0
"""From here on the formula is as accurate as f64."""

_TERMS = (1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188, -691 / 360360, 1 / 156, -3617 / 122400)
_LOG_TURN = log_of(2 * pi)


def rest(x: Any) -> Any:
    """log(gamma(x)) less (x - 1/2) log(x) - x + log(2 pi) / 2, for x from `FAR` on."""
    square = 1 / (x * x)
    total = like(x, _TERMS[-1])
    for term in reversed(_TERMS[:-1]):
        total = total * square + term
    return total / x


def bend_near(x: Any) -> Any:
    """(x - log(1 + x)) / x^2 for x from -1/2 to 1."""
    return 0.5 - bend_less(x)


def bend_less(x: Any) -> Any:
    """What `bend_near` is less than 1/2."""
    inverse = 1 / (2 + x)
    ratio, series = x * inverse, like(x, 0)
    square = ratio * ratio
    for k in range(35, 1, -2):
        series = series * square + 1 / k
    return ratio * (0.5 + 2 * (inverse * inverse) * series)


def fall(a: Any, x: Any) -> tuple[Any, Any, Any]:
    """x - a - a log(x / a) in two parts, for x within a half of a: exp(-that) is accurate; and what
    it is over (x - a)^2 / a, less than a half."""
    apart, lost = two_sum(x, -a)
    m = apart / a
    back, rest = two_product(m, a)
    slip = ((apart - back) - rest) + lost
    square, more = two_product(back, m)
    less = bend_less(m)
    high, low = two_sum(0.5 * square, -square * less)
    low = low + (more + rest * m) * (0.5 - less) + slip * (m / (1 + m))
    return high, low, 0.5 - less


def bend(x: Any, above: Any) -> Any:
    """x - log(1 + x), where 1 + x is `above`, not rounded."""
    near = snp.abs(x) < 0.5
    close = snp.where(near, x, like(x, 0))
    apart = x - snp.log(snp.where(near, like(x, 1), above))
    return snp.where(near, close * close * bend_near(close), apart)


def log_poisson(n: Any, x: Any, plain: Any) -> Any:
    """n log(x) - x - log(gamma(n + 1)), which is `plain` where n is small."""
    far = n >= FAR
    high = snp.where(far, n, like(n, FAR))
    apart = snp.where(far, (x - high) / high, like(x, 0))
    ratio = snp.where(far, x / high, like(x, 1))
    smooth = -high * bend(apart, ratio) - 0.5 * (snp.log(high) + _LOG_TURN) - rest(high)
    return snp.where(far, smooth, plain)


def log_beta(a: Any, b: Any, gammaln: Any) -> Any:
    """The logarithm of the size of the beta function, by that of the gamma function of what is not
    far from zero."""
    small, large = snp.minimum(a, b), snp.maximum(a, b)
    far = (large >= FAR) & (large + small >= FAR) & (large < snp.inf)
    both = far & (small >= FAR)
    b_far = snp.where(far, large, like(b, FAR))
    a_near = snp.where(far & ~both, small, like(a, 1))
    a_far = snp.where(both, small, like(a, FAR))

    def common(a: Any) -> Any:
        return rest(b_far) - rest(a + b_far) - (b_far - 0.5) * snp.log1p(a / b_far)

    one = gammaln(a_near) + common(a_near) + a_near - a_near * snp.log(a_near + b_far)
    two = common(a_far) + rest(a_far) - a_far * snp.log1p(b_far / a_far)
    two = two + 0.5 * (_LOG_TURN - snp.log(a_far))
    plain = gammaln(a) + gammaln(b) - gammaln(a + b)
    plain = snp.where((large == snp.inf) & (small > 0), like(a, -snp.inf), plain)
    return snp.where(both, two, snp.where(far, one, plain))


def log_beta_weight(a: Any, b: Any, x: Any, plain: Any) -> Any:
    """a log(x) + b log(1 - x) less the logarithm of the beta function, which is `plain` where a or
    b is small."""
    far = snp.minimum(a, b) >= FAR
    a, b = snp.where(far, a, like(a, FAR)), snp.where(far, b, like(b, FAR))
    apart = a * (1 - x) - b * x
    of_a, of_b = bend(-apart / a, x * ((a + b) / a)), bend(apart / b, (1 - x) * ((a + b) / b))
    smooth = -a * of_a - b * of_b - rest(a) - rest(b) + rest(a + b)
    smooth = smooth + 0.5 * (snp.log(a) - snp.log1p(a / b) - _LOG_TURN)
    return snp.where(far, smooth, plain)
