"""Elements of every type as register values, rounded once when they are stored.

Bools are bytes 0 and 1; any nonzero byte is read as 1. Narrow floats are computed in f32 or f64.
"""

from math import inf
from typing import NamedTuple

import numpy as np

from shardir.backends.cpu.codegen.dtypes import MEMORY_TYPES
from shardir.backends.cpu.codegen.llvm_text import (
    FLOAT_TYPES,
    LLVMFunction,
    LLVMValue,
    element_type,
    lane_count,
    vector_type,
)
from shardir.backends.cpu.codegen.narrow_floats import (
    narrow_floats,
    round_f64_to_odd_f32,
    widen_floats,
)
from shardir.ir.dtypes import COMPLEX, DTYPE_INFO, FLOATS, NARROW_FLOATS, UNSIGNED
from shardir.ir.types import TensorType

ELEMENT_BYTES = {
    name: info.memory_bits // 8 for name, info in DTYPE_INFO.items() if name not in COMPLEX
}
"""The size in bytes of each type of real elements in memory."""


class ElementKind(NamedTuple):
    """The element type in memory and the type of the computation."""

    dtype: str
    type: str
    """The LLVM type of one element in a register."""


def kind_of(dtype: str, wide: bool = False) -> ElementKind:
    """Return the kind of a type: computed in its own type, narrow floats in f32; with `wide`, all
    floats in f64."""
    if dtype in FLOATS and wide:
        return ElementKind(dtype, "double")
    return ElementKind(dtype, "float" if dtype in NARROW_FLOATS else MEMORY_TYPES[dtype])


def load(f: LLVMFunction, address: LLVMValue, kind: ElementKind, count: int) -> LLVMValue:
    """Load `count` contiguous elements."""
    return widen_elements(f, f.load(address, vector_type(MEMORY_TYPES[kind.dtype], count), 1), kind)


def widen_elements(f: LLVMFunction, value: LLVMValue, kind: ElementKind) -> LLVMValue:
    """Convert elements from their memory type to the computation type."""
    count = lane_count(value.type)
    if kind.dtype == "bool":
        return value.is_("ne", 0).to(value.type, "zext")
    if kind.dtype in NARROW_FLOATS:
        value = widen_floats(f, value, kind.dtype)
    if element_type(value.type) != kind.type:
        instruction = "fpext" if kind.dtype in FLOATS else "sext"
        if kind.dtype in UNSIGNED:
            instruction = "zext"
        value = value.to(vector_type(kind.type, count), instruction)
    return value


def store(f: LLVMFunction, value: LLVMValue, address: LLVMValue, kind: ElementKind) -> None:
    """Store values as contiguous elements."""
    f.store(narrow_elements(f, value, kind), address, 1)


def narrow_elements(f: LLVMFunction, value: LLVMValue, kind: ElementKind) -> LLVMValue:
    """Convert values to their memory type, rounded once to nearest."""
    count = lane_count(value.type)
    if element_type(value.type) == "double" and kind.dtype in NARROW_FLOATS:
        value = round_f64_to_odd_f32(f, value)
    elif element_type(value.type) == "double" and kind.dtype == "f32":
        return value.to(vector_type("float", count), "fptrunc")
    if kind.dtype in NARROW_FLOATS:
        return narrow_floats(f, value, kind.dtype)
    return value


def identity_element(op: str, dtype: str) -> float:
    """Return the identity element of a combination, bit for bit."""
    if dtype == "bool":
        return int(op in ("mul", "min"))
    if dtype in FLOATS:
        return {"add": -0.0, "mul": 1.0, "max": -inf, "min": inf}[op]
    if op in ("add", "mul"):
        return int(op == "mul")
    limits = np.iinfo(TensorType((), dtype).numpy)
    return int(limits.min if op == "max" else limits.max)


def combine(f: LLVMFunction, op: str, a: LLVMValue, b: LLVMValue, dtype: str) -> LLVMValue:
    """Combine `a` and `b` by add, mul, max or min; NaN propagates, +0 is above -0, bools stay
    bools."""
    if dtype == "bool":
        return a | b if op in ("add", "max") else a & b
    if op in ("add", "mul"):
        return a + b if op == "add" else a * b
    if element_type(a.type) in FLOAT_TYPES:
        return f.intrinsic("maximum" if op == "max" else "minimum", a, b)
    sign = "u" if dtype in UNSIGNED else "s"
    return f.intrinsic(sign + op, a, b)
