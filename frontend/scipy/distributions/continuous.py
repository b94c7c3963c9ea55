"""Continuous distributions, each a namespace of functions of `x`, `loc` and `scale`.

Outside of the support a density is 0 and its logarithm -inf.
"""

from math import log as log_of, pi

from shardir.frontend.arrays.array_types import ArrayLike
from shardir.frontend.numpy import dtypes
from shardir.frontend.numpy.creation import filling
from shardir.frontend.numpy.elementwise import arithmetic, complex_parts, math_functions, selection
from shardir.frontend.numpy.tracer_helpers.elementwise_emission import constant_like
from shardir.frontend.scipy import special
from shardir.frontend.scipy.distributions.distribution import Distribution
from shardir.frontend.scipy.distributions.log_probabilities import log_one_minus_exp, one_minus_exp
from shardir.frontend.scipy.special_functions.double_double import compute_in_double
from shardir.frontend.scipy.special_functions.stirling import log_poisson
from shardir.frontend.tracing.tracer import Tracer

SQUARE_DOMINATES_FROM = 1e9
"""The argument from which on 1 + x^2 rounds to x^2 in f64."""


def _minus_inf_outside(outside: ArrayLike, value: ArrayLike) -> Tracer:
    """Return -inf where `outside` is true; NaN is not outside."""
    return selection.where(outside, -dtypes.inf, value)


def _uniform_cdf(x: ArrayLike) -> Tracer:
    return selection.clip(x, 0, 1)


def _gamma_logpdf(x: Tracer, a: Tracer) -> Tracer:
    safe = selection.where(x < 0, filling.ones_like(x), x)
    plain = special.xlogy(a - 1, safe) - safe - special.gammaln(a)
    return _minus_inf_outside(x < 0, log_poisson(a - 1, safe, plain))


@compute_in_double
def _beta_logpdf(x: Tracer, a: Tracer, b: Tracer) -> Tracer:
    outside = (x < 0) | (x > 1)
    safe = selection.where(outside, filling.full_like(x, 0.5), x)
    value = special.xlogy(a - 1, safe) + special.xlog1py(b - 1, -safe) - special.betaln(a, b)
    return _minus_inf_outside(outside, value)


def _t_logpdf(x: ArrayLike, df: Tracer) -> Tracer:
    half = (df + 1) / 2
    value = -special.betaln(df / 2, constant_like(df, 0.5)) - 0.5 * math_functions.log(df)
    return value - half * _log1p_square(x / math_functions.sqrt(df))


@compute_in_double
def _t_cdf(x: Tracer, df: Tracer) -> Tracer:
    """Compute the distribution function near the centre by the side next to 0, else by the tail.

    Both have small rounding errors.
    """
    square = x * x
    middle, half, half_df = square < 1, constant_like(df, 0.5), df / 2
    part = selection.where(middle, square, df) / (df + square)
    a, b = selection.where(middle, half, half_df), selection.where(middle, half_df, half)
    share = 0.5 * special.betainc(a, b, part)
    right = selection.where(middle, 0.5 + share, 1 - share)
    return selection.where(x > 0, right, selection.where(middle, 0.5 - share, share))


@compute_in_double
def _beta_sf(x: Tracer, a: Tracer, b: Tracer) -> Tracer:
    """Return 1 minus the distribution function where that is not near 1, else the tail."""
    x = selection.clip(x, 0, 1)
    left = x * (a + b) < a
    first, second = selection.where(left, a, b), selection.where(left, b, a)
    share = special.betainc(first, second, selection.where(left, x, 1 - x))
    return selection.where(left, 1 - share, share)


def _chi2_logpdf(x: Tracer, df: Tracer) -> Tracer:
    return _gamma_logpdf(x / 2, df / 2) - log_of(2)


def _laplace_cdf(x: Tracer) -> Tracer:
    half = 0.5 * math_functions.exp(-complex_parts.abs(x))
    return selection.where(x < 0, half, 1 - half)


