"""Quotients of gamma functions in f64: the beta function and rising factorials.

If both sides of a quotient are large, Stirling's formula reduces it to powers of quotients, each
with a base in two parts (A. DiDonato and A. Morris, ACM TOMS 18, 1992, use their logarithms).
"""

from math import pi

from shardir.frontend.arrays.array_types import ArrayLike
from shardir.frontend.lax.control_flow.branches import cond
from shardir.frontend.numpy.elementwise import math_functions, selection
from shardir.frontend.numpy.reductions import basic_reductions
from shardir.frontend.numpy.tracer_helpers.elementwise_emission import (
    apply_elementwise,
    constant_like,
)
from shardir.frontend.scipy.special_functions.double_double import power_of_quotient, two_sum
from shardir.frontend.scipy.special_functions.gamma_function import (
    E_TWO_PARTS,
    OVERFLOW_ARGUMENT,
    RECIPROCAL_BELOW,
    STIRLING_SCALE,
    gamma_by_recurrence,
    gamma_of_double,
)
from shardir.frontend.scipy.special_functions.stirling import (
    STIRLING_FROM,
    log_beta,
    stirling_remainder,
)
from shardir.frontend.tracing.tracer import Tracer

PRODUCT_OVERFLOW_ARGUMENT = 1e290
"""The argument from which on products of halves overflow f64."""
MAX_EXP_ARGUMENT = 700.0
"""About the largest argument whose exponential is finite."""


def beta_of_double(a: Tracer, b: Tracer, sign: Tracer) -> Tracer:
    """Return the beta function; `sign` is its sign."""
    is_direct = (selection.minimum(a, b) > 0) & (
        selection.maximum(a, b) < PRODUCT_OVERFLOW_ARGUMENT
    )
    safe = (
        selection.where(is_direct, a, constant_like(a, 1)),
        selection.where(is_direct, b, constant_like(b, 1)),
    )
    direct = beta_of_positive(*safe)

    def by_logarithm(a: Tracer, b: Tracer, sign: Tracer, direct: Tracer) -> Tracer:
        logarithm = log_beta(a, b, lambda x: apply_elementwise("lgamma", x))
        return selection.where(is_direct, direct, sign * math_functions.exp(logarithm))

    def keep_direct(a: Tracer, b: Tracer, sign: Tracer, direct: Tracer) -> Tracer:
        return direct

    result: Tracer = cond(
        basic_reductions.any(~is_direct), by_logarithm, keep_direct, a, b, sign, direct
    )
    return result


def beta_of_positive(a: Tracer, b: Tracer) -> Tracer:
    """Return the beta function of positive numbers below `PRODUCT_OVERFLOW_ARGUMENT`."""
    small, large = selection.minimum(a, b), selection.maximum(a, b)
    is_large, both_large = large >= STIRLING_FROM, small >= STIRLING_FROM
    of_small = gamma_by_recurrence(selection.where(both_large, constant_like(a, 1), small))
    near = (
        selection.where(is_large, constant_like(a, 1), small),
        selection.where(is_large, constant_like(a, 1), large),
    )
    total, rounding_error = two_sum(*near)
    quotient = gamma_by_recurrence(near[1]) / gamma_by_recurrence(total, 2 * STIRLING_FROM)
    quotient = selection.where(near[1] < RECIPROCAL_BELOW, total / near[1], quotient)
    product = of_small * (quotient - quotient * (_approximate_digamma(total) * rounding_error))

    b = selection.where(is_large, large, constant_like(b, STIRLING_FROM))
    total_parts = two_sum(b, small)
    of_b, c = power_of_quotient((b, 0.0), total_parts, b - 0.5)
    top = (
        selection.where(both_large, small, constant_like(a, E_TWO_PARTS[0])),
        selection.where(both_large, 0.0, constant_like(a, E_TWO_PARTS[1])),
    )
    of_a, more_correction = power_of_quotient(top, total_parts, small)
    a = selection.where(both_large, small, constant_like(a, STIRLING_FROM))
    c = (
        c
        + more_correction
        + (stirling_remainder(b) - stirling_remainder(total_parts[0]))
        + selection.where(both_large, stirling_remainder(a), 0.0)
    )
    front = selection.where(both_large, math_functions.sqrt(2 * pi / a), of_small)
    return selection.where(is_large, front * (of_b * of_a) * math_functions.exp(c), product)


