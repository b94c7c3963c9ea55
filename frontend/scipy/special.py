"""The namespace `shardir.scipy.special`: special functions. Integers become floats."""

from functools import partial
from math import log as log_of, pi, sqrt

import numpy as np

from shardir.frontend.argument_checks import check_integer
from shardir.frontend.arrays.array_types import ArrayLike, AxisLike
from shardir.frontend.dispatch.eager import public
from shardir.frontend.nn import softmax as softmax_functions
from shardir.frontend.nn.softmax import logsumexp as logsumexp
from shardir.frontend.numpy import dtypes
from shardir.frontend.numpy.elementwise import complex_parts, math_functions, selection
from shardir.frontend.numpy.tracer_helpers.elementwise_emission import (
    apply_elementwise,
    constant_like,
    inexact_kind,
    promote_args_inexact as _floats,
    require_real,
)
from shardir.frontend.pytree_types import PyTree
from shardir.frontend.scipy.special_functions.bernoulli import bernoulli as bernoulli
from shardir.frontend.scipy.special_functions.bessel import (
    bessel_jn as bessel_jn,
    i0 as i0,
    i0e as i0e,
    i1 as i1,
    i1e as i1e,
)
from shardir.frontend.scipy.special_functions.dilogarithm import spence as spence
from shardir.frontend.scipy.special_functions.double_double import (
    compute_in_double,
    compute_in_single,
)
from shardir.frontend.scipy.special_functions.entropies import kl_divergence, relative_entropy
from shardir.frontend.scipy.special_functions.exponential_integrals import (
    exp1 as exp1,
    expi as expi,
    expn as expn,
)
from shardir.frontend.scipy.special_functions.faddeeva import (
    dawsn as dawsn,
    erfcx as erfcx,
    wofz as wofz,
)
from shardir.frontend.scipy.special_functions.gamma_family import (
    beta as beta,
    betaln as betaln,
    comb as comb,
    digamma as digamma,
    factorial as factorial,
    gamma as gamma,
    gammaln as gammaln,
    gammasgn as gammasgn,
    loggamma as loggamma,
    multigammaln as multigammaln,
    poch as poch,
    psi as psi,
)
from shardir.frontend.scipy.special_functions.hypergeometric import (
    hyp1f1 as hyp1f1,
    hyp2f1 as hyp2f1,
)
from shardir.frontend.scipy.special_functions.incomplete_beta import betainc as betainc
from shardir.frontend.scipy.special_functions.incomplete_gamma import (
    gammainc as gammainc,
    gammaincc as gammaincc,
)
from shardir.frontend.scipy.special_functions.normal_distribution import log_normal_cdf, normal_cdf
from shardir.frontend.scipy.special_functions.normal_quantile import normal_quantile
from shardir.frontend.scipy.special_functions.oscillatory_integrals import (
    fresnel as fresnel,
    sici as sici,
)
from shardir.frontend.scipy.special_functions.owens_t import owens_t as owens_t
from shardir.frontend.scipy.special_functions.spherical_harmonics import sph_harm_y as sph_harm_y
from shardir.frontend.scipy.special_functions.zeta import polygamma as polygamma, zeta as zeta
from shardir.frontend.tracing.operands import as_tracer
from shardir.frontend.tracing.tracer import Tracer
from shardir.frontend.tracing.weak_types import strip_weak_types, strip_weak_types_of_arrays
from shardir.frontend.transforms.custom_jvp import custom_jvp

__all__ = [
    "bernoulli", "bessel_jn", "beta", "betainc", "betaln", "boxcox", "boxcox1p", "comb", "dawsn",
    "digamma", "entr", "erf", "erfc", "erfcx", "erfinv", "exp1", "expi", "expit", "expn",
    "exprel", "factorial", "fresnel", "gamma", "gammainc", "gammaincc", "gammaln", "gammasgn",
    "hyp1f1", "hyp2f1", "i0", "i0e", "i1", "i1e", "kl_div", "log_ndtr", "log_softmax", "loggamma",
    "logit", "logsumexp", "multigammaln", "ndtr", "ndtri", "owens_t", "poch", "polygamma", "psi",
    "rel_entr", "sici", "softmax", "spence", "sph_harm_y", "wofz", "xlog1py", "xlogy", "zeta",
]  # fmt: skip

INVERSE_OVERFLOW_BELOW = {4: 2.0**-100, 8: 2.0**-1000}
"""The numbers below which inverses may overflow, by element size in bytes."""
SCALING_EXPONENT = 64
"""The power of two by which such numbers are scaled up."""


@public()
def erf(x: ArrayLike) -> Tracer:
    """Return the error function, elementwise."""
    return apply_elementwise("erf", x, kind=inexact_kind(x))


@public()
def erfc(x: ArrayLike) -> Tracer:
    """Return 1 - erf(x), elementwise, accurate for large x."""
    return apply_elementwise("erfc", x, kind=inexact_kind(x))


