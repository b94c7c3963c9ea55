"""The Hurwitz zeta function and the derivatives of `digamma`, by the Euler-Maclaurin formula."""

from math import factorial

from shardir.frontend.arrays.array_types import ArrayLike
from shardir.frontend.dispatch.eager import public
from shardir.frontend.lax.control_flow.branches import cond
from shardir.frontend.numpy import dtypes
from shardir.frontend.numpy.elementwise import (
    arithmetic,
    complex_parts,
    math_functions,
    rounding,
    selection,
)
from shardir.frontend.numpy.reductions import basic_reductions
from shardir.frontend.numpy.shaping import concatenation
from shardir.frontend.numpy.tracer_helpers.elementwise_emission import (
    constant_like,
    emit_elementwise,
    promote_args_inexact,
    require_real,
)
from shardir.frontend.scipy.special_functions.double_double import compute_in_double, two_sum
from shardir.frontend.scipy.special_functions.gamma_family import digamma, gammaln
from shardir.frontend.scipy.special_functions.gamma_function import gamma_of_double, is_even
from shardir.frontend.tracing.tracer import Tracer

_BERNOULLI = (
    1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510, 43867 / 798,
    -174611 / 330, 854513 / 138, -236364091 / 2730,
)  # fmt: skip
"""The Bernoulli numbers B_2, B_4, ..."""

_DIRECT_TERMS = 9
"""The number of terms that are summed before the Euler-Maclaurin formula."""

_MAX_EXP_ARGUMENT, _MAX_GAMMA_ARGUMENT, _MAX_POWER_BASE = 690.0, 171.0, 1e100
"""The limits of exponentials, of gamma functions, and of powers: beyond them, arguments are scaled
instead of multiplied."""


@public()
def zeta(x: ArrayLike, q: ArrayLike = 1.0) -> Tracer:
    """Return the Hurwitz zeta function, the sum of (k + q)**-x over k from 0, for x above 1,
    elementwise.

    It is infinite if x is 1 and if q is 0, -1, ...; NaN for x below 1, and for other q below 0 if x
    is not an integer.
    """
    return compute_in_double(_zeta)(*promote_args_inexact(*require_real("zeta", x, q)))


@public()
def polygamma(n: ArrayLike, x: ArrayLike) -> Tracer:
    """Return the n-th derivative of `digamma`, elementwise; there is no derivative in n."""
    return compute_in_double(_polygamma)(*promote_args_inexact(*require_real("polygamma", n, x)))


def _polygamma(n: Tracer, x: Tracer) -> Tracer:
    n = emit_elementwise("stop_gradient", n)
    sign = selection.where(is_even(n), -1.0, 1.0).astype(x.dtype)
    s = selection.where(n == 0, constant_like(n, 2), n + 1)
    right = selection.where(x > 0, x, constant_like(x, 1))
    # The factorial may overflow where the zeta function is 0.
    log_scale = (s - 1) * emit_elementwise("stop_gradient", math_functions.log(right))
    is_scaled = (
        (s > _MAX_GAMMA_ARGUMENT)
        | (complex_parts.abs(log_scale) > _MAX_EXP_ARGUMENT)
        | (right > _MAX_POWER_BASE)
    )
    unit = selection.where(is_scaled, emit_elementwise("stop_gradient", right), constant_like(x, 1))
    scale = selection.where(
        is_scaled, math_functions.exp(gammaln(s) - log_scale), gamma_of_double(s)
    )
    total = selection.where(x == dtypes.inf, constant_like(x, 0), _zeta(s, x, unit) / unit)
    return selection.where(n == 0, digamma(x), sign * (scale * total))


def _zeta(s: Tracer, q: Tracer, unit: Tracer | None = None) -> Tracer:
    """Return the sum of ((k + q) / unit)**-s; units other than 1 require q above 0."""
    unit = constant_like(s, 1) if unit is None else unit

    def direct(s: Tracer, q: Tracer, unit: Tracer) -> Tracer:
        return _zeta_positive(s, q, unit)

    def by_reflection(s: Tracer, q: Tracer, unit: Tracer) -> Tracer:
        """Extend to q < 0: the terms there are those of the positive numbers up to -q."""
        left = q < 0
        below, above = rounding.floor(q), rounding.ceil(q)
        start = selection.where(left, q - below, q)
        other = selection.where(left, above - q, constant_like(q, 1))
        beyond = selection.where(left, 1 - q, constant_like(q, 1))
        sign = selection.where(
            left,
            selection.where(is_even(s), constant_like(s, 1), constant_like(s, -1)),
            constant_like(s, 0),
        )
        # One stacked call emits the long sum once instead of three times.
        arguments, units = (start, other, beyond), (unit, constant_like(s, 1), constant_like(s, 1))
        sums = _zeta_positive(*(concatenation.stack(x) for x in ((s, s, s), arguments, units)))
        total = sums[0] + sign * sums[1] - sign * sums[2]
        return selection.where(left & (rounding.floor(s) != s), constant_like(s, dtypes.nan), total)

    total = cond(basic_reductions.any(q < 0), by_reflection, direct, s, q, unit)
    is_limit = ((s == dtypes.inf) & (q > 0)) | ((q == dtypes.inf) & (s > 1))
    limit = selection.where(q > 1, 0.0, selection.where(q == 1, 1.0, dtypes.inf))
    result = selection.where(is_limit, limit, total)
    result = selection.where(s == 1, dtypes.inf, selection.where(s < 1, dtypes.nan, result))
    pole = (q <= 0) & (rounding.floor(q) == q) & (s > 1)
    return selection.where(pole, dtypes.inf, result).astype(s.dtype)


def _zeta_positive(s: Tracer, q: Tracer, unit: Tracer) -> Tracer:
    """Return the sum for q above 0."""
    total = constant_like(s, 0)
    for k in range(_DIRECT_TERMS):
        total = total + _shifted_power(s, q, k, unit)[1]
    end, term = _shifted_power(s, q, _DIRECT_TERMS, unit)
    total = total + end * term / (s - 1) + 0.5 * term
    # The product is evaluated together: its factors may overflow and underflow.
    term = term * s / end
    for j, number in enumerate(_BERNOULLI, start=1):
        total = total + number / factorial(2 * j) * term
        term = term * ((s + (2 * j - 1)) / end) * ((s + 2 * j) / end)
    return total


def _shifted_power(s: Tracer, q: Tracer, k: int, unit: Tracer) -> tuple[Tracer, Tracer]:
    """Return q + k and ((q + k) / unit)**-s, with the rounding error of q + k corrected for large
    s.
    """
    argument, rounding_error = two_sum(q, constant_like(q, k))
    power = arithmetic.power(argument / unit, -s)
    # Only the power with k = 0 may be infinite.
    return argument, power - power * (s * (rounding_error / argument)) if k else power
