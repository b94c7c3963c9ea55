"""Element types in memory, and the arithmetic that products use for them.

Products are computed in the element type of the result. Half precision is widened to f32 on load
and rounded once on store. A complex vector is held as two planes: all real parts, then all
imaginary parts.
"""

from collections.abc import Sequence
from typing import NamedTuple

from shardir.backends.cpu.codegen.dot_product_instructions import (
    GroupInstruction,
    MatrixInstruction,
)
from shardir.backends.cpu.codegen.dtypes import MEMORY_TYPES
from shardir.backends.cpu.codegen.llvm_text import LLVMFunction, LLVMValue, lane_count, vector_type
from shardir.backends.cpu.codegen.narrow_floats import narrow_floats, widen_floats
from shardir.backends.cpu.codegen.tile_instructions import TILE_ROW_BYTES, TileInstruction
from shardir.ir.dtypes import (
    COMPLEX,
    COMPUTE_DTYPES,
    FLOATS,
    INTEGERS,
    NARROW_FLOATS,
    NUMPY_DTYPES,
    UNSIGNED,
)


class Arithmetic(NamedTuple):
    """The arithmetic of products with results of one element type.

    `type` is the LLVM type of a real number, `planes` is 2 for complex elements and 1 otherwise,
    `size` is the size in bytes of an element in packed memory. If `grouped` is set, an operand
    element holds a group of adjacent K steps, whose products this instruction adds.
    If `stored` is set, tiles convert sums to this narrow float type when they store them. If
    `packs_groups` is set, operands have separate K steps, and packing makes groups of two.
    """

    dtype: str
    type: str
    planes: int
    size: int
    grouped: GroupInstruction | None = None
    stored: str = ""
    packs_groups: bool = False

    @property
    def packing(self) -> "Arithmetic":
        """The arithmetic of packing, which copies groups, or their values one by one."""
        if self.packs_groups:
            return Arithmetic("i16", "i16", 1, 2)
        return arithmetic_of("i64") if self.has_matrix_sums else self

    def packing_of(self, dtype: str) -> "Arithmetic":
        """The arithmetic of packing an operand of this element type."""
        return self._replace(packs_groups=False) if self.has_packed_groups(dtype) else self.packing

    def has_packed_groups(self, dtype: str) -> bool:
        """Return whether packing copies groups of an operand of this element type, while it makes
        those of the other operand."""
        return self.packs_groups and NUMPY_DTYPES[dtype].itemsize == self.size

    @property
    def has_tiles(self) -> bool:
        """True if tile registers multiply the groups (see `tile_instructions`)."""
        return isinstance(self.grouped, TileInstruction)

    def interleaves(self, dtype: str) -> bool:
        """Return whether packing makes the groups of an operand of this element type, for tile
        registers."""
        return isinstance(self.grouped, TileInstruction) and self.grouped.dtype == dtype

    @property
    def has_matrix_sums(self) -> bool:
        """True if an instruction computes 2x2 sums of groups of two rows and of two columns."""
        return isinstance(self.grouped, MatrixInstruction)

    @property
    def operand_bytes(self) -> int:
        """The size in bytes of an element that tiles read."""
        return self.packing.size if self.has_matrix_sums else self.size

    @property
    def block_steps(self) -> int:
        """The number of K steps of which packed panels have a multiple."""
        if not self.has_tiles:
            return 1
        return TILE_ROW_BYTES // self.packing.size

    @property
    def result_bytes(self) -> int:
        """The size in bytes of an element that tiles store."""
        return NUMPY_DTYPES[self.stored].itemsize if self.stored else self.size

    @property
    def plane_bytes(self) -> int:
        """The size in bytes of one plane of an element."""
        return self.size // self.planes

    @property
    def is_float(self) -> bool:
        """True for floating-point and complex elements."""
        return self.type in ("float", "double")

    @property
    def has_offset_lhs(self) -> bool:
        """True if 128 is added to each value of the left operand (see `grouped_steps`)."""
        return self.grouped is not None and self.grouped.is_lhs_unsigned

    def add_product(
        self,
        f: LLVMFunction,
        a: LLVMValue,
        b: LLVMValue,
        c: LLVMValue,
        minus: bool = False,
    ) -> LLVMValue:
        """Return `c + a * b`, or `c - a * b` if `minus` is set."""
        if self.grouped:
            assert not isinstance(self.grouped, TileInstruction), "tiles are no vectors"
            return self.grouped.emit(f, a, b, c)
        if not self.is_float:
            return c - a * b if minus else c + a * b
        if minus:
            a = f.emit(f"fneg {a.type} {a}", a.type)
        return f.fma(a, b, c) if f.machine.fma else c + a * b


