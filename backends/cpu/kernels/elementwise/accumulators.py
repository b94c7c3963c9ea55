"""Accumulators of reductions: initial value, update, and final value.

Floats are summed and multiplied in f64 and rounded once: this is more accurate than any order of
summation in f32, and it is what the reference interpreter does.
"""

from collections.abc import Sequence

import numpy as np

from shardir.backends.cpu.codegen.dtypes import REGISTER_TYPES
from shardir.backends.cpu.codegen.llvm_text import LLVMFunction, LLVMValue, lane_count, vector_type
from shardir.backends.cpu.kernels.elementwise.vector_access import splat_value
from shardir.backends.cpu.kernels.math import inline, registers
from shardir.backends.cpu.kernels.math.registers import VectorValue
from shardir.backends.cpu.kernels.math.vector_arithmetic import emit_minimum_maximum
from shardir.ir.types import COMPLEX, FLOATS, INTEGERS, NUMPY_DTYPES

COMBINING_OPS = {
    "sum": "add", "prod": "mul", "max": "maximum", "min": "minimum", "any": "or", "all": "and",
}  # fmt: skip
"""The elementwise operation that combines an accumulator with an element."""


def accumulator_dtype(op: str, dtype: str) -> str:
    """Return the element type of an accumulator."""
    if op not in ("sum", "prod"):
        return dtype
    return "f64" if dtype in FLOATS else "c128" if dtype in COMPLEX else dtype


def identity_element(op: str, dtype: str) -> complex:
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


def initial_accumulator(f: LLVMFunction, op: str, dtype: str, count: int) -> VectorValue:
    """Return the initial value of an accumulator."""
    return registers.splat_constant(f, identity_element(op, dtype), dtype, count)


def emit_combine(
    f: LLVMFunction, op: str, dtype: str, a: VectorValue, b: VectorValue, no_nan: bool = False
) -> VectorValue:
    """Combine two accumulators; `no_nan` means that neither is NaN."""
    if op in ("max", "min") and dtype in FLOATS:
        return emit_minimum_maximum(
            f, op, registers.real_vector(a), registers.real_vector(b), no_nan
        )
    result = inline.emit_elementwise(f, COMBINING_OPS[op], {}, [a, b], [dtype, dtype], dtype)
    assert result is not None
    return result


def emit_convert(f: LLVMFunction, value: VectorValue, source: str, to: str) -> VectorValue:
    """Convert a vector to another element type."""
    if source == to:
        return value
    result = inline.emit_elementwise(f, "convert", {}, [value], [source], to)
    assert result is not None
    return result


def select_present(
    f: LLVMFunction, value: VectorValue, there: LLVMValue | None, other: VectorValue
) -> VectorValue:
    """Return the lanes that exist, and `other` in the others."""
    if there is None:
        return value
    if isinstance(value, tuple):
        assert isinstance(other, tuple)
        return f.select(there, value[0], other[0]), f.select(there, value[1], other[1])
    assert isinstance(other, LLVMValue)
    return f.select(there, value, other)


def emit_lane_reduction(f: LLVMFunction, op: str, dtype: str, value: VectorValue) -> VectorValue:
    """Combine all lanes, half by half."""
    count = registers.lane_count_of(value)
    while count > 1:
        count //= 2
        low = _select_lanes(f, value, range(count))
        high = _select_lanes(f, value, range(count, 2 * count))
        value = emit_combine(f, op, dtype, low, high)
    return value


def extract_first_lane(f: LLVMFunction, value: VectorValue) -> VectorValue:
    """Return the first lane."""
    return _select_lanes(f, value, range(1))


def splat_to_lanes(f: LLVMFunction, value: VectorValue, count: int) -> VectorValue:
    """Return one element in all lanes."""
    return splat_value(f, value, count)


def _select_lanes(f: LLVMFunction, value: VectorValue, taken: Sequence[int]) -> VectorValue:
    if isinstance(value, tuple):
        return _select_lanes_of_value(f, value[0], taken), _select_lanes_of_value(
            f, value[1], taken
        )
    return _select_lanes_of_value(f, value, taken)


def _select_lanes_of_value(f: LLVMFunction, value: LLVMValue, taken: Sequence[int]) -> LLVMValue:
    if lane_count(value.type) == 1:
        return value
    if len(taken) == 1:
        kind = value.type.split(" x ")[1][:-1]
        return f.emit(f"extractelement {value.type} {value}, i64 {taken[0]}", kind)
    return f.shuffle(value, value, taken)


class VectorAccumulator:
    """Variables that hold a vector of any element type.

    The maximum or minimum of floats takes one comparison per vector, which would lose NaN: a mask
    records the lanes that met one, unless `no_nan` is set.
    """

    def __init__(
        self, f: LLVMFunction, op: str, dtype: str, count: int, no_nan: bool = False
    ) -> None:
        self.f, self.op, self.dtype, self.count = f, op, dtype, count
        type = vector_type(REGISTER_TYPES[dtype], count)
        parts = 2 if dtype in COMPLEX else 1
        self._variables = [f.variable(type) for _ in range(parts)]
        extreme = op in ("max", "min") and dtype in FLOATS
        self._extreme = extreme
        self._unordered = f.variable(vector_type("i1", count)) if extreme and not no_nan else None

    def clear(self) -> None:
        self.set(initial_accumulator(self.f, self.op, self.dtype, self.count))

    def get(self) -> VectorValue:
        if len(self._variables) == 2:
            return self._variables[0].get(), self._variables[1].get()
        value = self._variables[0].get()
        if self._unordered is None:
            return value
        return self.f.select(self._unordered.get(), float("nan"), value)

    def set(self, value: VectorValue) -> None:
        parts = value if isinstance(value, tuple) else (value,)
        for variable, part in zip(self._variables, parts, strict=True):
            variable.set(part)
        if self._unordered is not None:
            self._unordered.set(self.f.value(0, self._unordered.type))

    def add(self, value: VectorValue) -> None:
        """Update with a vector of the accumulator's type."""
        if not self._extreme:
            self.set(emit_combine(self.f, self.op, self.dtype, self.get(), value))
            return
        assert isinstance(value, LLVMValue)
        best = self._variables[0]
        further = value.is_("ogt" if self.op == "max" else "olt", best.get())
        best.set(self.f.select(further, value, best.get()))
        if self._unordered is not None:
            self._unordered.set(self._unordered.get() | value.is_("uno", value))
