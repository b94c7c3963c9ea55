"""Quotients of gamma functions in f64: the beta function and rising factorials.

Where both sides of a quotient are large, what is left of Stirling's formula are powers of
quotients, each of a base in two parts (A. DiDonato and A. Morris, ACM TOMS 18, 1992, take their
logarithms).
"""

from math import pi
from typing import Any

from shardir.frontend import numpy as snp
from shardir.frontend.lax.branches import cond
from shardir.frontend.numpy.pointwise import like, pointwise
from shardir.frontend.scipy.gamma_function import (
    END,
    SCALE,
    TINY,
    E,
    by_recurrence,
    gamma_of_double,
)
from shardir.frontend.scipy.stirling import FAR, log_beta, rest
from shardir.frontend.scipy.twofold import power_of_quotient, two_sum

HUGE = 1e290
"""From here on squares of halves are no numbers."""
MOST = 700.0
"""About the last whose exponential is one."""


def beta_of_double(a: Any, b: Any, sign: Any) -> Any:
    """The beta function, whose sign is known."""
    usual = (snp.minimum(a, b) > 0) & (snp.maximum(a, b) < HUGE)
    safe = snp.where(usual, a, like(a, 1)), snp.where(usual, b, like(b, 1))
    direct = beta_of_positive(*safe)

    def by_logarithm(a: Any, b: Any, sign: Any, direct: Any) -> Any:
        logarithm = log_beta(a, b, lambda x: pointwise("lgamma", x))
        return snp.where(usual, direct, sign * snp.exp(logarithm))

    def as_it_is(a: Any, b: Any, sign: Any, direct: Any) -> Any:
        return direct

    return cond(snp.any(~usual), by_logarithm, as_it_is, a, b, sign, direct)


def beta_of_positive(a: Any, b: Any) -> Any:
    """The beta function of positive numbers below `HUGE`."""
    small, large = snp.minimum(a, b), snp.maximum(a, b)
    far, both = large >= FAR, small >= FAR
    of_small = by_recurrence(snp.where(both, like(a, 1), small))
    near = snp.where(far, like(a, 1), small), snp.where(far, like(a, 1), large)
    total, lost = two_sum(*near)
    quotient = by_recurrence(near[1]) / by_recurrence(total, 2 * FAR)
    quotient = snp.where(near[1] < TINY, total / near[1], quotient)
    product = of_small * (quotient - quotient * (_slope(total) * lost))

    b = snp.where(far, large, like(b, FAR))
    whole = two_sum(b, small)
    of_b, c = power_of_quotient((b, 0.0), whole, b - 0.5)
    top = snp.where(both, small, like(a, E[0])), snp.where(both, 0.0, like(a, E[1]))
    of_a, more = power_of_quotient(top, whole, small)
    a = snp.where(both, small, like(a, FAR))
    c = c + more + (rest(b) - rest(whole[0])) + snp.where(both, rest(a), 0.0)
    front = snp.where(both, snp.sqrt(2 * pi / a), of_small)
    return snp.where(far, front * (of_b * of_a) * snp.exp(c), product)


def rising_factorial(z: Any, m: Any) -> Any:
    """gamma(z + m) / gamma(z)"""
    total, lost = two_sum(z, m)
    usual = (snp.minimum(z, total) > 0) & (snp.maximum(z, total) < HUGE)
    one = like(z, 1)
    safe_z, safe_total, safe_m = (snp.where(usual, x, one) for x in (z, total, m))
    direct = _rising(safe_z, safe_total, safe_m, snp.where(usual, lost, like(z, 0)))

    def reflected(z: Any, total: Any, direct: Any) -> Any:
        return snp.where(usual, direct, gamma_of_double(total) / gamma_of_double(z))

    def as_it_is(z: Any, total: Any, direct: Any) -> Any:
        return direct

    made = cond(snp.any(~usual), reflected, as_it_is, z, total, direct)
    return snp.where(m == 0, one, made)


def _rising(z: Any, total: Any, m: Any, lost: Any) -> Any:
    """The same of positive numbers, where z + m is `total` and what that lacks.

    Stirling's formula gives powers of z + m, of z, or where both are large of their quotient.
    """
    above, below = total >= FAR, z >= FAR
    both, none = above & below, like(z, 0)
    high = snp.where(above, total, like(z, FAR)), snp.where(both, lost, none)
    high = snp.where(both, high[0], snp.minimum(high[0], END)), high[1]
    low = snp.where(below, z, like(z, FAR))
    low = snp.where(both, low, snp.minimum(low, END))
    bottom = snp.where(both, low, like(z, E[0])), snp.where(both, none, like(z, E[1]))
    first, c = power_of_quotient(
        high, bottom, snp.where(above, snp.where(both, low, high[0]) - 0.5, none)
    )
    top = snp.where(both, high[0], low), snp.where(both, high[1], none)
    rise = snp.where(both, m, snp.where(below, 0.5 - low, none))
    second, more = power_of_quotient(top, E, rise)
    c = c + more + snp.where(above, rest(high[0]), none) - snp.where(below, rest(low), none)
    near = by_recurrence(snp.where(above, like(z, 1), total))
    near = near / by_recurrence(snp.where(below, like(z, 1), z))
    near = near * snp.where(above == below, 1.0, snp.where(above, SCALE[0], 1 / SCALE[0]))
    slope = snp.where(both, none, _slope(total) * lost)
    # What is beyond belongs to powers that are infinite or nothing.
    return near * first * second * snp.exp(snp.clip(c + slope, -MOST, MOST))


def _slope(x: Any) -> Any:
    """`digamma` of positive numbers to a few percent, of what matters where x was rounded."""
    return snp.where(x < 1, -1 / x, snp.log(snp.maximum(x, 1.0) - 0.5))
