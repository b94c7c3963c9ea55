"""Numbers of 16 bits as the f32 that are computed with, and back.

f16 is converted by instructions where there are some, else by integers; so is bf16 always, because
the instruction that some machines have takes subnormals for zero. Both directions are exact but for
rounding to the nearest, half to even.
"""

from shardir.backends.cpu.native.llvm.target import architecture, host
from shardir.backends.cpu.native.llvm.text import Function, Value, lanes, vector


def singles(function: Function, stored: Value, dtype: str) -> Value:
    """f32 numbers for those that are in memory, as LLVM's `half` or `i16`."""
    count = lanes(stored.type)
    if dtype == "bf16":
        bits = stored.to(vector("i32", count), "zext") << 16
        return bits.to(vector("float", count), "bitcast")
    if _has_half():
        half = stored.to(vector("half", count), "bitcast")
        return half.to(vector("float", count), "fpext")
    return _from_half(function, stored.to(vector("i16", count), "bitcast"))


def halves(function: Function, value: Value, dtype: str) -> Value:
    """What is in memory for f32 numbers, as LLVM's `i16`."""
    count = lanes(value.type)
    if dtype == "bf16":
        return _to_brain(function, value)
    if _has_half():
        half = value.to(vector("half", count), "fptrunc")
        return half.to(vector("i16", count), "bitcast")
    return _to_half(function, value)


def odd_single(function: Function, value: Value) -> Value:
    """f64 as f32, inexact numbers with an odd last bit: rounding again is then as from f64.

    S. Boldo, G. Melquiond, "Emulation of a FMA and correctly rounded sums: proved algorithms
    using rounding to odd", IEEE Transactions on Computers 57 (2008).
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
    """Whether this machine converts between f16 and f32 in an instruction."""
    machine = host()
    return architecture(machine.triple) == "aarch64" or "+f16c" in machine.features


def _to_brain(function: Function, held: Value) -> Value:
    """By integers: the instruction that some machines have takes subnormals for zero."""
    count = lanes(held.type)
    bits = held.to(vector("i32", count), "bitcast")
    nearest = bits + 0x7FFF + ((bits >> 16) & 1)
    kept = function.select(held.is_("uno", held), bits | 0x400000, nearest)
    return (kept >> 16).to(vector("i16", count), "trunc")


def _to_half(function: Function, held: Value) -> Value:
    """Normal numbers by integers; small ones by an addition that ends their bits at 2^-24."""
    count = lanes(held.type)
    whole = held.to(vector("i32", count), "bitcast")
    bits = whole & 0x7FFFFFFF
    size = bits.to(held.type, "bitcast")
    normal = (bits + 0xFFF + ((bits >> 13) & 1) - (112 << 23)) >> 13
    small = (size + 0.5).to(bits.type, "bitcast") - 0x3F000000
    made = function.select(bits.is_("ult", 113 << 23), small, normal)
    made = function.select(bits.is_("uge", 0x477FF000), 0x7C00, made)
    quiet = ((bits >> 13) & 0x3FF) | 0x7E00
    made = function.select(bits.is_("ugt", 0x7F800000), quiet, made)
    return (made | ((whole >> 16) & 0x8000)).to(vector("i16", count), "trunc")


def _from_half(function: Function, stored: Value) -> Value:
    """By a product that moves the exponent, which is exact for subnormals too."""
    count = lanes(stored.type)
    bits = stored.to(vector("i32", count), "zext")
    size = bits & 0x7FFF
    moved = (size << 13).to(vector("float", count), "bitcast") * 2.0**112
    none = function.value(0, bits.type)
    endless = function.select(size.is_("uge", 0x7C00), 0x7F800000, none)
    return (moved.to(bits.type, "bitcast") | endless | ((bits & 0x8000) << 16)).to(
        moved.type, "bitcast"
    )
