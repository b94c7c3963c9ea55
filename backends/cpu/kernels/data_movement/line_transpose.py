"""Transposes by whole cache lines, of arrays that exceed the caches or whose lines conflict.

The target is contiguous along columns, the source along rows. A strip of columns fills a few lines
of each row of the target. It consists of tiles that have as many rows as a line has items, and is
transposed in two phases, with the scratch memory of the worker between them: the first one reads a
line of each column once and interleaves the items of a few columns to runs of 8 or 16 bytes, the
second one joins such runs to lines of the target. Columns at a distance of 4 KB map to the same set
of the first-level cache, which holds as many lines as the first phase reads together.

The second phase of a tile alternates with the first phase of the next one in steps of a few lines:
stores to memory take longer than all other instructions, which run at the same time only if stores
do not occur in bursts.

Arrays that exceed the caches are written by streaming stores, without which each line of the target
would be read before it is written. If the rows of the target do not begin at cache lines, a line of
the target consists of the end of one transposed line and the start of the next one. The scratch
memory holds the last transposed lines of the previous columns. The two-source permutations of
AVX-512 join two lines; without them, both are stored next to each other and their parts loaded.
"""

from collections.abc import Callable, Sequence
from enum import Enum
from functools import partial
from typing import NamedTuple

from shardir.backends.cpu.codegen.llvm_text import LLVMFunction, LLVMValue
from shardir.backends.cpu.codegen.memory_hints import prefetch
from shardir.backends.cpu.codegen.target import CACHE_LINE_BYTES, HostDescription
from shardir.backends.cpu.kernels.data_movement import transpose_tiles
from shardir.backends.cpu.kernels.data_movement.block_grid import GridBlock
from shardir.backends.cpu.kernels.data_movement.copy_bodies import copy_few_bytes, item_type
from shardir.backends.cpu.kernels.data_movement.skewed_order import (
    SkewedOrder,
    SkewedTile,
    each_skewed_tile,
)

STRIP_LINES = 4
"""Lines of a row of the target that are written in order. On one core of a Zen 4, streaming stores
of single lines at distances of 4 KB move 15 to 24 GB/s, those of two or more lines 28 GB/s."""
NARROW_STRIP_LINES = 2
"""Lines of a row that are joined in order if items have 1 or 2 bytes, whose tiles would otherwise
fill the first-level cache: the transpose of 4001 x 3999 u16 moves 36 GB/s instead of 30."""
NARROW_STRIP_ITEM_BYTES = 2
STRIP_ORDER = SkewedOrder(columns=64, group=1, delay=1)
"""The order of strips of items of at most 4 bytes, which have at least 64 columns. Two adjacent
strips take 6 percent more time."""
WIDE_STRIP_ORDER = SkewedOrder(columns=128, group=1, delay=1)
"""The order of strips of larger items. The transpose of 4096 x 4096 c128 moves 43 GB/s, 34 GB/s
without delays, and 25 GB/s with 256 columns."""
REGISTER_ORDER = SkewedOrder(columns=256, group=2, delay=1)
"""The order of tiles that are transposed in registers. The transpose of 4096 x 4096 f64 moves 46
GB/s, 38 GB/s if all tiles are delayed, and 37 GB/s without delays."""
REGISTER_ITEM_BYTES = 8
"""Size of items of which a tile is transposed in registers if columns begin at cache lines: the
transpose of 4096 x 4096 f64 moves 46 GB/s instead of 39. If they do not, it moves 22 instead of
37."""
RUN_BYTES = 8192
"""Bytes of a column that a block reads in order."""
MAX_RUN_ROWS = 2048
"""Maximum rows of a block; the scratch memory holds a line for each."""
ORDINARY_BLOCK_ROWS = MAX_RUN_ROWS // 4
"""Maximum rows of a block of arrays in the caches, which are shared among several tasks."""
BLOCK_COLUMNS = 256
"""Columns of a block if lines are not joined."""
BLOCK_ROW_BYTES = 8192
"""Bytes of a row of joined lines in a block, about. The first and the last line of such a row are
read before they are written; rows of 2,048 bytes take 4 percent more time."""
PREFETCH_BYTES = 256
"""Distance at which lines of the source are prefetched into the second-level cache, since the
processor does not prefetch as many columns at the same time. On one core of a Zen 4, the transpose
of 4096 x 4097 u16 moves 33 GB/s, and 10 GB/s without prefetches."""
PART_BYTES = 16
"""Bytes within which x86 and ARM interleave vectors by one instruction."""
WORD_BYTES = 8
"""Bytes to which the first phase interleaves smaller items, those of up to eight columns. The
second phase then joins two rows at the same time."""
PARTS = CACHE_LINE_BYTES // PART_BYTES
PERMUTED_ITEMS = {1: ("qi", "avx512vbmi"), 2: ("hi", "avx512bw"), 4: ("d", "avx512bw"),
                  8: ("q", "avx512bw")}  # fmt: skip