def _laplace_logcdf(x: Tracer) -> Tracer:
    half = 0.5 * math_functions.exp(-complex_parts.abs(x))
    return selection.where(x < 0, x - log_of(2), math_functions.log1p(-half))


def _logistic_logcdf(x: ArrayLike) -> Tracer:
    return selection.minimum(x, 0.0) - math_functions.log1p(
        math_functions.exp(-complex_parts.abs(x))
    )


def _log1p_square(x: Tracer) -> Tracer:
    """Return log(1 + x^2) without overflow of the square."""
    is_large = complex_parts.abs(x) > SQUARE_DOMINATES_FROM
    large = 2 * math_functions.log(
        selection.where(is_large, complex_parts.abs(x), constant_like(x, 1))
    )
    safe = selection.where(is_large, constant_like(x, 0), x)
    return selection.where(is_large, large, math_functions.log1p(safe * safe))


def _cauchy_cdf(x: Tracer) -> Tracer:
    """Return the angle of (-x, 1) divided by pi, which is small without cancellation."""
    return math_functions.arctan2(constant_like(x, 1), -x) / pi


def _cauchy_logcdf(x: Tracer) -> Tracer:
    tail = _cauchy_cdf(-complex_parts.abs(x))
    return selection.where(x > 0, math_functions.log1p(-tail), math_functions.log(tail))


def _cauchy_ppf(q: Tracer) -> Tracer:
    smaller = selection.minimum(q, 1 - q)
    outer = smaller < 0.25
    tangent = math_functions.tan(pi * selection.where(outer, smaller, 0.5 - smaller))
    size = selection.where(outer, 1 / tangent, tangent)
    return selection.where(q < 0.5, -size, size)


def _pareto_logsf(x: Tracer, b: Tracer) -> Tracer:
    return -b * math_functions.log(selection.maximum(x, 1.0))


def _gennorm_logpdf(x: Tracer, beta: Tracer) -> Tracer:
    power = arithmetic.power(complex_parts.abs(x), beta)
    return math_functions.log(beta / 2) - special.gammaln(1 / beta) - power


@compute_in_double
def _gennorm_cdf(x: Tracer, beta: Tracer) -> Tracer:
    power = arithmetic.power(complex_parts.abs(x), beta)
    tail = 0.5 * special.gammaincc(1 / beta, power)
    return selection.where(x < 0, tail, 1 - tail)


def _clamp_to_positive(x: ArrayLike) -> Tracer:
    return selection.maximum(x, 0.0)


