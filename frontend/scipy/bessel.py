"""Modified Bessel functions of order 0 and 1: a polynomial whose coefficients each number chooses.

I_n(x) is the mean of exp(x cos t) cos(n t) over a turn, and the trapezoid rule on that converges
faster than any power; the polynomials interpolate that at Chebyshev's nodes. Each is a constant
and what is small beside it, so that roundings are seen little: exp(-x) I_n(x) around the middles
of intervals, and over x^n around 0; beyond, exp(-x) sqrt(x) I_n(x) in 1 / x.
"""

from collections.abc import Callable
from functools import cache, partial
from itertools import pairwise
from math import comb, factorial
from typing import Any

import numpy as np
import numpy.typing as npt

from shardir.frontend import numpy as snp
from shardir.frontend.custom_jvp import custom_jvp
from shardir.frontend.eager import public
from shardir.frontend.numpy.pointwise import floats, like, ordered
from shardir.frontend.scipy.narrow import in_double, in_single

Array = npt.NDArray[Any]
ENDS = {4: (0.5, 1.5, 3.5), 8: (0.5, 1.5, 3.5, 8.0)}
"""Of the intervals, by the bytes of an element; the last interval is what is beyond."""
TERMS = {4: 13, 8: 24}
"""Of the polynomials."""
POINTS = 2048
ENDLESS = 1000.0
"""From here on the functions are infinite, but for their scale."""
LARGE, LESS = 700.0, 530.76171875
"""From where on exp(x) may be infinite where I_n(x) is not, and what is taken from such an x: an
exact difference, and its exponential happens to have four digits more than f64."""


