"""The error function, the gamma function's logarithm, and their relatives.

Each function says how far it is from the true value, and tests hold it to that. All but
`erf_inv` of f32 are computed in f64 and rounded once at the end.
"""

from collections.abc import Callable
from math import erf as _erf, erfc as _erfc, lgamma as _lgamma, pi, sqrt
from typing import Any

import numpy as np
import numpy.typing as npt

from shardir.ops.term import Term

Array = npt.NDArray[Any]


def _each(function: Callable[[float], float]) -> Callable[[Array], Array]:
    def compute(x: Array) -> Array:
        return np.asarray(np.vectorize(function, otypes=[np.float64])(x.astype(np.float64)))

    return compute


def _lgamma_or_pole(x: float) -> float:
    return np.inf if x <= 0 and x == np.floor(x) else _lgamma(x)


erf = _each(_erf)
erfc = _each(_erfc)
lgamma = _each(_lgamma_or_pole)

_CENTRE = (
    2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087,
    -0.00125372503, -0.00417768164, 0.246640727, 1.50140941,
)  # fmt: skip
_TAIL = (
    -0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773,
    -0.0076224613, 0.00943887047, 1.00167406, 2.83297682,
)  # fmt: skip
"""M. Giles, "Approximating the erfinv function", GPU Computing Gems, 2011, table for f32."""


def _giles(x: Array) -> Array:
    """erf_inv of f32 as XLA computes it, or a first guess in f64."""
    w = -np.log1p(-x * x)
    centre = w < 5
    w = np.where(centre, w - x.dtype.type(2.5), np.sqrt(w) - x.dtype.type(3))
    value: Array = np.zeros_like(w)
    for c, t in zip(_CENTRE, _TAIL, strict=True):
        value = value * w + np.where(centre, x.dtype.type(c), x.dtype.type(t))
    edge = np.copysign(x.dtype.type(np.inf), x)
    return np.where(np.abs(x) == 1, edge, value * x)


def erf_inv(x: Array) -> Array:
    """The number whose `erf` is `x`: f32 as XLA's to 3 ulp, f64 to 4e-16 relative."""
    guess = _giles(x)
    if x.dtype != np.float64:
        return guess
    size = np.abs(guess)
    gap = np.where(np.abs(x) < 0.5, np.abs(x) - erf(size), erfc(size) - (1 - np.abs(x)))
    step = gap * sqrt(pi) / 2 * np.exp(size * size)
    better = np.copysign(size + step / (1 - size * step), x)
    return np.where(np.isfinite(guess) & (x != 0), better, guess)


def digamma(x: Array) -> Array:
    """The derivative of `lgamma`; NaN at the poles."""
    x = x.astype(np.float64)
    reflected = x < 0.5
    z = np.where(reflected, 1 - x, x)
    total = np.zeros_like(z)
    for _ in range(10):
        small = z < 10
        total -= np.where(small, 1 / np.where(small, z, 1), 0)
        z = np.where(small, z + 1, z)
    square = 1 / (z * z)
    series = np.zeros_like(z)
    for coefficient in (1 / 12, -691 / 32760, 1 / 132, -1 / 240, 1 / 252, -1 / 120, 1 / 12):
        series = (series + coefficient) * square
    value = total + np.log(z) - 0.5 / z - series
    angle = np.pi * (x - np.round(x))
    value = np.where(reflected, value - np.pi / np.tan(angle), value)
    return np.where((x <= 0) & (x == np.floor(x)), np.nan, value)


def bell(x: Term) -> Term:
    """The derivative of `erf`."""
    return (-(x * x)).exp() * (2 / sqrt(pi))


def trigamma(x: Term) -> Term:
    """The derivative of `digamma`, as a program, so that it has derivatives too.

    Eight steps of the recurrence, then the asymptotic series (A&S 6.4.12), whose error there is
    below 1e-12; left of 1/2 by reflection (A&S 6.4.7).
    """
    reflected = x.lt(0.5)
    z = (1 - x).where(reflected, x)
    total = z.full(0)
    for _ in range(8):
        total = total + 1 / (z * z)
        z = z + 1
    inverse = 1 / z
    square = inverse * inverse
    series = square * (5 / 66)
    for coefficient in (-1 / 30, 1 / 42, -1 / 30, 1 / 6):
        series = (series + coefficient) * square
    value = total + inverse * (1 + inverse * 0.5 + series)
    sine = ((x - x.round()) * pi).sin()
    return (pi**2 / (sine * sine) - value).where(reflected, value)
