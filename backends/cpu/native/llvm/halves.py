"""Conversions between 16-bit floats in memory and the f32 values that kernels compute with.

f16 is converted by instructions if the machine has them, else by integer operations; bf16 always
is, because the instruction of some machines flushes subnormals to zero. Widening is exact;
narrowing rounds to nearest, ties to even.
"""

from shardir.backends.cpu.native.llvm.target import architecture, host
from shardir.backends.cpu.native.llvm.text import Function, Value, lanes, vector


def singles(function: Function, stored: Value, dtype: str) -> Value:
    """Convert 16-bit floats, as LLVM's `half` or `i16`, to f32."""
    count = lanes(stored.type)
    if dtype == "bf16":
        bits = stored.to(vector("i32", count), "zext") << 16
        return bits.to(vector("float", count), "bitcast")
    if _has_half():
        half = stored.to(vector("half", count), "bitcast")
        return half.to(vector("float", count), "fpext")
    return _from_half(function, stored.to(vector("i16", count), "bitcast"))


def halves(function: Function, value: Value, dtype: str) -> Value:
    """Convert f32 to 16-bit floats, as LLVM's `i16`."""
    count = lanes(value.type)
    if dtype == "bf16":
        return _to_brain(function, value)
    if _has_half():
        half = value.to(vector("half", count), "fptrunc")
        return half.to(vector("i16", count), "bitcast")
    return _to_half(function, value)


def odd_single(function: Function, value: Value) -> Value:
    """Convert f64 to f32 with round-to-odd, so that rounding again gives the result of rounding the
    f64.

    S. Boldo, G. Melquiond, "Emulation of a FMA and correctly rounded sums: proved algorithms using
    rounding to odd", IEEE Transactions on Computers 57 (2008).
    """
    count = lanes(value.type)
    near = value.to(vector("float", count), "fptrunc")
    back = near.to(value.type, "fpext")
    bits = near.to(vector("i32", count), "bitcast")
    outside = function.intrinsic("fabs", back).is_("ogt", function.intrinsic("fabs", value))
    inward = function.select(outside, bits - 1, bits) | 1
    exact = back.is_("ueq", value)
    return function.select(exact, bits, inward).to(near.type, "bitcast")


def _has_half() -> bool:
    """Return whether this machine has instructions that convert between f16 and f32."""
    machine = host()
    return architecture(machine.triple) == "aarch64" or "+f16c" in machine.features


def _to_brain(function: Function, single: Value) -> Value:
    """Convert by integer operations: the instruction of some machines flushes subnormals to
    zero."""
    count = lanes(single.type)
    bits = single.to(vector("i32", count), "bitcast")
    nearest = bits + 0x7FFF + ((bits >> 16) & 1)
    rounded = function.select(single.is_("uno", single), bits | 0x400000, nearest)
    return (rounded >> 16).to(vector("i16", count), "trunc")


def _to_half(function: Function, single: Value) -> Value:
    """Convert normal values by integer operations, small ones by an addition that aligns them to
    2^-24."""
    count = lanes(single.type)
    word = single.to(vector("i32", count), "bitcast")
    bits = word & 0x7FFFFFFF
    size = bits.to(single.type, "bitcast")
    normal = (bits + 0xFFF + ((bits >> 13) & 1) - (112 << 23)) >> 13
    small = (size + 0.5).to(bits.type, "bitcast") - 0x3F000000
    result = function.select(bits.is_("ult", 113 << 23), small, normal)
    result = function.select(bits.is_("uge", 0x477FF000), 0x7C00, result)
    quiet = ((bits >> 13) & 0x3FF) | 0x7E00
    result = function.select(bits.is_("ugt", 0x7F800000), quiet, result)
    return (result | ((word >> 16) & 0x8000)).to(vector("i16", count), "trunc")


def _from_half(function: Function, stored: Value) -> Value:
    """Convert by a multiplication that moves the exponent, which is exact for subnormals too."""
    count = lanes(stored.type)
    bits = stored.to(vector("i32", count), "zext")
    size = bits & 0x7FFF
    scaled = (size << 13).to(vector("float", count), "bitcast") * 2.0**112
    zero = function.value(0, bits.type)
    nonfinite = function.select(size.is_("uge", 0x7C00), 0x7F800000, zero)
    return (scaled.to(bits.type, "bitcast") | nonfinite | ((bits & 0x8000) << 16)).to(
        scaled.type, "bitcast"
    )
