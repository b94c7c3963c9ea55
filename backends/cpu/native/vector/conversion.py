"""Conversions to another element type (`convert`), equal to `shardir.ops.numerics.convert`, and
reinterpretations of bits (`bitcast`)."""

from shardir.backends.cpu.native.llvm.halves import odd_single
from shardir.backends.cpu.native.llvm.text import Function, Value, element, lanes, vector
from shardir.backends.cpu.native.vector.application import Application
from shardir.backends.cpu.native.vector.registers import (
    NARROW,
    Held,
    parts,
    register,
    rounded,
    single,
)
from shardir.types import COMPLEX, FLOATS, REAL_OF, SIGNED

INTEGER_BITS = {"i8": 8, "i16": 16, "i32": 32, "i64": 64}


def convert(a: Application) -> Held:
    """Convert: floats to integers saturate, NaN gives 0; integers wrap; every nonzero value is
    true."""
    f, source, to = a.function, a.dtype, a.result
    if source in COMPLEX:
        real, imag = parts(a.operands[0])
        if to == "bool":
            return real.is_("une", 0.0) | imag.is_("une", 0.0)
        part = REAL_OF[source]
        if to in COMPLEX:
            return number(f, real, part, REAL_OF[to]), number(f, imag, part, REAL_OF[to])
        return number(f, real, part, to)
    x = single(a.operands[0])
    if to in COMPLEX:
        real = number(f, x, source, REAL_OF[to])
        return real, f.value(0.0, real.type)
    return number(f, x, source, to)


def reinterpret(a: Application) -> Held:
    """Reinterpret the bits of each element as another type of the same width."""
    x = single(a.operands[0])
    type = register(a.result, lanes(x.type))
    return x if x.type == type else x.to(type, "bitcast")


def number(f: Function, x: Value, source: str, to: str) -> Value:
    """Convert real vectors from one element type to another."""
    if source == to:
        return x
    type = register(to, lanes(x.type))
    if to == "bool":
        return x.is_("une", 0.0) if source in FLOATS else x.is_("ne", 0)
    if source in FLOATS:
        return _from_float(f, x, source, to, type)
    signed = source in SIGNED
    if to not in FLOATS:
        return _integer(x, type, signed)
    if to == "bf16" and source in ("i32", "u32", "i64", "u64"):
        return rounded(f, odd_single(f, _odd_double(f, x, signed)), to)
    return rounded(f, x.to(type, "sitofp" if signed else "uitofp"), to)


def _integer(x: Value, type: str, signed: bool) -> Value:
    have, want = (INTEGER_BITS.get(element(t), 1) for t in (x.type, type))
    if have == want:
        return x
    return x.to(type, "trunc" if want < have else "sext" if signed else "zext")


def _from_float(f: Function, x: Value, source: str, to: str, type: str) -> Value:
    if to in FLOATS:
        if to == "f64":
            return x.to(type, "fpext")
        if source == "f64":
            return rounded(f, odd_single(f, x), to) if to in NARROW else x.to(type, "fptrunc")
        return rounded(f, x, to)
    # LLVM's saturating intrinsics would scalarize the vectors.
    bits = INTEGER_BITS.get(to) or INTEGER_BITS[f"i{to[1:]}"]
    if to in SIGNED:
        least, most, end = -(1 << bits - 1), (1 << bits - 1) - 1, 2.0 ** (bits - 1)
    else:
        least, most, end = 0, (1 << bits) - 1, 2.0**bits
    result = x.to(type, "fptosi" if to in SIGNED else "fptoui")
    result = f.select(x.is_("olt", end), result, most)
    result = f.select(x.is_("ogt", float(least)), result, least)
    return f.select(x.is_("uno", x), 0, result)


def _odd_double(f: Function, x: Value, signed: bool) -> Value:
    """Convert integers to f64 with round-to-odd."""
    type = vector("double", lanes(x.type))
    cast = "sitofp" if signed else "uitofp"
    if element(x.type) != "i64":
        return x.to(type, cast)
    top = f.emit(f"ashr {x.type} {x}, {f.value(11, x.type)}", x.type) if signed else x >> 11
    lost = (x & 0x7FF).is_("ne", 0).to(x.type, "zext")
    size = f.select(x.is_("slt", 0), -x, x) if signed else x
    small = size.is_("ule", 1 << 53)
    return f.select(small, x, (top | lost) << 11).to(type, cast)
