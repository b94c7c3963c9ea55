"""Sort keys: elements as signed integers of their size that compare in the order of the elements.

The bits of negative floats are inverted except for the sign; all NaN become one key, the largest.
"""

from typing import NamedTuple

from shardir.backends.cpu.codegen.llvm_text import LLVMFunction, LLVMValue, vector_type
from shardir.backends.cpu.codegen.target import HostDescription
from shardir.ir.dtypes import DTYPE_INFO, FLOATS, UNSIGNED

NAN_BITS = {dtype: DTYPE_INFO[dtype].nan_bits for dtype in FLOATS}
LARGEST_BITS = {dtype: DTYPE_INFO[dtype].largest_bits for dtype in FLOATS}
COMPRESS_FEATURE_BY_BYTES = {2: "avx512vbmi2", 4: "avx512f", 8: "avx512f"}
"""The x86 feature that compresses lanes of this many bytes in a register."""


def has_compress(size: int, machine: HostDescription) -> bool:
    """Return whether the processor can compress lanes of `size` bytes."""
    return size in COMPRESS_FEATURE_BY_BYTES and machine.has(COMPRESS_FEATURE_BY_BYTES[size])


class SortKeys(NamedTuple):
    """The keys of elements of a type; a vector holds `lanes` of them."""

    dtype: str
    bits: int
    lanes: int

    @property
    def type(self) -> str:
        """The LLVM type of a key."""
        return f"i{self.bits}"

    @property
    def vector_type(self) -> str:
        """The LLVM type of a vector of keys."""
        return vector_type(self.type, self.lanes)

    @property
    def min_key(self) -> int:
        """The smallest key."""
        return -(1 << self.bits - 1)

    @property
    def max_key(self) -> int:
        """The largest key."""
        return (1 << self.bits - 1) - 1

    def address_of(self, f: LLVMFunction, start: LLVMValue, index: LLVMValue | int) -> LLVMValue:
        """Return the address of a key."""
        return f.offset(start, index, self.type)

    def load(self, f: LLVMFunction, start: LLVMValue, index: LLVMValue) -> LLVMValue:
        """Load a vector of keys; it need not be aligned."""
        return f.load(self.address_of(f, start, index), self.vector_type, self.bits // 8)

    def store(self, f: LLVMFunction, value: LLVMValue, start: LLVMValue, index: LLVMValue) -> None:
        """Store a vector of keys; it need not be aligned."""
        f.store(value, self.address_of(f, start, index), self.bits // 8)

    def first_lanes(self, f: LLVMFunction, count: LLVMValue) -> LLVMValue:
        """Return the mask of the first `count` lanes; `count` must be below the number of lanes."""
        narrow = count.to(self.type, "trunc") if self.bits < 64 else count
        numbers = ", ".join(f"{self.type} {lane}" for lane in range(self.lanes))
        return LLVMValue(f"<{numbers}>", self.vector_type, f).is_(
            "slt", f.splat(narrow, self.lanes)
        )

    def masked_load(
        self, f: LLVMFunction, start: LLVMValue, index: LLVMValue, flags: LLVMValue, other: int = 0
    ) -> LLVMValue:
        """Load the lanes of the mask; the other lanes are set to `other`."""
        name = f"llvm.masked.load.v{self.lanes}{self.type}.p0"
        f.module.declare(
            name, self.vector_type, ["ptr", "i32 immarg", flags.type, self.vector_type]
        )
        rest = f.value(other, self.vector_type)
        args = f"ptr {self.address_of(f, start, index)}, i32 {self.bits // 8}, "
        args += f"{flags.type} {flags}, {self.vector_type} {rest}"
        return f.emit(f"call {self.vector_type} @{name}({args})", self.vector_type)

    def masked_store(
        self,
        f: LLVMFunction,
        value: LLVMValue,
        start: LLVMValue,
        index: LLVMValue,
        flags: LLVMValue,
    ) -> None:
        """Store the lanes of the mask."""
        name = f"llvm.masked.store.v{self.lanes}{self.type}.p0"
        f.module.declare(name, "void", [self.vector_type, "ptr", "i32 immarg", flags.type])
        address = self.address_of(f, start, index)
        args = f"{self.vector_type} {value}, ptr {address}, i32 {self.bits // 8}, "
        f.do(f"call void @{name}({args}{flags.type} {flags})")

    def compress(self, f: LLVMFunction, value: LLVMValue, flags: LLVMValue) -> LLVMValue:
        """Compress the lanes of the mask to the front of the vector."""
        name = f"llvm.experimental.vector.compress.v{self.lanes}{self.type}"
        f.module.declare(name, self.vector_type, [self.vector_type, flags.type, self.vector_type])
        return f.call(name, [value, flags, f.value(0, self.vector_type)], self.vector_type)

    def count_set(self, f: LLVMFunction, flags: LLVMValue) -> LLVMValue:
        """Return the number of set lanes of the mask."""
        number = flags.to(f"i{self.lanes}", "bitcast")
        wide = number if self.lanes == 32 else number.to("i32", "zext")
        return f.intrinsic("ctpop", wide).to("i64", "zext")

    def any(self, f: LLVMFunction, flags: LLVMValue) -> LLVMValue:
        """Return whether any lane of the mask is set."""
        return flags.to(f"i{self.lanes}", "bitcast").is_("ne", 0)

    def from_elements(self, f: LLVMFunction, bits: LLVMValue) -> LLVMValue:
        """Convert elements, as stored in memory, to keys: one or a vector."""
        if self.dtype in NAN_BITS:
            size = bits & self.max_key
            bits = f.select(size.is_("sgt", LARGEST_BITS[self.dtype]), NAN_BITS[self.dtype], bits)
        return self.to_elements(f, bits)

    def to_elements(self, f: LLVMFunction, key: LLVMValue) -> LLVMValue:
        """Convert keys back to elements."""
        if self.dtype in NAN_BITS:
            shift = f.value(self.bits - 1, key.type)
            return key ^ (f.emit(f"ashr {key.type} {key}, {shift}", key.type) & self.max_key)
        return key ^ self.min_key if self.dtype in UNSIGNED else key

    def read(self, f: LLVMFunction, source: LLVMValue, to: LLVMValue, count: LLVMValue) -> None:
        """Convert contiguous elements to keys; up to one vector may be written past the end."""
        whole = count & -self.lanes
        with f.loop(0, whole, self.lanes) as i:
            self.store(f, self.from_elements(f, self.load(f, source, i)), to, i)
        rest = self.masked_load(f, source, whole, self.first_lanes(f, count - whole))
        self.store(f, self.from_elements(f, rest), to, whole)

    def write(self, f: LLVMFunction, source: LLVMValue, to: LLVMValue, count: LLVMValue) -> None:
        """Convert keys back to contiguous elements; up to one vector of keys may be read past the
        end."""
        whole = count & -self.lanes
        with f.loop(0, whole, self.lanes) as i:
            self.store(f, self.to_elements(f, self.load(f, source, i)), to, i)
        rest = self.to_elements(f, self.load(f, source, whole))
        self.masked_store(f, rest, to, whole, self.first_lanes(f, count - whole))

    def fill(self, f: LLVMFunction, key: LLVMValue, to: LLVMValue, count: LLVMValue) -> None:
        """Write the element of one key `count` times."""
        value, whole = self.to_elements(f, f.splat(key, self.lanes)), count & -self.lanes
        with f.loop(0, whole, self.lanes) as i:
            self.store(f, value, to, i)
        self.masked_store(f, value, to, whole, self.first_lanes(f, count - whole))

    def copy(self, f: LLVMFunction, source: LLVMValue, to: LLVMValue, count: LLVMValue) -> None:
        """Copy keys."""
        whole = count & -self.lanes
        with f.loop(0, whole, self.lanes) as i:
            self.store(f, self.load(f, source, i), to, i)
        flags = self.first_lanes(f, count - whole)
        self.masked_store(f, self.masked_load(f, source, whole, flags), to, whole, flags)

    def extend(self, key: LLVMValue) -> LLVMValue:
        """Extend a key to 64 bits."""
        return key if self.bits == 64 else key.to("i64", "sext")

    def truncate(self, word: LLVMValue) -> LLVMValue:
        """Truncate 64 bits to a key."""
        return word if self.bits == 64 else word.to(self.type, "trunc")
