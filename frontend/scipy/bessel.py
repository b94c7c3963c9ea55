"""Modified Bessel functions of order 0 and 1, by Chebyshev series.

I_n(x) is the mean of exp(x cos t) cos(n t) over a turn, and the trapezoid rule on that converges
faster than any power; the series are interpolated from it once.
"""

from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from shardir.frontend import numpy as snp
from shardir.frontend.custom_jvp import custom_jvp
from shardir.frontend.eager import public
from shardir.frontend.numpy.pointwise import floats

NEAR = 8.0
TERMS = 32


def scaled(order: int, x: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """exp(-x) I_n(x) for x >= 0."""
    turn = 2 * np.pi * np.arange(8192) / 8192
    waves: npt.NDArray[Any] = np.exp(x[:, None] * (np.cos(turn) - 1)) * np.cos(order * turn)
    mean: npt.NDArray[Any] = waves.mean(1)
    return mean


@cache
def _series(order: int) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Chebyshev coefficients of exp(-x) I_n(x) / x**n up to `NEAR`, of sqrt(x) times it beyond."""
    nodes = np.cos(np.pi * (np.arange(TERMS) + 0.5) / TERMS)
    near = (nodes + 1) * NEAR / 2
    far = 2 * NEAR / (nodes + 1)
    values = scaled(order, near) / near**order, scaled(order, far) * np.sqrt(far)
    angles = np.outer(np.arange(TERMS), np.arange(TERMS) + 0.5) * np.pi / TERMS
    first, second = (2 / TERMS * np.cos(angles) @ value for value in values)
    return tuple(map(float, first)), tuple(map(float, second))


def _clenshaw(x: Any, coefficients: tuple[float, ...]) -> Any:
    last, before = snp.zeros_like(x), snp.zeros_like(x)
    for coefficient in reversed(coefficients[1:]):
        last, before = 2 * x * last - before + coefficient, last
    return x * last - before + coefficients[0] / 2


def _evaluated(order: int, x: Any) -> Any:
    size = snp.abs(x)
    near, far = _series(order)
    inner = _clenshaw(snp.minimum(size, NEAR) * (2 / NEAR) - 1, near)
    large = snp.maximum(size, NEAR)
    outer = _clenshaw(2 * NEAR / large - 1, far) / snp.sqrt(large)
    if order == 0:
        return snp.where(size <= NEAR, inner, outer)
    return snp.where(size <= NEAR, inner * x, outer * snp.sign(x))


@custom_jvp
def _i0e(x: Any) -> Any:
    return _evaluated(0, x)


@custom_jvp
def _i1e(x: Any) -> Any:
    return _evaluated(1, x)


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
    return snp.exp(snp.abs(x)) * _i0e(x)


@_i0.defjvp
def _i0_rule(primals: Any, tangents: Any) -> Any:
    (x,) = primals
    return _i0(x), snp.exp(snp.abs(x)) * _i1e(x) * tangents[0]


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
    (x,) = floats(x)
    return snp.exp(snp.abs(x)) * _i1e(x)
