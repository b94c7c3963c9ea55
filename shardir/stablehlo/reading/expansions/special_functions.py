"""Reading of special functions of CHLO without an operation in the IR.

All are computed in double precision. The zeta function is the Euler-Maclaurin formula (NIST Digital
Library of Mathematical Functions, 25.11.5 and 2.10.1), and exp(-|x|) I_1(x) two Chebyshev series,
which interpolate the integral of DLMF 10.32.3.
"""

from collections.abc import Callable
from functools import cache
from math import factorial, inf, nan

import numpy as np
import numpy.typing as npt

from shardir.ir.module import Value
from shardir.stablehlo.reading.call import READERS, OperationReader, register_reader, rename_results
from shardir.stablehlo.reading.composed import broadcasting_rule
from shardir.stablehlo.reading.expansions.arithmetic import Tensor, tensors_of

Values = tuple[Value, ...]
Array = npt.NDArray[np.float64]

_DIRECT_TERMS = 9
"""The number of terms that are summed before the Euler-Maclaurin formula."""

_BERNOULLI = (
    1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510, 43867 / 798,
    -174611 / 330, 854513 / 138, -236364091 / 2730,
)  # fmt: skip
"""The Bernoulli numbers B_2, B_4, ..."""

_SERIES_LIMIT = 8.0
"""The argument at which the second Chebyshev series begins."""

_SERIES_TERMS = 32
_TRAPEZOID_POINTS = 1024


@register_reader("chlo.zeta")
def _zeta(call: OperationReader) -> Values:
    s, q = (x.convert("f64") for x in tensors_of(call, call.take_operands(2)))
    return rename_results(call, [_hurwitz_zeta(s, q).convert(call.result.dtype).value])


@register_reader("chlo.polygamma")
def _polygamma(call: OperationReader) -> Values:
    """Read a derivative of digamma, whose order is a float: NaN if it is no natural number."""
    n, x = (x.convert("f64") for x in tensors_of(call, call.take_operands(2)))
    is_odd = (n.apply("rem", 2)).equals(1)
    scale = (n + 1).apply("lgamma").apply("exp")
    value = scale * _hurwitz_zeta(n + 1, x)
    value = is_odd.where(value, -value)
    value = n.equals(0).where(x.apply("digamma"), value)
    is_order = (n >= 0) & n.equals(n.apply("floor"))
    return rename_results(call, [is_order.where(value, nan).convert(call.result.dtype).value])


def _hurwitz_zeta(s: Tensor, q: Tensor) -> Tensor:
    """Return the sum of (k + q)**-s over k from 0."""
    total = q.apply("pow", -s)
    for k in range(1, _DIRECT_TERMS):
        total = total + (q + k).apply("pow", -s)
    end = q + _DIRECT_TERMS
    term = end.apply("pow", -s)
    total = total + end * term / (s - 1) + term * 0.5
    term = term * s / end
    for j, number in enumerate(_BERNOULLI, start=1):
        total = total + term * (number / factorial(2 * j))
        term = term * ((s + (2 * j - 1)) / end) * ((s + 2 * j) / end)
    total = q.equals(inf).where(0, total)
    is_pole = (q <= 0) & q.equals(q.apply("floor"))
    total = is_pole.where(inf, total)
    is_undefined = (s < 1) | ((q < 0) & s.differs(s.apply("floor")))
    return s.equals(1).where(inf, is_undefined.where(nan, total))


@register_reader("chlo.bessel_i1e")
def _bessel_i1e(call: OperationReader) -> Values:
    (x,) = (x.convert("f64") for x in tensors_of(call, call.take_operands(1)))
    size = x.apply("abs")
    near, far = _bessel_series()
    small = size * _sum_chebyshev(size * (2 / _SERIES_LIMIT) - 1, near)
    inverse = 1 / (size > _SERIES_LIMIT).where(size, _SERIES_LIMIT)
    large = _sum_chebyshev(inverse * (2 * _SERIES_LIMIT) - 1, far) * inverse.apply("sqrt")
    value = (size > _SERIES_LIMIT).where(large, small)
    value = (x < 0).where(-value, value)
    return rename_results(call, [value.convert(call.result.dtype).value])


@cache
def _bessel_series() -> tuple[list[float], list[float]]:
    """Return the Chebyshev coefficients of exp(-x) I_1(x) / x, and of exp(-x) sqrt(x) I_1(x)
    as a function of 1 / x.
    """

    def near(t: Array) -> Array:
        x = (t + 1) * (_SERIES_LIMIT / 2)
        return np.where(x == 0, 0.5, _scaled_bessel(x) / np.where(x == 0, 1, x))

    def far(t: Array) -> Array:
        inverse = np.maximum((t + 1) / (2 * _SERIES_LIMIT), 1e-6)
        return _scaled_bessel(1 / inverse) / np.sqrt(inverse)

    first, second = (_interpolate(function) for function in (near, far))
    return first, second


def _interpolate(function: Callable[[Array], Array]) -> list[float]:
    """Return the coefficients of the Chebyshev series that equals a function at their nodes."""
    angles = np.pi * (np.arange(_SERIES_TERMS) + 0.5) / _SERIES_TERMS
    values = function(np.cos(angles))
    sums = np.cos(np.arange(_SERIES_TERMS)[:, None] * angles) @ values * (2 / _SERIES_TERMS)
    return [float(sums[0]) / 2, *map(float, sums[1:])]


def _scaled_bessel(x: Array) -> Array:
    """Return exp(-x) I_1(x), the mean of exp(x (cos t - 1)) cos t over a period."""
    angles = 2 * np.pi * np.arange(_TRAPEZOID_POINTS) / _TRAPEZOID_POINTS
    terms = np.exp(-2 * x[:, None] * np.sin(angles / 2) ** 2) * np.cos(angles)
    mean: Array = terms.mean(1)
    return mean


def _sum_chebyshev(t: Tensor, coefficients: list[float]) -> Tensor:
    """Return a Chebyshev series, by the recurrence of Clenshaw."""
    first = second = t.coerce(0)
    for number in reversed(coefficients[1:]):
        first, second = t * 2 * first - second + number, first
    return t * first - second + coefficients[0]


for _name in ("polygamma", "zeta"):
    READERS[f"chlo.broadcast_{_name}"] = broadcasting_rule(f"chlo.{_name}")