"""The suffix of the two-source permutation of items of a size in bytes, and the feature that it
requires."""
PAIR_BYTES = 2 * CACHE_LINE_BYTES
"""Bytes of a transposed line and the line to its left."""


class LineStores(Enum):
    """The instructions that store the lines of the target."""

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
    def group(self) -> int:
        """The number of columns that the first phase interleaves."""
        return (WORD_BYTES if self.nbytes < WORD_BYTES else PART_BYTES) // self.nbytes

    @property
    def joined_rows(self) -> int:
        """The number of rows of the target that the second phase joins together."""
        return PART_BYTES // (self.group * self.nbytes)

    @property
    def line_type(self) -> str:
        """The type of a cache line of units."""
        return f"<{CACHE_LINE_BYTES // self.unit} x {item_type(self.unit)}>"


class LineBlock(NamedTuple):
    """A block that is transposed, and the function that receives its instructions."""

    f: LLVMFunction
    items: LineItems
    block: GridBlock
    strip_lines: int
    """The lines of a row of the target that a strip fills."""

    @property
    def group_bytes(self) -> int:
        """The bytes between groups of columns in the scratch memory; the lines of a row of the
        target in different groups do not conflict in the first-level cache."""
        return (self.items.group + 1) * CACHE_LINE_BYTES

    @property
    def tile_bytes(self) -> int:
        """The bytes of a tile in the scratch memory."""
        return self.strip_lines * self.items.per_line // self.items.group * self.group_bytes

    def target(self, row: LLVMValue, column: LLVMValue) -> LLVMValue:
        """Return the address of an item in the target."""
        at = row * self.block.row_strides[1] + column * self.items.nbytes
        return self.f.offset(self.block.addresses[1], at)

    def kept_line(self, number: LLVMValue) -> LLVMValue:
        """Return the address of the line that is kept for a row; tiles at the end of columns
        overlap, so that such rows have two."""
        return self.f.offset(self.block.scratch, number * CACHE_LINE_BYTES)

    def tile(self, parity: LLVMValue) -> LLVMValue:
        """Return the address of a tile in the scratch memory, which holds two."""
        kept = (run_rows(self.items.nbytes) + self.items.per_line) * CACHE_LINE_BYTES
        return self.f.offset(self.block.scratch, parity * self.tile_bytes + kept)

    def adjacent_lines(self) -> LLVMValue:
        """Return the address of scratch memory for lines that are next to each other."""
        return self.f.offset(self.tile(self.f.value(0, "i64")), 2 * self.tile_bytes)


class Strip(NamedTuple):
    """Columns of a block that fill `lines` lines of each row of the target."""

    column: LLVMValue
    lines: int
    is_clamped: bool = False
    """True if the last column of the block is repeated in place of those beyond it."""

    def unit_columns(self, items: LineItems) -> int:
        """Return the columns that the first phase interleaves between two joins."""
        return max(items.group, self.lines * items.joined_rows)


class TargetRow(NamedTuple):
    """The part of a row of the target in a strip: its address, the address of the line that is kept
    for the row, and its lines."""

    at: LLVMValue
    kept: LLVMValue
    lines: list[LLVMValue]