@public()
def erfinv(x: ArrayLike) -> Tracer:
    """Return the inverse of `erf`, elementwise."""
    return apply_elementwise("erf_inv", x, kind=inexact_kind(x))


@public()
def expit(x: ArrayLike) -> Tracer:
    """Return 1 / (1 + exp(-x)), elementwise."""
    return apply_elementwise("logistic", x, kind=inexact_kind(x))


def _logit_of_float(x: Tracer) -> Tracer:
    """Return log(x / (1 - x)) from the difference 2x - 1, which is exact where it is small."""
    small = (x >= 0) & (x < INVERSE_OVERFLOW_BELOW[x.dtype.itemsize])
    smaller = selection.where(
        small, complex_parts.abs(x) * 2.0**SCALING_EXPONENT, selection.minimum(x, 1 - x)
    )
    size = math_functions.log1p(complex_parts.abs(2 * x - 1) / smaller) + selection.where(
        small, SCALING_EXPONENT * log_of(2), 0.0
    )
    return selection.where(x < 0.5, -size, size)


@public()
@strip_weak_types_of_arrays
def logit(x: ArrayLike) -> Tracer:
    """Return log(x / (1 - x)), elementwise, accurate around 1/2, where it is small."""
    return compute_in_single(_logit_of_float)(*_floats(x))


@custom_jvp
def _xlogy(x: Tracer, y: Tracer) -> Tracer:
    is_zero = (x == 0) & ((y <= 0) | (y == dtypes.inf))
    product = x * math_functions.log(selection.where(is_zero, constant_like(y, 1), y))
    return selection.where(is_zero, constant_like(x, 0), product)


_xlogy.defjvps(
    lambda tangent, result, x, y: tangent * math_functions.log(y),
    lambda tangent, result, x, y: tangent * _divide_zero_by_zero(x, y),
)


def _divide_zero_by_zero(x: Tracer, y: Tracer) -> Tracer:
    """Return x / y, and 0 for zeros."""
    is_zero = (x == 0) & (y == 0)
    quotient = x / selection.where(is_zero, constant_like(y, 1), y)
    return selection.where(is_zero, constant_like(x, 0), quotient)


@public()
def xlogy(x: ArrayLike, y: ArrayLike) -> Tracer:
    """Return x log(y), elementwise, 0 if x is 0 and y is not NaN; the derivative in x is log(y)."""
    return as_tracer(_xlogy(*_floats(x, y)))


@custom_jvp
def _xlog1py(x: Tracer, y: Tracer) -> Tracer:
    is_zero = (x == 0) & ((y <= -1) | (y == dtypes.inf))
    product = x * math_functions.log1p(selection.where(is_zero, constant_like(y, 0), y))
    return selection.where(is_zero, constant_like(x, 0), product)


_xlog1py.defjvps(
    lambda tangent, result, x, y: tangent * math_functions.log1p(y),
    lambda tangent, result, x, y: tangent * _divide_zero_by_zero(x, 1 + y),
)


@public()
def xlog1py(x: ArrayLike, y: ArrayLike) -> Tracer:
    """Return x log(1 + y), elementwise, 0 if x is 0 and y is not NaN; the derivative in x is
    log(1 + y)."""
    return as_tracer(_xlog1py(*_floats(x, y)))


@custom_jvp
def _entr(x: Tracer) -> Tracer:
    safe = selection.where(x > 0, x, constant_like(x, 1))
    return selection.where(
        x < 0,
        -dtypes.inf,
        selection.where(x == 0, constant_like(x, 0), -x * math_functions.log(safe)),
    )


def _entr_slope(x: Tracer) -> Tracer:
    """Return the derivative of `entr`: infinite at 0, and 0 where it is -inf."""
    is_negative = x < 0
    slope = -math_functions.log(selection.where(is_negative, constant_like(x, 1), x)) - 1
    return selection.where(is_negative, constant_like(x, 0), slope)


_entr.defjvps(lambda tangent, result, x: tangent * _entr_slope(x))


@public()
def entr(x: ArrayLike) -> Tracer:
    """Return -x log(x), elementwise, -inf for negative x; the derivative at 0 is inf."""
    return as_tracer(_entr(*_floats(x)))


@public()
@strip_weak_types_of_arrays
def rel_entr(p: ArrayLike, q: ArrayLike) -> Tracer:
    """Return p log(p / q), elementwise, 0 if p is 0 and q is not negative, inf for other signs."""
    p, q = _floats(*require_real("rel_entr", p, q))
    return compute_in_double(partial(relative_entropy, wide=p.dtype == np.float64))(p, q)


@public()
@strip_weak_types_of_arrays
def kl_div(p: ArrayLike, q: ArrayLike) -> Tracer:
    """Return p log(p / q) - p + q, elementwise."""
    p, q = _floats(*require_real("kl_div", p, q))
    return compute_in_double(partial(kl_divergence, wide=p.dtype == np.float64))(p, q)


