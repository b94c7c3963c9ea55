"""Derivation of the rational functions of the normal quantile, printed as the table in the package.

    python -m tests.frontend.scipy.quantile_coefficients

Each function is fitted to relative errors in 60 digits by least squares on Chebyshev nodes. The
weights grow where errors are large (C. Lawson, 1961) and with the denominator of the previous
iteration (C. Sanathanan and J. Koerner, 1963), so that the largest error is close to the minimum.
"""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from textwrap import fill, indent
from typing import Any

import mpmath as mp

from shardir.frontend.scipy.special_functions.normal_quantile import CENTRE_GRADIENT, TAIL_LINE
from tests.decimal_digits import with_digits

DIGITS = 60
Number = Any

with mp.workdps(DIGITS):
    SLOPE = mp.mpf(CENTRE_GRADIENT)
    TILT, BACK = (mp.mpf(number) for number in TAIL_LINE)


def over_distance(z: Number) -> Number:
    """Return the quantile of 1/2 + q divided by q, for z = q^2."""
    q = mp.sqrt(z)
    return mp.sqrt(2) * mp.erfinv(2 * q) / q


def _squared(y: Number) -> Number:
    """Return q^2 of y, the variable of the central function."""
    return max(mp.mpf("0.180625") - y, mp.mpf(10) ** -20)


def central_quotient(y: Number) -> Number:
    """Return the quantile divided by q, minus the linear coefficient that is factored out."""
    return over_distance(_squared(y)) - SLOPE


def central_weight(y: Number) -> Number:
    return 1 / over_distance(_squared(y))


def of_root(r: Number) -> Number:
    """Return the negative quantile of exp(-r^2), by Newton's method."""
    x = r * mp.sqrt(2) - 1 / (r + 1)
    for _ in range(60):
        below = mp.erfc(x / mp.sqrt(2)) / 2
        slope = -mp.exp(-x * x / 2) / mp.sqrt(2 * mp.pi) / below
        step = (mp.log(below) + r * r) / slope
        x -= step
        if abs(step) < mp.mpf(10) ** -45:
            break
    return x


@dataclass(frozen=True)
class Target:
    """A function to fit, its interval, and the weight of its error in the error of the result.

    `degree` is the degree of both polynomials, and `bits` the required accuracy.
    """

    function: Callable[[Number], Number]
    weight: Callable[[Number], Number]
    interval: tuple[float, float]
    degrees: tuple[int, int]
    bits: float


def _middle(high: int, low: int, bits: float) -> Target:
    return Target(central_quotient, central_weight, (0.0, 0.180625), (high, low), bits)


def _tail(start: float, interval: tuple[float, float], high: int, low: int, bits: float) -> Target:
    """Return the tail: the quantile is a line in r plus a rational function of r minus its
    start.
    """

    def more(t: Number) -> Number:
        return of_root(t + mp.mpf(str(start))) - TILT * (t + mp.mpf(str(start))) - BACK

    return Target(more, lambda t: 1 / of_root(t + mp.mpf(str(start))), interval, (high, low), bits)


TARGETS = {
    "CENTRE_F32": _middle(4, 3, 27),
    "TAIL_F32": _tail(1.6, (0.0094, 8.6), 4, 4, 28.5),
    "CENTRE_F64": _middle(8, 7, 55.5),
    "TAIL_F64": _tail(1.6, (0.0094, 3.401), 7, 7, 54.5),
    "FAR_TAIL_F64": _tail(5, (0.0, 22.3), 7, 7, 54),
}


def value_at(ratio: tuple[Sequence[Number], Sequence[Number]], x: Number) -> Number:
    above, below = (polynomial_value(part, x) for part in ratio)
    return above / below


def polynomial_value(coefficients: Sequence[Number], x: Number) -> Number:
    """Return the value of a polynomial whose constant term is first."""
    return sum(c * x**power for power, c in enumerate(coefficients))


@with_digits(DIGITS)
def fit_coefficients(target: Target) -> tuple[list[float], list[float]]:
    """Return the coefficients of both polynomials, constant terms first; the second's is 1."""
    high, low = target.degrees
    first, last = (mp.mpf(end) for end in target.interval)
    count = 4 * (high + low + 1)
    nodes = [mp.cos(mp.pi * (2 * i + 1) / (2 * count)) for i in range(count)]
    xs = [(first + last) / 2 - (last - first) / 2 * node for node in nodes]
    values = [target.function(x) for x in xs]
    shares = [target.weight(x) for x in xs]
    weights, below = [mp.mpf(1)] * count, [mp.mpf(1)] * count
    best: tuple[Number, list[Number], list[Number]] | None = None
    for _ in range(60):
        rows, right = mp.matrix(count, high + low + 1), mp.matrix(count, 1)
        for i, (x, value) in enumerate(zip(xs, values, strict=True)):
            scale = mp.sqrt(weights[i]) * shares[i] / abs(below[i])
            for j in range(high + 1):
                rows[i, j] = scale * x**j
            for j in range(1, low + 1):
                rows[i, high + j] = -scale * value * x**j
            right[i] = scale * value
        solved = list(mp.lu_solve(rows.T * rows, rows.T * right))
        ratio = solved[: high + 1], [mp.mpf(1), *solved[high + 1 :]]
        below = [polynomial_value(ratio[1], x) for x in xs]
        errors = [
            abs(value_at(ratio, x) - value) * share
            for x, value, share in zip(xs, values, shares, strict=True)
        ]
        worst = max(errors)
        if best is None or worst < best[0]:
            best = worst, *ratio
        weights = [w * (e / worst + 1e-3) for w, e in zip(weights, errors, strict=True)]
        mean = sum(weights) / count
        weights = [w / mean for w in weights]
    assert best is not None
    return [float(c) for c in best[1]], [float(c) for c in best[2]]


@with_digits(DIGITS)
def error_of(target: Target, ratio: tuple[Sequence[float], Sequence[float]], count: int) -> Number:
    """Return the largest error at `count` points, relative to the result."""
    first, last = (mp.mpf(end) for end in target.interval)
    xs = [first + (last - first) * i / (count - 1) for i in range(count)]
    return max(abs(value_at(ratio, x) - target.function(x)) * target.weight(x) for x in xs)


if __name__ == "__main__":
    for name, target in TARGETS.items():
        ratio = fit_coefficients(target)
        lines = (fill(f"{tuple(part)},", 95) for part in ratio)
        print(f"{name}: Ratio = (", *(indent(line, "    ") for line in lines), ")", sep="\n")
        print("#", mp.nstr(-mp.log(error_of(target, ratio, 50), 2), 4), "bits", file=sys.stderr)
