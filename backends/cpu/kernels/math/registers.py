"""The representation of elements in registers, and their loads and stores.

A `VectorValue` is a vector of any number of lanes: bool is <N x i1>, a narrow float is <N x float>
with values of the narrow type, a key is <N x i64>, a complex number is a pair of vectors, real and
imaginary part (interleaved in memory). A bool is stored as a byte 0 or 1; when loaded, every
nonzero byte is true, as in NumPy's arrays.
"""

from shardir.backends.cpu.codegen.dtypes import MEMORY_TYPES, REGISTER_TYPES
from shardir.backends.cpu.codegen.llvm_text import (
    LLVMFunction,
    LLVMValue,
    lane_count,
    literal,
    vector_type,
)
from shardir.backends.cpu.codegen.narrow_floats import narrow_floats, widen_floats
from shardir.ir.dtypes import NARROW_FLOATS, REAL_OF

VectorValue = LLVMValue | tuple[LLVMValue, LLVMValue]

TYPE_BYTES = {"i8": 1, "i16": 2, "i32": 4, "i64": 8, "i128": 16, "float": 4, "double": 8}
"""The size in bytes of the types in `MEMORY_TYPES`."""


def itemsize(dtype: str) -> int:
    """Return the bytes of an element in memory."""
    return TYPE_BYTES[MEMORY_TYPES[dtype]] * (2 if dtype in REAL_OF else 1)


def register_type(dtype: str, count: int) -> str:
    """Return the LLVM type of `count` elements (of each part of them, if they are complex)."""
    return vector_type(REGISTER_TYPES[dtype], count)


def lane_count_of(value: VectorValue) -> int:
    """Return the number of elements."""
    return lane_count((value[0] if isinstance(value, tuple) else value).type)


def parts(value: VectorValue) -> tuple[LLVMValue, LLVMValue]:
    """Return the real and the imaginary part of a complex vector."""
    if not isinstance(value, tuple):
        raise TypeError(f"a complex vector is a pair, got {value.type}")
    return value


def real_vector(value: VectorValue) -> LLVMValue:
    """Return the vector of real elements."""
    if isinstance(value, tuple):
        raise TypeError("a vector that is not complex is one value, got a pair")
    return value


def splat_constant(function: LLVMFunction, number: complex, dtype: str, count: int) -> VectorValue:
    """Return a number in all lanes, rounded to its type; integers wrap."""
    type = register_type(dtype, count)
    if dtype in REAL_OF:
        return function.value(number.real, type), function.value(number.imag, type)
    if dtype == "bool":
        return LLVMValue(literal(type, int(bool(number))), type, function)
    return LLVMValue(literal(type, number.real), type, function)


def load_elements(
    function: LLVMFunction, address: LLVMValue, dtype: str, count: int
) -> VectorValue:
    """Load `count` contiguous elements; the address needs the alignment of an element only."""
    part = MEMORY_TYPES[dtype]
    if dtype not in REAL_OF:
        stored = function.load(address, vector_type(part, count), TYPE_BYTES[part])
        return widen_elements(function, stored, dtype)
    both = function.load(address, vector_type(part, 2 * count), TYPE_BYTES[part])
    if count == 1:
        first, second = (
            function.emit(f"extractelement {both.type} {both}, i64 {i}", part) for i in (0, 1)
        )
        return first, second
    return (
        function.shuffle(both, both, range(0, 2 * count, 2)),
        function.shuffle(both, both, range(1, 2 * count, 2)),
    )


def store_elements(
    function: LLVMFunction,
    held: VectorValue,
    address: LLVMValue,
    dtype: str,
    streaming: bool = False,
) -> None:
    """Store contiguous elements; `streaming` requires an address that is aligned to all, at most to
    64."""
    part, count = MEMORY_TYPES[dtype], lane_count_of(held)
    if not isinstance(held, tuple):
        value = narrow_elements(function, held, dtype)
    elif count == 1:
        type = vector_type(part, 2)
        first = function.emit(f"insertelement {type} poison, {part} {held[0]}, i64 0", type)
        value = function.emit(f"insertelement {type} {first}, {part} {held[1]}, i64 1", type)
    else:
        order = [lane for i in range(count) for lane in (i, i + count)]
        value = function.shuffle(*held, order)
    align = min(TYPE_BYTES[part] * lane_count(value.type), 64) if streaming else TYPE_BYTES[part]
    function.store(value, address, align, streaming)


def widen_elements(function: LLVMFunction, stored: LLVMValue, dtype: str) -> LLVMValue:
    """Convert real elements from memory to their representation in registers."""
    if dtype == "bool":
        return stored.is_("ne", 0)
    if dtype in NARROW_FLOATS:
        return widen_floats(function, stored, dtype)
    return stored


def narrow_elements(function: LLVMFunction, value: LLVMValue, dtype: str) -> LLVMValue:
    """Convert real elements from registers to memory, rounding to nearest even."""
    count = lane_count(value.type)
    if dtype == "bool":
        return value.to(vector_type("i8", count), "zext")
    if dtype in NARROW_FLOATS:
        return narrow_floats(function, value, dtype)
    return value


def round_to_narrow(function: LLVMFunction, value: LLVMValue, dtype: str) -> LLVMValue:
    """Round f32 to the nearest value of a narrow type; return other values unchanged."""
    if dtype not in NARROW_FLOATS:
        return value
    return widen_elements(function, narrow_elements(function, value, dtype), dtype)
