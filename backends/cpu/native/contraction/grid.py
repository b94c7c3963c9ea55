"""How a product is split into tasks."""

from typing import Any, NamedTuple

import numpy as np

from shardir.backends.cpu.native.contraction.sizes import LINES, Sizes
from shardir.backends.cpu.native.contraction.tile import parts_of

BYTE_COST = 0.075
"""Nanoseconds that packing a byte takes."""
PACKED_COST = 0.2
"""What reading a packed number takes, in terms of packing it."""
WRITING = 1.5
"""What packing all of an operand takes, which goes through memory, in the same terms."""
TASK_COST, PHASE_COST = 500.0, 5_000.0
SMALL = 20_000.0
"""Nanoseconds that a task should take at least."""
WAITING = 0.1
"""The part of a task that workers wait for others, on the whole."""
SPLITS = (*range(1, 17), 20, 24, 32, 48, 64)


class Grid(NamedTuple):
    """Blocks of `rows` by `columns`, of `products` products of a batch.

    `packed`: the right operand is packed by a phase before. `cost` is that of all tasks.
    """

    rows: int
    columns: int
    packed: bool
    cost: float
    products: int = 1


def grid_of(
    batch: int, rows: int, columns: int, inner: int, sizes: Sizes, size: int, staged: bool,
    reused: bool, workers: int, rate: float, packable: bool = True,
) -> Grid:  # fmt: skip
    """The grid that should be done first.

    `rate` is how many products and sums a nanosecond sees, of numbers that have `size` bytes when
    they are packed; `reused` says whether products of the batch share the right operand. All grids
    are weighed at once: arrays over the cuts of the rows, those of the columns, and whether the
    right operand is packed.
    """
    tile, low = sizes.tile, parts_of(sizes.tile)[-1].height
    high = np.array(_cuts(rows, low, LINES))[:, None, None]
    wide = np.array(_cuts(columns, tile.columns, LINES))[None, :, None]
    packed = np.array([False, True])
    row_blocks, column_blocks = -(-rows // high), -(-columns // wide)
    possible = ~(packed & ((row_blocks == 1) & (not reused) | (not packable)))
    possible = possible & ((high * wide <= sizes.staged) | (not staged))
    possible = possible & (packed | (wide <= sizes.columns))
    multiply = 2.0 * _padded(high, low) * _padded(wide, tile.lanes) * inner / rate
    left, right = high * inner * size * BYTE_COST, wide * inner * size * BYTE_COST
    # Packed columns pass by for as many rows as the caches hold.
    passes = -(-high // sizes.rows)
    one = multiply + left + right * (passes * PACKED_COST + ~packed) + TASK_COST
    # Small products are done together.
    together = np.clip((SMALL / one).astype(np.int64), 1, max(1, -(-batch // (4 * workers))))
    tasks = -(-batch // together) * row_blocks * column_blocks
    task = together * one
    packing = WRITING * right * column_blocks * (1 if reused else batch) + PHASE_COST
    before = np.where(packed, packing, 0.0)
    # The rest of a task is what the others may have to wait for.
    time = -(-tasks // workers) * task + WAITING * task * (workers > 1) + before / workers
    row, column, pack = np.unravel_index(np.argmin(np.where(possible, time, np.inf)), time.shape)
    best = row, column, pack
    return Grid(
        int(high[row, 0, 0]), int(wide[0, column, 0]), bool(packed[pack]),
        float((tasks * task + before)[best]), int(together[best]),
    )  # fmt: skip


def _cuts(extent: int, step: int, most: int) -> list[int]:
    """Sizes of blocks, whole tiles but for the last."""
    sizes = {min(_padded(-(-extent // n), step), max(extent, 1)) for n in SPLITS}
    return sorted({min(size, most) for size in sizes} | {min(most, max(extent, 1))})


def _padded(extent: Any, step: int) -> Any:
    """Extents in whole steps: an integer, or an array of them."""
    return -(-extent // step) * step
