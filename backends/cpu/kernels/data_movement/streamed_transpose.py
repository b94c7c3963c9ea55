"""Transposes of arrays that exceed the caches, by streaming stores of whole cache lines.

The target is contiguous along columns, the source along rows. A step reads one cache line of as
many columns as a line has items, and transposes them to lines of the target. Steps advance along
the rows of the source, so that its lines are read in order.

If the rows of the target do not begin at cache lines, a line of the target consists of the end of
one transposed line and the start of the next one, which the two-source permutations of AVX-512
join. The scratch memory of the worker holds the transposed lines of the previous columns. Without
streaming stores, each line of the target would be read before it is written.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import NamedTuple

from shardir.backends.cpu.codegen.llvm_text import LLVMFunction, LLVMValue
from shardir.backends.cpu.codegen.memory_hints import prefetch
from shardir.backends.cpu.codegen.target import CACHE_LINE_BYTES, HostDescription
from shardir.backends.cpu.kernels.data_movement import transpose_tiles
from shardir.backends.cpu.kernels.data_movement.block_grid import GridBlock
from shardir.backends.cpu.kernels.data_movement.copy_bodies import item_type

RUN_BYTES = 8192
"""Bytes of a column that a block reads in order. On one core of a Zen 4, the transpose of 4000 x
4000 f32 moves 43 GB/s, and 35, 29 and 30 GB/s with runs of 4, 2 and 1 KiB (a copy moves 44)."""
MAX_RUN_ROWS = 2048
"""Maximum rows of a block; the scratch memory holds two lines for each."""
BLOCK_ROW_BYTES = 8192
"""Bytes of a row of the target in a block, about. The first and the last line of such a row are
read before they are written; rows of 2,048 bytes take 4 percent more time."""
PREFETCH_BYTES = 256
"""Distance at which lines of the source are prefetched. The transpose of 4000 x 4000 f32 moves 37
GB/s without prefetches, since the processor does not prefetch as many columns at the same time.
Columns of items of 1 and 2 bytes are too many for the first cache: prefetched into the second one,
4000 x 4000 u16 move 38 GB/s instead of 28."""
PERMUTED_ITEMS = {1: ("qi", "avx512vbmi"), 2: ("hi", "avx512bw"), 4: ("d", "avx512bw"),
                  8: ("q", "avx512bw")}  # fmt: skip
"""The suffix of the two-source permutation of items of a size in bytes, and the feature that it and
masked stores of bytes require."""


class StreamedItems(NamedTuple):
    """The sizes of items in bytes: `nbytes` is moved as a whole, memory is aligned to `unit`."""

    nbytes: int
    unit: int

    @property
    def per_line(self) -> int:
        """The number of items of a cache line."""
        return CACHE_LINE_BYTES // self.nbytes

    @property
    def line_type(self) -> str:
        """The type of a cache line of units."""
        return f"<{CACHE_LINE_BYTES // self.unit} x {item_type(self.unit)}>"


def has_line_permutation(items: StreamedItems, machine: HostDescription) -> bool:
    """Return whether the machine permutes the items of two cache lines by one instruction."""
    return machine.vector_bytes == CACHE_LINE_BYTES and machine.has(PERMUTED_ITEMS[items.unit][1])


def run_rows(nbytes: int) -> int:
    """Return the rows of a block."""
    return min(RUN_BYTES // nbytes, MAX_RUN_ROWS)


def block_columns(items: StreamedItems, extent: int) -> int:
    """Return the columns of a block, whole cache lines, so that all blocks are about as long."""
    count = max(1, extent * items.nbytes // BLOCK_ROW_BYTES)
    return -(-extent // (count * items.per_line)) * items.per_line


def copy_lines(items: StreamedItems, joined: bool, f: LLVMFunction, block: GridBlock) -> None:
    """Copy a block; unless `joined`, the target consists of whole cache lines.

    Blocks that are narrower than a cache line are copied by other tiles.
    """
    per_line = items.per_line
    fits = block.rows.is_("uge", per_line) & block.columns.is_("uge", per_line)
    if not joined:
        fits = fits & line_offset(block.addresses[1]).is_("eq", 0)
    side = transpose_tiles.tile_side(items.nbytes, f.machine)
    copy = _copy_joined if joined else _copy_aligned
    f.if_else(
        fits,
        lambda: copy(f, items, block),
        lambda: transpose_tiles.copy_tiles(items.nbytes, side, False, False, f, block),
    )


def line_offset(address: LLVMValue) -> LLVMValue:
    """Return the bytes between the start of a cache line and an address in it."""
    return address.to("i64", "ptrtoint") & (CACHE_LINE_BYTES - 1)


def _copy_aligned(f: LLVMFunction, items: StreamedItems, block: GridBlock) -> None:
    stride = block.row_strides[1]
    with f.loop(0, block.columns, items.per_line) as column:
        target = f.offset(block.addresses[1], column * items.nbytes)

        def store_line(row: LLVMValue, line: LLVMValue) -> None:
            f.store(line, f.offset(target, row * stride), CACHE_LINE_BYTES, streaming=True)

        _transpose_columns(f, items, block, column, False, store_line)


def _copy_joined(f: LLVMFunction, items: StreamedItems, block: GridBlock) -> None:
    """Copy a block whose rows begin and end at any item of a cache line.

    The lines of the first columns are kept until those of the next ones are known. The columns that
    fill no line are kept in the same way, and then the ends of all rows are written.
    """
    half = run_rows(items.nbytes) * CACHE_LINE_BYTES
    whole = block.columns - block.columns % items.per_line
    turn = f.variable("i64", 0)

    def address_of_kept(row: LLVMValue, is_current: bool) -> LLVMValue:
        start = turn.get() if is_current else half - turn.get()
        return f.offset(block.scratch, start + row * CACHE_LINE_BYTES)

    def load_kept(row: LLVMValue, is_current: bool) -> LLVMValue:
        return f.load(address_of_kept(row, is_current), items.line_type, CACHE_LINE_BYTES)

    def keep(row: LLVMValue, line: LLVMValue) -> None:
        f.store(line, address_of_kept(row, True), CACHE_LINE_BYTES)

    def target(row: LLVMValue, column: LLVMValue) -> LLVMValue:
        at = row * block.row_strides[1] + column * items.nbytes
        return f.offset(block.addresses[1], at)

    def begin() -> None:
        with f.loop(0, block.rows) as row:
            at = target(row, f.value(0, "i64"))
            _store_bytes(f, load_kept(row, True), at, CACHE_LINE_BYTES - line_offset(at))
        turn.set(half - turn.get())
        with f.loop(items.per_line, whole, items.per_line) as column:

            def store_joined(row: LLVMValue, line: LLVMValue) -> None:
                at = target(row, column)
                off = line_offset(at)
                joined = _join_lines(f, items, load_kept(row, False), line, off)
                keep(row, line)
                f.store(joined, f.offset(at, -off), CACHE_LINE_BYTES, streaming=True)

            _transpose_columns(f, items, block, column, False, store_joined)
            turn.set(half - turn.get())

    def finish() -> None:
        with f.loop(0, block.rows) as row:
            at = target(row, whole)
            previous, line = load_kept(row, False), load_kept(row, True)
            off = line_offset(at)
            left = off + (block.columns - whole) * items.nbytes
            start = f.offset(at, -off)
            _store_bytes(f, _join_lines(f, items, previous, line, off), start, left)
            with f.when(left.is_("ugt", CACHE_LINE_BYTES)):
                beyond = _join_lines(f, items, line, line, off)
                next_line = f.offset(start, CACHE_LINE_BYTES)
                _store_bytes(f, beyond, next_line, left - CACHE_LINE_BYTES)

    with f.loop(0, 2) as end:
        _transpose_columns(f, items, block, end * whole, True, keep)
        f.if_else(end.is_("eq", 0), begin, finish)


def _transpose_columns(
    f: LLVMFunction,
    items: StreamedItems,
    block: GridBlock,
    column: LLVMValue,
    is_clamped: bool,
    put: Callable[[LLVMValue, LLVMValue], None],
) -> None:
    """Transpose as many columns as a line has items, and pass on each line of the target with its
    row; `is_clamped` repeats the last column of the block in place of those beyond it.

    The last step overlaps the one before it, so that some lines occur twice. Items of 1 and 2 bytes
    would need too many registers: the scratch memory holds the parts of their lines.
    """
    nbytes, per_line = items.nbytes, items.per_line
    stride = block.column_strides[0]
    is_small = per_line > transpose_tiles.INTERLEAVE_BYTES

    @contextmanager
    def each_step() -> Iterator[LLVMValue]:
        with f.loop(0, block.rows, per_line) as row:
            yield f.umin(row, block.rows - per_line)

    def load_columns(row: LLVMValue, first: LLVMValue, count: int) -> list[LLVMValue]:
        found = []
        at = f.offset(block.addresses[0], row * nbytes)
        for i in range(count):
            index = f.umin(first + i, block.columns - 1) if is_clamped else first + i
            address = f.offset(at, index * stride)
            if not is_clamped:
                prefetch(f, f.offset(address, PREFETCH_BYTES), cache_level=2 if is_small else 1)
            found.append(f.load(address, transpose_tiles.vector_type(nbytes, per_line), 1))
        return found

    def put_line(row: LLVMValue, line: LLVMValue) -> None:
        put(row, line if line.type == items.line_type else line.to(items.line_type, "bitcast"))

    with each_step() as row:
        if is_small:
            _transpose_parts(f, items, block, partial(load_columns, row), row, column, put_line)
        else:
            tile = transpose_tiles.transpose_tile(f, load_columns(row, column, per_line), nbytes)
            for i, line in enumerate(tile):
                put_line(row + i, line)


def _transpose_parts(
    f: LLVMFunction,
    items: StreamedItems,
    block: GridBlock,
    load_columns: Callable[[LLVMValue, int], list[LLVMValue]],
    row: LLVMValue,
    column: LLVMValue,
    put_line: Callable[[LLVMValue, LLVMValue], None],
) -> None:
    """Transpose groups of columns one after the other, and join the parts of lines that they
    are."""
    nbytes, per_line = items.nbytes, items.per_line
    width = transpose_tiles.INTERLEAVE_BYTES // nbytes
    part_type = transpose_tiles.vector_type(nbytes, width)
    parts = f.offset(block.scratch, 2 * run_rows(nbytes) * CACHE_LINE_BYTES)
    with f.loop(0, per_line, width) as first:
        columns = load_columns(column + first, width)
        vectors = transpose_tiles.interleave_rows(f, columns, per_line, width)
        place = f.offset(parts, first * CACHE_LINE_BYTES)
        for i, vector in enumerate(vectors):
            f.store(vector, f.offset(place, i * CACHE_LINE_BYTES), CACHE_LINE_BYTES)
    with f.loop(0, width) as lane:
        place = f.offset(parts, lane * CACHE_LINE_BYTES)
        for run in range(0, per_line, width):
            pieces = [
                f.load(f.offset(place, run * nbytes + group * CACHE_LINE_BYTES), part_type, 1)
                for group in range(0, per_line, width)
            ]
            put_line(row + lane + run, transpose_tiles.concatenate(f, pieces))


def _join_lines(
    f: LLVMFunction, items: StreamedItems, first: LLVMValue, second: LLVMValue, off: LLVMValue
) -> LLVMValue:
    """Return the line that begins `off` bytes before `second`: the end of `first` and the start of
    `second`."""
    lanes, lane = CACHE_LINE_BYTES // items.unit, item_type(items.unit)
    suffix = PERMUTED_ITEMS[items.unit][0]
    name = f"llvm.x86.avx512.vpermi2var.{suffix}.512"
    f.module.declare(name, items.line_type, [items.line_type] * 3)
    listed = ", ".join(f"{lane} {k}" for k in range(lanes))
    moved = off // items.unit
    by = f.splat(moved if items.unit == 8 else moved.to(lane, "trunc"), lanes)
    index = f.emit(f"sub {items.line_type} <{listed}>, {by}", items.line_type)
    return f.call(name, [second, index, first], items.line_type)


def _store_bytes(f: LLVMFunction, line: LLVMValue, address: LLVMValue, count: LLVMValue) -> None:
    """Store the first `count` bytes of a cache line, at most all."""
    type, mask = f"<{CACHE_LINE_BYTES} x i8>", f"<{CACHE_LINE_BYTES} x i1>"
    name = f"llvm.masked.store.v{CACHE_LINE_BYTES}i8.p0"
    f.module.declare(name, "void", [type, "ptr", "i32", mask])
    ones = f.value(-1, "i64")
    some = ~(ones << f.umin(count, CACHE_LINE_BYTES - 1))
    bits = f.select(count.is_("uge", CACHE_LINE_BYTES), ones, some).to(mask, "bitcast")
    value = line if line.type == type else line.to(type, "bitcast")
    f.do(f"call void @{name}({type} {value}, ptr {address}, i32 1, {mask} {bits})")
