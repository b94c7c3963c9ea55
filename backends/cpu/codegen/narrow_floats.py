"""Conversions between narrow floats in memory and the f32 values that kernels compute with.

f16 is converted by instructions if the machine has them, else by integer operations; bf16 always
is, because the instruction of some machines flushes subnormals to zero. Widening is exact;
narrowing rounds to nearest, ties to even.
"""

from collections.abc import Callable
from typing import NamedTuple

from shardir.backends.cpu.codegen.llvm_text import LLVMFunction, LLVMValue, lane_count, vector_type
from shardir.backends.cpu.codegen.target import HostDescription, architecture

WIDEST_VECTOR_BYTES = 64
"""The bytes of the registers of AVX-512, which has permutations of two vectors."""


class _Conversion(NamedTuple):
    """The conversions of one narrow float, stored as an integer of its width, from and to f32."""

    widen: Callable[[LLVMFunction, LLVMValue], LLVMValue]
    narrow: Callable[[LLVMFunction, LLVMValue], LLVMValue]


def widen_floats(function: LLVMFunction, stored: LLVMValue, dtype: str) -> LLVMValue:
    """Convert narrow floats, as integers of their width, to f32."""
    return CONVERSIONS[dtype].widen(function, stored)


def narrow_floats(function: LLVMFunction, value: LLVMValue, dtype: str) -> LLVMValue:
    """Convert f32 to narrow floats, as integers of their width."""
    return CONVERSIONS[dtype].narrow(function, value)


def vectors_narrowed_together(machine: HostDescription, dtype: str) -> int:
    """Return how many vectors of f32 take the least time if they are narrowed together."""
    return 2 if dtype == "bf16" and machine.vector_bytes == WIDEST_VECTOR_BYTES else 1


def round_f64_to_odd_f32(function: LLVMFunction, value: LLVMValue) -> LLVMValue:
    """Convert f64 to f32 with round-to-odd, so that rounding again gives the result of rounding the
    f64.

    S. Boldo, G. Melquiond, "Emulation of a FMA and correctly rounded sums: proved algorithms using
    rounding to odd", IEEE Transactions on Computers 57 (2008).
    """
    count = lane_count(value.type)
    near = value.to(vector_type("float", count), "fptrunc")
    back = near.to(value.type, "fpext")
    bits = near.to(vector_type("i32", count), "bitcast")
    outside = function.intrinsic("fabs", back).is_("ogt", function.intrinsic("fabs", value))
    inward = function.select(outside, bits - 1, bits) | 1
    exact = back.is_("ueq", value)
    return function.select(exact, bits, inward).to(near.type, "bitcast")


def _has_f16_conversion(machine: HostDescription) -> bool:
    """Return whether a machine has instructions that convert between f16 and f32."""
    return architecture(machine.triple) == "aarch64" or "+f16c" in machine.features


def _bf16_to_f32(function: LLVMFunction, stored: LLVMValue) -> LLVMValue:
    count = lane_count(stored.type)
    bits = stored.to(vector_type("i32", count), "zext") << 16
    return bits.to(vector_type("float", count), "bitcast")


def _f32_to_bf16(function: LLVMFunction, single: LLVMValue) -> LLVMValue:
    """Convert by integer operations: the instruction of some machines flushes subnormals to
    zero."""
    count = lane_count(single.type)
    bits = single.to(vector_type("i32", count), "bitcast")
    is_odd = (bits & 0x10000).is_("ne", 0)
    nearest = bits + function.select(is_odd, function.value(0x8000, bits.type), 0x7FFF)
    rounded = function.select(single.is_("uno", single), bits | 0x400000, nearest)
    if count * 4 > function.machine.vector_bytes == WIDEST_VECTOR_BYTES:
        # One instruction takes the upper halves of the elements of two vectors.
        halves = rounded.to(vector_type("i16", 2 * count), "bitcast")
        return function.shuffle(halves, halves, range(1, 2 * count, 2))
    return (rounded >> 16).to(vector_type("i16", count), "trunc")


def _f32_to_f16(function: LLVMFunction, single: LLVMValue) -> LLVMValue:
    """Convert by an instruction, or normal values by integer operations and small ones by an
    addition that aligns them to 2^-24."""
    count = lane_count(single.type)
    if _has_f16_conversion(function.machine):
        half = single.to(vector_type("half", count), "fptrunc")
        return half.to(vector_type("i16", count), "bitcast")
    word = single.to(vector_type("i32", count), "bitcast")
    bits = word & 0x7FFFFFFF
    size = bits.to(single.type, "bitcast")
    normal = (bits + 0xFFF + ((bits >> 13) & 1) - (112 << 23)) >> 13
    small = (size + 0.5).to(bits.type, "bitcast") - 0x3F000000
    result = function.select(bits.is_("ult", 113 << 23), small, normal)
    result = function.select(bits.is_("uge", 0x477FF000), 0x7C00, result)
    quiet = ((bits >> 13) & 0x3FF) | 0x7E00
    result = function.select(bits.is_("ugt", 0x7F800000), quiet, result)
    return (result | ((word >> 16) & 0x8000)).to(vector_type("i16", count), "trunc")


def _f16_to_f32(function: LLVMFunction, stored: LLVMValue) -> LLVMValue:
    """Convert by an instruction, or by a multiplication that moves the exponent, which is exact for
    subnormals too."""
    count = lane_count(stored.type)
    if _has_f16_conversion(function.machine):
        half = stored.to(vector_type("half", count), "bitcast")
        return half.to(vector_type("float", count), "fpext")
    bits = stored.to(vector_type("i32", count), "zext")
    size = bits & 0x7FFF
    scaled = (size << 13).to(vector_type("float", count), "bitcast") * 2.0**112
    zero = function.value(0, bits.type)
    nonfinite = function.select(size.is_("uge", 0x7C00), 0x7F800000, zero)
    return (scaled.to(bits.type, "bitcast") | nonfinite | ((bits & 0x8000) << 16)).to(
        scaled.type, "bitcast"
    )


CONVERSIONS = {
    "f16": _Conversion(_f16_to_f32, _f32_to_f16),
    "bf16": _Conversion(_bf16_to_f32, _f32_to_bf16),
}
