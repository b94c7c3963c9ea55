"""Derives the rational functions of the normal quantile, and prints them as the table that ships.

    python -m tests.frontend.scipy.quantile_coefficients

Each is fitted to relative errors in 60 digits by least squares on Chebyshev nodes, whose weights
grow where errors are large (C. Lawson, 1961) and with the denominator of the round before
(C. Sanathanan and J. Koerner, 1963), so that the largest error is nearly the least possible.
"""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from textwrap import fill, indent
from typing import Any

import mpmath as mp

from shardir.frontend.scipy.special_functions.normal_quantile import CENTRE_GRADIENT, TAIL_LINE

mp.mp.dps = 60
Number = Any


SLOPE = mp.mpf(CENTRE_GRADIENT)
TILT, BACK = (mp.mpf(number) for number in TAIL_LINE)


def over_distance(z: Number) -> Number:
    """The quantile of 1/2 + q over q, for z = q^2."""
    q = mp.sqrt(z)
    return mp.sqrt(2) * mp.erfinv(2 * q) / q


def _squared(y: Number) -> Number:
    """q^2 of y, the variable in the middle."""
    return max(mp.mpf("0.180625") - y, mp.mpf(10) ** -20)


def in_the_middle(y: Number) -> Number:
    """What the quantile is over q, less the slope that is taken out."""
    return over_distance(_squared(y)) - SLOPE


def weight_in_the_middle(y: Number) -> Number:
    return 1 / over_distance(_squared(y))


def of_root(r: Number) -> Number:
    """The negative quantile of exp(-r^2), by Newton's method."""
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
    """A function, how much of an error in it is seen relative to the result, where it is taken.

    Degrees are those of both polynomials, and `bits` those that are to be right.
    """

    function: Callable[[Number], Number]
    weight: Callable[[Number], Number]
    interval: tuple[float, float]
    degrees: tuple[int, int]
    bits: float


def _middle(high: int, low: int, bits: float) -> Target:
    return Target(in_the_middle, weight_in_the_middle, (0.0, 0.180625), (high, low), bits)


def _tail(start: float, interval: tuple[float, float], high: int, low: int, bits: float) -> Target:
    """The quantile is a line in r plus a rational function of r less its start."""

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
    above, below = (sum_at(part, x) for part in ratio)
    return above / below


def sum_at(coefficients: Sequence[Number], x: Number) -> Number:
    """A polynomial, the constant term first."""
    return sum(c * x**power for power, c in enumerate(coefficients))


def fitted(target: Target) -> tuple[list[float], list[float]]:
    """The coefficients of both polynomials, the constant terms first, that of the second 1."""
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
        below = [sum_at(ratio[1], x) for x in xs]
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


def error_of(target: Target, ratio: tuple[Sequence[float], Sequence[float]], count: int) -> Number:
    """The largest error at `count` places, relative to the result."""
    first, last = (mp.mpf(end) for end in target.interval)
    xs = [first + (last - first) * i / (count - 1) for i in range(count)]
    return max(abs(value_at(ratio, x) - target.function(x)) * target.weight(x) for x in xs)


if __name__ == "__main__":
    for name, target in TARGETS.items():
        ratio = fitted(target)
        lines = (fill(f"{tuple(part)},", 95) for part in ratio)
        print(f"{name}: Ratio = (", *(indent(line, "    ") for line in lines), ")", sep="\n")
        print("#", mp.nstr(-mp.log(error_of(target, ratio, 50), 2), 4), "bits", file=sys.stderr)
