"""Discrete distributions and multivariate distributions."""

from math import log as log_of, pi
from types import SimpleNamespace

from shardir.frontend.arrays.array_types import ArrayLike
from shardir.frontend.dispatch.eager import public
from shardir.frontend.errors import ShapeError
from shardir.frontend.numpy import dtypes
from shardir.frontend.numpy.creation import filling
from shardir.frontend.numpy.elementwise import (
    complex_parts,
    float_parts,
    math_functions,
    rounding,
    selection,
)
from shardir.frontend.numpy.linear_algebra import diagonals, linalg
from shardir.frontend.numpy.reductions import basic_reductions
from shardir.frontend.numpy.shaping import concatenation, reshaping
from shardir.frontend.numpy.tracer_helpers.elementwise_emission import promote_args_inexact
from shardir.frontend.scipy import special
from shardir.frontend.scipy.distributions.log_probabilities import (
    exponentiate,
    minus_inf_outside_support,
)
from shardir.frontend.scipy.special_functions.stirling import log_poisson
from shardir.frontend.source_locations import with_location
from shardir.frontend.tracing.operands import as_tracer
from shardir.frontend.tracing.tracer import Tracer


@public(name="bernoulli.logpmf")
def _bernoulli_logpmf(k: ArrayLike, p: ArrayLike, loc: ArrayLike = 0) -> Tracer:
    """Return log(p) at 1 and log(1 - p) at 0."""
    k, p, loc = promote_args_inexact(k, p, loc)
    x = k - loc
    result = special.xlogy(x, p) + special.xlog1py(1 - x, -p)
    return minus_inf_outside_support(x, (x == 0) | (x == 1), result)


@public(name="bernoulli.cdf")
def _bernoulli_cdf(k: ArrayLike, p: ArrayLike) -> Tracer:
    """Return 0 below 0, 1 - p below 1, and 1 from there on."""
    k, p = promote_args_inexact(k, p)
    result = selection.where(k < 0, 0.0, selection.where(k < 1, 1 - p, 1.0))
    return selection.where(
        float_parts.isnan(k) | float_parts.isnan(p) | (p < 0) | (p > 1), dtypes.nan, result
    )


@public(name="bernoulli.ppf")
def _bernoulli_ppf(q: ArrayLike, p: ArrayLike) -> Tracer:
    """Return 0 for q up to 1 - p, else 1."""
    q, p = promote_args_inexact(q, p)
    is_invalid = float_parts.isnan(q) | float_parts.isnan(p) | (p < 0) | (p > 1) | (q < 0) | (q > 1)
    return selection.where(
        is_invalid, dtypes.nan, selection.where(q == 0, -1.0, selection.where(q <= 1 - p, 0.0, 1.0))
    )


@public(name="poisson.logpmf")
def _poisson_logpmf(k: ArrayLike, mu: object, loc: ArrayLike = 0) -> Tracer:
    """Return k log(mu) - log(k!) - mu for integers k >= 0."""
    k, mu, loc = promote_args_inexact(k, mu, loc)
    x = k - loc
    safe = selection.where(x < 0, filling.zeros_like(x), x)
    plain = special.xlogy(safe, mu) - special.gammaln(safe + 1) - mu
    result = log_poisson(safe, mu, plain)
    return minus_inf_outside_support(
        x, (x >= 0) & (x < dtypes.inf) & (rounding.round(x) == x), result
    )


@public(name="poisson.cdf")
def _poisson_cdf(k: ArrayLike, mu: object, loc: ArrayLike = 0) -> Tracer:
    """Return the probability of at most k."""
    k, mu, loc = promote_args_inexact(k, mu, loc)
    x = rounding.floor(k - loc) + 1
    return selection.where(x < 1, 0.0, special.gammaincc(selection.maximum(x, 1.0), mu)).astype(
        mu.dtype
    )


@public(name="geom.logpmf")
def _geom_logpmf(k: ArrayLike, p: ArrayLike, loc: ArrayLike = 0) -> Tracer:
    """Return log(p) + (k - 1) log(1 - p) for integers k >= 1."""
    k, p, loc = promote_args_inexact(k, p, loc)
    x = k - loc
    result = special.xlog1py(x - 1, -p) + math_functions.log(p)
    return minus_inf_outside_support(x, (x > 0) & (rounding.round(x) == x), result)