def scaled(order: int, x: Array) -> Array:
    """exp(-x) I_n(x) for x from 0 to 100,000, in the longest floats that there are."""
    turn = np.arange(-POINTS // 2, POINTS // 2) * (2 * np.arccos(np.longdouble(-1)) / POINTS)
    waves: Array = np.exp(-2 * x[:, None] * np.sin(turn / 2) ** 2)
    mean: Array = (waves * np.cos(order * turn)).mean(1)
    return mean


def _interpolated(function: Callable[[Array], Array], low: Any, high: Any, count: int) -> Array:
    """Coefficients of powers of x, from -1 at `low` to 1 at `high`."""
    angles = np.arccos(np.longdouble(-1)) * (np.arange(count) + np.longdouble(0.5)) / count
    middle, half = (low + high) / np.longdouble(2), (high - low) / np.longdouble(2)
    values = function(middle + half * np.cos(angles))
    terms = 2 / np.longdouble(count) * np.cos(np.outer(np.arange(count), angles)) @ values
    terms[0] /= 2
    return np.asarray(np.polynomial.chebyshev.cheb2poly(terms))


def _around_zero(order: int, count: int) -> Array:
    """Coefficients of the power series of exp(-x) I_n(x) / x^n.

    Of order 0 they are (-1/2)^k binomial(2k, k) / k!, and exp(-x) I_1(x) is that and its slope.
    """
    zero = np.array([np.longdouble(comb(2 * k, k)) / (-2) ** k / factorial(k) for k in range(31)])
    one = zero[1:-1] + np.arange(2, 31) * zero[2:]
    return (zero, one)[order][:count]


@cache
def _series(order: int, size: int) -> tuple[tuple[float, ...], ...]:
    """The coefficients of all intervals, by power, and last what the constant terms lack."""
    count, ends = TERMS[size], ENDS[size]
    made = [_around_zero(order, count)]
    for low, high in pairwise(ends):
        terms = _interpolated(partial(scaled, order), low, high, count)
        made.append(terms / ((high - low) / 2) ** np.arange(count))
    last = ends[-1]
    made.append(_interpolated(lambda u: scaled(order, 1 / u) / np.sqrt(u), 0, 1 / last, count))
    table = np.array(made).T
    number = np.float32 if size == 4 else np.float64
    lost = table[0] - table[0].astype(number)
    return tuple(tuple(map(float, row)) for row in (*table, lost))


def _falling(order: int, x: Any, width: int | None = None) -> Any:
    """exp(-|x|) I_n(x), as good as its element type or one of so many bytes."""
    size, width = snp.abs(x), width or x.dtype.itemsize
    ends = ENDS[width]
    beyond = [size > end for end in ends]

    def chosen(numbers: tuple[float, ...]) -> Any:
        made = like(size, numbers[0])
        for test, number in zip(beyond, numbers[1:], strict=True):
            made = snp.where(test, like(size, number), made)
        return made

    middles = [(low + high) / 2 for low, high in pairwise(ends)]
    far = 2 * ends[-1] / snp.maximum(size, ends[-1]) - 1
    apart = snp.where(beyond[-1], far, size - chosen((0.0, *middles, 0.0)))
    # In the order of use: f64 has more steps than a kernel takes.
    first, *middle, last, lost = _series(order, width)
    total = chosen(last)
    for numbers in reversed(middle):
        total = total * apart + chosen(numbers)
    value = chosen(first) + (total * apart + chosen(lost))
    value = value / snp.where(beyond[-1], snp.sqrt(size), like(size, 1))
    return value * snp.where(beyond[0], snp.sign(x), x) if order else value


def _rising(order: int, x: Any) -> Any:
    """I_n(x), of narrower floats by f64: the product of two that are rounded would be off by 3."""
    return in_double(partial(_product, order, 8 if x.dtype.itemsize == 8 else 4))(x)


def _product(order: int, width: int, x: Any) -> Any:
    """I_n(x); what falls is nothing times infinity at infinity, so it is taken before that."""
    size = snp.abs(x)
    large = size > LARGE
    scale = snp.where(large, like(size, float(np.exp(np.longdouble(LESS)))), like(size, 1))
    rise = snp.exp(snp.where(large, size - LESS, size))
    return rise * _falling(order, snp.clip(x, -ENDLESS, ENDLESS), width) * scale


@custom_jvp
def _i0e(x: Any) -> Any:
    return in_single(partial(_falling, 0))(x)


@custom_jvp
def _i1e(x: Any) -> Any:
    return in_single(partial(_falling, 1))(x)


@_i0e.defjvp
def _i0e_rule(primals: Any, tangents: Any) -> Any:
    (x,) = primals
    value = _i0e(x)
    return value, (_i1e(x) - snp.sign(x) * value) * tangents[0]


@_i1e.defjvp
def _i1e_rule(primals: Any, tangents: Any) -> Any:
    (x,) = primals
    value = _i1e(x)
    safe = snp.where(x == 0, snp.ones_like(x), x)
    slope = _i0e(x) - value * (snp.sign(x) + 1 / safe)
    return value, snp.where(x == 0, snp.full_like(x, 0.5), slope) * tangents[0]


@custom_jvp
def _i0(x: Any) -> Any:
    return _rising(0, x)


@_i0.defjvp
def _i0_rule(primals: Any, tangents: Any) -> Any:
    (x,) = primals
    return _i0(x), _i1(x) * tangents[0]


@custom_jvp
def _i1(x: Any) -> Any:
    return _rising(1, x)


@_i1.defjvp
def _i1_rule(primals: Any, tangents: Any) -> Any:
    (x,) = primals
    value = _i1(x)
    safe = snp.where(x == 0, snp.ones_like(x), x)
    slope = snp.where(x == 0, snp.full_like(x, 0.5), _i0(x) - value / safe)
    return value, slope * tangents[0]


@public()
def i0e(x: Any) -> Any:
    """exp(-|x|) times the modified Bessel function of order 0."""
    return _i0e(*floats(*ordered("i0e", x)))


@public()
def i1e(x: Any) -> Any:
    """exp(-|x|) times the modified Bessel function of order 1."""
    return _i1e(*floats(*ordered("i1e", x)))


@public()
def i0(x: Any) -> Any:
    """The modified Bessel function of order 0."""
    return _i0(*floats(*ordered("i0", x)))


@public()
def i1(x: Any) -> Any:
    """The modified Bessel function of order 1."""
    return _i1(*floats(*ordered("i1", x)))
