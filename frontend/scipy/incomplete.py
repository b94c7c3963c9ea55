"""Incomplete gamma and beta functions, by series and continued fractions.

A loop has no way back, so each has a rule: the derivative for x is a formula, that for the other
arguments is taken forward through the loop.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from shardir.frontend import numpy as snp
from shardir.frontend.custom_jvp import custom_jvp
from shardir.frontend.directions import jvp
from shardir.frontend.eager import public
from shardir.frontend.lax.loops import while_loop
from shardir.frontend.numpy.pointwise import floats, like, ordered
from shardir.frontend.scipy.gammas import betaln, gammaln
from shardir.frontend.scipy.large_gamma import both_large, is_large
from shardir.frontend.scipy.narrow import in_double
from shardir.frontend.scipy.stirling import log_poisson
from shardir.frontend.scipy.twofold import two_product, two_sum
from shardir.frontend.scipy.weights import beta_weight, poisson_weight

EULER = 0.5772156649015329
"""The negative slope of log(gamma(x)) at 1."""
END = 0.99
"""From here on the fraction for what is below takes too many rounds."""
MOST = 10_000
"""Rounds after which a loop ends whatever it has."""


def _eps(x: Any) -> float:
    """What may be left out, relative: f64 for narrower floats need not be as good as it can."""
    return float(np.finfo(np.float64).eps) if x.dtype == np.float64 else 2.0**-34


def _series(a: Any, x: Any, eps: float) -> Any:
    """The lower incomplete gamma function over x**a exp(-x) / gamma(a + 1)."""

    def goes_on(state: Any) -> Any:
        n, term, total = state
        return snp.any(snp.abs(term) > eps * snp.abs(total)) & (n < MOST)

    def step(state: Any) -> Any:
        n, term, total = state
        term = term * x / (a + n)
        return n + 1, term, total + term

    one = snp.ones_like(x)
    return while_loop(goes_on, step, (snp.ones((), x.dtype), one, one))[2]


def _fraction(first: Any, term: Callable[[Any], tuple[Any, Any]], eps: float) -> Any:
    """first + a1/(b1 + a2/(b2 + ...)), where `term(n)` is (a_n, b_n), by J. Steed's method: as a
    sum, whose terms lose more digits the smaller they are."""
    tiny = 1e-30

    def inverse_of(x: Any) -> Any:
        return 1 / snp.where(snp.abs(x) < tiny, snp.full_like(x, tiny), x)

    def goes_on(state: Any) -> Any:
        n, total, _, change = state
        return snp.any(snp.abs(change) > eps * snp.abs(total)) & (n < MOST)

    def step(state: Any) -> Any:
        n, total, before, change = state
        top, bottom = term(n)
        inverse = inverse_of(bottom + top * before)
        change = -(top * before) * inverse * change
        return n + 1, total + change, inverse, change

    one = snp.ones((), first.dtype)
    top, bottom = term(one)
    inverse = inverse_of(bottom)
    change = top * inverse
    return while_loop(goes_on, step, (one + 1, first + change, inverse, change))[1]


def _upper(a: Any, x: Any, eps: float) -> Any:
    """The upper incomplete gamma function over x**a exp(-x) / gamma(a)."""

    def term(n: Any) -> tuple[Any, Any]:
        return n * (a - n), x + 2 * n + 1 - a

    return 1 / _fraction(x + 1 - a, term, eps)


def _log_gamma_past_one(a: Any) -> Any:
    """log(gamma(1 + a)) for a from 0 to 2: in proportion to the a that 1 + a has."""
    held = (1 + a) - 1
    ratio = gammaln(1 + a) / snp.where(held == 0, like(a, 1), held)
    return a * snp.where(held == 0, like(a, -EULER), ratio)


def _upper_small(a: Any, x: Any, eps: float) -> Any:
    """The upper incomplete gamma function of small a and x, where it is far below 1.

    x**a / gamma(1 + a) times 1 plus a series, less 1, none of which is rounded beside 1
    (W. Gautschi, ACM TOMS 5, 1979).
    """

    def goes_on(state: Any) -> Any:
        n, term, total = state
        return snp.any(snp.abs(term) > eps * snp.abs(total)) & (n < MOST)

    def step(state: Any) -> Any:
        n, term, total = state
        term = term * (-x / n)
        return n + 1, term, total + term / (a + n)

    one = snp.ones((), x.dtype)
    total = while_loop(goes_on, step, (one, snp.ones_like(x), snp.zeros_like(x)))[2]
    power = a * snp.log(x) - _log_gamma_past_one(a)
    return -snp.expm1(power) - snp.exp(power) * (a * total)


def _both(a: Any, x: Any, eps: float) -> tuple[Any, Any]:
    """The regularised lower and upper incomplete gamma functions."""
    good = (x > 0) & (a > 0) & snp.isfinite(x)
    large = good & is_large(a, x, eps)
    good_a = snp.where(good, a, snp.ones_like(a))
    good_x = snp.where(good, x, snp.ones_like(x))
    # The bounds are those within which the upper function is below about a half.
    most = snp.where(x < 0.5, -0.4 / snp.log(snp.minimum(good_x, 0.5)), 1.1 * good_x)
    small = good & (x < 1.1) & (a < most)
    # Between a and a + 1 either way does; the upper function of small a is small there.
    low = x < snp.where((x >= 1.1) & (a < 3), a, a + 1)
    safe_a = snp.where(large, snp.ones_like(a), good_a)
    safe_x = snp.where(large, snp.ones_like(a), good_x)
    inner = snp.where(good & low & ~large & ~small, x, snp.ones_like(x) * 0.5)
    outer = snp.where(good & ~low & ~large, x, safe_a + 2)
    weight = poisson_weight(safe_a, safe_x)
    below = weight * _series(snp.where(low, safe_a, snp.ones_like(a)), inner, eps)
    above = weight * safe_a * _upper(safe_a, outer, eps)
    upper_small = _upper_small(
        snp.where(small, a, like(a, 0.5)), snp.where(small, x, like(x, 1e-3)), eps
    )
    above = snp.where(small, upper_small, above)
    low = low & ~small
    lower = snp.where(low, below, 1 - above)
    upper = snp.where(low, 1 - below, above)
    far = both_large(snp.where(large, a, like(a, 1000)), snp.where(large, x, like(x, 1000)))
    lower, upper = snp.where(large, far[0], lower), snp.where(large, far[1], upper)
    wrong = (x < 0) | (a < 0) | snp.isnan(x) | snp.isnan(a) | ((a == 0) & (x == 0))
    end = ((x == 0) | (x == snp.inf) | (a == 0)) & ~wrong
    full = (x == snp.inf) | (a == 0)
    lower = snp.where(end, snp.where(full, 1.0, 0.0), lower)
    upper = snp.where(end, snp.where(full, 0.0, 1.0), upper)
    return snp.where(wrong, snp.nan, lower), snp.where(wrong, snp.nan, upper)


def _slope(fun: Callable[..., Any], args: tuple[Any, ...], at: int) -> Any:
    """The derivative of an elementwise function for one of its arguments."""
    tangents = tuple(snp.ones_like(x) if i == at else snp.zeros_like(x) for i, x in enumerate(args))
    return jvp(fun, args, tangents)[1]


@in_double
def _density(a: Any, x: Any) -> Any:
    return snp.exp(log_poisson(a - 1, x, (a - 1) * snp.log(x) - x - gammaln(a)))


def lower_gamma(a: Any, x: Any) -> Any:
    eps = _eps(x)
    return in_double(lambda a, x: _both(a, x, eps)[0])(a, x)


def upper_gamma(a: Any, x: Any) -> Any:
    eps = _eps(x)
    return in_double(lambda a, x: _both(a, x, eps)[1])(a, x)


_lower = custom_jvp(lower_gamma)
_higher = custom_jvp(upper_gamma)


@_lower.defjvp
def _lower_rule(primals: Any, tangents: Any) -> Any:
    made = _density(*primals) * tangents[1] + _slope(lower_gamma, primals, 0) * tangents[0]
    return _lower(*primals), made


@_higher.defjvp
def _higher_rule(primals: Any, tangents: Any) -> Any:
    made = _density(*primals) * tangents[1] + _slope(lower_gamma, primals, 0) * tangents[0]
    return _higher(*primals), -made


@public()
def gammainc(a: Any, x: Any) -> Any:
    """The regularised lower incomplete gamma function."""
    return _lower(*floats(*ordered("gammainc", a, x)))


@public()
def gammaincc(a: Any, x: Any) -> Any:
    """The regularised upper incomplete gamma function."""
    return _higher(*floats(*ordered("gammaincc", a, x)))


def _beta_below(a: Any, b: Any, x: Any, eps: float) -> Any:
    good = (x > 0) & (x < 1) & (a > 0) & (b > 0)
    a, b = snp.where(good, a, snp.ones_like(a)), snp.where(good, b, snp.ones_like(b))
    inner = snp.where(good, x, snp.full_like(x, 0.5))
    # Where b is small the function is, too, beyond the mean: it would be 1 less what is nearly 1.
    low = (b < 1) & (b < a) & (inner < END)
    swap = (inner > (a + 1) / (a + b + 2)) & ~low
    p, q = snp.where(swap, b, a), snp.where(swap, a, b)
    left, lost = two_sum(like(x, 1), -inner)
    none = like(x, 0)
    z, z_lost = snp.where(swap, left, inner), snp.where(swap, lost, none)
    rest = snp.where(swap, inner, left), snp.where(swap, none, lost)

    # p (1 - z) - q z, which is small near the mean.
    of_p, slip = two_product(p, rest[0])
    of_q, other = two_product(q, z)
    apart = (of_p - of_q) + ((slip - other) + (p * rest[1] - q * z_lost))

    def bottom(n: Any) -> Any:
        twice = p + 2 * n
        return n + n * (q - n) * z / (twice - 1) + (p + n) * (apart + 1 + n * (2 - z)) / (twice + 1)

    def term(n: Any) -> tuple[Any, Any]:
        below = p + 2 * n - 1
        top = (n * (p + n - 1) / below) * ((p + q + n - 1) / below) * (q - n)
        return top * z * z, bottom(n)

    first = p * (apart + 1) / (p + 1)
    value = beta_weight(p, q, (z, z_lost), rest) / _fraction(first, term, eps)
    value = snp.where(swap, 1 - value, value)
    outside = snp.where(x <= 0, 0.0, 1.0)
    ends = snp.where((x == 0) | (x == 1), outside, snp.nan)
    return snp.where(good, value, ends)


def _betainc_plain(a: Any, b: Any, x: Any) -> Any:
    return in_double(partial(_beta_below, eps=_eps(x)))(a, b, x)


@in_double
def _beta_density(a: Any, b: Any, x: Any) -> Any:
    return snp.exp((a - 1) * snp.log(x) + (b - 1) * snp.log1p(-x) - betaln(a, b))


_betainc = custom_jvp(_betainc_plain)


@_betainc.defjvp
def _betainc_rule(primals: Any, tangents: Any) -> Any:
    made = _beta_density(*primals) * tangents[2]
    for at in (0, 1):
        made = made + _slope(_betainc_plain, primals, at) * tangents[at]
    return _betainc(*primals), made


@public()
def betainc(a: Any, b: Any, x: Any) -> Any:
    """The regularised incomplete beta function."""
    return _betainc(*floats(*ordered("betainc", a, b, x)))
