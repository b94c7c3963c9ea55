"""The normal distribution, truncated to an interval.

The probability of an interval is the difference of two tails of the normal distribution, on the
side where they are small.
"""

from math import log as log_of, pi

from shardir.frontend.numpy import dtypes
from shardir.frontend.numpy.elementwise import math_functions, selection
from shardir.frontend.scipy import special
from shardir.frontend.scipy.distributions.distribution import Distribution
from shardir.frontend.scipy.distributions.log_probabilities import log_one_minus_exp
from shardir.frontend.scipy.special_functions.double_double import compute_in_double
from shardir.frontend.tracing.tracer import Tracer

PRECISE_BELOW = -0.1
"""The logarithm of a probability above which it is computed from its complement."""


def _log_probability(a: Tracer, b: Tracer) -> Tracer:
    """Return the logarithm of the probability of the interval from `a` to `b`."""
    is_right = a > 0
    low, high = selection.where(is_right, -b, a), selection.where(is_right, -a, b)
    far, near = special.log_ndtr(low), special.log_ndtr(high)
    # Where the interval is empty, any finite difference keeps derivatives finite.
    gap = selection.where(near > far, near - far, 1.0)
    tail = selection.where(near > far, near + log_one_minus_exp(gap), -dtypes.inf)
    middle = math_functions.log1p(-special.ndtr(a) - special.ndtr(-b))
    return selection.where((a <= 0) & (b > 0), middle, tail)


@compute_in_double
def _logpdf(x: Tracer, a: Tracer, b: Tracer) -> Tracer:
    value = -0.5 * (x * x + log_of(2 * pi)) - _log_probability(a, b)
    value = selection.where((x < a) | (x > b), -dtypes.inf, value)
    return selection.where(a < b, value, dtypes.nan)


def _logcdf(x: Tracer, a: Tracer, b: Tracer) -> Tracer:
    inner = selection.clip(x, a, b)
    total = _log_probability(a, b)
    below, above = _log_probability(a, inner) - total, _log_probability(inner, b) - total
    is_near_one = below > PRECISE_BELOW
    complement = log_one_minus_exp(selection.where(is_near_one, -above, 1.0))
    value = selection.where(is_near_one, complement, below)
    value = selection.where(x >= b, 0.0, selection.where(x <= a, -dtypes.inf, value))
    return selection.where(a < b, value, dtypes.nan)


def _logsf(x: Tracer, a: Tracer, b: Tracer) -> Tracer:
    return _logcdf(-x, -b, -a)


truncnorm = Distribution(
    "truncnorm",
    2,
    _logpdf,
    compute_in_double(lambda *xs: math_functions.exp(_logcdf(*xs))),
    compute_in_double(lambda *xs: math_functions.exp(_logsf(*xs))),
    compute_in_double(_logcdf),
    compute_in_double(_logsf),
)
"""The normal distribution between `a` and `b`, in units of `scale` from `loc`."""
