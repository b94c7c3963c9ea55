"""Accumulators of reductions: initial value, update, and final value.

Floats are summed and multiplied in f64 and rounded once: this is more accurate than any order of
summation in f32, and it is what the reference interpreter does.
"""

from collections.abc import Sequence

import numpy as np

from shardir.backends.cpu.native.llvm.text import Function, Value, lanes, vector
from shardir.backends.cpu.native.loops.access import splat
from shardir.backends.cpu.native.vector import inline, registers
from shardir.backends.cpu.native.vector.extremes import extreme
from shardir.backends.cpu.native.vector.registers import Held
from shardir.types import COMPLEX, FLOATS, INTEGERS, NUMPY_DTYPES

COMBINE = {
    "sum": "add", "prod": "mul", "max": "maximum", "min": "minimum", "any": "or", "all": "and",
}  # fmt: skip
"""The elementwise operation that combines an accumulator with an element."""


def wide_of(op: str, dtype: str) -> str:
    """Return the element type of an accumulator."""
    if op not in ("sum", "prod"):
        return dtype
    return "f64" if dtype in FLOATS else "c128" if dtype in COMPLEX else dtype


def identity(op: str, dtype: str) -> complex:
    """Return the identity element of a reduction."""
    if op in ("sum", "prod"):
        return int(op == "prod")
    if op in ("any", "all"):
        return int(op == "all")
    if dtype == "bool":
        return int(op == "min")
    if dtype in INTEGERS:
        info = np.iinfo(NUMPY_DTYPES[dtype])
        return int(info.min if op == "max" else info.max)
    return float("-inf" if op == "max" else "inf")


def start(f: Function, op: str, dtype: str, count: int) -> Held:
    """Return the initial value of an accumulator."""
    return registers.constant(f, identity(op, dtype), dtype, count)


def combined(f: Function, op: str, dtype: str, a: Held, b: Held, no_nan: bool = False) -> Held:
    """Combine two accumulators; `no_nan` means that neither is NaN."""
    if op in ("max", "min") and dtype in FLOATS:
        return extreme(f, op, registers.single(a), registers.single(b), no_nan)
    result = inline.emit(f, COMBINE[op], {}, [a, b], [dtype, dtype], dtype)
    assert result is not None
    return result


def converted(f: Function, value: Held, source: str, to: str) -> Held:
    """Convert a vector to another element type."""
    if source == to:
        return value
    result = inline.emit(f, "convert", {}, [value], [source], to)
    assert result is not None
    return result


def present_or(f: Function, value: Held, there: Value | None, other: Held) -> Held:
    """Return the lanes that exist, and `other` in the others."""
    if there is None:
        return value
    if isinstance(value, tuple):
        assert isinstance(other, tuple)
        return f.select(there, value[0], other[0]), f.select(there, value[1], other[1])
    assert isinstance(other, Value)
    return f.select(there, value, other)


def folded(f: Function, op: str, dtype: str, value: Held) -> Held:
    """Combine all lanes, half by half."""
    count = registers.count_of(value)
    while count > 1:
        count //= 2
        low = _lanes(f, value, range(count))
        high = _lanes(f, value, range(count, 2 * count))
        value = combined(f, op, dtype, low, high)
    return value


def first_lane(f: Function, value: Held) -> Held:
    """Return the first lane."""
    return _lanes(f, value, range(1))


def spread(f: Function, value: Held, count: int) -> Held:
    """Return one element in all lanes."""
    return splat(f, value, count)


def _lanes(f: Function, value: Held, taken: Sequence[int]) -> Held:
    if isinstance(value, tuple):
        return _of(f, value[0], taken), _of(f, value[1], taken)
    return _of(f, value, taken)


def _of(f: Function, value: Value, taken: Sequence[int]) -> Value:
    if lanes(value.type) == 1:
        return value
    if len(taken) == 1:
        kind = value.type.split(" x ")[1][:-1]
        return f.emit(f"extractelement {value.type} {value}, i64 {taken[0]}", kind)
    return f.shuffle(value, value, taken)


class Accumulator:
    """Variables that hold a vector of any element type.

    The maximum or minimum of floats takes one comparison per vector, which would lose NaN: a mask
    records the lanes that met one, unless `no_nan` is set.
    """

    def __init__(self, f: Function, op: str, dtype: str, count: int, no_nan: bool = False) -> None:
        self.f, self.op, self.dtype, self.count = f, op, dtype, count
        type = vector(registers.REGISTERS[dtype], count)
        parts = 2 if dtype in COMPLEX else 1
        self._variables = [f.variable(type) for _ in range(parts)]
        extreme = op in ("max", "min") and dtype in FLOATS
        self._extreme = extreme
        self._unordered = f.variable(vector("i1", count)) if extreme and not no_nan else None

    def clear(self) -> None:
        self.set(start(self.f, self.op, self.dtype, self.count))

    def get(self) -> Held:
        if len(self._variables) == 2:
            return self._variables[0].get(), self._variables[1].get()
        value = self._variables[0].get()
        if self._unordered is None:
            return value
        return self.f.select(self._unordered.get(), float("nan"), value)

    def set(self, value: Held) -> None:
        parts = value if isinstance(value, tuple) else (value,)
        for variable, part in zip(self._variables, parts, strict=True):
            variable.set(part)
        if self._unordered is not None:
            self._unordered.set(self.f.value(0, self._unordered.type))

    def add(self, value: Held) -> None:
        """Update with a vector of the accumulator's type."""
        if not self._extreme:
            self.set(combined(self.f, self.op, self.dtype, self.get(), value))
            return
        assert isinstance(value, Value)
        best = self._variables[0]
        further = value.is_("ogt" if self.op == "max" else "olt", best.get())
        best.set(self.f.select(further, value, best.get()))
        if self._unordered is not None:
            self._unordered.set(self._unordered.get() | value.is_("uno", value))
