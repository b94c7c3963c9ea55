"""The namespace `shardir.scipy.special`: special functions. Integers become floats."""

from functools import partial
from math import log as log_of, pi, sqrt
from typing import Any

import numpy as np

from shardir.frontend.arrays.array_types import ArrayLike
from shardir.frontend.dispatch.eager import public
from shardir.frontend.nn.softmax import (
    log_softmax as log_softmax,
    logsumexp as logsumexp,
    softmax as softmax,
)
from shardir.frontend.numpy import dtypes
from shardir.frontend.numpy.elementwise import math_functions, selection
from shardir.frontend.numpy.tracer_helpers.elementwise_emission import (
    apply_elementwise,
    constant_like,
    inexact_kind,
    promote_args_inexact as _floats,
    require_real,
)
from shardir.frontend.pytree_types import PyTree
from shardir.frontend.scipy.special_functions.bessel import (
    i0 as i0,
    i0e as i0e,
    i1 as i1,
    i1e as i1e,
)
from shardir.frontend.scipy.special_functions.double_double import (
    compute_in_double,
    compute_in_single,
)
from shardir.frontend.scipy.special_functions.entropies import kl_divergence, relative_entropy
from shardir.frontend.scipy.special_functions.gamma_family import (
    beta as beta,
    betaln as betaln,
    digamma as digamma,
    factorial as factorial,
    gamma as gamma,
    gammaln as gammaln,
    gammasgn as gammasgn,
    multigammaln as multigammaln,
    poch as poch,
    psi as psi,
)
from shardir.frontend.scipy.special_functions.incomplete_beta import betainc as betainc
from shardir.frontend.scipy.special_functions.incomplete_gamma import (
    gammainc as gammainc,
    gammaincc as gammaincc,
)
from shardir.frontend.scipy.special_functions.logit import logit_of_float
from shardir.frontend.scipy.special_functions.normal_distribution import log_normal_cdf, normal_cdf
from shardir.frontend.scipy.special_functions.normal_quantile import normal_quantile
from shardir.frontend.scipy.special_functions.zeta import polygamma as polygamma, zeta as zeta
from shardir.frontend.tracing.tracer import Tracer
from shardir.frontend.transforms.custom_jvp import custom_jvp

__all__ = [
    "beta", "betainc", "betaln", "digamma", "entr", "erf", "erfc", "erfinv", "expit", "exprel",
    "factorial", "gamma", "gammainc", "gammaincc", "gammaln", "gammasgn", "i0", "i0e", "i1", "i1e",
    "kl_div", "log_ndtr", "log_softmax", "logit", "logsumexp", "multigammaln", "ndtr", "ndtri",
    "poch", "polygamma", "psi", "rel_entr", "softmax", "xlog1py", "xlogy", "zeta",
]  # fmt: skip


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


@public()
def logit(x: ArrayLike) -> Tracer:
    """Return log(x / (1 - x)), elementwise, accurate around 1/2, where it is small."""
    return compute_in_single(logit_of_float)(*_floats(x))


@public()
def xlogy(x: ArrayLike, y: ArrayLike) -> Tracer:
    """Return x log(y), elementwise, 0 if x is 0 and y is not NaN."""
    x, y = _floats(x, y)
    # Elsewhere the logarithm is finite: x times it is 0 for x = 0, and it is the derivative in x.
    is_zero = (x == 0) & ((y <= 0) | (y == dtypes.inf))
    product = x * math_functions.log(selection.where(is_zero, constant_like(y, 1), y))
    return selection.where(is_zero, constant_like(x, 0), product)


@public()
def xlog1py(x: ArrayLike, y: ArrayLike) -> Tracer:
    """Return x log(1 + y), elementwise, 0 if x is 0 and y is not NaN."""
    x, y = _floats(x, y)
    is_zero = (x == 0) & ((y <= -1) | (y == dtypes.inf))
    product = x * math_functions.log1p(selection.where(is_zero, constant_like(y, 0), y))
    return selection.where(is_zero, constant_like(x, 0), product)


@public()
def entr(x: ArrayLike) -> Tracer:
    """Return -x log(x), elementwise, -inf for negative x."""
    (x,) = _floats(x)
    safe = selection.where(x > 0, x, constant_like(x, 1))
    return selection.where(
        x < 0,
        -dtypes.inf,
        selection.where(x == 0, constant_like(x, 0), -x * math_functions.log(safe)),
    )


@public()
def rel_entr(p: ArrayLike, q: ArrayLike) -> Tracer:
    """Return p log(p / q), elementwise, 0 if p is 0 and q is not negative, inf for other signs."""
    p, q = _floats(*require_real("rel_entr", p, q))
    return compute_in_double(partial(relative_entropy, wide=p.dtype == np.float64))(p, q)


@public()
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
def _ndtr_rule(primals: PyTree, tangents: PyTree) -> Any:
    (x,) = primals
    return _ndtr(x), math_functions.exp(-0.5 * x * x) * (tangents[0] / sqrt(2 * pi))


@public()
def ndtr(x: ArrayLike) -> Any:
    """Return the probability that a standard normal number is at most x, elementwise."""
    return _ndtr(*_floats(*require_real("ndtr", x)))


@custom_jvp
def _log_ndtr(x: Tracer) -> Tracer:
    return compute_in_single(log_normal_cdf)(x)


@_log_ndtr.defjvp
def _log_ndtr_rule(primals: PyTree, tangents: PyTree) -> Any:
    (x,) = primals
    value = _log_ndtr(x)
    return value, math_functions.exp(-0.5 * x * x - 0.5 * log_of(2 * pi) - value) * tangents[0]


@public()
def log_ndtr(x: ArrayLike) -> Any:
    """Return the logarithm of `ndtr`, elementwise, accurate for large negative x."""
    return _log_ndtr(*_floats(*require_real("log_ndtr", x)))


@custom_jvp
def _ndtri(p: Tracer) -> Tracer:
    return compute_in_single(normal_quantile)(p)


@_ndtri.defjvp
def _ndtri_rule(primals: PyTree, tangents: PyTree) -> Any:
    x = _ndtri(*primals)
    return x, math_functions.exp(0.5 * x * x + 0.5 * log_of(2 * pi)) * tangents[0]


@public()
def ndtri(p: ArrayLike) -> Any:
    """Return the inverse of `ndtr`, elementwise."""
    return _ndtri(*_floats(*require_real("ndtri", p)))
