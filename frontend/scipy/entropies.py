"""Relative entropies in f64, without what cancels."""

from math import inf, log, nan
from typing import Any

from shardir.frontend import numpy as snp
from shardir.frontend.numpy.pointwise import like
from shardir.frontend.scipy.stirling import bend_near

STEPS = 700
"""By how many powers of two quotients that are no numbers are lowered, twice."""


def relative_entropy(p: Any, q: Any, wide: bool) -> Any:
    """p log(p / q), 0 where p is 0 and q is not negative, inf of other signs.

    `wide`: the numbers are not those of a narrower type, whose quotients f64 has.
    """
    both, none = (p > 0) & (q > 0), (p == 0) & (q >= 0)
    safe = snp.where(both, p, like(p, 1)), snp.where(both, q, like(q, 1))
    # Of what the two differ by, which is exact where they are close.
    apart, least = snp.abs(safe[0] - safe[1]), snp.minimum(*safe)
    size = _log_past(apart, least) if wide else snp.log1p(apart / least)
    made = safe[0] * snp.where(safe[0] < safe[1], -size, size)
    others = snp.where((p != p) | (q != q), like(p, nan), like(p, inf))
    return snp.where(both, made, snp.where(none, like(p, 0), others))


def divergence(p: Any, q: Any, wide: bool) -> Any:
    """p log(p / q) - p + q: where p and q are near, p times m - log(1 + m) of m = (q - p) / p.

    Of numbers of a narrower type f64 has the digits that cancel.
    """
    entropy = relative_entropy(p, q, wide)
    # No difference of infinities.
    apart = entropy - snp.where(entropy == inf, like(p, 0), p - q)
    if not wide:
        return apart
    near = (p > 0) & (q < 2 * p) & (p < 2 * q)
    of = snp.where(near, p, like(p, 1))
    m = snp.where(near, q - p, like(p, 0)) / of
    return snp.where(near, of * (m * m * bend_near(m)), apart)


def _log_past(apart: Any, least: Any) -> Any:
    """log(1 + apart / least), also where that quotient is no number."""
    far, one = apart / least == inf, like(apart, 1)
    lowered = (apart * 2.0**-STEPS) / (snp.where(far, snp.minimum(least, 1.0), one) * 2.0**STEPS)
    above = snp.log(snp.where(far, lowered, one)) + 2 * STEPS * log(2)
    near = snp.log1p(snp.where(far, one, apart) / snp.where(far, one, least))
    return snp.where(far, above, near)
