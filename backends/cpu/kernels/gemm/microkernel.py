"""The micro-kernel: computes a tile of the result in registers.

A tile has `height` rows and `width` vectors of columns. Both operands are packed, so that the
elements of one K step are contiguous: `height` of the left operand, and a row of vectors of the
right one.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import ClassVar, NamedTuple

from shardir.backends.cpu.codegen.dot_product_instructions import SIGN_BITS_OF_BYTES
from shardir.backends.cpu.codegen.llvm_text import (
    LLVMFunction,
    LLVMModule,
    LLVMValue,
    StackVariable,
    add_outlined_function,
    vector_type,
)
from shardir.backends.cpu.codegen.memory_hints import prefetch
from shardir.backends.cpu.codegen.target import CACHE_LINE_BYTES, HostDescription
from shardir.backends.cpu.codegen.tile_instructions import TILE_ROWS
from shardir.backends.cpu.kernels.gemm.element_arithmetic import (
    Arithmetic,
    interleave_planes,
    narrow_to_storage,
)
from shardir.ir.dtypes import NARROW_FLOATS

COLUMN_PREFETCH_BYTES = 512
"""Prefetch distance in bytes of packed columns."""

MASKED_STORE_BYTES = 64
"""Bytes of registers of which any elements can be stored (AVX-512)."""

WRITE_TILE_FUNCTION = "write_tile"


class RegisterTile(NamedTuple):
    """The size of a tile in elements.

    `halved`: an operation on vectors of half as many lanes takes at most as long, as with AVX-512.
    Smaller variants have `row_step` rows, if that is not 0.
    """

    height: int
    width: int
    lanes: int
    halved: bool = False
    row_step: int = 0

    @property
    def columns(self) -> int:
        """The number of columns."""
        return self.width * self.lanes


def type_of_stored_sums(dtype: str, machine: HostDescription, is_single_part: bool) -> str:
    """Return the narrow type of a result as which tiles store their sums, "" if they store sums of
    a wider type: narrow floats, if tiles compute whole sums and the machine has masked stores of
    16 bits."""
    has_masked_stores = machine.vector_bytes == MASKED_STORE_BYTES
    return dtype if dtype in NARROW_FLOATS and is_single_part and has_masked_stores else ""


@cache
def tile_for(arith: Arithmetic, machine: HostDescription, narrow: bool = False) -> RegisterTile:
    """Return the tile that fills the registers of a machine; a narrow one has one vector of
    columns."""
    lanes = machine.lanes(arith.plane_bytes)
    if arith.has_tiles:
        return RegisterTile(2 * TILE_ROWS, 1 if narrow else 2, TILE_ROWS, row_step=TILE_ROWS)
    if machine.vector_bytes == 64:
        height, width = 12, 2
    elif machine.has_many_registers:
        height, width = 8, 3
    else:
        height, width = 6, 2
    if narrow:
        height, width = height * width, 1
    height = height if arith.planes == 1 else height // 2
    return RegisterTile(height, width, lanes, machine.vector_bytes == 64)


def tile_for_columns(arith: Arithmetic, machine: HostDescription, columns: int) -> RegisterTile:
    """Return the tile for a result with this number of columns; few columns get a narrow one."""
    return tile_for(arith, machine, columns <= tile_for(arith, machine).lanes)


def tile_variants(tile: RegisterTile) -> tuple[RegisterTile, ...]:
    """Return a tile and the smaller variants for remaining columns or rows, the smallest last.

    Low tiles read columns more often than the L2 cache can supply them, therefore there are two.
    """
    parts = [tile, tile._replace(width=1)]
    if tile.row_step:
        parts += [part._replace(height=tile.row_step) for part in parts]
        return tuple(dict.fromkeys(parts))
    low = max(1, tile.height // 3)
    if tile.halved:  # Half of the widest registers takes at most as long.
        parts.append(parts[1]._replace(lanes=tile.lanes // 2))
    parts += [tile._replace(height=height) for height in (2 * low, low)]
    return tuple(dict.fromkeys(parts))


def emit_tile(
    module: LLVMModule,
    name: str,
    tile: RegisterTile,
    packed: RegisterTile,
    arith: Arithmetic,
) -> None:
    """Emit `name(k, lhs, rhs, prefetch_start, prefetch_stride, share_stride, out, offsets, rows,
    columns, adding)`.

    The function writes, or adds to, the first `rows` rows and `columns` columns at `out`; row i
    begins `offsets[i]` bytes further on, and its columns are contiguous. Operands are packed for
    tiles of the size `packed`. Cache lines from `prefetch_start` on, `prefetch_stride` bytes apart,
    are prefetched; a share of steps begins `share_stride` bytes further on for each step before it.
    """
    params = ["i64", "ptr noalias readonly", "ptr noalias readonly", "ptr", "i64", "i64",
              "ptr noalias", "ptr noalias readonly", "i64", "i64", "i1"]  # fmt: skip
    f = add_outlined_function(module, name, params)
    steps, lhs, rhs, prefetch_start, prefetch_stride, share_stride, *place = f.params
    sums = tile_accumulators(f, tile, packed, arith)
    prefetches = StepPrefetch(f, prefetch_start, prefetch_stride, share_stride)
    plane = arith.operand_bytes // arith.planes
    left, right = (f.variable("ptr", start) for start in (lhs, rhs))

    def step() -> None:
        start, here = left.get(), right.get()
        planes = [
            [
                f.offset(start, (p * packed.height + i) * plane)
                for i in range(0, tile.height, sums.rows_per_load)
            ]
            for p in range(arith.planes)
        ]
        sums.prefetch_columns(here)
        prefetches.step()
        sums.add(planes, sums.columns_at(here))
        left.set(f.offset(start, packed.height * arith.operand_bytes))
        right.set(f.offset(here, packed.columns * arith.operand_bytes))

    for_each_step(sums, place, steps, lambda _: step(), prefetches.begin_share)
    sums.write(place)
    f.ret()


class StepPrefetch:
    """The prefetches of the steps of a tile: one cache line in each step, `stride` bytes apart. A
    share of steps begins `share_stride` bytes further on for each step before it."""

    def __init__(
        self, f: LLVMFunction, start: LLVMValue, stride: LLVMValue, share_stride: LLVMValue
    ) -> None:
        self._f, self._start, self._stride, self._share_stride = f, start, stride, share_stride
        self._line = f.variable("ptr", start)

    def begin_share(self, first: LLVMValue) -> None:
        """Emit the beginning of the share of the step `first`."""
        self._line.set(self._f.offset(self._start, first * self._share_stride))

    def step(self) -> None:
        """Emit the prefetch of one step."""
        prefetch(self._f, self._line.get())
        self._line.set(self._f.offset(self._line.get(), self._stride))


def for_each_step(
    sums: "TileAccumulators",
    place: list[LLVMValue],
    steps: LLVMValue,
    step: Callable[[LLVMValue], None],
    begin: Callable[[LLVMValue], None] = lambda _: None,
) -> None:
    """Emit all K steps in shares, each of which begins with `begin`; each share prefetches one more
    row of the result, so that steps do not wait for all of these prefetches."""
    f, height = sums.f, sums.tile.height
    if sums.tile != sums.packed:  # Few tiles are remainders.
        with f.loop(0, steps) as k:
            step(k)
        return
    # A share covers at most one cache line along the K steps.
    share = f.umin(steps // (2 * height) + 1, CACHE_LINE_BYTES // sums.arith.operand_bytes)
    row = f.variable("i64", 0)
    with f.loop(0, steps, share) as first:
        now = row.get()
        begin(first)
        sums.prefetch_row(place, now)
        row.set(f.umin(now + 1, height - 1))
        with f.loop(first, f.umin(first + share, steps)) as k:
            step(k)


@dataclass
class TileAccumulators:
    """The accumulators of a tile, in registers; `packed` is the tile that columns are packed
    for."""

    f: LLVMFunction
    tile: RegisterTile
    packed: RegisterTile
    arith: Arithmetic
    rows_per_load: ClassVar[int] = 1
    """The rows of the left operand of each address that `add` takes."""

    def __post_init__(self) -> None:
        tile, arith = self.tile, self.arith
        many = vector_type(arith.type, tile.lanes)
        self.sums: list[list[list[StackVariable]]] = [
            [[self.f.variable(many, 0) for _ in range(arith.planes)] for _ in range(tile.width)]
            for _ in range(tile.height)
        ]
        # 128 times the sums of the columns, if 128 is added to each value of the left operand.
        offset_columns = range(tile.width if arith.has_offset_lhs else 0)
        self.offsets = [self.f.variable(many, 0) for _ in offset_columns]

    def columns_at(self, rhs: LLVMValue) -> list[list[LLVMValue]]:
        """Load the packed columns of a step; return each plane of each vector."""
        f, tile, arith = self.f, self.tile, self.arith
        many = vector_type(arith.type, tile.lanes)
        return [
            [
                f.load(
                    f.offset(rhs, (p * self.packed.columns + j * tile.lanes) * arith.plane_bytes),
                    many,
                    arith.plane_bytes,
                )
                for p in range(arith.planes)
            ]
            for j in range(tile.width)
        ]

    def add(self, lhs: Sequence[Sequence[LLVMValue]], right: Sequence[list[LLVMValue]]) -> None:
        """Add the products of a step: `lhs` are addresses of elements (of each plane, of each row),
        `right` a row of vectors."""
        f, tile, arith = self.f, self.tile, self.arith
        for i, sums in enumerate(self.sums):
            left = [f.splat(f.load(plane[i], arith.type), tile.lanes) for plane in lhs]
            for j, place in enumerate(sums):
                self._add(place, left, right[j])
        for total, (column,) in zip(self.offsets, right, strict=False):
            offsets = f.value(SIGN_BITS_OF_BYTES, column.type)
            total.set(arith.add_product(f, offsets, column, total.get()))

    def prefetch_row(self, place: list[LLVMValue], row: LLVMValue) -> None:
        """Prefetch a row of the result before it is written."""
        f, out, offsets = self.f, place[0], place[1]
        start = f.offset(out, f.load(f.offset(offsets, row, "i64"), "i64"))
        nbytes = self.tile.columns * self.arith.result_bytes
        for at in (*range(0, nbytes, CACHE_LINE_BYTES), nbytes - 1):
            prefetch(f, f.offset(start, at), writing=True)

    def prefetch_columns(self, rhs: LLVMValue) -> None:
        """Prefetch columns of later steps from the L2 cache."""
        for at in range(0, self.tile.columns * self.arith.operand_bytes, CACHE_LINE_BYTES):
            prefetch(self.f, self.f.offset(rhs, COLUMN_PREFETCH_BYTES + at))

    def row_vectors(self) -> list[list[LLVMValue]]:
        """Return the vectors of sums of each row."""
        vectors = [
            [interleave_planes(self.f, [plane.get() for plane in vector]) for vector in row]
            for row in self.sums
        ]
        for row in vectors if self.offsets else []:
            row[:] = [sum - offset.get() for sum, offset in zip(row, self.offsets, strict=True)]
        return vectors

    def write(self, place: list[LLVMValue]) -> None:
        """Write the sums as in `emit_tile`; `place` is (out, offsets, rows, columns, adding).

        A partial tile is written through memory. Sums that are stored in a narrow type are not
        added to the result.
        """
        f, tile, arith = self.f, self.tile, self.arith
        out, offsets, rows, columns, adding = place
        vectors = self.row_vectors()

        def at_once(more: bool) -> None:
            for i, values in enumerate(vectors):
                start = f.offset(out, f.load(f.offset(offsets, 8 * i), "i64"))
                for j, value in enumerate(values):
                    at = f.offset(start, j * tile.lanes * arith.result_bytes)
                    align = arith.result_bytes // arith.planes
                    before = [f.load(at, value.type, align)] if more else []
                    f.store(narrow_to_storage(f, sum(before, value), arith.stored), at, align)

        def whole() -> None:
            if arith.stored:
                at_once(False)
            else:
                f.if_else(adding, lambda: at_once(True), lambda: at_once(False))

        def in_memory() -> None:
            row_bytes, step = self.packed.columns * arith.size, tile.lanes * arith.size
            buffer = f.variable(f"[{tile.height * row_bytes} x i8]").address
            for i, values in enumerate(vectors):
                for j, value in enumerate(values):
                    at = f.offset(buffer, i * row_bytes + j * step)
                    f.store(value, at, min(CACHE_LINE_BYTES, step))
            some = f.umin(rows, tile.height)
            there = f.umin(columns, tile.columns)
            f.call(WRITE_TILE_FUNCTION, [buffer, out, offsets, some, there, adding])

        if tile.columns == self.packed.columns:
            f.if_else(
                rows.is_("uge", tile.height) & columns.is_("uge", tile.columns), whole, in_memory
            )
        else:
            in_memory()

    def _add(self, sums: list[StackVariable], a: list[LLVMValue], b: list[LLVMValue]) -> None:
        def product(x: LLVMValue, y: LLVMValue, z: LLVMValue, minus: bool = False) -> LLVMValue:
            return self.arith.add_product(self.f, x, y, z, minus)

        if self.arith.planes == 1:
            sums[0].set(product(a[0], b[0], sums[0].get()))
            return
        sums[0].set(product(a[1], b[1], product(a[0], b[0], sums[0].get()), minus=True))
        sums[1].set(product(a[1], b[0], product(a[0], b[1], sums[1].get())))


class MatrixAccumulators(TileAccumulators):
    """The accumulators of a tile, each a matrix of the sums of two rows and two columns."""

    rows_per_load = 2

    def __post_init__(self) -> None:
        tile, sums = self.tile, vector_type(self.arith.type, 4)
        self.matrices = [
            [self.f.variable(sums, 0) for _ in range(tile.columns // 2)]
            for _ in range(tile.height // 2)
        ]

    def columns_at(self, rhs: LLVMValue) -> list[list[LLVMValue]]:
        """Load the packed groups of each two columns of a step."""
        pairs = range(0, self.tile.columns, 2)
        return [[self._load(self.f.offset(rhs, j * self.arith.operand_bytes)) for j in pairs]]

    def add(self, lhs: Sequence[Sequence[LLVMValue]], right: Sequence[list[LLVMValue]]) -> None:
        """Add the products of a step: `lhs` are addresses of the groups of each two rows."""
        ((*rows,), (*columns,)) = lhs[0], right[0]
        for sums, row in zip(self.matrices, rows, strict=True):
            left = self._load(row)
            for place, column in zip(sums, columns, strict=True):
                place.set(self.arith.add_product(self.f, left, column, place.get()))

    def row_vectors(self) -> list[list[LLVMValue]]:
        """Return the vectors of sums of each row, of four columns."""
        halves = (0, 1, 4, 5), (2, 3, 6, 7)
        return [
            [
                self.f.shuffle(left.get(), right.get(), half)
                for left, right in zip(sums[::2], sums[1::2], strict=True)
            ]
            for sums in self.matrices
            for half in halves
        ]

    def _load(self, address: LLVMValue) -> LLVMValue:
        return self.f.load(address, vector_type("i64", 2), self.arith.operand_bytes)


def tile_accumulators(
    f: LLVMFunction, tile: RegisterTile, packed: RegisterTile, arith: Arithmetic
) -> TileAccumulators:
    """Return the accumulators of a tile for an arithmetic."""
    kind = MatrixAccumulators if arith.has_matrix_sums else TileAccumulators
    return kind(f, tile, packed, arith)


def emit_write(module: LLVMModule, tile: RegisterTile, arith: Arithmetic) -> None:
    """Emit `write_tile(sums, out, offsets, rows, columns, adding)`: write, or add, rows of a
    tile."""
    params = ["ptr noalias readonly", "ptr noalias", "ptr noalias readonly", "i64", "i64", "i1"]
    f = add_outlined_function(module, WRITE_TILE_FUNCTION, params)
    sums, out, offsets, rows, columns, adding = f.params
    lanes, step = tile.lanes * arith.planes, tile.lanes * arith.size
    type = vector_type(arith.type, lanes)
    masks = [
        lane_mask(f, columns - j * tile.lanes, tile.lanes, arith.planes) for j in range(tile.width)
    ]
    # Without `adding` the result may be uninitialized: it is not read.
    before = [mask & f.splat(adding, lanes) for mask in masks]

    def each_row(masked: bool) -> None:
        source = f.variable("ptr", sums)
        with f.loop(0, rows) as i:
            start = f.offset(out, f.load(f.offset(offsets, i, "i64"), "i64"))
            for j, mask in enumerate(masks):
                at = f.offset(start, j * tile.lanes * arith.result_bytes)
                new = f.load(f.offset(source.get(), j * step), type, min(CACHE_LINE_BYTES, step))
                if arith.stored:
                    value = narrow_to_storage(f, new, arith.stored)
                    masked_store(f, value, at, mask, arith.result_bytes)
                elif masked:
                    old = masked_load(f, at, before[j], type, arith.plane_bytes)
                    masked_store(f, old + new, at, mask, arith.plane_bytes)
                else:
                    f.store(f.load(at, type, arith.plane_bytes) + new, at, arith.plane_bytes)
            source.set(f.offset(source.get(), tile.columns * arith.size))

    if f.machine.vector_bytes == 64:
        each_row(masked=True)
    else:  # Masked operations are slow.
        whole = adding & columns.is_("uge", tile.columns)
        f.if_else(whole, lambda: each_row(masked=False), lambda: each_row(masked=True))
    f.ret()


def lane_mask(f: LLVMFunction, count: LLVMValue, lanes: int, times: int = 1) -> LLVMValue:
    """Return a mask of the first `count` lanes, each repeated `times`; empty for a negative
    count."""
    indices = ", ".join(f"i32 {lane // times}" for lane in range(lanes * times))
    type = vector_type("i32", lanes * times)
    least = f.select(count.is_("slt", lanes), count, lanes)
    limit = f.splat(least.to("i32", "trunc"), lanes * times)
    text = f"icmp slt {type} <{indices}>, {limit}"
    return f.emit(text, vector_type("i1", lanes * times))


def masked_load(
    f: LLVMFunction, address: LLVMValue, mask: LLVMValue, type: str, align: int
) -> LLVMValue:
    """Load the lanes of the mask, zero elsewhere; no other memory is accessed."""
    name = f"llvm.masked.load.{_suffix(type)}.p0"
    f.module.declare(name, type, ["ptr", "i32", mask.type, type])
    text = f"ptr {address}, i32 {align}, {mask.type} {mask}, {type} zeroinitializer"
    return f.emit(f"call {type} @{name}({text})", type)


def masked_store(
    f: LLVMFunction, value: LLVMValue, address: LLVMValue, mask: LLVMValue, align: int
) -> None:
    """Store the lanes of the mask."""
    name = f"llvm.masked.store.{_suffix(value.type)}.p0"
    f.module.declare(name, "void", [value.type, "ptr", "i32", mask.type])
    text = f"{value.type} {value}, ptr {address}, i32 {align}, {mask.type} {mask}"
    f.do(f"call void @{name}({text})")


def _suffix(type: str) -> str:
    kind = type.split(" x ")[1][:-1]
    short = {"float": "f32", "double": "f64"}.get(kind, kind)
    return f"v{type[1:].split(' ')[0]}{short}"
