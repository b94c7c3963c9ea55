"""Conversions to another element type (`convert`), equal to
`shardir.ops.elementwise.numerics.convert`, and reinterpretations of bits (`bitcast`)."""

from shardir.backends.cpu.codegen.llvm_text import (
    LLVMFunction,
    LLVMValue,
    element_type,
    lane_count,
    vector_type,
)
from shardir.backends.cpu.codegen.narrow_floats import round_f64_to_odd_f32
from shardir.backends.cpu.kernels.math.application import OpApplication
from shardir.backends.cpu.kernels.math.registers import (
    VectorValue,
    parts,
    real_vector,
    register_type,
    round_to_narrow,
)
from shardir.ir.dtypes import DTYPE_INFO, NARROW_FLOATS, SMALL_DTYPES, SMALL_INTEGERS
from shardir.ir.types import COMPLEX, FLOATS, REAL_OF, SIGNED, UNSIGNED

INTEGER_BITS = {"i8": 8, "i16": 16, "i32": 32, "i64": 64}


def convert_rule(a: OpApplication) -> VectorValue:
    """Convert: floats to integers saturate, NaN gives 0; integers wrap; every nonzero value is
    true."""
    f, source, to = a.function, a.dtype, a.result
    if source in COMPLEX:
        real, imag = parts(a.operands[0])
        if to == "bool":
            return real.is_("une", 0.0) | imag.is_("une", 0.0)
        part = REAL_OF[source]
        if to in COMPLEX:
            return convert_real(f, real, part, REAL_OF[to]), convert_real(
                f, imag, part, REAL_OF[to]
            )
        return convert_real(f, real, part, to)
    x = real_vector(a.operands[0])
    if to in COMPLEX:
        real = convert_real(f, x, source, REAL_OF[to])
        return real, f.value(0.0, real.type)
    return convert_real(f, x, source, to)


def bitcast_rule(a: OpApplication) -> VectorValue:
    """Reinterpret the bits of each element as another type of the same width."""
    x = real_vector(a.operands[0])
    type = register_type(a.result, lane_count(x.type))
    return x if x.type == type else x.to(type, "bitcast")


def convert_real(f: LLVMFunction, x: LLVMValue, source: str, to: str) -> LLVMValue:
    """Convert real vectors from one element type to another."""
    if source == to:
        return x
    if source in SMALL_DTYPES or to in SMALL_DTYPES:
        return _convert_code(f, x, source, to)
    type = register_type(to, lane_count(x.type))
    if to == "bool":
        return x.is_("une", 0.0) if source in FLOATS else x.is_("ne", 0)
    if source in FLOATS:
        return _convert_float(f, x, source, to, type)
    signed = source in SIGNED
    if to not in FLOATS:
        return _convert_integer(x, type, signed)
    if _rounds_twice(source, to):
        return round_to_narrow(f, round_f64_to_odd_f32(f, _to_odd_double(f, x, signed)), to)
    return round_to_narrow(f, x.to(type, "sitofp" if signed else "uitofp"), to)


def _convert_code(f: LLVMFunction, x: LLVMValue, source: str, to: str) -> LLVMValue:
    """Convert from or to unsigned integers of less than 8 bits; `widen-small-dtypes` leaves no
    other conversion of a small dtype."""
    small = source if source in SMALL_DTYPES else to
    has_code = small in SMALL_INTEGERS and small in UNSIGNED
    if not has_code or source in FLOATS or {source, to} <= {*SMALL_DTYPES}:
        raise ValueError(f"no conversion from {source} to {to} remains in compiled programs")
    mask = (1 << DTYPE_INFO[small].bits) - 1
    if small == source:
        return convert_real(f, x & mask, "u8", to)
    return convert_real(f, x, source, "u8") & mask


def _rounds_twice(source: str, to: str) -> bool:
    """Return whether f32 rounds integers of type `source` that a narrow float represents."""
    precision_bits = DTYPE_INFO["f32"].precision_bits
    return (
        to in NARROW_FLOATS
        and DTYPE_INFO[source].bits > precision_bits
        and DTYPE_INFO[to].max_exponent > precision_bits
    )


def _convert_integer(x: LLVMValue, type: str, signed: bool) -> LLVMValue:
    have, want = (INTEGER_BITS.get(element_type(t), 1) for t in (x.type, type))
    if have == want:
        return x
    return x.to(type, "trunc" if want < have else "sext" if signed else "zext")


def _convert_float(f: LLVMFunction, x: LLVMValue, source: str, to: str, type: str) -> LLVMValue:
    if to in FLOATS:
        if to == "f64":
            return x.to(type, "fpext")
        if source == "f64":
            return (
                round_to_narrow(f, round_f64_to_odd_f32(f, x), to)
                if to in NARROW_FLOATS
                else x.to(type, "fptrunc")
            )
        return round_to_narrow(f, x, to)
    # LLVM's saturating intrinsics would scalarize the vectors.
    bits = DTYPE_INFO[to].bits
    if to in SIGNED:
        least, most, end = -(1 << bits - 1), (1 << bits - 1) - 1, 2.0 ** (bits - 1)
    else:
        least, most, end = 0, (1 << bits) - 1, 2.0**bits
    result = x.to(type, "fptosi" if to in SIGNED else "fptoui")
    result = f.select(x.is_("olt", end), result, most)
    result = f.select(x.is_("ogt", float(least)), result, least)
    return f.select(x.is_("uno", x), 0, result)


def _to_odd_double(f: LLVMFunction, x: LLVMValue, signed: bool) -> LLVMValue:
    """Convert integers to f64 with round-to-odd."""
    type = vector_type("double", lane_count(x.type))
    cast = "sitofp" if signed else "uitofp"
    if element_type(x.type) != "i64":
        return x.to(type, cast)
    top = f.emit(f"ashr {x.type} {x}, {f.value(11, x.type)}", x.type) if signed else x >> 11
    lost = (x & 0x7FF).is_("ne", 0).to(x.type, "zext")
    size = f.select(x.is_("slt", 0), -x, x) if signed else x
    small = size.is_("ule", 1 << 53)
    return f.select(small, x, (top | lost) << 11).to(type, cast)
