"""Modified Bessel functions of order 0 and 1: power series up to 8, polynomials in 1 / x beyond.

I_n(x) is the mean of exp(x cos t) cos(n t) over a turn, and the trapezoid rule on that converges
faster than any power; the polynomials interpolate that at Chebyshev's nodes.
"""

from functools import cache, partial
from math import factorial
from typing import Any

import numpy as np
import numpy.typing as npt

from shardir.frontend import numpy as snp
from shardir.frontend.custom_jvp import custom_jvp
from shardir.frontend.eager import public
from shardir.frontend.numpy.pointwise import floats
from shardir.frontend.scipy.narrow import in_single

NEAR = 8.0
ENDLESS = 1000.0
"""From here on the functions are infinite, but for their scale."""
TERMS = {4: 8, 8: 22}
"""Of the polynomials, by the bytes of an element."""
POINTS = 2048
POWERS = {4: 16, 8: 23}
"""Terms of the power series that count up to `NEAR`, by the bytes of an element."""


def scaled(order: int, x: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """exp(-x) I_n(x) for x from 0 to 100,000, in the longest floats that there are."""
    turn = np.arange(-POINTS // 2, POINTS // 2) * (2 * np.arccos(np.longdouble(-1)) / POINTS)
    waves: npt.NDArray[Any] = np.exp(-2 * x[:, None] * np.sin(turn / 2) ** 2)
    mean: npt.NDArray[Any] = (waves * np.cos(order * turn)).mean(1)
    return mean


@cache
def _far_series(order: int, size: int) -> tuple[float, ...]:
    """Of exp(-x) sqrt(x) I_n(x) beyond `NEAR`: coefficients of powers of 2 NEAR / x - 1."""
    count = TERMS[size]
    angles = np.pi * (np.arange(count) + np.longdouble(0.5)) / count
    far = 2 * NEAR / (np.cos(angles) + 1)
    values = scaled(order, far) * np.sqrt(far)
    terms = 2 / count * np.cos(np.outer(np.arange(count), angles)) @ values
    terms[0] /= 2
    return tuple(map(float, np.polynomial.chebyshev.cheb2poly(terms)))


def _near_series(order: int, size: int) -> tuple[float, ...]:
    """Of I_n(x) / (x / 2)^n: coefficients of powers of (x / 2)^2, all of them positive."""
    return tuple(1 / (factorial(k) * factorial(k + order)) for k in range(POWERS[size]))


def _polynomial(x: Any, coefficients: tuple[float, ...]) -> Any:
    total: Any = coefficients[-1]
    for coefficient in reversed(coefficients[:-1]):
        total = total * x + coefficient
    return total


def _near(order: int, x: Any) -> Any:
    """I_n(x) where |x| is at most `NEAR`."""
    half = snp.clip(x, -NEAR, NEAR) * 0.5
    value = _polynomial(half * half, _near_series(order, x.dtype.itemsize))
    return value * half if order else value


def _far(order: int, x: Any) -> Any:
    """exp(-|x|) I_n(x) where |x| is at least `NEAR`."""
    large = snp.maximum(snp.abs(x), NEAR)
    terms = _far_series(order, x.dtype.itemsize)
    value = _polynomial(2 * NEAR / large - 1, terms) / snp.sqrt(large)
    return value * snp.sign(x) if order else value


def _falling(order: int, x: Any) -> Any:
    """exp(-|x|) I_n(x)"""
    size = snp.abs(x)
    return snp.where(size <= NEAR, snp.exp(-size) * _near(order, x), _far(order, x))


def _rising(order: int, x: Any) -> Any:
    """I_n(x); what is far is nothing times infinity at infinity, so it is taken before that."""
    size = snp.abs(x)
    large = snp.exp(size) * _far(order, snp.clip(x, -ENDLESS, ENDLESS))
    return snp.where(size <= NEAR, _near(order, x), large)


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
    return in_single(partial(_rising, 0))(x)


@_i0.defjvp
def _i0_rule(primals: Any, tangents: Any) -> Any:
    (x,) = primals
    return _i0(x), _i1(x) * tangents[0]


@custom_jvp
def _i1(x: Any) -> Any:
    return in_single(partial(_rising, 1))(x)


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
    return _i0e(*floats(x))


@public()
def i1e(x: Any) -> Any:
    """exp(-|x|) times the modified Bessel function of order 1."""
    return _i1e(*floats(x))


@public()
def i0(x: Any) -> Any:
    """The modified Bessel function of order 0."""
    return _i0(*floats(x))


@public()
def i1(x: Any) -> Any:
    """The modified Bessel function of order 1."""
    return _i1(*floats(x))