def arithmetic_of(dtype: str) -> Arithmetic:
    """Return the arithmetic of products with results of element type `dtype`."""
    wide = COMPUTE_DTYPES[dtype]
    planes = 2 if wide in COMPLEX else 1
    return Arithmetic(wide, MEMORY_TYPES[wide], planes, NUMPY_DTYPES[wide].itemsize)


def can_widen(dtype: str, to: Arithmetic) -> bool:
    """Return whether `load_widened` can convert elements of `dtype` to the arithmetic `to`."""
    if dtype in COMPLEX:
        return to.planes == 2
    if dtype in FLOATS:
        return to.is_float
    return dtype in INTEGERS


def load_widened(
    f: LLVMFunction, address: LLVMValue, dtype: str, to: Arithmetic, count: int
) -> list[LLVMValue]:
    """Load `count` contiguous elements and widen them; return one value per plane."""
    item = NUMPY_DTYPES[dtype].itemsize
    if dtype in COMPLEX:
        pairs = f.load(address, vector_type(MEMORY_TYPES[dtype], 2 * count), item // 2)
        return [widen(f, part, dtype, to) for part in split_planes(f, pairs)]
    loaded = f.load(address, vector_type(MEMORY_TYPES[dtype], count), item)
    wide = widen(f, loaded, dtype, to)
    return [wide, f.value(0, wide.type)][: to.planes]


def split_planes(f: LLVMFunction, pairs: LLVMValue) -> list[LLVMValue]:
    """Split interleaved (real, imaginary) pairs into two planes."""
    count = lane_count(pairs.type) // 2
    if count == 1:
        part = pairs.type.split(" x ")[1][:-1]
        return [
            f.emit(f"extractelement {pairs.type} {pairs}, i64 {plane}", part) for plane in (0, 1)
        ]
    return [f.shuffle(pairs, pairs, range(plane, 2 * count, 2)) for plane in (0, 1)]


def interleave_planes(f: LLVMFunction, planes: Sequence[LLVMValue]) -> LLVMValue:
    """Return the planes in memory order: the only plane, or interleaved (real, imaginary) pairs."""
    if len(planes) == 1:
        return planes[0]
    real, imag = planes
    count = lane_count(real.type)
    if count == 1:
        type = vector_type(real.type, 2)
        first = f.emit(f"insertelement {type} poison, {real.type} {real}, i64 0", type)
        return f.emit(f"insertelement {type} {first}, {imag.type} {imag}, i64 1", type)
    return f.shuffle(real, imag, [lane for i in range(count) for lane in (i, count + i)])


def widen(f: LLVMFunction, x: LLVMValue, dtype: str, to: Arithmetic) -> LLVMValue:
    """Convert loaded elements of `dtype` to the arithmetic type."""
    type = vector_type(to.type, lane_count(x.type))
    if dtype in NARROW_FLOATS:
        x = widen_floats(f, x, dtype)
    if x.type == type:
        return x
    if dtype in INTEGERS:
        unsigned = dtype in UNSIGNED
        if to.is_float:
            return x.to(type, "uitofp" if unsigned else "sitofp")
        return x.to(type, "zext" if unsigned else "sext")
    return x.to(type, "fpext")


def narrow_to_storage(f: LLVMFunction, x: LLVMValue, dtype: str) -> LLVMValue:
    """Convert a computed value or plane to its storage type; halves are rounded to nearest even."""
    return narrow_floats(f, x, dtype) if dtype in NARROW_FLOATS else x
