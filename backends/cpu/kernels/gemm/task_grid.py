"""Splits a product into tasks: a cost model chooses the grid of blocks."""

from typing import NamedTuple, TypeVar

import numpy as np

from shardir.backends.cpu.kernel_api import MIN_TASK_NS, TASKS_PER_WORKER
from shardir.backends.cpu.kernels.gemm.block_sizes import BlockSizes
from shardir.backends.cpu.kernels.gemm.microkernel import tile_variants
from shardir.backends.cpu.kernels.gemm.tuning import (
    IDLE_FRACTION,
    MAX_BLOCK_LINES,
    PACK_NS_PER_BYTE,
    PACK_PHASE_COST_RATIO,
    PACKED_READ_COST_RATIO,
    PHASE_OVERHEAD_NS,
    SPLIT_COUNTS,
    TASK_OVERHEAD_NS,
)
from shardir.ir.types import NumpyArray

Extent = TypeVar("Extent", int, NumpyArray)


class TaskGrid(NamedTuple):
    """Blocks of `rows` by `columns`, for `products` products of a batch.

    `packed`: an earlier phase packs the right operand. `cost` is the sum over all tasks in
    nanoseconds.
    """

    rows: int
    columns: int
    packed: bool
    cost: float
    products: int = 1


def choose_task_grid(
    batch: int, rows: int, columns: int, inner: int, sizes: BlockSizes, size: int, staged: bool,
    reused: bool, workers: int, rate: float, packable: bool = True, row_step: int = 1,
) -> TaskGrid:  # fmt: skip
    """Return the grid with the shortest estimated time.

    `rate` is the number of multiplications and additions per nanosecond; packed elements have
    `size` bytes; `reused` states whether products of the batch share the right operand. Blocks have
    a multiple of `row_step` rows. The cost of
    all candidates is computed in arrays over the row block sizes, the column block sizes, and
    whether the right operand is packed by an earlier phase.
    """
    tile, low = sizes.tile, tile_variants(sizes.tile)[-1].height
    row_sizes = _block_size_candidates(rows, max(row_step, low), MAX_BLOCK_LINES)
    high = np.array(row_sizes)[:, None, None]
    wide = np.array(_block_size_candidates(columns, tile.columns, MAX_BLOCK_LINES))[None, :, None]
    packed = np.array([False, True])
    row_blocks, column_blocks = -(-rows // high), -(-columns // wide)
    possible = ~(packed & ((row_blocks == 1) & (not reused) | (not packable)))
    possible = possible & ((high * wide <= sizes.staged) | (not staged))
    possible = possible & (packed | (wide <= sizes.columns))
    multiply = (
        2.0 * _round_up_extents(high, low) * _round_up_extents(wide, tile.lanes) * inner / rate
    )
    left, right = high * inner * size * PACK_NS_PER_BYTE, wide * inner * size * PACK_NS_PER_BYTE
    # Packed columns are read once for each group of rows that the caches hold.
    passes = -(-high // sizes.rows)
    one = multiply + left + right * (passes * PACKED_READ_COST_RATIO + ~packed) + TASK_OVERHEAD_NS
    # Several small products are computed by one task.
    products_per_task = np.clip(
        (MIN_TASK_NS / one).astype(np.int64), 1, max(1, -(-batch // (TASKS_PER_WORKER * workers)))
    )
    tasks = -(-batch // products_per_task) * row_blocks * column_blocks
    task = products_per_task * one
    packing = (
        PACK_PHASE_COST_RATIO * right * column_blocks * (1 if reused else batch) + PHASE_OVERHEAD_NS
    )
    before = np.where(packed, packing, 0.0)
    # Other workers may have to wait for the remainder of a task.
    time = -(-tasks // workers) * task + IDLE_FRACTION * task * (workers > 1) + before / workers
    row, column, pack = np.unravel_index(np.argmin(np.where(possible, time, np.inf)), time.shape)
    best = row, column, pack
    return TaskGrid(
        int(high[row, 0, 0]), int(wide[0, column, 0]), bool(packed[pack]),
        float((tasks * task + before)[best]), int(products_per_task[best]),
    )  # fmt: skip


def _block_size_candidates(extent: int, step: int, most: int) -> list[int]:
    """Return candidate block sizes up to `most`: multiples of `step`, or the whole extent."""
    sizes = {min(_round_up_extents(-(-extent // n), step), max(extent, 1)) for n in SPLIT_COUNTS}
    most = most // step * step
    return sorted({min(size, most) for size in sizes} | {min(most, max(extent, 1))})


def _round_up_extents(extent: Extent, step: int) -> Extent:
    """Round an extent, or an array of extents, up to a multiple of `step`."""
    return -(-extent // step) * step
