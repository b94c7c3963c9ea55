"""The incomplete gamma functions, by series and continued fractions."""

from typing import Any

from shardir.frontend import numpy as snp
from shardir.frontend.custom_jvp import custom_jvp
from shardir.frontend.eager import public
from shardir.frontend.lax.loops import while_loop
from shardir.frontend.numpy.pointwise import floats, like, ordered
from shardir.frontend.scipy.endless import MOST, exactness, fraction, slope
from shardir.frontend.scipy.gammas import gammaln
from shardir.frontend.scipy.large_gamma import both_large, is_large
from shardir.frontend.scipy.narrow import in_double
from shardir.frontend.scipy.stirling import FAR, log_poisson
from shardir.frontend.scipy.weights import is_near, poisson_weight

EULER = 0.5772156649015329
"""Euler's constant: the negative derivative of log(gamma(x)) at 1."""
HUGE, LESS = 1e270, 2.0**-100
"""Above the first, arguments are scaled by the second; the functions are steps in both ranges."""


def _sums(a: Any, x: Any, small: Any, eps: float) -> Any:
    """Return the lower incomplete gamma function over x**a exp(-x) / gamma(a + 1), as a series.

    Where `small`, return the sum of (-x)**n / (n! (a + n)) for n >= 1. One loop computes both,
    because each element needs only one of them.
    """
    one = snp.ones_like(x)
    factor = snp.where(small, -x, x)

    def is_unconverged(state: Any) -> Any:
        n, term, total = state
        return snp.any(snp.abs(term) > eps * snp.abs(total)) & (n < MOST)

    def step(state: Any) -> Any:
        n, term, total = state
        beyond = a + n
        term = term * factor / snp.where(small, n, beyond)
        return n + 1, term, total + snp.where(small, term / beyond, term)

    state = snp.ones((), x.dtype), one, snp.where(small, like(x, 0), one)
    return while_loop(is_unconverged, step, state)[2]


def _upper(a: Any, x: Any, eps: float) -> Any:
    """Return the upper incomplete gamma function over x**a exp(-x) / gamma(a)."""

    def term(n: Any) -> tuple[Any, Any]:
        return n * (a - n), x + 2 * n + 1 - a

    return 1 / fraction(x + 1 - a, term, eps)


def _log_gamma_past_one(a: Any) -> Any:
    """Return log(gamma(1 + a)) for a from 0 to 2, accurate relative to the a that 1 + a
    contains.
    """
    rounded_a = (1 + a) - 1
    ratio = gammaln(1 + a) / snp.where(rounded_a == 0, like(a, 1), rounded_a)
    return a * snp.where(rounded_a == 0, like(a, -EULER), ratio)


def _upper_small(a: Any, x: Any, total: Any) -> Any:
    """Return the upper incomplete gamma function of small a and x, where it is far below 1.

    It is x**a / gamma(1 + a) times 1 plus a series, minus 1, computed without rounding next to 1
    (W. Gautschi, ACM TOMS 5, 1979).
    """
    power = a * snp.log(x) - _log_gamma_past_one(a)
    return -snp.expm1(power) - snp.exp(power) * (a * total)


def _both(a: Any, x: Any, eps: float) -> tuple[Any, Any]:
    """Return the regularized lower and upper incomplete gamma functions."""
    is_invalid = (x < 0) | (a < 0) | snp.isnan(x) | snp.isnan(a)
    is_invalid = is_invalid | ((a == x) & ((x == 0) | (x == snp.inf)))
    scale = snp.where(snp.maximum(a, x) > HUGE, like(a, LESS), like(a, 1))
    a, x = a * scale, x * scale
    is_regular = (x > 0) & (a > 0) & snp.isfinite(x) & snp.isfinite(a)
    large = is_regular & is_large(a, x, eps)
    good_a = snp.where(is_regular, a, snp.ones_like(a))
    good_x = snp.where(is_regular, x, snp.ones_like(x))
    # Within these bounds the upper function is below about 1/2.
    max_a = snp.where(x < 0.5, -0.4 / snp.log(snp.minimum(good_x, 0.5)), 1.1 * good_x)
    small = is_regular & (x < 1.1) & (a < max_a)
    # Between a and a + 1 both methods converge; the upper function of small a is small there.
    low = x < snp.where((x >= 1.1) & (a < 3), a, a + 1)
    summed = (is_regular & low & ~large) | small
    inner_a, inner = snp.where(summed, a, like(a, 1)), snp.where(summed, x, like(x, 0.5))
    sums = _sums(inner_a, inner, small, eps)
    safe_a = snp.where(large, like(a, 1), good_a)
    outer = snp.where(is_regular & ~low & ~large, x, safe_a + 2)
    weight = poisson_weight(good_a, good_x)
    below = weight * sums
    above = weight * safe_a * _upper(safe_a, outer, eps)
    above = snp.where(small, _upper_small(inner_a, inner, sums), above)
    low = low & ~small
    lower = snp.where(low, below, 1 - above)
    upper = snp.where(low, 1 - below, above)
    # The arguments are those of the weight, so that both share operations.
    center = snp.where(good_a >= FAR, good_a, like(a, FAR))
    expansion = both_large(center, snp.where(is_near(good_a, good_x), good_x, center))
    lower, upper = snp.where(large, expansion[0], lower), snp.where(large, expansion[1], upper)
    is_limit = ((x == 0) | (x == snp.inf) | (a == 0) | (a == snp.inf)) & ~is_invalid
    is_one = (x == snp.inf) | (a == 0)
    lower = snp.where(is_limit, snp.where(is_one, 1.0, 0.0), lower)
    upper = snp.where(is_limit, snp.where(is_one, 0.0, 1.0), upper)
    return snp.where(is_invalid, snp.nan, lower), snp.where(is_invalid, snp.nan, upper)


@in_double
def _density(a: Any, x: Any) -> Any:
    return snp.exp(log_poisson(a - 1, x, (a - 1) * snp.log(x) - x - gammaln(a)))


def lower_gamma(a: Any, x: Any) -> Any:
    """Return the regularized lower incomplete gamma function, without a custom derivative."""
    eps = exactness(x)
    return in_double(lambda a, x: _both(a, x, eps)[0])(a, x)


def upper_gamma(a: Any, x: Any) -> Any:
    """Return the regularized upper incomplete gamma function, without a custom derivative."""
    eps = exactness(x)
    return in_double(lambda a, x: _both(a, x, eps)[1])(a, x)


_lower = custom_jvp(lower_gamma)
_higher = custom_jvp(upper_gamma)


@_lower.defjvp
def _lower_rule(primals: Any, tangents: Any) -> Any:
    result = _density(*primals) * tangents[1] + slope(lower_gamma, primals, 0) * tangents[0]
    return _lower(*primals), result


@_higher.defjvp
def _higher_rule(primals: Any, tangents: Any) -> Any:
    result = _density(*primals) * tangents[1] + slope(lower_gamma, primals, 0) * tangents[0]
    return _higher(*primals), -result


@public()
def gammainc(a: Any, x: Any) -> Any:
    """Return the regularized lower incomplete gamma function, elementwise."""
    return _lower(*floats(*ordered("gammainc", a, x)))


@public()
def gammaincc(a: Any, x: Any) -> Any:
    """Return the regularized upper incomplete gamma function, elementwise."""
    return _higher(*floats(*ordered("gammaincc", a, x)))