def rising_factorial(z: Tracer, m: Tracer) -> Tracer:
    """Return gamma(z + m) / gamma(z)."""
    total, lost = two_sum(z, m)
    is_direct = (selection.minimum(z, total) > 0) & (
        selection.maximum(z, total) < PRODUCT_OVERFLOW_ARGUMENT
    )
    one = constant_like(z, 1)
    safe_z, safe_total, safe_m = (selection.where(is_direct, x, one) for x in (z, total, m))
    direct = _rising_factorial_positive(
        safe_z, safe_total, safe_m, selection.where(is_direct, lost, constant_like(z, 0))
    )

    def by_gamma_quotient(z: Tracer, total: Tracer, direct: Tracer) -> Tracer:
        return selection.where(is_direct, direct, gamma_of_double(total) / gamma_of_double(z))

    def keep_direct(z: Tracer, total: Tracer, direct: Tracer) -> Tracer:
        return direct

    result = cond(
        basic_reductions.any(~is_direct), by_gamma_quotient, keep_direct, z, total, direct
    )
    return selection.where(m == 0, one, result)


def _rising_factorial_positive(
    z: Tracer, total: Tracer, m: ArrayLike, rounding_error: Tracer
) -> Tracer:
    """Return the rising factorial of positive numbers.

    `rounding_error` is that of `total`.

    Stirling's formula gives powers of z + m, of z, or, if both are large, of their quotient.
    """
    above, below = total >= STIRLING_FROM, z >= STIRLING_FROM
    both_large, zero = above & below, constant_like(z, 0)
    high = (
        selection.where(above, total, constant_like(z, STIRLING_FROM)),
        selection.where(both_large, rounding_error, zero),
    )
    high = (
        selection.where(both_large, high[0], selection.minimum(high[0], OVERFLOW_ARGUMENT)),
        high[1],
    )
    low = selection.where(below, z, constant_like(z, STIRLING_FROM))
    low = selection.where(both_large, low, selection.minimum(low, OVERFLOW_ARGUMENT))
    bottom = (
        selection.where(both_large, low, constant_like(z, E_TWO_PARTS[0])),
        selection.where(both_large, zero, constant_like(z, E_TWO_PARTS[1])),
    )
    first, c = power_of_quotient(
        high, bottom, selection.where(above, selection.where(both_large, low, high[0]) - 0.5, zero)
    )
    top = selection.where(both_large, high[0], low), selection.where(both_large, high[1], zero)
    rise = selection.where(both_large, m, selection.where(below, 0.5 - low, zero))
    second, more_correction = power_of_quotient(top, E_TWO_PARTS, rise)
    c = (
        c
        + more_correction
        + selection.where(above, stirling_remainder(high[0]), zero)
        - selection.where(below, stirling_remainder(low), zero)
    )
    near = gamma_by_recurrence(selection.where(above, constant_like(z, 1), total))
    near = near / gamma_by_recurrence(selection.where(below, constant_like(z, 1), z))
    near = near * selection.where(
        above == below, 1.0, selection.where(above, STIRLING_SCALE[0], 1 / STIRLING_SCALE[0])
    )
    correction = selection.where(both_large, zero, _approximate_digamma(total) * rounding_error)
    # The clipped part belongs to powers that are infinite or 0.
    return (
        near
        * first
        * second
        * math_functions.exp(selection.clip(c + correction, -MAX_EXP_ARGUMENT, MAX_EXP_ARGUMENT))
    )


def _approximate_digamma(x: Tracer) -> Tracer:
    """Return `digamma` of positive numbers within a few percent, for the correction of a
    rounded x.
    """
    return selection.where(x < 1, -1 / x, math_functions.log(selection.maximum(x, 1.0) - 0.5))