@public(name="dirichlet.logpdf")
def _dirichlet_logpdf(x: ArrayLike, alpha: ArrayLike) -> Tracer:
    """Return the logarithm of the density at a point whose first dimension sums to 1."""
    x, alpha = (as_tracer(v) * 1.0 for v in (x, alpha))
    if x.shape[0] + 1 == alpha.shape[0]:
        x = concatenation.concatenate([x, 1 - basic_reductions.sum(x, axis=0, keepdims=True)])
    if x.shape[0] != alpha.shape[0]:
        raise ShapeError(
            with_location(
                f"dirichlet.logpdf got x of shape {x.shape} for alpha of shape {alpha.shape}"
            )
        )
    a = reshaping.reshape(alpha, (alpha.shape[0], *[1] * (x.ndim - 1)))
    norm = basic_reductions.sum(special.gammaln(alpha)) - special.gammaln(
        basic_reductions.sum(alpha)
    )
    result = basic_reductions.sum(special.xlogy(a - 1, x), axis=0) - norm
    good = basic_reductions.all(x > 0, axis=0) & (
        complex_parts.abs(basic_reductions.sum(x, axis=0) - 1) < 1e-6
    )
    return selection.where(good, result, -dtypes.inf)


@public(name="multivariate_normal.logpdf")
def _multivariate_normal_logpdf(x: ArrayLike, mean: ArrayLike, cov: ArrayLike) -> Tracer:
    """Return the logarithm of the density at vectors `x`.

    `cov` is a covariance matrix, or one variance of all components.
    """
    x, mean, cov = (as_tracer(v) * 1.0 for v in (x, mean, cov))
    if not mean.ndim:
        return -0.5 * ((x - mean) ** 2 / cov + math_functions.log(2 * pi * cov))
    size = mean.shape[-1]
    deviation = x - mean
    if not cov.ndim:
        squares = basic_reductions.sum(deviation * deviation, axis=-1) / cov
        return -0.5 * (squares + size * (math_functions.log(cov) + log_of(2 * pi)))
    if cov.shape[-2:] != (size, size):
        raise ShapeError(
            with_location(
                f"multivariate_normal.logpdf got a covariance of shape {cov.shape} for a mean of "
                f"shape {mean.shape}; it is square, of the size of the mean"
            )
        )
    factor = linalg.cholesky(cov)
    batch = reshaping.broadcast_shapes(deviation.shape[:-1], cov.shape[:-2])
    batched_factor = reshaping.broadcast_to(factor, (*batch, size, size))
    column = reshaping.broadcast_to(deviation, (*batch, size))[..., None]
    white = linalg.solve(batched_factor, column)[..., 0]
    log_determinant = basic_reductions.sum(
        math_functions.log(diagonals.diagonal(factor, axis1=-2, axis2=-1)), axis=-1
    )
    return (
        -0.5 * basic_reductions.sum(white * white, axis=-1)
        - size / 2 * log_of(2 * pi)
        - log_determinant
    )


bernoulli = SimpleNamespace(
    logpmf=_bernoulli_logpmf,
    pmf=exponentiate(_bernoulli_logpmf),
    cdf=_bernoulli_cdf,
    ppf=_bernoulli_ppf,
)
"""The Bernoulli distribution with the probability `p` of 1."""
poisson = SimpleNamespace(
    logpmf=_poisson_logpmf, pmf=exponentiate(_poisson_logpmf), cdf=_poisson_cdf
)
"""The Poisson distribution with the mean `mu`."""
geom = SimpleNamespace(logpmf=_geom_logpmf, pmf=exponentiate(_geom_logpmf))
"""The geometric distribution with the probability `p` of success."""
multivariate_normal = SimpleNamespace(
    logpdf=_multivariate_normal_logpdf, pdf=exponentiate(_multivariate_normal_logpdf)
)
"""The normal distribution of vectors with a mean and a covariance matrix."""
dirichlet = SimpleNamespace(logpdf=_dirichlet_logpdf, pdf=exponentiate(_dirichlet_logpdf))
"""The Dirichlet distribution with the concentrations `alpha`."""
