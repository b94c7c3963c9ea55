"""Transposes by whole cache lines, of arrays that exceed the caches or whose lines conflict.

The target is contiguous along columns, the source along rows. A tile reads one cache line of as
many columns as a line has items, and transposes them to lines of the target. `skewed_order` states
the order of the tiles.

Arrays that exceed the caches are written by streaming stores, without which each line of the target
would be read before it is written. If the rows of the target do not begin at cache lines, a line of
the target consists of the end of one transposed line and the start of the next one. The scratch
memory of the worker holds the transposed lines of the previous columns. The two-source permutations
of AVX-512 join two lines; without them, both are stored next to each other and their parts loaded.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import Enum
from typing import NamedTuple

from shardir.backends.cpu.codegen.llvm_text import LLVMFunction, LLVMValue
from shardir.backends.cpu.codegen.memory_hints import prefetch
from shardir.backends.cpu.codegen.target import CACHE_LINE_BYTES, HostDescription
from shardir.backends.cpu.kernels.data_movement import transpose_tiles
from shardir.backends.cpu.kernels.data_movement.block_grid import GridBlock
from shardir.backends.cpu.kernels.data_movement.copy_bodies import copy_few_bytes, item_type
from shardir.backends.cpu.kernels.data_movement.skewed_order import SkewedOrder, each_skewed_tile

RUN_BYTES = 8192
"""Bytes of a column that a block reads in order. On one core of a Zen 4, the transpose of 4000 x
4000 f32 moves 43 GB/s, and 35, 29 and 30 GB/s with runs of 4, 2 and 1 KiB (a copy moves 44)."""
MAX_RUN_ROWS = 2048
"""Maximum rows of a block; the scratch memory holds a line for each."""
ORDINARY_BLOCK_ROWS = MAX_RUN_ROWS // 4
"""Maximum rows of a block of arrays in the caches, which are shared among several tasks."""
BLOCK_ROW_BYTES = 8192
"""Bytes of a row of joined lines in a block, about. The first and the last line of such a row are
read before they are written; rows of 2,048 bytes take 4 percent more time."""
PREFETCH_BYTES = 256
"""Distance at which lines of the source are prefetched into the second-level cache, since the
processor does not prefetch as many columns at the same time. On one core of a Zen 4, the transpose
of 4001 x 3999 f64 moves 40 GB/s, and 27 GB/s with half of this distance."""
ALIGNED_ORDER = SkewedOrder(columns=256, group=2, delay=1)
"""The order if columns of the source begin at cache lines. On one core of a Zen 4, the transpose of
4096 x 4096 f32 moves 43 GB/s, 38 GB/s if all tiles are delayed, and 30 GB/s without delays (a copy
moves 46)."""
SPLIT_ORDER = SkewedOrder(columns=128, group=1, delay=4)
"""The order if columns of the source do not begin at cache lines, so that a tile reads two lines of
each. The transpose of 4096 x 4097 f32 moves 24 GB/s, and 20 GB/s in the order of aligned columns,
that of 4000 x 4001 f32 45 GB/s instead of 30."""
JOINED_ORDER = SkewedOrder(columns=64, group=1, delay=1)
"""The order of tiles whose lines are joined with those of the tile to the left, which requires that
no tile is in the same step as that one. The lines of a strip stay in the first-level cache: with
256 columns, the transpose of 4001 x 3999 f32 moves 20 GB/s instead of 36."""
PERMUTED_ITEMS = {1: ("qi", "avx512vbmi"), 2: ("hi", "avx512bw"), 4: ("d", "avx512bw"),
                  8: ("q", "avx512bw")}  # fmt: skip
"""The suffix of the two-source permutation of items of a size in bytes, and the feature that it
requires."""
PAIR_BYTES = 2 * CACHE_LINE_BYTES
"""Bytes of a transposed line and the line to its left."""
Index = LLVMValue | int
"""The number of a line in a tile."""


class LineStores(Enum):
    """How lines of the target are stored."""

    ORDINARY = "ordinary"
    STREAMED = "streamed"
    JOINED = "joined"
    """Streamed, after they have been joined from transposed lines."""


class LineItems(NamedTuple):
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


def has_line_permutation(items: LineItems, machine: HostDescription) -> bool:
    """Return whether the machine permutes the items of two cache lines by one instruction."""
    return machine.vector_bytes == CACHE_LINE_BYTES and machine.has(PERMUTED_ITEMS[items.unit][1])


def run_rows(nbytes: int) -> int:
    """Return the rows of a block."""
    return min(RUN_BYTES // nbytes, MAX_RUN_ROWS)


def block_shape(items: LineItems, stores: LineStores, extent: int) -> tuple[int, int]:
    """Return the rows and columns of a block of rows of `extent` items; blocks of joined lines are
    about as long."""
    rows = run_rows(items.nbytes)
    if stores is LineStores.STREAMED:
        return rows, ALIGNED_ORDER.columns
    if stores is LineStores.ORDINARY:
        return min(rows, ORDINARY_BLOCK_ROWS), ALIGNED_ORDER.columns
    count = max(1, extent * items.nbytes // BLOCK_ROW_BYTES)
    return rows, -(-extent // (count * items.per_line)) * items.per_line


def copy_lines(
    items: LineItems,
    stores: LineStores,
    is_split: bool,
    f: LLVMFunction,
    block: GridBlock,
) -> None:
    """Copy a block; the target consists of whole cache lines if `stores` is `STREAMED`, and columns
    of the source do not begin at cache lines if `is_split`.

    Blocks that are narrower than a cache line are copied by other tiles.
    """
    per_line = items.per_line
    fits = block.rows.is_("uge", per_line) & block.columns.is_("uge", per_line)
    if stores is LineStores.STREAMED:
        fits = fits & line_offset(block.addresses[1]).is_("eq", 0)
    side = transpose_tiles.tile_side(items.nbytes, f.machine)

    def lines() -> None:
        if stores is LineStores.JOINED:
            _copy_joined(f, items, block)
        else:
            order = SPLIT_ORDER if is_split else ALIGNED_ORDER
            _copy_whole(f, items, stores is LineStores.STREAMED, order, block)

    f.if_else(
        fits,
        lines,
        lambda: transpose_tiles.copy_tiles(items.nbytes, side, None, f, block),
    )


def line_offset(address: LLVMValue) -> LLVMValue:
    """Return the bytes between the start of a cache line and an address in it."""
    return address.to("i64", "ptrtoint") & (CACHE_LINE_BYTES - 1)


def _copy_whole(
    f: LLVMFunction, items: LineItems, streaming: bool, order: SkewedOrder, block: GridBlock
) -> None:
    columns = f.value(0, "i64"), block.columns
    with each_skewed_tile(f, order, items.per_line, block.rows, columns) as tile:

        def store_line(number: Index, line: LLVMValue) -> None:
            at = _target(f, items, block, tile.row + number, tile.column)
            f.store(line, at, CACHE_LINE_BYTES if streaming else 1, streaming)

        _transpose_tile(f, items, block, tile.row, tile.column, False, store_line)


def _copy_joined(f: LLVMFunction, items: LineItems, block: GridBlock) -> None:
    """Copy a block whose rows begin and end at any item of a cache line.

    The line to the left of a line of a tile is kept. With permutations, both are joined in
    registers, otherwise they are stored next to each other, as a pair, and parts of both loaded.
    """
    per_line = items.per_line
    has_permutation = has_line_permutation(items, f.machine)
    distance = _kept_distance(f, items)
    tile_bytes = per_line * distance
    strip = _strip_memory(f, items, block)
    _copy_starts(f, items, block)
    columns = f.value(per_line, "i64"), block.columns & -per_line
    with each_skewed_tile(f, JOINED_ORDER, per_line, block.rows, columns) as tile:
        # The lines to the left of the first tile of a strip are those of the previous strip.
        first = f.offset(block.scratch, tile.step * tile_bytes)
        within = f.offset(strip, tile.number * tile_bytes)
        kept = f.select(tile.number.is_("eq", 0), first, within)
        next_kept = f.select(tile.is_last, first, f.offset(within, tile_bytes))

        def store_joined(number: Index, line: LLVMValue) -> None:
            at = _target(f, items, block, tile.row + number, tile.column)
            off = line_offset(at)
            left_at = f.offset(kept, number * distance)
            if has_permutation:
                left = f.load(left_at, items.line_type, CACHE_LINE_BYTES)
                joined = _join_lines(f, items, left, line, off)
            else:
                parts = f.offset(left_at, CACHE_LINE_BYTES - off)
                joined = f.load(parts, items.line_type, items.unit)
            f.store(line, f.offset(next_kept, number * distance), CACHE_LINE_BYTES)
            f.store(joined, f.offset(at, -off), CACHE_LINE_BYTES, streaming=True)

        if has_permutation:
            _transpose_tile(f, items, block, tile.row, tile.column, False, store_joined)
        else:
            right = f.offset(kept, CACHE_LINE_BYTES)
            _keep_tile(f, items, block, tile.row, tile.column, False, right, distance)
            with f.loop(0, per_line) as number:
                line_at = f.offset(right, number * distance)
                store_joined(number, f.load(line_at, items.line_type, CACHE_LINE_BYTES))
    _copy_ends_of_rows(f, items, block)


def _kept_distance(f: LLVMFunction, items: LineItems) -> int:
    """Return the bytes between two lines that are kept."""
    return CACHE_LINE_BYTES if has_line_permutation(items, f.machine) else PAIR_BYTES


def _strip_memory(f: LLVMFunction, items: LineItems, block: GridBlock) -> LLVMValue:
    """Return the memory of lines of a strip, which follows that of lines between strips."""
    return f.offset(block.scratch, run_rows(items.nbytes) * _kept_distance(f, items))


def _keep_tile(
    f: LLVMFunction,
    items: LineItems,
    block: GridBlock,
    row: LLVMValue,
    column: LLVMValue,
    is_clamped: bool,
    kept: LLVMValue,
    distance: int,
) -> None:
    """Transpose a tile, and store its lines at a distance in bytes."""

    def keep(number: Index, line: LLVMValue) -> None:
        f.store(line, f.offset(kept, number * distance), CACHE_LINE_BYTES)

    _transpose_tile(f, items, block, row, column, is_clamped, keep)


@contextmanager
def _each_step(
    f: LLVMFunction, items: LineItems, block: GridBlock
) -> Iterator[tuple[LLVMValue, LLVMValue]]:
    """Run the block for the first row of each step, and the address of the lines that it keeps."""
    with f.loop(0, block.rows, items.per_line) as start:
        kept = f.offset(block.scratch, start * _kept_distance(f, items))
        yield f.umin(start, block.rows - items.per_line), kept


def _copy_starts(f: LLVMFunction, items: LineItems, block: GridBlock) -> None:
    """Copy the columns before the first whole lines of rows, and keep the first lines."""
    distance, zero = _kept_distance(f, items), f.value(0, "i64")
    with _each_step(f, items, block) as (row, kept):
        _keep_tile(f, items, block, row, zero, True, kept, distance)
        with f.loop(0, items.per_line) as number:
            at = _target(f, items, block, row + number, zero)
            count = CACHE_LINE_BYTES - line_offset(at)
            copy_few_bytes(f, count, PAIR_BYTES, f.offset(kept, number * distance), at)


def _copy_ends_of_rows(f: LLVMFunction, items: LineItems, block: GridBlock) -> None:
    """Copy the columns after the last whole lines of rows, with those that fill no line."""
    distance, strip = _kept_distance(f, items), _strip_memory(f, items, block)
    whole = block.columns & -items.per_line
    right = f.offset(strip, CACHE_LINE_BYTES)
    with _each_step(f, items, block) as (row, kept):
        _keep_tile(f, items, block, row, whole, True, right, PAIR_BYTES)
        with f.loop(0, items.per_line) as number:
            pair = f.offset(strip, number * PAIR_BYTES)
            left = f.load(f.offset(kept, number * distance), items.line_type, CACHE_LINE_BYTES)
            f.store(left, pair, CACHE_LINE_BYTES)
            at = _target(f, items, block, row + number, whole)
            off = line_offset(at)
            count = off + (block.columns - whole) * items.nbytes
            joined = f.offset(pair, CACHE_LINE_BYTES - off)
            copy_few_bytes(f, count, PAIR_BYTES, joined, f.offset(at, -off))


def _target(
    f: LLVMFunction, items: LineItems, block: GridBlock, row: LLVMValue, column: LLVMValue
) -> LLVMValue:
    at = row * block.row_strides[1] + column * items.nbytes
    return f.offset(block.addresses[1], at)


def _transpose_tile(
    f: LLVMFunction,
    items: LineItems,
    block: GridBlock,
    row: LLVMValue,
    column: LLVMValue,
    is_clamped: bool,
    put: Callable[[Index, LLVMValue], None],
) -> None:
    """Transpose as many rows and columns as a line has items, and pass on each line of the target
    with its number; `is_clamped` repeats the last column of the block in place of those beyond it.
    """
    nbytes, per_line = items.nbytes, items.per_line
    side = transpose_tiles.tile_side(nbytes, f.machine)
    at = f.offset(block.addresses[0], row * nbytes)

    def column_address(index: LLVMValue) -> LLVMValue:
        index = f.umin(index, block.columns - 1) if is_clamped else index
        return f.offset(at, index * block.column_strides[0])

    def load_columns(first: LLVMValue, count: int) -> list[LLVMValue]:
        found = []
        for i in range(count):
            address = column_address(first + i)
            if not is_clamped:
                prefetch(f, f.offset(address, PREFETCH_BYTES), cache_level=2)
            found.append(f.load(address, transpose_tiles.vector_type(nbytes, per_line), 1))
        return found

    def put_line(number: Index, line: LLVMValue) -> None:
        put(number, line if line.type == items.line_type else line.to(items.line_type, "bitcast"))

    if side == per_line:
        tile = transpose_tiles.transpose_tile(f, load_columns(column, per_line), nbytes)
        for i, line in enumerate(tile):
            put_line(i, line)
    elif f.machine.vector_bytes == CACHE_LINE_BYTES:
        _transpose_parts(f, items, block, load_columns, column, put_line)
    else:
        first = column_address(column)
        for i in range(0 if is_clamped else per_line):
            prefetch(f, f.offset(column_address(column + i), PREFETCH_BYTES), cache_level=2)
        with f.loop(0, per_line, side) as start:
            start_bytes = start * nbytes
            columns: Iterator[LLVMValue]
            if is_clamped:
                numbers = range(per_line)
                columns = (f.offset(column_address(column + i), start_bytes) for i in numbers)
            else:
                columns = transpose_tiles.addresses_at_distance(
                    f, f.offset(first, start_bytes), block.column_strides[0]
                )
            tiles = transpose_tiles.load_tiles(f, nbytes, side, per_line // side, columns)
            for i, line in enumerate(tiles):
                put_line(start + i, line)


def _transpose_parts(
    f: LLVMFunction,
    items: LineItems,
    block: GridBlock,
    load_columns: Callable[[LLVMValue, int], list[LLVMValue]],
    column: LLVMValue,
    put_line: Callable[[Index, LLVMValue], None],
) -> None:
    """Transpose groups of columns one after the other, and join the parts of lines that they are.

    The lines of items of 1 and 2 bytes would need too many registers: the scratch memory holds
    their parts.
    """
    nbytes, per_line = items.nbytes, items.per_line
    width = transpose_tiles.INTERLEAVE_BYTES // nbytes
    part_type = transpose_tiles.vector_type(nbytes, width)
    pairs = run_rows(nbytes) + max(JOINED_ORDER.columns, per_line) + per_line
    parts = f.offset(block.scratch, pairs * PAIR_BYTES)
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
            put_line(lane + run, transpose_tiles.concatenate(f, pieces))


def _join_lines(
    f: LLVMFunction, items: LineItems, first: LLVMValue, second: LLVMValue, off: LLVMValue
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
