"""Derives the polynomials of the vector functions, and writes them as the table that ships.

    python -m tests.backends.cpu.kernels.math.fit_coefficients [name ...]

Each is the best polynomial for its weight by the exchange algorithm of Remez (E. Remez, C. R.
Acad. Sci. Paris 199, 1934), on a grid as dense as Chebyshev nodes are, in 50 digits; of the least
degree that reaches its bound. Coefficients are rounded from the lowest on, those that are left
fitted anew each time.
"""

import struct
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import fill, indent
from typing import Any

import mpmath as mp

from tests.backends.cpu.kernels.math.fit_targets import TARGETS, Target

mp.mp.dps = 50
Number = Any
TABLE = Path(__file__).parents[5] / "backends/cpu/kernels/math/coefficients.py"
HEAD = '''"""Coefficients of polynomials, the constant term first. Made, not written: see
tests/backends/cpu/kernels/math/fit_coefficients.py, whose targets say of what and where they are.
A name ends in where it is used: f32 in f32, short in f64 for results of f32, f64 in f64.
"""

# fmt: off
POLYNOMIALS: dict[str, tuple[float, ...]] = {
'''


@dataclass(frozen=True)
class Fit:
    """A polynomial, and the largest weighted error that it makes."""

    coefficients: tuple[Number, ...]
    error: Number


class Grid:
    """Where a target is looked at: its values and weights, computed once."""

    def __init__(self, target: Target, count: int) -> None:
        low, high = (mp.mpf(end) for end in target.interval)
        nodes = [mp.cos(mp.pi * (2 * i + 1) / (2 * count)) for i in range(count)]
        self.x = [(low + high) / 2 - (high - low) / 2 * node for node in nodes]
        self.values = [target.function(x) for x in self.x]
        self.weights = [target.weight(x) for x in self.x]


def value_at(coefficients: Sequence[Number], x: Number) -> Number:
    """c0 + c1 x + c2 x^2 + ..."""
    total = mp.mpf(0)
    for coefficient in reversed(coefficients):
        total = total * x + coefficient
    return total


def remez(grid: Grid, fixed: Sequence[Number], degree: int) -> Fit:
    """The best polynomial of a degree whose first coefficients are given."""
    free = degree + 1 - len(fixed)
    values = [v - value_at(fixed, x) for x, v in zip(grid.x, grid.values, strict=True)]
    count = len(grid.x)
    chosen = [round((i + 0.2) * (count - 1) / (free + 0.3)) for i in range(free + 1)]
    best: Fit | None = None
    for _ in range(30):
        rows, right = mp.matrix(free + 1, free + 1), mp.matrix(free + 1, 1)
        for row, at in enumerate(chosen):
            x = grid.x[at]
            for column in range(free):
                rows[row, column] = x ** (column + len(fixed))
            rows[row, free] = (-1) ** row / grid.weights[at]
            right[row] = values[at]
        try:
            solved = mp.lu_solve(rows, right)
        except ZeroDivisionError:
            break
        made = (*fixed, *(solved[i] for i in range(free)))
        errors = [
            (value_at(made, x) - v) * w
            for x, v, w in zip(grid.x, grid.values, grid.weights, strict=True)
        ]
        peaks = _peaks(errors, free + 1)
        worst = max(abs(error) for error in errors)
        if best is None or worst < best.error:
            best = Fit(made, worst)
        if peaks is None or worst <= abs(solved[free]) * mp.mpf("1.001"):
            break
        chosen = peaks
    if best is None:
        raise ArithmeticError(f"no polynomial of degree {degree} was found")
    return best


def _peaks(errors: Sequence[Number], wanted: int) -> list[int] | None:
    """The largest error of each run of one sign, the best `wanted` that follow each other."""
    peaks: list[int] = []
    for i, error in enumerate(errors):
        if peaks and (error > 0) == (errors[peaks[-1]] > 0):
            if abs(error) > abs(errors[peaks[-1]]):
                peaks[-1] = i
        else:
            peaks.append(i)
    if len(peaks) < wanted:
        return None
    while len(peaks) > wanted:
        peaks.pop(0 if abs(errors[peaks[0]]) < abs(errors[peaks[-1]]) else -1)
    return peaks


def rounded(number: Number, kind: str) -> float:
    """The nearest number of f32 or f64."""
    if kind != "f32":
        return float(number)
    (single,) = struct.unpack("f", struct.pack("f", float(number)))
    return float(single)


def fitted(target: Target) -> Fit:
    """The polynomial of the least degree that reaches the target's bound, rounded."""
    for degree in range(target.degree, 40):
        grid = Grid(target, 16 * (degree + 2))
        best = remez(grid, (), degree)
        if best.error <= mp.mpf(2) ** -target.bits:
            break
    made: list[Number] = []
    for place in range(degree + 1):
        made.append(mp.mpf(rounded(best.coefficients[place], target.kind)))
        if target.kind == "f32" and place < degree:
            best = remez(grid, made, degree)
    return Fit(tuple(made), best.error)


def table(fits: dict[str, Fit]) -> str:
    """The text of the shipped module."""
    lines = [HEAD]
    for name, fit in fits.items():
        numbers = ", ".join(repr(float(c)) for c in fit.coefficients)
        wrapped = fill(f'"{name}": ({numbers}),', 95, subsequent_indent="    ")
        lines.append(indent(wrapped, "    ") + "\n")
    return "".join([*lines, "}\n"])


def main(names: list[str]) -> None:
    fits = {}
    for name, target in TARGETS.items():
        if not names or name in names:
            fits[name] = fitted(target)
            degree, bits = len(fits[name].coefficients) - 1, -mp.log(fits[name].error, 2)
            print(f"{name}: degree {degree}, {mp.nstr(bits, 4)} bits", flush=True)
    if not names:
        TABLE.write_text(table(fits), "utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