norm = Distribution(
    "norm",
    0,
    lambda x: -0.5 * (x * x + log_of(2 * pi)),
    special.ndtr,
    lambda x: special.ndtr(-x),
    special.log_ndtr,
    lambda x: special.log_ndtr(-x),
    special.ndtri,
    lambda q: -special.ndtri(q),
)
"""The normal distribution."""
uniform = Distribution(
    "uniform",
    0,
    lambda x: _minus_inf_outside((x < 0) | (x > 1), x * 0),
    _uniform_cdf,
    logsf=lambda x: math_functions.log1p(-_uniform_cdf(x)),
    ppf=lambda q: q,
)
"""The uniform distribution between `loc` and `loc + scale`."""
expon = Distribution(
    "expon",
    0,
    lambda x: _minus_inf_outside(x < 0, -x),
    lambda x: one_minus_exp(_clamp_to_positive(x)),
    lambda x: math_functions.exp(-_clamp_to_positive(x)),
    lambda x: log_one_minus_exp(_clamp_to_positive(x)),
    lambda x: -_clamp_to_positive(x),
    ppf=lambda q: -math_functions.log1p(-q),
    isf=lambda q: -math_functions.log(q),
)
"""The exponential distribution."""
logistic = Distribution(
    "logistic",
    0,
    lambda x: (
        -complex_parts.abs(x) - 2 * math_functions.log1p(math_functions.exp(-complex_parts.abs(x)))
    ),
    special.expit,
    lambda x: special.expit(-x),
    _logistic_logcdf,
    lambda x: _logistic_logcdf(-x),
    ppf=special.logit,
    isf=lambda q: -special.logit(q),
)
"""The logistic distribution."""
laplace = Distribution(
    "laplace",
    0,
    lambda x: -complex_parts.abs(x) - log_of(2),
    _laplace_cdf,
    lambda x: _laplace_cdf(-x),
    _laplace_logcdf,
    lambda x: _laplace_logcdf(-x),
)
"""The Laplace distribution."""
cauchy = Distribution(
    "cauchy",
    0,
    lambda x: -log_of(pi) - _log1p_square(x),
    _cauchy_cdf,
    lambda x: _cauchy_cdf(-x),
    _cauchy_logcdf,
    lambda x: _cauchy_logcdf(-x),
    ppf=_cauchy_ppf,
    isf=lambda q: -_cauchy_ppf(q),
)
"""The Cauchy distribution."""
gamma = Distribution(
    "gamma",
    1,
    _gamma_logpdf,
    lambda x, a: special.gammainc(a, _clamp_to_positive(x)),
    lambda x, a: special.gammaincc(a, _clamp_to_positive(x)),
)
"""The gamma distribution with the shape parameter `a`."""
beta = Distribution(
    "beta",
    2,
    _beta_logpdf,
    lambda x, a, b: special.betainc(a, b, selection.clip(x, 0, 1)),
    _beta_sf,
)
"""The beta distribution with the shape parameters `a` and `b`."""
t = Distribution("t", 1, _t_logpdf, _t_cdf, lambda x, df: _t_cdf(-x, df))
"""Student's t distribution with `df` degrees of freedom."""
chi2 = Distribution(
    "chi2",
    1,
    _chi2_logpdf,
    lambda x, df: special.gammainc(df / 2, _clamp_to_positive(x) / 2),
    lambda x, df: special.gammaincc(df / 2, _clamp_to_positive(x) / 2),
)
"""The chi-squared distribution with `df` degrees of freedom."""
pareto = Distribution(
    "pareto",
    1,
    lambda x, b: _minus_inf_outside(
        x < 1, math_functions.log(b) - (b + 1) * math_functions.log(selection.maximum(x, 1.0))
    ),
    lambda x, b: one_minus_exp(-_pareto_logsf(x, b)),
    lambda x, b: arithmetic.power(selection.maximum(x, 1.0), -b),
    lambda x, b: log_one_minus_exp(-_pareto_logsf(x, b)),
    _pareto_logsf,
    ppf=lambda q, b: math_functions.exp(-math_functions.log1p(-q) / b),
    isf=lambda q, b: arithmetic.power(q, -1 / b),
)
"""The Pareto distribution with the shape parameter `b`."""
gennorm = Distribution(
    "gennorm", 1, _gennorm_logpdf, _gennorm_cdf, lambda x, beta: _gennorm_cdf(-x, beta)
)
"""The generalized normal distribution with the exponent `beta`."""


def _half_sine_square(x: Tracer) -> Tracer:
    """Return (1 - cos(x)) / 2 without cancellation."""
    sine = math_functions.sin(x / 2)
    return sine * sine


def _vonmises_logpdf(x: Tracer, kappa: Tracer) -> Tracer:
    norm = math_functions.log(special.i0e(kappa)) + log_of(2 * pi)
    return selection.where(kappa > 0, -2 * kappa * _half_sine_square(x) - norm, dtypes.nan)


def _wrapcauchy_logpdf(x: Tracer, c: Tracer) -> Tracer:
    distance = (1 - c) * (1 - c) + 4 * c * _half_sine_square(x)
    value = math_functions.log((1 - c) * (1 + c) / distance) - log_of(2 * pi)
    inside = selection.where((x < 0) | (x > 2 * pi), -dtypes.inf, value)
    return selection.where((c > 0) & (c < 1), inside, dtypes.nan)


vonmises = Distribution("vonmises", 1, _vonmises_logpdf)
"""The von Mises distribution with the concentration `kappa`."""
wrapcauchy = Distribution("wrapcauchy", 1, _wrapcauchy_logpdf)
"""The wrapped Cauchy distribution of angles from 0 to 2 pi with the concentration `c`."""
