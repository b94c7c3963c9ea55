"""The distribution function of normal numbers and its logarithm, of f32 and f64."""

from math import log, pi
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


def normal_below(x: Any) -> Any:
    """erfc(z + e) / 2 of -x sqrt(1/2) = z + e in two parts.

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
    below = 0.5 * _erfc(-product)
    return below + below * (rest * slope)


def _erfc(x: Any) -> Any:
    return pointwise("erfc", x)


def log_normal_below(x: Any) -> Any:
    """The logarithm; of 1 less the rest to the right, and by the asymptotic series far left."""
    limit = FAR[x.dtype.itemsize]
    below = normal_below(snp.where(x > 0, -x, snp.maximum(x, limit)))
    near = snp.where(x > 0, snp.log1p(-below), snp.log(below))
    left = snp.minimum(x, limit)
    inverse = 1 / (left * left)
    total = snp.zeros_like(x)
    for n in range(10, 0, -1):
        total = -(2 * n - 1) * inverse * (1 + total)
    far = -0.5 * left * left - snp.log(-left) - 0.5 * log(2 * pi) + snp.log1p(total)
    return snp.where(x < limit, far, near)
