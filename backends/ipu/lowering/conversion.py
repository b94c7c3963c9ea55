"""Conversions between element types, including cases that the device leaves undefined."""

import numpy as np

from shardir.backends.ipu.codegen.device_types import NARROW_INTEGERS
from shardir.backends.ipu.codegen.expressions import (
    ApplyNode,
    Node,
    apply,
    cast,
    number,
    wrap_narrow,
)
from shardir.backends.ipu.lowering.pointwise import bit_width, compare, constant_like, where
from shardir.ir.types import FLOATS, INTEGERS, UNSIGNED


def convert(x: Node, to: str) -> Node:
    """Convert elements to another type, with the semantics of
    `shardir.ops.elementwise.numerics.convert`.

    Floats are truncated towards zero to integers, saturate out of range, and NaN becomes 0; the
    device's conversion guarantees only the truncation. The expression then repeats its operand; see
    `repeats_operand`.
    """
    if x.dtype == to:
        return x
    if to == "bool":
        return compare("!=", x, constant_like(0, x))
    if x.dtype not in FLOATS or to in FLOATS:
        narrow = to in NARROW_INTEGERS and not _is_representable(x.dtype, to)
        if x.dtype == "u32" and narrow:
            return wrap_narrow(ApplyNode("Cast", (cast(x, "i32"),), to))
        return wrap_narrow(cast(x, to)) if narrow else cast(x, to)
    wide = cast(x, "f32") if x.dtype == "f16" else x
    info = np.iinfo(np.dtype(f"{'u' if to in UNSIGNED else 'i'}{bit_width(to) // 8}"))
    least, most = np.float32(info.min), np.nextafter(np.float32(info.max) + 1, np.float32(0))
    if bit_width(to) < 32:
        most = np.float32(info.max)
    inside = apply(
        "Max", apply("Min", wide, number(float(most), "f32")), number(float(least), "f32")
    )
    whole: Node = ApplyNode("Cast", (apply("Trunc", inside),), to)
    if bit_width(to) == 32:
        above = compare(">=", wide, number(float(np.float32(info.max)), "f32"))
        whole = where(above, number(info.max, to), whole)
    return where(compare("==", wide, wide), whole, number(0, to))


def repeats_operand(source: str, to: str) -> bool:
    """Return whether the conversion's expression contains its operand more than once."""
    return source in FLOATS and to in INTEGERS


def _is_representable(source: str, to: str) -> bool:
    """Return whether one integer type represents all values of another."""
    if source == "bool":
        return True
    have, want = (np.iinfo(np.dtype(f"{t[0]}{bit_width(t) // 8}")) for t in (source, to))
    return bool(want.min <= have.min and have.max <= want.max)
