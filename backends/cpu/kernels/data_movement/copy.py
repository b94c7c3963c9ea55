"""Copies between layouts.

`copy_phases` merges the loops over both views as far as possible and selects a kernel: rows of
bytes if both views are contiguous along one dimension, fills or repeats of items, transposed tiles
if they are contiguous along different dimensions, which large arrays stream as cache lines,
otherwise item by item. Short rows of 2, 4, 8 or 16 bytes are treated as items.
"""

from collections.abc import Sequence
from functools import partial
from math import prod
from typing import NamedTuple

from shardir.backends.cpu.codegen.memory_hints import should_stream_stores
from shardir.backends.cpu.codegen.target import CACHE_LINE_BYTES, HostDescription
from shardir.backends.cpu.kernel_api import BufferView, LoweringContext, Phase
from shardir.backends.cpu.kernels.data_movement import (
    copy_bodies,
    line_transpose,
    transpose_tiles,
)
from shardir.backends.cpu.kernels.data_movement.block_grid import (
    BlockBody,
    BlockGrid,
    DynamicStart,
    KernelForm,
    block_grid_of,
    grid_kernel,
)
from shardir.backends.cpu.kernels.data_movement.line_transpose import LineItems, LineStores
from shardir.backends.cpu.kernels.data_movement.loop_nest import LoopNest, StridedLoop, loop_nest_of

BLOCK_BYTES = 64 << 10
"""Bytes of a block."""
CONFLICT_DISTANCE_BYTES = 1024
"""Addresses whose distance is a multiple of this conflict in a cache."""
CONFLICT_TOLERANCE_BYTES = 8
"""Difference from such a distance at which 16 rows still have conflicting lines."""
ROW_BY_ROW_BLOCK = (512, 64)
"""Rows and columns of a transposed block of tiles if only the rows of its target conflict. Several
cache lines of a row are written before those of the next row: on one core of a Zen 4, the transpose
of 256 x 784 f32 moves 88 GB/s, and 56 GB/s column by column."""
MAX_SPLIT_TILES = 2
"""Maximum tiles that the rows of one loop fill if those of the next loop are transposed with
them."""
SPLIT_BLOCK_ROWS = 256
"""Rows of a block of two loops, about. On one core of a Zen 4, filters of 512 x 512 x 3 x 3
elements of bf16 move 38 GB/s, and 20 GB/s if the nine positions are transposed alone; those of f32
36 GB/s, and 19 GB/s with 4,096 rows."""
MIN_JOINED_LINES = 8
"""Minimum cache lines of a row of the target that are streamed if rows do not begin at lines: the
first and the last one of a row are not. On one core of a Zen 4, rows of 13 lines gain 1.2 for f32
and 1.5 for bytes, rows of 2 lines 0.93."""
ITEM_BYTES = (2, 4, 8, 16)
REPEATED_BYTES = (1, 2, 4, 8)
MAX_UNROLLED_REPEATS = 8
"""Maximum repeats that are unrolled; items repeated more often are filled."""


class CopyPlan(NamedTuple):
    """A planned copy: the kernel name, the body that copies a block, the grid of all blocks."""

    name: str
    body: BlockBody
    grid: BlockGrid
    cost: float
    extra: tuple[int, ...] = ()
    """Words of the record that the body reads."""


def copy_phases(source: BufferView, target: BufferView, context: LoweringContext) -> list[Phase]:
    """Return the phases that copy `source` to `target`, of one shape and item size.

    There are no phases if nothing needs to be copied. The views must be the same memory or
    disjoint.
    """
    if source.size == 0 or source._replace(dtype=target.dtype) == target:
        return []
    name, body, grid, cost, extra = plan_copy(source, target, context.machine)
    kernel = grid_kernel(name, KernelForm(2, extras=len(extra)), body)
    return [grid.phase(kernel, cost, context.workers, "copy", extra)]


def dynamic_copy_phases(
    source: BufferView,
    target: BufferView,
    moved: int,
    starts: Sequence[DynamicStart],
    context: LoweringContext,
) -> list[Phase]:
    """Return the phases of a copy whose source (`moved` = 0) or target (1) offset is known at run
    time."""
    if not starts:
        return copy_phases(source, target, context)
    if source.size == 0:
        return []
    dtype = starts[0].view.dtype
    name, body, grid, cost, extra = plan_copy(source, target, context.machine, may_stream=False)
    form = KernelForm(2, extras=len(extra), moving=(moved, dtype))
    kernel = grid_kernel(f"{name}_{'to' if moved else 'from'}_{dtype}", form, body)
    return [grid.phase(kernel, cost, context.workers, "copy", extra, starts)]


