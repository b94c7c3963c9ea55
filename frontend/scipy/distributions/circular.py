"""Distributions of angles."""

from math import log as log_of, pi

from shardir.frontend.numpy import dtypes
from shardir.frontend.numpy.elementwise import math_functions, selection
from shardir.frontend.scipy import special
from shardir.frontend.scipy.distributions.distribution import Distribution
from shardir.frontend.tracing.tracer import Tracer


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
