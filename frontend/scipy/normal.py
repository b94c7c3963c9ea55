"""The distribution function of normal numbers and its logarithm, of f32 and f64."""

from math import erfc, exp, log, pi, sqrt
from typing import Any

from shardir.frontend import numpy as snp
from shardir.frontend.numpy.pointwise import pointwise

END = 40.0
"""Further out the probability is 0 or 1."""
SPLIT = {4: 2.0**12 + 1, 8: 2.0**27 + 1}
"""What takes half of the bits of a number (T. Dekker, 1971), by the bytes of it."""
ROOT = {
    4: (0.70703125, 7.551908493041992e-05, 1.2101617152815436e-08),
    8: (0.7071067839860916, -2.7995440410322203e-09, -4.833646656726457e-17),
}
"""sqrt(1/2) in three parts, the first two half of the bits each."""
FAR = {4: -10.0, 8: -20.0}
"""To the left of it the asymptotic series is good enough."""
TERMS = {4: 4, 8: 8}
"""Of that series."""
MIDDLE, REACH = 0.375, 8
"""f32 of numbers from 0 to twice the first has a Taylor series there, of so many terms: a logarithm
makes more of what its argument was rounded by."""


def normal_below(x: Any) -> Any:
    """The probability of numbers below x."""
    below, more = _below(x)
    return below + below * more


def _below(x: Any) -> tuple[Any, Any]:
    """erfc(z) / 2 of -x sqrt(1/2) = z + e in two parts, and the share that e adds to it.

    The logarithm of erfc has the slope -(z + sqrt(z^2 + 4 / pi)), nearly (Abramowitz and Stegun,
    7.1.13), which makes much of e where z is large.
    """
    inside = snp.clip(x, -END, END)
    first, second, third = ROOT[x.dtype.itemsize]
    scaled = inside * SPLIT[x.dtype.itemsize]
    high = scaled - (scaled - inside)
    low = inside - high
    product = inside * (first + second)
    rest = ((high * first - product) + high * second + low * first) + low * second
    rest = rest + inside * third
    right = snp.maximum(-product, 0.0)
    slope = snp.where(product < 0, right + snp.sqrt(right * right + 4 / pi), 0.0)
    return 0.5 * pointwise("erfc", -product), rest * slope


def log_normal_below(x: Any) -> Any:
    """The logarithm; of 1 less the rest to the right, and by the asymptotic series far left."""
    limit = FAR[x.dtype.itemsize]
    below, more = _below(snp.where(x > 0, -x, snp.maximum(x, limit)))
    far = x < limit
    logarithm = snp.log(snp.where(far, -x, below))
    near = snp.where(x > 0, snp.log1p(-(below + below * more)), logarithm + more)
    if x.dtype.itemsize == 4:
        near = snp.where((x > 0) & (x < 2 * MIDDLE), _around_middle(x), near)
    left = snp.minimum(x, limit)
    inverse, total = 1 / (left * left), snp.zeros_like(x)
    for term in reversed(_series(TERMS[x.dtype.itemsize])):
        total = (total + term) * inverse
    return snp.where(far, -0.5 * left * left - (logarithm + 0.5 * log(2 * pi)) + total, near)


def _around_middle(x: Any) -> Any:
    """By powers of what x is beyond `MIDDLE`.

    The slope r of the logarithm is the density over the probability, and its own is -r (x + r).
    """
    below = 0.5 * erfc(-MIDDLE * sqrt(0.5))
    slopes = [exp(-0.5 * MIDDLE * MIDDLE) / sqrt(2 * pi) / below]
    for n in range(REACH):
        square = sum(slopes[k] * slopes[n - k] for k in range(n + 1))
        before = slopes[n - 1] if n else 0.0
        slopes.append(-(MIDDLE * slopes[n] + before + square) / (n + 1))
    apart, total = snp.minimum(x, 1.0) - MIDDLE, snp.zeros_like(x)
    for n in reversed(range(REACH)):
        total = (total + slopes[n] / (n + 1)) * apart
    return log(below) + total


def _series(count: int) -> list[float]:
    """Of powers of 1 / x^2: the logarithm of the asymptotic series 1 - 1 / x^2 + 3 / x^4 - ..."""
    terms, made = [1], [0.0]
    for n in range(1, count + 1):
        terms.append(-terms[-1] * (2 * n - 1))
        made.append(terms[n] - sum(k * made[k] * terms[n - k] for k in range(1, n)) / n)
    return made[1:]
