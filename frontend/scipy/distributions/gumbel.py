"""Gumbel distributions: limits of the largest and the smallest of many samples."""

from shardir.frontend.numpy.elementwise import math_functions, selection
from shardir.frontend.scipy.distributions.distribution import Distribution
from shardir.frontend.scipy.distributions.log_probabilities import log_one_minus_exp, one_minus_exp
from shardir.frontend.tracing.tracer import Tracer

LINEAR_FROM = 20.0
"""The argument from which on log(1 - exp(-exp(-x))) is -x - exp(-x) / 2 in f64."""


def _logpdf(x: Tracer) -> Tracer:
    return -x - math_functions.exp(-x)


def _logsf(x: Tracer) -> Tracer:
    near = selection.minimum(x, LINEAR_FROM)
    far = selection.maximum(x, LINEAR_FROM)
    return selection.where(
        x < LINEAR_FROM,
        log_one_minus_exp(math_functions.exp(-near)),
        -far - 0.5 * math_functions.exp(-far),
    )


def _cdf(x: Tracer) -> Tracer:
    return math_functions.exp(-math_functions.exp(-x))


def _sf(x: Tracer) -> Tracer:
    return one_minus_exp(math_functions.exp(-x))


def _logcdf(x: Tracer) -> Tracer:
    return -math_functions.exp(-x)


def _ppf(q: Tracer) -> Tracer:
    return -math_functions.log(-math_functions.log(q))


def _isf(q: Tracer) -> Tracer:
    return -math_functions.log(-math_functions.log1p(-q))


gumbel_r = Distribution("gumbel_r", 0, _logpdf, _cdf, _sf, _logcdf, _logsf, _ppf, _isf)
"""The right-skewed Gumbel distribution, of maxima."""
gumbel_l = Distribution(
    "gumbel_l",
    0,
    lambda x: _logpdf(-x),
    lambda x: _sf(-x),
    lambda x: _cdf(-x),
    lambda x: _logsf(-x),
    lambda x: _logcdf(-x),
    lambda q: -_isf(q),
    lambda q: -_ppf(q),
)
"""The left-skewed Gumbel distribution, of minima."""
