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
from shardir.frontend.scipy.gamma_function import TINY, E, by_recurrence, gamma_of_double
from shardir.frontend.scipy.stirling import FAR, log_beta, rest
from shardir.frontend.scipy.twofold import power_of_quotient, two_sum

HUGE = 1e290
"""From here on squares of halves are no numbers."""


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
    far = (snp.minimum(z, total) >= FAR) & (snp.maximum(z, total) < HUGE)
    one = like(z, 1)
    plain = gamma_of_double(snp.where(far, one, total)) / gamma_of_double(snp.where(far, one, z))
    plain = plain + plain * snp.where(far | (z <= 0) | (total <= 0), 0.0, _slope(total) * lost)
    low = snp.where(far, z, like(z, FAR))
    high = snp.where(far, total, like(z, FAR)), snp.where(far, lost, 0.0)
    first, c = power_of_quotient(high, (low, 0.0), low - 0.5)
    second, more = power_of_quotient(high, E, snp.where(far, m, 0.0))
    ratio = first * second * snp.exp(c + more + (rest(high[0]) - rest(low)))
    return snp.where(m == 0, one, snp.where(far, ratio, plain))


def _slope(x: Any) -> Any:
    """`digamma` of positive numbers to a few percent, of what matters where x was rounded."""
    return snp.where(x < 1, -1 / x, snp.log(snp.maximum(x, 1.0) - 0.5))
