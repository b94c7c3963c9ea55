"""The representation of elements in registers, and their loads and stores.

A `VectorValue` is a vector of any number of lanes: bool is <N x i1>, f16 and bf16 are <N x float>
with values of the narrow type, a key is <N x i64>, a complex number is a pair of vectors, real and
imaginary part (interleaved in memory). A bool is stored as a byte 0 or 1; when loaded, every
nonzero byte is true, as in NumPy's arrays.
"""

from shardir.backends.cpu.native.llvm.halves import halves, singles
from shardir.backends.cpu.native.llvm.text import Function, Value, lanes, literal, vector
from shardir.types import REAL_OF

Held = Value | tuple[Value, Value]

REGISTERS = {
    "bool": "i1", "i8": "i8", "i16": "i16", "i32": "i32", "i64": "i64",
    "u8": "i8", "u16": "i16", "u32": "i32", "u64": "i64", "key": "i64",
    "f16": "float", "bf16": "float", "f32": "float", "f64": "double",
    "c64": "float", "c128": "double",
}  # fmt: skip
"""The LLVM type of an element in a register; for complex elements that of a part."""
MEMORY = {**REGISTERS, "bool": "i8", "f16": "i16", "bf16": "i16"}
"""The LLVM type of an element in memory; for complex elements that of a part."""
SIZES = {"i8": 1, "i16": 2, "i32": 4, "i64": 8, "float": 4, "double": 8}
"""The size in bytes of the types in `MEMORY_TYPES`."""
NARROW = ("f16", "bf16")


def itemsize(dtype: str) -> int:
    """Return the bytes of an element in memory."""
    return SIZES[MEMORY[dtype]] * (2 if dtype in REAL_OF else 1)


def register(dtype: str, count: int) -> str:
    """Return the LLVM type of `count` elements (of each part of them, if they are complex)."""
    return vector(REGISTERS[dtype], count)


def count_of(value: Held) -> int:
    """Return the number of elements."""
    return lanes((value[0] if isinstance(value, tuple) else value).type)


def parts(value: Held) -> tuple[Value, Value]:
    """Return the real and the imaginary part of a complex vector."""
    if not isinstance(value, tuple):
        raise TypeError(f"a complex vector is a pair, got {value.type}")
    return value


def single(value: Held) -> Value:
    """Return the vector of real elements."""
    if isinstance(value, tuple):
        raise TypeError("a vector that is not complex is one value, got a pair")
    return value


def constant(function: Function, number: complex, dtype: str, count: int) -> Held:
    """Return a number in all lanes, rounded to its type; integers wrap."""
    type = register(dtype, count)
    if dtype in REAL_OF:
        return function.value(number.real, type), function.value(number.imag, type)
    if dtype == "bool":
        return Value(literal(type, int(bool(number))), type, function)
    return Value(literal(type, number.real), type, function)


def load(function: Function, address: Value, dtype: str, count: int) -> Held:
    """Load `count` contiguous elements; the address needs the alignment of an element only."""
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
    """Store contiguous elements; `streaming` requires an address that is aligned to all, at most to
    64."""
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
    """Convert real elements from memory to their representation in registers."""
    if dtype == "bool":
        return stored.is_("ne", 0)
    if dtype in NARROW:
        return singles(function, stored, dtype)
    return stored


def narrowed(function: Function, value: Value, dtype: str) -> Value:
    """Convert real elements from registers to memory, rounding to nearest even."""
    count = lanes(value.type)
    if dtype == "bool":
        return value.to(vector("i8", count), "zext")
    if dtype in NARROW:
        return halves(function, value, dtype)
    return value


def rounded(function: Function, value: Value, dtype: str) -> Value:
    """Round f32 to the nearest value of a narrow type; return other values unchanged."""
    if dtype not in NARROW:
        return value
    return widened(function, narrowed(function, value, dtype), dtype)
