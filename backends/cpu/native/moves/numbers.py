"""Elements of every type as register values, rounded once when they are stored.

Bools are bytes 0 and 1; any nonzero byte is read as 1. Narrow floats are computed in f32 or f64.
"""

from math import inf
from typing import NamedTuple

import numpy as np

from shardir.backends.cpu.native.llvm.halves import halves, odd_single, singles
from shardir.backends.cpu.native.llvm.text import FLOATS, Function, Value, element, lanes, vector
from shardir.types import FLOATS as FLOAT_NAMES, TensorType

MEMORY = {
    "bool": "i8",
    **{f"{sign}{width}": f"i{width}" for sign in "iu" for width in (8, 16, 32, 64)},
    "f16": "half",
    "bf16": "i16",
    "f32": "float",
    "f64": "double",
    "key": "i64",
}
"""The LLVM type of an element in memory."""
SIZES = {name: TensorType((), name).numpy.itemsize for name in MEMORY}
NARROW = ("f16", "bf16")


class Kind(NamedTuple):
    """The element type in memory and the type of the computation."""

    dtype: str
    type: str
    """The LLVM type of one element in a register."""


def kind_of(dtype: str, wide: bool = False) -> Kind:
    """Return the kind of a type: computed in its own type, narrow floats in f32; with `wide`, all
    floats in f64."""
    if dtype in ("f16", "bf16", "f32", "f64") and wide:
        return Kind(dtype, "double")
    return Kind(dtype, "float" if dtype in NARROW else MEMORY[dtype])


def load(f: Function, address: Value, kind: Kind, count: int) -> Value:
    """Load `count` contiguous elements."""
    return widened(f, f.load(address, vector(MEMORY[kind.dtype], count), 1), kind)


def widened(f: Function, value: Value, kind: Kind) -> Value:
    """Convert elements from their memory type to the computation type."""
    count = lanes(value.type)
    if kind.dtype == "bool":
        return value.is_("ne", 0).to(value.type, "zext")
    if kind.dtype in NARROW:
        value = singles(f, value, kind.dtype)
    if element(value.type) != kind.type:
        value = value.to(vector(kind.type, count), "fpext")
    return value


def store(f: Function, value: Value, address: Value, kind: Kind) -> None:
    """Store values as contiguous elements."""
    f.store(narrowed(f, value, kind), address, 1)


def narrowed(f: Function, value: Value, kind: Kind) -> Value:
    """Convert values to their memory type, rounded once to nearest."""
    count = lanes(value.type)
    if element(value.type) == "double" and kind.dtype in NARROW:
        value = odd_single(f, value)
    elif element(value.type) == "double" and kind.dtype == "f32":
        return value.to(vector("float", count), "fptrunc")
    if kind.dtype in NARROW:
        return halves(f, value, kind.dtype).to(vector(MEMORY[kind.dtype], count), "bitcast")
    return value


def identity(op: str, dtype: str) -> float:
    """Return the identity element of a combination, bit for bit."""
    if dtype == "bool":
        return int(op in ("mul", "min"))
    if dtype in FLOAT_NAMES:
        return {"add": -0.0, "mul": 1.0, "max": -inf, "min": inf}[op]
    if op in ("add", "mul"):
        return int(op == "mul")
    limits = np.iinfo(TensorType((), dtype).numpy)
    return int(limits.min if op == "max" else limits.max)


def combine(f: Function, op: str, a: Value, b: Value, dtype: str) -> Value:
    """Combine `a` and `b` by add, mul, max or min; NaN propagates, +0 is above -0, bools stay
    bools."""
    if dtype == "bool":
        return a | b if op in ("add", "max") else a & b
    if op in ("add", "mul"):
        return a + b if op == "add" else a * b
    if element(a.type) in FLOATS:
        return f.intrinsic("maximum" if op == "max" else "minimum", a, b)
    sign = "u" if dtype[0] == "u" else "s"
    return f.intrinsic(sign + op, a, b)