@public()
def exprel(x: ArrayLike) -> Tracer:
    """Return (exp(x) - 1) / x, elementwise, 1 at 0."""
    (x,) = _floats(x)
    safe = selection.where(x == 0, constant_like(x, 1), x)
    # If the exponential overflows, the quotient may be finite; an infinite x is limited as well.
    half = math_functions.exp(0.5 * safe)
    large = half / selection.minimum(safe, float(np.finfo(np.float32).max)) * half
    numerator = math_functions.expm1(safe)
    numerator = selection.where(numerator == dtypes.inf, large, numerator / safe)
    return selection.where(x == 0, 1 + x / 2, numerator)


@custom_jvp
def _ndtr(x: Tracer) -> Tracer:
    return compute_in_single(normal_cdf)(x)


@_ndtr.defjvp
def _ndtr_rule(primals: PyTree, tangents: PyTree) -> PyTree:
    (x,) = primals
    return _ndtr(x), math_functions.exp(-0.5 * x * x) * (tangents[0] / sqrt(2 * pi))


@public()
@strip_weak_types
def ndtr(x: ArrayLike) -> Tracer:
    """Return the probability that a standard normal number is at most x, elementwise."""
    return _ndtr(*_floats(*require_real("ndtr", x)))


@custom_jvp
def _log_ndtr(x: Tracer) -> Tracer:
    return compute_in_single(log_normal_cdf)(x)


@_log_ndtr.defjvp
def _log_ndtr_rule(primals: PyTree, tangents: PyTree) -> PyTree:
    (x,) = primals
    value = _log_ndtr(x)
    return value, math_functions.exp(-0.5 * x * x - 0.5 * log_of(2 * pi) - value) * tangents[0]


@public(static=("series_order",))
@strip_weak_types
def log_ndtr(x: ArrayLike, series_order: int = 3) -> Tracer:
    """Return the logarithm of `ndtr`, elementwise, accurate for large negative x.

    `series_order` has no effect: the implementation uses no asymptotic series.
    """
    check_integer("series_order of log_ndtr", series_order, least=0)
    return _log_ndtr(*_floats(*require_real("log_ndtr", x)))


@custom_jvp
def _ndtri(p: Tracer) -> Tracer:
    return compute_in_single(normal_quantile)(p)


@_ndtri.defjvp
def _ndtri_rule(primals: PyTree, tangents: PyTree) -> PyTree:
    x = _ndtri(*primals)
    return x, math_functions.exp(0.5 * x * x + 0.5 * log_of(2 * pi)) * tangents[0]


@public()
@strip_weak_types
def ndtri(p: ArrayLike) -> Tracer:
    """Return the inverse of `ndtr`, elementwise."""
    return _ndtri(*_floats(*require_real("ndtri", p)))


@public(static=("axis",))
def softmax(x: ArrayLike, /, *, axis: AxisLike = None) -> Tracer:
    """Return exp(x) divided by its sum along `axis`, by default over all elements."""
    return as_tracer(softmax_functions.softmax(x, axis))


@public(static=("axis",))
def log_softmax(x: ArrayLike, /, *, axis: AxisLike = None) -> Tracer:
    """Return log(softmax(x)) along `axis`, by default over all elements, without underflow."""
    return as_tracer(softmax_functions.log_softmax(x, axis))


def _power_over_exponent(logarithm: Tracer, power: Tracer) -> Tracer:
    """Return (exp(power * logarithm) - 1) / power, with its derivative for power 0."""
    product = power * logarithm
    # Around 0 the power series of expm1(p) / p has derivatives of both factors.
    is_near = (product > -1e-3) & (product < 1e-3)
    safe = selection.where(is_near, constant_like(product, 1), product)
    near = selection.where(is_near, product, constant_like(product, 0))
    series = 1 + near * (1 / 2 + near * (1 / 6 + near * (1 / 24 + near / 120)))
    return logarithm * selection.where(is_near, series, math_functions.expm1(safe) / safe)


@public()
def boxcox(x: ArrayLike, lmbda: ArrayLike) -> Tracer:
    """Return (x^lmbda - 1) / lmbda, elementwise, log(x) for lmbda 0, NaN for negative x."""
    x, power = _floats(*require_real("boxcox", x, lmbda))
    return _box_cox(math_functions.log(x), x == 0, power)


@public()
def boxcox1p(x: ArrayLike, lmbda: ArrayLike) -> Tracer:
    """Return ((1 + x)^lmbda - 1) / lmbda, elementwise, log(1 + x) for lmbda 0, NaN for x below
    -1.
    """
    x, power = _floats(*require_real("boxcox1p", x, lmbda))
    return _box_cox(math_functions.log1p(x), x == -1, power)


def _box_cox(logarithm: Tracer, is_limit: Tracer, power: Tracer) -> Tracer:
    """Return `_power_over_exponent`, and its limit where the logarithm is -inf."""
    finite = selection.where(is_limit, constant_like(logarithm, 0), logarithm)
    safe = selection.where(power > 0, power, constant_like(power, 1))
    limit = selection.where(power > 0, -1 / safe, -dtypes.inf)
    return selection.where(is_limit, limit, _power_over_exponent(finite, power))