StoreRows = Callable[[Sequence[TargetRow]], None]


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
        return rows, BLOCK_COLUMNS
    if stores is LineStores.ORDINARY:
        return min(rows, ORDINARY_BLOCK_ROWS), BLOCK_COLUMNS
    count = max(1, extent * items.nbytes // BLOCK_ROW_BYTES)
    return rows, -(-extent // (count * items.per_line)) * items.per_line


def strip_lines(items: LineItems, stores: LineStores) -> int:
    """Return the lines of a row of the target that a strip fills."""
    is_narrow = stores is LineStores.JOINED and items.nbytes <= NARROW_STRIP_ITEM_BYTES
    return NARROW_STRIP_LINES if is_narrow else STRIP_LINES


def copy_lines(items: LineItems, stores: LineStores, f: LLVMFunction, block: GridBlock) -> None:
    """Copy a block; the target consists of whole cache lines if `stores` is `STREAMED`.

    Blocks that are narrower than a cache line are copied by other tiles.
    """
    per_line = items.per_line
    fits = block.rows.is_("uge", per_line) & block.columns.is_("uge", per_line)
    if stores is LineStores.STREAMED:
        fits = fits & line_offset(block.addresses[1]).is_("eq", 0)
    side = transpose_tiles.tile_side(items.nbytes, f.machine)
    lines = LineBlock(f, items, block, strip_lines(items, stores))

    def copy_block() -> None:
        store = partial(_store_whole, f, stores is LineStores.STREAMED)
        first = f.value(0, "i64")
        if stores is LineStores.JOINED:
            _copy_joined(lines)
        elif items.nbytes == REGISTER_ITEM_BYTES:
            f.if_else(
                _has_aligned_columns(block),
                lambda: _copy_in_registers(lines, store),
                lambda: _copy_strips(lines, first, block.columns, store),
            )
        else:
            _copy_strips(lines, first, block.columns, store)

    f.if_else(
        fits,
        copy_block,
        lambda: transpose_tiles.copy_tiles(items.nbytes, side, None, f, block),
    )


def line_offset(address: LLVMValue) -> LLVMValue:
    """Return the bytes between the start of a cache line and an address in it."""
    return address.to("i64", "ptrtoint") & (CACHE_LINE_BYTES - 1)


def _has_aligned_columns(block: GridBlock) -> LLVMValue:
    """Return whether each line of a column of the source that is loaded is one cache line."""
    address = block.addresses[0].to("i64", "ptrtoint")
    return ((address | block.column_strides[0]) & (CACHE_LINE_BYTES - 1)).is_("eq", 0)


def _copy_in_registers(lines: LineBlock, store: StoreRows) -> None:
    """Transpose tiles of as many rows and columns as a line has items in registers."""
    f, items, block = lines.f, lines.items, lines.block
    shape, columns = (items.per_line,) * 2, (f.value(0, "i64"), block.columns)
    with each_skewed_tile(f, REGISTER_ORDER, shape, block.rows, columns) as tile:
        source = f.offset(block.addresses[0], tile.row * items.nbytes)
        loaded = []
        for i in range(items.per_line):
            at = f.offset(source, (tile.column + i) * block.column_strides[0])
            prefetch(f, f.offset(at, PREFETCH_BYTES), cache_level=2)
            loaded.append(f.load(at, items.line_type, 1))
        for i, line in enumerate(transpose_tiles.transpose_tile(f, loaded, items.nbytes)):
            number = tile.row + i
            target = lines.target(number, tile.column)
            store([TargetRow(target, lines.kept_line(number), [line])])


def _store_whole(f: LLVMFunction, streaming: bool, rows: Sequence[TargetRow]) -> None:
    for row in rows:
        for i, line in enumerate(row.lines):
            at = f.offset(row.at, i * CACHE_LINE_BYTES)
            f.store(line, at, CACHE_LINE_BYTES if streaming else 1, streaming)


def _copy_joined(lines: LineBlock) -> None:
    """Copy a block whose rows begin and end at any item of a cache line."""
    f, items, block = lines.f, lines.items, lines.block
    whole = block.columns & -items.per_line
    _copy_strip(lines, Strip(f.value(0, "i64"), 1), partial(_store_starts, lines))
    _copy_strips(lines, f.value(items.per_line, "i64"), whole, partial(_store_joined, lines))
    store_ends = partial(_store_ends, lines, (block.columns - whole) * items.nbytes)
    _copy_strip(lines, Strip(whole, 1, is_clamped=True), store_ends)


def _store_starts(lines: LineBlock, rows: Sequence[TargetRow]) -> None:
    """Store the items before the first whole lines of rows, and keep the first lines."""
    f = lines.f
    for row in rows:
        f.store(row.lines[0], row.kept, CACHE_LINE_BYTES)
        copy_few_bytes(f, CACHE_LINE_BYTES - line_offset(row.at), PAIR_BYTES, row.kept, row.at)


def _store_joined(lines: LineBlock, rows: Sequence[TargetRow]) -> None:
    """Store whole lines that begin before those of the rows, and keep the last line of each."""
    f, items = lines.f, lines.items
    adjacent = None
    if not has_line_permutation(items, f.machine):
        adjacent = [_store_adjacent(lines, number, row) for number, row in enumerate(rows)]
    for number, (at, kept, parts) in enumerate(rows):
        off = line_offset(at)
        if adjacent:
            starts = [i * CACHE_LINE_BYTES - off for i in range(1, 1 + len(parts))]
            places = [f.offset(adjacent[number], start) for start in starts]
            joined = [f.load(place, items.line_type, items.unit) for place in places]
        else:
            left = f.load(kept, items.line_type, CACHE_LINE_BYTES)
            pairs = zip([left, *parts], parts, strict=False)
            joined = [_join_lines(f, items, first, second, off) for first, second in pairs]
        for i, line in enumerate(joined):
            place = f.offset(at, i * CACHE_LINE_BYTES - off)
            f.store(line, place, CACHE_LINE_BYTES, streaming=True)
        f.store(parts[-1], kept, CACHE_LINE_BYTES)


def _store_ends(lines: LineBlock, nbytes: LLVMValue, rows: Sequence[TargetRow]) -> None:
    """Store the last `nbytes` bytes of rows, which fill no line, and those that are kept."""
    f = lines.f
    for number, row in enumerate(rows):
        off = line_offset(row.at)
        joined = f.offset(_store_adjacent(lines, number, row), CACHE_LINE_BYTES - off)
        copy_few_bytes(f, off + nbytes, PAIR_BYTES, joined, f.offset(row.at, -off))


def _store_adjacent(lines: LineBlock, number: int, row: TargetRow) -> LLVMValue:
    """Store the line that is kept and those of a row next to each other, and return where."""
    f, items = lines.f, lines.items
    place = f.offset(lines.adjacent_lines(), number * (1 + lines.strip_lines) * CACHE_LINE_BYTES)
    left = f.load(row.kept, items.line_type, CACHE_LINE_BYTES)
    for i, line in enumerate([left, *row.lines]):
        f.store(line, f.offset(place, i * CACHE_LINE_BYTES), CACHE_LINE_BYTES)
    return place


def _copy_strips(lines: LineBlock, first: LLVMValue, end: LLVMValue, store: StoreRows) -> None:
    """Copy the columns from `first` to `end`, at least as many as a line has items unless there are
    none; the last ones overlap those before them if they fill no line."""
    f, items = lines.f, lines.items
    rest = end - (end - first) % (lines.strip_lines * items.per_line)
    _copy_adjacent_strips(lines, Strip(first, lines.strip_lines), rest, store)
    with f.loop(rest, end, items.per_line) as column:
        _copy_strip(lines, Strip(f.umin(column, end - items.per_line), 1), store)


def _copy_strip(lines: LineBlock, strip: Strip, store: StoreRows) -> None:
    end = strip.column + strip.lines * lines.items.per_line
    _copy_adjacent_strips(lines, strip, end, store)


def _copy_adjacent_strips(lines: LineBlock, strip: Strip, end: LLVMValue, store: StoreRows) -> None:
    """Transpose all tiles of strips, from a first one to the column `end`; the second phase of a
    tile alternates with the first phase of the next one."""
    f, items, block = lines.f, lines.items, lines.block
    shape = items.per_line, strip.lines * items.per_line
    units = shape[1] // strip.unit_columns(items)
    order = WIDE_STRIP_ORDER if items.nbytes > 4 else STRIP_ORDER
    count = f.variable("i64", 0)
    joined = [f.variable("i64", 0) for _ in SkewedTile._fields]

    def join(unit: LLVMValue) -> None:
        tile = SkewedTile(*(each.get() for each in joined))
        place = lines.tile((count.get() - 1) & 1)
        _join(lines, strip._replace(column=tile.column), tile, unit, place, store)

    with each_skewed_tile(f, order, shape, block.rows, (strip.column, end)) as tile:
        place = lines.tile(count.get() & 1)
        with f.loop(0, units) as unit:
            _interleave(lines, strip._replace(column=tile.column), tile.row, unit, place)
            with f.when(count.get().is_("ugt", 0)):
                join(unit)
        for variable, value in zip(joined, tile, strict=True):
            variable.set(value)
        count.set(count.get() + 1)
    with f.when(count.get().is_("ugt", 0)), f.loop(0, units) as unit:
        join(unit)


def _interleave(
    lines: LineBlock, strip: Strip, row: LLVMValue, unit: LLVMValue, tile: LLVMValue
) -> None:
    """Interleave the items of the columns of a unit, and store them in the scratch memory.

    Each vector of a group then consists of parts of 16 bytes: the items of all columns in
    `joined_rows` adjacent rows.
    """
    f, items, block = lines.f, lines.items, lines.block
    nbytes, group, width = items.nbytes, items.group, f.machine.vector_bytes
    type = transpose_tiles.vector_type(nbytes, width // nbytes)
    source = f.offset(block.addresses[0], row * nbytes)
    first = unit * strip.unit_columns(items)
    for start in range(0, strip.unit_columns(items), group):
        addresses = []
        for i in range(start, start + group):
            column = strip.column + first + i
            column = f.umin(column, block.columns - 1) if strip.is_clamped else column
            addresses.append(f.offset(source, column * block.column_strides[0]))
            if not strip.is_clamped:
                prefetch(f, f.offset(addresses[-1], PREFETCH_BYTES), cache_level=2)
        place = f.offset(tile, (first + start) // group * lines.group_bytes)
        for part in range(0, CACHE_LINE_BYTES, width):
            vectors = [f.load(f.offset(at, part), type, 1) for at in addresses]
            lanes, within = width // nbytes, PART_BYTES // nbytes
            vectors = transpose_tiles.interleave_rows(f, vectors, lanes, within)
            for i, vector in enumerate(vectors):
                f.store(vector, f.offset(place, i * CACHE_LINE_BYTES + part), width)


def _join(
    lines: LineBlock,
    strip: Strip,
    tile: SkewedTile,
    unit: LLVMValue,
    memory: LLVMValue,
    store: StoreRows,
) -> None:
    """Join and store the rows of the target of a unit from the scratch memory of a tile."""
    f, items = lines.f, lines.items
    together = items.joined_rows
    count = items.per_line // together * strip.unit_columns(items)
    count //= strip.lines * items.per_line
    for i in range(count):
        place = unit * count + i
        part, vector = place % PARTS, place // PARTS
        at = f.offset(memory, vector * CACHE_LINE_BYTES + part * PART_BYTES)
        found = part * (PART_BYTES // items.nbytes) + vector * together
        joined = [_join_parts(lines, at, line) for line in range(strip.lines)]
        rows = []
        for k, row_lines in enumerate(zip(*joined, strict=True)):
            target = lines.target(tile.row + found + k, strip.column)
            kept = lines.kept_line(tile.number + found + k)
            rows.append(TargetRow(target, kept, list(row_lines)))
        store(rows)


def _join_parts(lines: LineBlock, at: LLVMValue, line: int) -> list[LLVMValue]:
    """Return a line of each of the rows that are joined together from the parts of its groups."""
    f, items = lines.f, lines.items
    groups = items.per_line // items.group
    parts = [
        f.load(f.offset(at, (line * groups + group) * lines.group_bytes), "<2 x i64>", PART_BYTES)
        for group in range(groups)
    ]
    together = items.joined_rows
    vectors = [transpose_tiles.concatenate(f, parts[i::together]) for i in range(together)]
    joined = transpose_tiles.interleave_rows(f, vectors, CACHE_LINE_BYTES // 8, together)
    return [each.to(items.line_type, "bitcast") for each in joined]


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
