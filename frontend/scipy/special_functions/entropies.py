"""Relative entropies in f64 without cancellation."""

from math import inf, log, nan

from shardir.frontend.numpy.elementwise import complex_parts, math_functions, selection
from shardir.frontend.numpy.tracer_helpers.elementwise_emission import constant_like
from shardir.frontend.scipy.special_functions.stirling import scaled_log_residual
from shardir.frontend.tracing.tracer import Tracer

SCALING_EXPONENT = 700
"""The power of two by which overflowing quotients are scaled down, twice."""


def relative_entropy(p: Tracer, q: Tracer, wide: bool) -> Tracer:
    """Return p log(p / q), 0 if p is 0 and q is not negative, and inf for other signs.

    `wide` states that the operands are not of a narrower type, whose quotients f64 can represent.
    """
    both, is_zero = (p > 0) & (q > 0), (p == 0) & (q >= 0)
    safe = (
        selection.where(both, p, constant_like(p, 1)),
        selection.where(both, q, constant_like(q, 1)),
    )
    # The difference of both operands is exact if they are close.
    difference, smaller = complex_parts.abs(safe[0] - safe[1]), selection.minimum(*safe)
    size = (
        _log1p_quotient(difference, smaller) if wide else math_functions.log1p(difference / smaller)
    )
    result = safe[0] * selection.where(safe[0] < safe[1], -size, size)
    others = selection.where((p != p) | (q != q), constant_like(p, nan), constant_like(p, inf))
    return selection.where(both, result, selection.where(is_zero, constant_like(p, 0), others))


def kl_divergence(p: Tracer, q: Tracer, wide: bool) -> Tracer:
    """Return p log(p / q) - p + q.

    If p and q are close, the result is p (m - log(1 + m)) with m = (q - p) / p. For operands of a
    narrower type f64 has enough digits for the cancellation.
    """
    entropy = relative_entropy(p, q, wide)
    # This prevents a difference of infinities.
    direct = entropy - selection.where(entropy == inf, constant_like(p, 0), p - q)
    if not wide:
        return direct
    is_close = (p > 0) & (q < 2 * p) & (p < 2 * q)
    safe_p = selection.where(is_close, p, constant_like(p, 1))
    m = selection.where(is_close, q - p, constant_like(p, 0)) / safe_p
    return selection.where(is_close, safe_p * (m * m * scaled_log_residual(m)), direct)


def _log1p_quotient(difference: Tracer, smaller: Tracer) -> Tracer:
    """Return log(1 + difference / smaller) without overflow of the quotient."""
    overflows, one = difference / smaller == inf, constant_like(difference, 1)
    scaled_quotient = (difference * 2.0**-SCALING_EXPONENT) / (
        selection.where(overflows, selection.minimum(smaller, 1.0), one) * 2.0**SCALING_EXPONENT
    )
    above = math_functions.log(
        selection.where(overflows, scaled_quotient, one)
    ) + 2 * SCALING_EXPONENT * log(2)
    near = math_functions.log1p(
        selection.where(overflows, one, difference) / selection.where(overflows, one, smaller)
    )
    return selection.where(overflows, above, near)
