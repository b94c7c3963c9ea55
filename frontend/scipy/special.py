"""Special functions, under the names of `scipy.special`. Integers become floats."""

from functools import partial
from math import log as log_of, pi, sqrt
from typing import Any

import numpy as np

from shardir.frontend import numpy as snp
from shardir.frontend.custom_jvp import custom_jvp
from shardir.frontend.eager import public
from shardir.frontend.nn.softmax import (
    log_softmax as log_softmax,
    logsumexp as logsumexp,
    softmax as softmax,
)
from shardir.frontend.numpy.pointwise import floats as _floats, inexact, like, ordered, pointwise
from shardir.frontend.scipy.bessel import i0 as i0, i0e as i0e, i1 as i1, i1e as i1e
from shardir.frontend.scipy.entropies import divergence, relative_entropy
from shardir.frontend.scipy.gammas import (
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
from shardir.frontend.scipy.incomplete import gammainc as gammainc, gammaincc as gammaincc
from shardir.frontend.scipy.incomplete_beta import betainc as betainc
from shardir.frontend.scipy.narrow import in_double, in_single
from shardir.frontend.scipy.normal import log_normal_below, normal_below
from shardir.frontend.scipy.odds import log_odds
from shardir.frontend.scipy.quantiles import normal_quantile
from shardir.frontend.scipy.zetas import polygamma as polygamma, zeta as zeta

__all__ = [
    "beta", "betainc", "betaln", "digamma", "entr", "erf", "erfc", "erfinv", "expit", "exprel",
    "factorial", "gamma", "gammainc", "gammaincc", "gammaln", "gammasgn", "i0", "i0e", "i1", "i1e",
    "kl_div", "log_ndtr", "log_softmax", "logit", "logsumexp", "multigammaln", "ndtr", "ndtri",
    "poch", "polygamma", "psi", "rel_entr", "softmax", "xlog1py", "xlogy", "zeta",
]  # fmt: skip


@public()
def erf(x: Any) -> Any:
    """The error function."""
    return pointwise("erf", x, kind=inexact(x))


@public()
def erfc(x: Any) -> Any:
    """1 - erf(x)."""
    return pointwise("erfc", x, kind=inexact(x))


@public()
def erfinv(x: Any) -> Any:
    """The inverse of `erf`."""
    return pointwise("erf_inv", x, kind=inexact(x))


@public()
def expit(x: Any) -> Any:
    """1 / (1 + exp(-x))."""
    return pointwise("logistic", x, kind=inexact(x))


@public()
def logit(x: Any) -> Any:
    """log(x / (1 - x)), also around 1/2, where it is small."""
    return in_single(log_odds)(*_floats(x))


@public()
def xlogy(x: Any, y: Any) -> Any:
    """x log(y), 0 where x is 0 and y is not NaN."""
    x, y = _floats(x, y)
    # Elsewhere the logarithm is finite: x times it is 0 as well, and it is the slope in x.
    nothing = (x == 0) & ((y <= 0) | (y == snp.inf))
    made = x * snp.log(snp.where(nothing, like(y, 1), y))
    return snp.where(nothing, like(x, 0), made)


@public()
def xlog1py(x: Any, y: Any) -> Any:
    """x log(1 + y), 0 where x is 0 and y is not NaN."""
    x, y = _floats(x, y)
    nothing = (x == 0) & ((y <= -1) | (y == snp.inf))
    made = x * snp.log1p(snp.where(nothing, like(y, 0), y))
    return snp.where(nothing, like(x, 0), made)


@public()
def entr(x: Any) -> Any:
    """-x log(x), -inf for negative x."""
    (x,) = _floats(x)
    safe = snp.where(x > 0, x, like(x, 1))
    return snp.where(x < 0, -snp.inf, snp.where(x == 0, like(x, 0), -x * snp.log(safe)))


@public()
def rel_entr(p: Any, q: Any) -> Any:
    """p log(p / q), 0 where p is 0 and q is not negative, inf of other signs; NaN of NaN."""
    p, q = _floats(*ordered("rel_entr", p, q))
    return in_double(partial(relative_entropy, wide=p.dtype == np.float64))(p, q)


@public()
def kl_div(p: Any, q: Any) -> Any:
    """p log(p / q) - p + q."""
    p, q = _floats(*ordered("kl_div", p, q))
    return in_double(partial(divergence, wide=p.dtype == np.float64))(p, q)


@public()
def exprel(x: Any) -> Any:
    """(exp(x) - 1) / x, 1 at 0."""
    (x,) = _floats(x)
    safe = snp.where(x == 0, like(x, 1), x)
    # Where the exponential is no number the quotient may be one; infinity is halved as well.
    half = snp.exp(0.5 * safe)
    large = half / snp.minimum(safe, float(np.finfo(np.float32).max)) * half
    made = snp.expm1(safe)
    made = snp.where(made == snp.inf, large, made / safe)
    return snp.where(x == 0, 1 + x / 2, made)


@custom_jvp
def _ndtr(x: Any) -> Any:
    return in_single(normal_below)(x)


@_ndtr.defjvp
def _ndtr_rule(primals: Any, tangents: Any) -> Any:
    (x,) = primals
    return _ndtr(x), snp.exp(-0.5 * x * x) * (tangents[0] / sqrt(2 * pi))


@public()
def ndtr(x: Any) -> Any:
    """The probability that a standard normal number is at most x."""
    return _ndtr(*_floats(*ordered("ndtr", x)))


@custom_jvp
def _log_ndtr(x: Any) -> Any:
    return in_single(log_normal_below)(x)


@_log_ndtr.defjvp
def _log_ndtr_rule(primals: Any, tangents: Any) -> Any:
    (x,) = primals
    value = _log_ndtr(x)
    return value, snp.exp(-0.5 * x * x - 0.5 * log_of(2 * pi) - value) * tangents[0]


@public()
def log_ndtr(x: Any) -> Any:
    """The logarithm of `ndtr`, precise far to the left."""
    return _log_ndtr(*_floats(*ordered("log_ndtr", x)))


@custom_jvp
def _ndtri(p: Any) -> Any:
    return in_single(normal_quantile)(p)


@_ndtri.defjvp
def _ndtri_rule(primals: Any, tangents: Any) -> Any:
    x = _ndtri(*primals)
    return x, snp.exp(0.5 * x * x + 0.5 * log_of(2 * pi)) * tangents[0]


@public()
def ndtri(p: Any) -> Any:
    """The inverse of `ndtr`."""
    return _ndtri(*_floats(*ordered("ndtri", p)))
