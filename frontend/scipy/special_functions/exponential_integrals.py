"""Exponential integrals E_n and Ei.

Up to 1, E_n has a power series (DLMF 8.19.8), beyond 1 a continued fraction (DLMF 8.19.17). Ei has
a power series (DLMF 6.6.2) up to 40, and an asymptotic series beyond (DLMF 6.12.2).
"""

import numpy as np

from shardir.frontend.arrays.array_types import ArrayLike
from shardir.frontend.dispatch.eager import public
from shardir.frontend.lax.control_flow.loops import fori_loop
from shardir.frontend.numpy import dtypes
from shardir.frontend.numpy.elementwise import complex_parts, math_functions, rounding, selection
from shardir.frontend.numpy.tracer_helpers.elementwise_emission import (
    constant_like,
    promote_args_inexact,
    require_real,
)
from shardir.frontend.pytree_types import PyTree
from shardir.frontend.scipy.special_functions.continued_fractions import continued_fraction_of_e
from shardir.frontend.scipy.special_functions.double_double import compute_in_double
from shardir.frontend.scipy.special_functions.gamma_family import digamma, gammaln
from shardir.frontend.scipy.special_functions.gamma_function import is_even
from shardir.frontend.tracing.tracer import Tracer
from shardir.frontend.tracing.weak_types import strip_weak_types
from shardir.frontend.transforms.custom_jvp import custom_jvp

SERIES_TERMS, FRACTION_TERMS = 20, 90
EI_SERIES_TERMS, EI_ASYMPTOTIC_TERMS, EI_SERIES_END = 140, 38, 40.0


def _expn_of_double(n: Tracer, x: Tracer) -> Tracer:
    small = selection.clip(x, np.finfo(np.float64).tiny, 1.0)
    log_x = math_functions.log(small)
    degree = n - 1
    sign = selection.where(is_even(degree), constant_like(x, 1), constant_like(x, -1))
    power = sign * math_functions.exp(degree * log_x - gammaln(selection.maximum(n, 1.0)))
    total = power * (digamma(selection.maximum(n, 1.0)) - log_x)
    term: Tracer | float = 1.0
    for m in range(SERIES_TERMS + 1):
        is_singular = degree == m
        divisor = selection.where(is_singular, constant_like(x, 1), m - degree)
        total = total - selection.where(is_singular, constant_like(x, 0), term / divisor)
        term = -small / (m + 1) * term
    bounded = selection.maximum(x, 1.0)
    bounded = selection.minimum(bounded, float(np.finfo(np.float32).max))
    fraction = continued_fraction_of_e(n, bounded, FRACTION_TERMS)
    result = selection.where(x > 1, math_functions.exp(-bounded) * fraction, total)
    result = selection.where(n == 0, math_functions.exp(-x) / x, result)
    at_zero = selection.where(n > 1, 1 / selection.where(n > 1, degree, 1.0), dtypes.inf)
    result = selection.where(x == 0, at_zero, result)
    is_invalid = (x < 0) | (x != x) | (n < 0) & (x != 0) | (rounding.floor(n) != n)
    return selection.where(is_invalid, dtypes.nan, result)


def _expi_of_double(x: Tracer) -> Tracer:
    size = complex_parts.abs(x)
    small = selection.clip(size, np.finfo(np.float64).tiny, EI_SERIES_END)

    def step(number: Tracer, state: PyTree) -> tuple[Tracer, Tracer]:
        k = (number + 1).astype(np.float64)
        term, total = state
        term = term * small / k
        return term, total + term / k

    zero = constant_like(small, 0)
    total = fori_loop(0, EI_SERIES_TERMS, step, (zero + 1, zero))[1]
    near = total + math_functions.log(small) + float(np.euler_gamma)
    large = selection.maximum(size, EI_SERIES_END)
    sum_of_factorials: Tracer | float = 1.0
    for k in range(EI_ASYMPTOTIC_TERMS, 0, -1):
        sum_of_factorials = 1 + k / large * sum_of_factorials
    # The quotient may be finite where the exponential overflows.
    far = math_functions.exp(large - math_functions.log(large)) * sum_of_factorials
    exact = math_functions.exp(selection.minimum(large, 700.0)) / large * sum_of_factorials
    far = selection.where(large <= 700, exact, far)
    positive = selection.where(size > EI_SERIES_END, far, near)
    positive = selection.where(size == dtypes.inf, size, positive)
    negative = -_expn_of_double(constant_like(x, 1), size)
    result = selection.where(x < 0, negative, positive)
    result = selection.where(x == 0, -dtypes.inf, result)
    return selection.where(x != x, x, result)


@custom_jvp
def _expn(n: Tracer, x: Tracer) -> Tracer:
    return compute_in_double(_expn_of_double)(n, x)


@_expn.defjvp
def _expn_rule(primals: PyTree, tangents: PyTree) -> PyTree:
    n, x = primals
    # The derivative of E_0 is that of exp(-x) / x.
    lower = _expn(selection.maximum(n - 1, 0), x)
    slope = selection.where(n == 0, (1 + 1 / x) * lower, lower)
    return _expn(n, x), -slope * tangents[1]


@custom_jvp
def _expi(x: Tracer) -> Tracer:
    return compute_in_double(_expi_of_double)(x)


@_expi.defjvp
def _expi_rule(primals: PyTree, tangents: PyTree) -> PyTree:
    (x,) = primals
    return _expi(x), math_functions.exp(x) / x * tangents[0]


@public()
@strip_weak_types
def expn(n: ArrayLike, x: ArrayLike) -> Tracer:
    """Return the integral of exp(-x t) / t^n over t from 1 on, elementwise, for integers n.

    The result is NaN for negative x. The function has a derivative in x alone.
    """
    return _expn(*promote_args_inexact(*require_real("expn", n, x)))


@public()
@strip_weak_types
def exp1(x: ArrayLike) -> Tracer:
    """Return the integral of exp(-t) / t over t from x on, elementwise, NaN for negative x."""
    (x,) = promote_args_inexact(*require_real("exp1", x))
    return _expn(constant_like(x, 1), x)


@public()
@strip_weak_types
def expi(x: ArrayLike) -> Tracer:
    """Return the principal value of the integral of exp(t) / t over t up to x, elementwise."""
    return _expi(*promote_args_inexact(*require_real("expi", x)))