def plan_copy(
    source: BufferView, target: BufferView, machine: HostDescription, may_stream: bool = True
) -> CopyPlan:
    """Plan the copy of `source` to `target`."""
    views, size = (source, target), source.itemsize
    found = loop_nest_of(views)
    streaming = may_stream and _exceeds_caches(found, target, machine)
    size, found = _merge_short_rows(size, found)
    *_, inner = (StridedLoop(1, (size, size)), *found.loops)
    if inner.strides == (size, size):
        return _rows(views, found, size, streaming)
    if inner.strides == (0, size):
        if _is_repeat(found, size):
            return _repeat(views, found, size)
        return _fill(views, found, size, streaming)
    if inner.strides[1] == size:
        found = _reverse_negative_loops(found, size)
        partners = [loop for loop in found.loops[:-1] if loop.strides[0] == size]
        if partners and (split := _split_tiles(views, found, partners[-1], size, machine)):
            return split
        short = min(partners[-1].extent, inner.extent) if partners else 1
        if transpose_tiles.tile_side(size, machine, short) > 1:
            streaming |= may_stream and target.nbytes >= machine.shared_cache_bytes // 4
            return _tiles(views, found, partners[-1], size, machine, streaming)
        if inner.strides[0] == -size and inner.extent >= 8:
            return _reverse(views, found, size)
    return _items(views, found, size)


def _exceeds_caches(found: LoopNest, target: BufferView, machine: HostDescription) -> bool:
    """Return whether the bytes read (repeated items counted once) and written exceed the caches."""
    read = target.itemsize * prod(loop.extent for loop in found.loops if loop.strides[0])
    return should_stream_stores(target.nbytes, read, machine)


def _merge_short_rows(size: int, found: LoopNest) -> tuple[int, LoopNest]:
    """Treat rows of few bytes as single items, if there is more than one row."""
    while len(found.loops) > 1:
        inner = found.loops[-1]
        if inner.strides != (size, size) or inner.extent * size not in ITEM_BYTES:
            break
        size, found = inner.extent * size, LoopNest(found.loops[:-1], found.offsets)
    return size, found


def _reverse_negative_loops(found: LoopNest, size: int) -> LoopNest:
    """Reverse loops with negative strides in the source, except the innermost loop."""
    loops, (source, target) = list(found.loops), found.offsets
    for i, (extent, strides) in enumerate(loops[:-1]):
        if strides[0] == -size:
            source += (extent - 1) * strides[0]
            target += (extent - 1) * strides[1]
            loops[i] = StridedLoop(extent, (size, -strides[1]))
    return LoopNest(tuple(loops), (source, target))


def _streaming_suffix(streaming: bool) -> str:
    return "_streaming" if streaming else ""


def _rows(
    views: tuple[BufferView, BufferView], found: LoopNest, size: int, streaming: bool
) -> CopyPlan:
    inner = found.loops[-1] if found.loops else StridedLoop(1, (size, size))
    nbytes = inner.extent * size
    column = StridedLoop(nbytes, (1, 1))
    streaming = streaming and nbytes >= 1024
    return _two_loops(
        f"copy_rows{_streaming_suffix(streaming)}", partial(copy_bodies.copy_rows, streaming),
        views, found, column, 1, 2.0 + nbytes / 16,
    )  # fmt: skip


def _fill(
    views: tuple[BufferView, BufferView], found: LoopNest, size: int, streaming: bool
) -> CopyPlan:
    column = found.loops[-1]
    streaming = streaming and column.extent * size >= 1024
    # Memory is aligned to elements, so that filling by elements reaches a vector boundary.
    streaming = streaming and size == views[1].itemsize <= 8
    return _two_loops(
        f"fill_rows{size}{_streaming_suffix(streaming)}",
        partial(copy_bodies.fill_rows, size, streaming),
        views,
        found,
        column,
        size,
        2.0 + column.extent * size / 24,
    )


def _is_repeat(found: LoopNest, size: int) -> bool:
    """Return whether contiguous items are each written a few times in a row."""
    *_, inner = found.loops
    outer = found.loops[-2] if len(found.loops) > 1 else None
    return (
        1 < inner.extent <= MAX_UNROLLED_REPEATS
        and size in REPEATED_BYTES
        and outer is not None
        and outer.strides == (size, inner.extent * size)
    )


def _repeat(views: tuple[BufferView, BufferView], found: LoopNest, size: int) -> CopyPlan:
    *outer, column, inner = found.loops
    times = inner.extent
    return _two_loops(
        f"repeat_rows{size}_{times}", partial(copy_bodies.repeat_rows, size, times),
        views, LoopNest((*outer, column), found.offsets), column, size * times,
        2.0 + column.extent * size * times / 16,
    )  # fmt: skip


def _reverse(views: tuple[BufferView, BufferView], found: LoopNest, size: int) -> CopyPlan:
    column = found.loops[-1]
    return _two_loops(
        f"reverse_rows{size}", partial(copy_bodies.reverse_rows, size),
        views, found, column, size, 2.0 + column.extent * size / 8,
    )  # fmt: skip


def _items(views: tuple[BufferView, BufferView], found: LoopNest, size: int) -> CopyPlan:
    column = found.loops[-1]
    return _two_loops(
        f"copy_items{size}", partial(copy_bodies.copy_items, size),
        views, found, column, size, 2.0 + column.extent * max(0.5, size / 8),
    )  # fmt: skip


