"""Transposition of square tiles in registers.

The target is contiguous along columns, the source along rows. A tile has as many vectors as a
vector has items. First, items are exchanged within every 16 bytes by interleaving halves of the
list of vectors; then groups of 16 bytes are exchanged between vectors. Every step is one
instruction of x86 and of ARM.
"""

from collections.abc import Iterator
from itertools import islice

from shardir.backends.cpu.codegen.llvm_text import LLVMFunction, LLVMValue, Operand, lane_count
from shardir.backends.cpu.codegen.target import CACHE_LINE_BYTES, HostDescription
from shardir.backends.cpu.kernels.data_movement.block_grid import GridBlock
from shardir.backends.cpu.kernels.data_movement.copy_bodies import copy_items, item_type

INTERLEAVE_BYTES = 16
"""Bytes within which items are interleaved at no additional cost."""


def tile_side(nbytes: int, machine: HostDescription, most: int = INTERLEAVE_BYTES) -> int:
    """Return the items along one side of a tile, at most 16 and at most `most` rounded down to a
    power of two."""
    return max(1, min(machine.vector_bytes // nbytes, INTERLEAVE_BYTES, 1 << most.bit_length() - 1))


def copy_split_tiles(nbytes: int, size: int, f: LLVMFunction, block: GridBlock) -> None:
    """Copy a block with transposed tiles whose rows, contiguous in the source, are those of two
    loops in the target.

    A row of the block stands for as many rows as the first extra word states; the second one is
    their distance in the target. Blocks with fewer rows or columns than a tile are copied item by
    item.
    """
    count = tiles_per_cache_line(nbytes, size)
    inner, stride = block.extra(0), block.extra(1)
    rows, columns, across = block.rows * inner, block.columns, size * count

    def tiles() -> None:
        with f.loop(0, columns, across) as a, f.loop(0, rows, size) as b:
            column, row = f.umin(a, columns - across), f.umin(b, rows - size)
            source = f.offset(block.addresses[0], column * block.column_strides[0] + row * nbytes)
            each_column = addresses_at_distance(f, source, block.column_strides[0])
            target = f.offset(block.addresses[1], column * nbytes)
            outer_row, inner_row = row // inner, row % inner
            for line in load_tiles(f, nbytes, size, count, each_column):
                at = outer_row * block.row_strides[1] + inner_row * stride
                f.store(line, f.offset(target, at), 1)
                is_last = inner_row.is_("eq", inner - 1)
                outer_row = f.select(is_last, outer_row + 1, outer_row)
                inner_row = f.select(is_last, 0, inner_row + 1)

    def each_inner_row() -> None:
        with f.loop(0, inner) as i:
            source, target = block.addresses
            at = f.offset(source, i * nbytes), f.offset(target, i * stride)
            copy_items(nbytes, f, block._replace(addresses=at))

    f.if_else(rows.is_("uge", size) & columns.is_("uge", across), tiles, each_inner_row)


def vector_type(nbytes: int, size: int) -> str:
    """Return the type of a vector with the items of a tile side; 16-byte items are two halves."""
    part = min(nbytes, 8)
    return f"<{size * nbytes // part} x {item_type(part)}>"


def tiles_per_cache_line(nbytes: int, size: int) -> int:
    """Return the number of adjacent tiles that fill a cache line."""
    return max(1, CACHE_LINE_BYTES // (size * nbytes))


def copy_ordered_tiles(nbytes: int, size: int, f: LLVMFunction, block: GridBlock) -> None:
    """Copy a block with transposed tiles; its first extra word is 1 if the inner loop advances
    along the rows of the target, otherwise 0. Both orders in one kernel compile in half the time of
    two kernels, and take the same time per tile.
    """
    copy_tiles(nbytes, size, block.extra(0).is_("ne", 0), f, block)


def copy_tiles(
    nbytes: int, size: int, row_by_row: LLVMValue | None, f: LLVMFunction, block: GridBlock
) -> None:
    """Copy a block with transposed tiles of `size` items on a side; the last columns overlap.

    Tiles with short rows are stored side by side, so that full cache lines are written. If
    `row_by_row` is true, the inner loop advances along the rows of the target, otherwise along
    those of the source.
    """
    many = tiles_per_cache_line(nbytes, size)
    rows, columns = block.rows, block.columns
    source_stride, target_stride = block.column_strides[0], block.row_strides[1]

    def choose(yes: Operand, no: Operand) -> Operand:
        return no if row_by_row is None else f.select(row_by_row, f.value(yes, "i64"), no)

    def tiles(count: int) -> None:
        across = size * count
        outer = 0, choose(rows, columns), choose(size, across)
        inner = 0, choose(columns, rows), choose(across, size)
        with f.loop(*outer) as a, f.loop(*inner) as b:
            first_column, first_row = f.value(choose(b, a), "i64"), f.value(choose(a, b), "i64")
            column, row = f.umin(first_column, columns - across), f.umin(first_row, rows - size)
            source = f.offset(block.addresses[0], column * source_stride + row * nbytes)
            target = f.offset(block.addresses[1], row * target_stride + column * nbytes)
            each_column = addresses_at_distance(f, source, source_stride)
            lines = load_tiles(f, nbytes, size, count, each_column)
            _store_rows(f, lines, target, target_stride, first_row - row)

    def otherwise() -> None:
        fits = rows.is_("uge", size) & columns.is_("uge", size)
        f.if_else(fits, lambda: tiles(1), lambda: copy_items(nbytes, f, block))

    if many == 1:
        otherwise()
        return
    fits = rows.is_("uge", size) & columns.is_("uge", size * many)
    f.if_else(fits, lambda: tiles(many), otherwise)


def _store_rows(
    f: LLVMFunction,
    lines: list[LLVMValue],
    target: LLVMValue,
    stride: LLVMValue,
    stored: LLVMValue,
) -> None:
    """Store the rows of a tile, except for the first `stored` ones, which another tile has stored.

    Rows that conflict, such as the nine positions of a filter, may not be in the caches any more:
    on one core of a Zen 4, filters of 512 x 512 x 3 x 3 elements of f32 move 44 GB/s when their
    outputs become contiguous, and 37 GB/s if seven of the nine rows are stored twice; 512 x 9
    elements of f64 move 45 GB/s instead of 34. Tiles of the largest size store all rows: the branch
    would take up to 9 percent of the time of bytes.
    """

    def store_all() -> None:
        for at, line in zip(addresses_at_distance(f, target, stride), lines, strict=False):
            f.store(line, at, 1)

    def store_others() -> None:
        for i, line in enumerate(lines):
            with f.when(stored.is_("ule", i)):
                f.store(line, f.offset(target, stride * i), 1)

    if len(lines) == INTERLEAVE_BYTES:
        store_all()
        return
    f.if_else(stored.is_("eq", 0), store_all, store_others)


def addresses_at_distance(
    f: LLVMFunction, first: LLVMValue, distance: LLVMValue
) -> Iterator[LLVMValue]:
    """Return the address `first` and the following ones at a distance in bytes."""
    while True:
        yield first
        first = f.offset(first, distance)


def load_tiles(
    f: LLVMFunction, nbytes: int, size: int, count: int, columns: Iterator[LLVMValue]
) -> list[LLVMValue]:
    """Return the rows of `count` transposed tiles that are adjacent in the target; `columns` are
    the addresses of their columns.

    As many tiles as fill a register are transposed side by side, with the instructions of one.
    """
    type = vector_type(nbytes, size)
    together = min(count, max(1, f.machine.vector_bytes // (size * nbytes)))
    pieces: list[list[LLVMValue]] = []
    for _ in range(0, count, together):
        loaded = [f.load(at, type, 1) for at in islice(columns, together * size)]
        rows = [concatenate(f, loaded[i::size]) for i in range(size)]
        pieces.append(transpose_tiles(f, rows, nbytes, size))
    return [concatenate(f, [piece[i] for piece in pieces]) for i in range(size)]


def concatenate(f: LLVMFunction, parts: list[LLVMValue]) -> LLVMValue:
    """Concatenate vectors of equal types, of which there are a power of two."""
    while len(parts) > 1:
        lanes = range(2 * lane_count(parts[0].type))
        pairs = zip(parts[::2], parts[1::2], strict=True)
        parts = [f.shuffle(first, second, lanes) for first, second in pairs]
    return parts[0]


def transpose_tile(f: LLVMFunction, tile: list[LLVMValue], nbytes: int) -> list[LLVMValue]:
    """Transpose a square tile; items of 16 bytes are pairs of lanes."""
    return transpose_tiles(f, tile, nbytes, len(tile))


def transpose_tiles(
    f: LLVMFunction, rows: list[LLVMValue], nbytes: int, size: int
) -> list[LLVMValue]:
    """Transpose square tiles of `size` items on a side that are side by side in `rows`."""
    within = max(1, min(INTERLEAVE_BYTES // nbytes, size))
    unit = max(1, nbytes // 8)
    lanes = lane_count(rows[0].type)
    groups = [rows[start : start + within] for start in range(0, size, within)]
    inner = [interleave_rows(f, group, lanes, within) for group in groups]
    columns = [
        _exchange_runs(f, [group[i] for group in inner], within * unit) for i in range(within)
    ]
    return [columns[i][run] for run in range(len(groups)) for i in range(within)]


def interleave_rows(
    f: LLVMFunction, rows: list[LLVMValue], lanes: int, within: int
) -> list[LLVMValue]:
    """Exchange items between vectors, at most `within`, in every run of `within` lanes.

    With fewer vectors, the items of adjacent lanes remain in one vector, next to each other.
    """
    half, step = len(rows) // 2, 1
    while step < len(rows):
        found = []
        for i in range(half):
            for first in (0, within // 2):
                mask = []
                for run in range(0, lanes, within):
                    for k in range(within // 2):
                        mask += [run + first + k, lanes + run + first + k]
                found.append(f.shuffle(rows[i], rows[i + half], mask))
        rows, step = found, 2 * step
    return rows


def _exchange_runs(f: LLVMFunction, rows: list[LLVMValue], run: int) -> list[LLVMValue]:
    """Exchange runs of `run` lanes between vectors; there are as many vectors as runs in a tile."""
    count = len(rows)
    if count == 1:
        return rows
    lanes = lane_count(rows[0].type)

    def pick(a: LLVMValue, b: LLVMValue, chosen: list[int]) -> LLVMValue:
        starts = [c % count * run + c // count * lanes for c in chosen]
        tiles = range(0, lanes, count * run)
        return f.shuffle(
            a, b, [t + start + k for t in tiles for start in starts for k in range(run)]
        )

    if count == 2:
        return [pick(rows[0], rows[1], [0, 2]), pick(rows[0], rows[1], [1, 3])]
    assert count == 4
    low = [pick(rows[i], rows[i + 1], [0, 1, 4, 5]) for i in (0, 2)]
    high = [pick(rows[i], rows[i + 1], [2, 3, 6, 7]) for i in (0, 2)]
    return [
        pick(low[0], low[1], [0, 2, 4, 6]),
        pick(low[0], low[1], [1, 3, 5, 7]),
        pick(high[0], high[1], [0, 2, 4, 6]),
        pick(high[0], high[1], [1, 3, 5, 7]),
    ]
