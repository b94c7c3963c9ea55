"""How elements are held in registers, and how they come from memory and go there.

A `Held` is a vector of any number of lanes: bool is <N x i1> (a byte 0 or 1 in memory), f16 and
bf16 are <N x float> of numbers that the narrow type has, a key is <N x i64>, a complex number is
a pair of vectors, real and imaginary part (side by side in memory).
"""

from shardir.backends.cpu.native.llvm.target import host
from shardir.backends.cpu.native.llvm.text import Function, Value, lanes, literal, vector
from shardir.types import REAL_OF

Held = Value | tuple[Value, Value]

REGISTERS = {
    "bool": "i1", "i8": "i8", "i16": "i16", "i32": "i32", "i64": "i64",
    "u8": "i8", "u16": "i16", "u32": "i32", "u64": "i64", "key": "i64",
    "f16": "float", "bf16": "float", "f32": "float", "f64": "double",
    "c64": "float", "c128": "double",
}  # fmt: skip
"""The LLVM type of an element in a register; of a complex one that of a part."""
MEMORY = {**REGISTERS, "bool": "i8", "f16": "i16", "bf16": "i16"}
"""The LLVM type of an element in memory; of a complex one that of a part."""
SIZES = {"i8": 1, "i16": 2, "i32": 4, "i64": 8, "float": 4, "double": 8}
"""Bytes of the types of `MEMORY`."""
NARROW = ("f16", "bf16")


def itemsize(dtype: str) -> int:
    """Bytes of an element in memory."""
    return SIZES[MEMORY[dtype]] * (2 if dtype in REAL_OF else 1)


def register(dtype: str, count: int) -> str:
    """The LLVM type that holds `count` elements (each part of them, where they are complex)."""
    return vector(REGISTERS[dtype], count)


def count_of(held: Held) -> int:
    """How many elements are held."""
    return lanes((held[0] if isinstance(held, tuple) else held).type)


def parts(held: Held) -> tuple[Value, Value]:
    """The real and the imaginary part of a complex vector."""
    if not isinstance(held, tuple):
        raise TypeError(f"a complex vector is a pair, got {held.type}")
    return held


def single(held: Held) -> Value:
    """The vector of what is not complex."""
    if isinstance(held, tuple):
        raise TypeError("a vector that is not complex is one value, got a pair")
    return held


def constant(function: Function, number: complex, dtype: str, count: int) -> Held:
    """The same number in all lanes, rounded to its type; integers wrap."""
    type = register(dtype, count)
    if dtype in REAL_OF:
        return function.value(number.real, type), function.value(number.imag, type)
    if dtype == "bool":
        return Value(literal(type, int(bool(number))), type, function)
    return Value(literal(type, number.real), type, function)


def load(function: Function, address: Value, dtype: str, count: int) -> Held:
    """`count` elements side by side; the address need only be aligned to an element."""
    part = MEMORY[dtype]
    if dtype not in REAL_OF:
        stored = function.load(address, vector(part, count), SIZES[part])
        return widened(function, stored, dtype)
    both = function.load(address, vector(part, 2 * count), SIZES[part])
    if count == 1:
        first, second = (
            function.emit(f"extractelement {both.type} {both}, i64 {i}", part) for i in (0, 1)
        )
        return first, second
    return (
        function.shuffle(both, both, range(0, 2 * count, 2)),
        function.shuffle(both, both, range(1, 2 * count, 2)),
    )


def store(
    function: Function, held: Held, address: Value, dtype: str, streaming: bool = False
) -> None:
    """Write elements side by side; `streaming` needs the address aligned to them, to 64 at most."""
    part, count = MEMORY[dtype], count_of(held)
    if not isinstance(held, tuple):
        value = narrowed(function, held, dtype)
    elif count == 1:
        type = vector(part, 2)
        first = function.emit(f"insertelement {type} poison, {part} {held[0]}, i64 0", type)
        value = function.emit(f"insertelement {type} {first}, {part} {held[1]}, i64 1", type)
    else:
        order = [lane for i in range(count) for lane in (i, i + count)]
        value = function.shuffle(*held, order)
    align = min(SIZES[part] * lanes(value.type), 64) if streaming else SIZES[part]
    function.store(value, address, align, streaming)


def widened(function: Function, stored: Value, dtype: str) -> Value:
    """What was read from memory (not complex) as it is held."""
    count = lanes(stored.type)
    if dtype == "bool":
        return stored.to(vector("i1", count), "trunc")
    if dtype == "bf16":
        bits = stored.to(vector("i32", count), "zext") << 16
        return bits.to(vector("float", count), "bitcast")
    if dtype == "f16":
        if has_half():
            half = stored.to(vector("half", count), "bitcast")
            return half.to(vector("float", count), "fpext")
        return _from_half(function, stored)
    return stored


def narrowed(function: Function, held: Value, dtype: str) -> Value:
    """What is held (not complex) as it is written to memory; rounds half to even."""
    count = lanes(held.type)
    if dtype == "bool":
        return held.to(vector("i8", count), "zext")
    if dtype == "bf16":
        return _to_brain(function, held)
    if dtype == "f16":
        if has_half():
            half = held.to(vector("half", count), "fptrunc")
            return half.to(vector("i16", count), "bitcast")
        return _to_half(function, held)
    return held


def rounded(function: Function, value: Value, dtype: str) -> Value:
    """f32 numbers as the nearest of a narrow type; others as they are."""
    if dtype not in NARROW:
        return value
    return widened(function, narrowed(function, value, dtype), dtype)


def has_half() -> bool:
    """Whether this machine converts between f16 and f32 in an instruction."""
    machine = host()
    return machine.triple.startswith(("aarch64", "arm64")) or "+f16c" in machine.features


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