def _two_loops(
    name: str,
    body: BlockBody,
    views: tuple[BufferView, BufferView],
    found: LoopNest,
    column: StridedLoop,
    step: int,
    row_cost: float,
) -> CopyPlan:
    """Plan blocks of the innermost two loops; a column takes `step` bytes."""
    outer = found.loops[:-1]
    row = outer[-1] if outer else None
    columns = min(column.extent, BLOCK_BYTES // step)
    rows = max(1, BLOCK_BYTES // (columns * step))
    grid = block_grid_of(
        views, LoopNest((*outer, column), found.offsets), row, column, rows, columns
    )
    lines = views[1].nbytes / max(1, column.extent * step)
    return CopyPlan(name, body, grid, lines * row_cost)


def _split_tiles(
    views: tuple[BufferView, BufferView],
    found: LoopNest,
    row: StridedLoop,
    size: int,
    machine: HostDescription,
) -> CopyPlan | None:
    """Plan tiles whose rows are those of two loops, if the first one has few rows.

    Filters of 3 x 3 positions whose channels become contiguous are such rows. Tiles of the nine
    positions alone would overlap, and read each line of the source several times.
    """
    column = found.loops[-1]
    side = transpose_tiles.tile_side(size, machine)
    lines = [loop for loop in found.loops if loop.strides[0] == row.extent * size]
    if row.extent % side == 0 or row.extent > MAX_SPLIT_TILES * side or not lines:
        return None
    across = side * transpose_tiles.tiles_per_cache_line(size, side)
    if lines[0] is column or column.extent < across or lines[0].extent * row.extent < side:
        return None
    nest = LoopNest(tuple(loop for loop in found.loops if loop is not row), found.offsets)
    rows = max(1, SPLIT_BLOCK_ROWS // row.extent)
    grid = block_grid_of(views, nest, lines[0], column, rows, max(across, 512 // size))
    body = partial(transpose_tiles.copy_split_tiles, size, side)
    extra = row.extent, row.strides[1]
    return CopyPlan(f"copy_split_tiles{size}", body, grid, views[1].nbytes / 10, extra)


def _line_stores(
    items: LineItems,
    row: StridedLoop,
    column: StridedLoop,
    streaming: bool,
    whole: bool,
    machine: HostDescription,
) -> LineStores | None:
    """Return how a transpose of whole cache lines stores them, or None if it transposes smaller
    tiles; the target consists of `whole` lines or not."""
    per_line = items.per_line
    if row.extent < per_line or column.extent < per_line:
        return None
    if streaming and whole:
        return LineStores.STREAMED
    if streaming and column.extent >= MIN_JOINED_LINES * per_line:
        return LineStores.JOINED
    has_conflicts = _is_near_conflict(row.strides[1]) and _is_near_conflict(column.strides[0])
    return LineStores.ORDINARY if has_conflicts else None


def _is_near_conflict(distance: int) -> bool:
    """Return whether two addresses at a distance conflict, or lines next to them."""
    over = abs(distance) % CONFLICT_DISTANCE_BYTES
    return min(over, CONFLICT_DISTANCE_BYTES - over) <= CONFLICT_TOLERANCE_BYTES


def _lines(
    views: tuple[BufferView, BufferView],
    found: LoopNest,
    row: StridedLoop,
    items: LineItems,
    stores: LineStores,
) -> CopyPlan:
    column = found.loops[-1]
    rows, columns = line_transpose.block_shape(items, stores, column.extent)
    unit = "" if items.unit == min(items.nbytes, 8) else f"_of_{items.unit}"
    verb = "copy" if stores is LineStores.ORDINARY else "stream"
    suffix = "_joined" if stores is LineStores.JOINED else ""
    return CopyPlan(
        f"{verb}_lines{items.nbytes}{unit}{suffix}",
        partial(line_transpose.copy_lines, items, stores),
        block_grid_of(views, found, row, column, rows, columns),
        views[1].nbytes / 14,
    )


def _tiles(
    views: tuple[BufferView, BufferView],
    found: LoopNest,
    row: StridedLoop,
    size: int,
    machine: HostDescription,
    streaming: bool,
) -> CopyPlan:
    column = found.loops[-1]
    whole = not any(
        number % CACHE_LINE_BYTES
        for number in (
            column.extent * size,
            views[1].offset,
            *(loop.strides[1] for loop in found.loops[:-1]),
        )
    )
    items = LineItems(size, min(views[1].itemsize, 8))
    if stores := _line_stores(items, row, column, streaming, whole, machine):
        return _lines(views, found, row, items, stores)
    side = transpose_tiles.tile_side(size, machine, min(row.extent, column.extent))
    row_by_row = row.strides[1] % CONFLICT_DISTANCE_BYTES == 0
    rows, columns = ROW_BY_ROW_BLOCK if row_by_row else (512 // size * 8, 512 // size)
    grid = block_grid_of(views, found, row, column, max(rows, side), max(columns, side))
    few = "" if side == transpose_tiles.tile_side(size, machine) else f"_of_{side}"
    body = partial(transpose_tiles.copy_ordered_tiles, size, side)
    order = (int(row_by_row),)
    return CopyPlan(f"copy_tiles{size}{few}", body, grid, views[1].nbytes / 10, order)
