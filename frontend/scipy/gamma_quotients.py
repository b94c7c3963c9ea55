"""Quotients of gamma functions in f64: the beta function and rising factorials.

If both sides of a quotient are large, Stirling's formula reduces it to powers of quotients, each
with a base in two parts (A. DiDonato and A. Morris, ACM TOMS 18, 1992, use their logarithms).
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
"""The argument from which on products of halves overflow f64."""
MOST = 700.0
"""About the largest argument whose exponential is finite."""


def beta_of_double(a: Any, b: Any, sign: Any) -> Any:
    """Return the beta function; `sign` is its sign."""
    is_direct = (snp.minimum(a, b) > 0) & (snp.maximum(a, b) < HUGE)
    safe = snp.where(is_direct, a, like(a, 1)), snp.where(is_direct, b, like(b, 1))
    direct = beta_of_positive(*safe)

    def by_logarithm(a: Any, b: Any, sign: Any, direct: Any) -> Any:
        logarithm = log_beta(a, b, lambda x: pointwise("lgamma", x))
        return snp.where(is_direct, direct, sign * snp.exp(logarithm))

    def keep_direct(a: Any, b: Any, sign: Any, direct: Any) -> Any:
        return direct

    return cond(snp.any(~is_direct), by_logarithm, keep_direct, a, b, sign, direct)


def beta_of_positive(a: Any, b: Any) -> Any:
    """Return the beta function of positive numbers below `HUGE_ARGUMENT`."""
    small, large = snp.minimum(a, b), snp.maximum(a, b)
    is_large, both_large = large >= FAR, small >= FAR
    of_small = by_recurrence(snp.where(both_large, like(a, 1), small))
    near = snp.where(is_large, like(a, 1), small), snp.where(is_large, like(a, 1), large)
    total, rounding_error = two_sum(*near)
    quotient = by_recurrence(near[1]) / by_recurrence(total, 2 * FAR)
    quotient = snp.where(near[1] < TINY, total / near[1], quotient)
    product = of_small * (quotient - quotient * (_slope(total) * rounding_error))

    b = snp.where(is_large, large, like(b, FAR))
    total_parts = two_sum(b, small)
    of_b, c = power_of_quotient((b, 0.0), total_parts, b - 0.5)
    top = snp.where(both_large, small, like(a, E[0])), snp.where(both_large, 0.0, like(a, E[1]))
    of_a, more_correction = power_of_quotient(top, total_parts, small)
    a = snp.where(both_large, small, like(a, FAR))
    c = c + more_correction + (rest(b) - rest(total_parts[0])) + snp.where(both_large, rest(a), 0.0)
    front = snp.where(both_large, snp.sqrt(2 * pi / a), of_small)
    return snp.where(is_large, front * (of_b * of_a) * snp.exp(c), product)


def rising_factorial(z: Any, m: Any) -> Any:
    """Return gamma(z + m) / gamma(z)."""
    total, lost = two_sum(z, m)
    is_direct = (snp.minimum(z, total) > 0) & (snp.maximum(z, total) < HUGE)
    one = like(z, 1)
    safe_z, safe_total, safe_m = (snp.where(is_direct, x, one) for x in (z, total, m))
    direct = _rising(safe_z, safe_total, safe_m, snp.where(is_direct, lost, like(z, 0)))

    def by_gamma_quotient(z: Any, total: Any, direct: Any) -> Any:
        return snp.where(is_direct, direct, gamma_of_double(total) / gamma_of_double(z))

    def keep_direct(z: Any, total: Any, direct: Any) -> Any:
        return direct

    result = cond(snp.any(~is_direct), by_gamma_quotient, keep_direct, z, total, direct)
    return snp.where(m == 0, one, result)


def _rising(z: Any, total: Any, m: Any, rounding_error: Any) -> Any:
    """Return the rising factorial of positive numbers.

    `rounding_error` is that of `total`.

    Stirling's formula gives powers of z + m, of z, or, if both are large, of their quotient.
    """
    above, below = total >= FAR, z >= FAR
    both_large, zero = above & below, like(z, 0)
    high = snp.where(above, total, like(z, FAR)), snp.where(both_large, rounding_error, zero)
    high = snp.where(both_large, high[0], snp.minimum(high[0], END)), high[1]
    low = snp.where(below, z, like(z, FAR))
    low = snp.where(both_large, low, snp.minimum(low, END))
    bottom = snp.where(both_large, low, like(z, E[0])), snp.where(both_large, zero, like(z, E[1]))
    first, c = power_of_quotient(
        high, bottom, snp.where(above, snp.where(both_large, low, high[0]) - 0.5, zero)
    )
    top = snp.where(both_large, high[0], low), snp.where(both_large, high[1], zero)
    rise = snp.where(both_large, m, snp.where(below, 0.5 - low, zero))
    second, more_correction = power_of_quotient(top, E, rise)
    c = (
        c
        + more_correction
        + snp.where(above, rest(high[0]), zero)
        - snp.where(below, rest(low), zero)
    )
    near = by_recurrence(snp.where(above, like(z, 1), total))
    near = near / by_recurrence(snp.where(below, like(z, 1), z))
    near = near * snp.where(above == below, 1.0, snp.where(above, SCALE[0], 1 / SCALE[0]))
    correction = snp.where(both_large, zero, _slope(total) * rounding_error)
    # The clipped part belongs to powers that are infinite or 0.
    return near * first * second * snp.exp(snp.clip(c + correction, -MOST, MOST))


def _slope(x: Any) -> Any:
    """Return `digamma` of positive numbers within a few percent, for the correction of a
    rounded x.
    """
    return snp.where(x < 1, -1 / x, snp.log(snp.maximum(x, 1.0) - 0.5))
