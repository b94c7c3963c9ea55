"""Copies between layouts.

`copy_phases` merges the loops over both views as far as possible and selects a kernel: rows of
bytes if both views are contiguous along one dimension, fills or repeats of items, transposed tiles
if they are contiguous along different dimensions, otherwise item by item. Short rows of 2, 4, 8 or
16 bytes are treated as items.
"""

from collections.abc import Sequence
from functools import partial
from math import prod
from typing import NamedTuple

from shardir.backends.cpu.native.data import Context, Phase, View
from shardir.backends.cpu.native.llvm.hints import goes_past_caches
from shardir.backends.cpu.native.llvm.target import Machine
from shardir.backends.cpu.native.moves import bodies, tiles
from shardir.backends.cpu.native.moves.grid import Body, Form, Grid, Start, grid_kernel, grid_of
from shardir.backends.cpu.native.moves.loops import Loop, Nest, nest

BLOCK_BYTES = 64 << 10
CROWDED = 1024
"""Addresses whose distance is a multiple of this conflict in a cache: for rows at such a distance,
narrower blocks are transposed, and non-temporal stores are used for smaller arrays."""
ITEM_BYTES = (2, 4, 8, 16)
REPEATED_BYTES = (1, 2, 4, 8)
MOST_TIMES = 8
"""Maximum repeats that are unrolled; items repeated more often are filled."""


class Plan(NamedTuple):
    """A planned copy: the kernel name, the body that copies a block, the grid of all blocks."""

    name: str
    body: Body
    grid: Grid
    cost: float


def copy_phases(source: View, target: View, context: Context) -> list[Phase]:
    """Return the phases that copy `source` to `target`, of one shape and item size.

    There are no phases if nothing needs to be copied. The views must be the same memory or
    disjoint.
    """
    if source.size == 0 or source._replace(dtype=target.dtype) == target:
        return []
    name, body, grid, cost = plan(source, target, context.machine)
    kernel = grid_kernel(name, Form(2), body)
    return [grid.phase(kernel, cost, context.workers, "copy")]


def moving_copy_phases(
    source: View, target: View, moved: int, starts: Sequence[Start], context: Context
) -> list[Phase]:
    """Return the phases of a copy whose source (`moved` = 0) or target (1) offset is known at run
    time."""
    if not starts:
        return copy_phases(source, target, context)
    if source.size == 0:
        return []
    dtype = starts[0].view.dtype
    name, body, grid, cost = plan(source, target, context.machine, may_stream=False)
    kernel = grid_kernel(
        f"{name}_{'to' if moved else 'from'}_{dtype}", Form(2, moving=(moved, dtype)), body
    )
    return [grid.phase(kernel, cost, context.workers, "copy", starts=starts)]


def plan(source: View, target: View, machine: Machine, may_stream: bool = True) -> Plan:
    """Plan the copy of `source` to `target`."""
    views, size = (source, target), source.itemsize
    found = nest(views)
    streaming = may_stream and _goes_past_caches(found, target, machine)
    size, found = _wider_items(size, found)
    *_, inner = (Loop(1, (size, size)), *found.loops)
    if inner.strides == (size, size):
        return _rows(views, found, size, streaming)
    if inner.strides == (0, size):
        if _repeats(found, size):
            return _repeat(views, found, size)
        return _fill(views, found, size, streaming)
    if inner.strides[1] == size:
        found = _forwards(found, size)
        partners = [loop for loop in found.loops[:-1] if loop.strides[0] == size]
        short = min(partners[-1].extent, inner.extent) if partners else 1
        if tiles.side(size, machine, short) > 1:
            return _tiles(views, found, partners[-1], size, machine, may_stream, streaming)
        if inner.strides[0] == -size and inner.extent >= 8:
            return _reverse(views, found, size)
    return _items(views, found, size)


def _goes_past_caches(found: Nest, target: View, machine: Machine) -> bool:
    """Return whether the bytes read (repeated items counted once) and written exceed the caches."""
    read = target.itemsize * prod(loop.extent for loop in found.loops if loop.strides[0])
    return goes_past_caches(target.nbytes, read, machine)


def _wider_items(size: int, found: Nest) -> tuple[int, Nest]:
    """Treat rows of few bytes as single items, if there is more than one row."""
    while len(found.loops) > 1:
        inner = found.loops[-1]
        if inner.strides != (size, size) or inner.extent * size not in ITEM_BYTES:
            break
        size, found = inner.extent * size, Nest(found.loops[:-1], found.offsets)
    return size, found


def _forwards(found: Nest, size: int) -> Nest:
    """Reverse loops with negative strides in the source, except the innermost loop."""
    loops, (source, target) = list(found.loops), found.offsets
    for i, (extent, strides) in enumerate(loops[:-1]):
        if strides[0] == -size:
            source += (extent - 1) * strides[0]
            target += (extent - 1) * strides[1]
            loops[i] = Loop(extent, (size, -strides[1]))
    return Nest(tuple(loops), (source, target))


def _ways(streaming: bool) -> str:
    return "_streaming" if streaming else ""


def _rows(views: tuple[View, View], found: Nest, size: int, streaming: bool) -> Plan:
    inner = found.loops[-1] if found.loops else Loop(1, (size, size))
    nbytes = inner.extent * size
    column = Loop(nbytes, (1, 1))
    streaming = streaming and nbytes >= 1024
    return _two_loops(
        f"copy_rows{_ways(streaming)}", partial(bodies.copy_rows, streaming),
        views, found, column, 1, 2.0 + nbytes / 16,
    )  # fmt: skip


def _fill(views: tuple[View, View], found: Nest, size: int, streaming: bool) -> Plan:
    column = found.loops[-1]
    streaming = streaming and column.extent * size >= 1024
    # Memory is aligned to elements, so that filling by elements reaches a vector boundary.
    streaming = streaming and size == views[1].itemsize <= 8
    return _two_loops(
        f"fill_rows{size}{_ways(streaming)}", partial(bodies.fill_rows, size, streaming),
        views, found, column, size, 2.0 + column.extent * size / 24,
    )  # fmt: skip


def _repeats(found: Nest, size: int) -> bool:
    """Return whether contiguous items are each written a few times in a row."""
    *_, inner = found.loops
    outer = found.loops[-2] if len(found.loops) > 1 else None
    return (
        1 < inner.extent <= MOST_TIMES
        and size in REPEATED_BYTES
        and outer is not None
        and outer.strides == (size, inner.extent * size)
    )


def _repeat(views: tuple[View, View], found: Nest, size: int) -> Plan:
    *outer, column, inner = found.loops
    times = inner.extent
    return _two_loops(
        f"repeat_rows{size}_{times}", partial(bodies.repeat_rows, size, times),
        views, Nest((*outer, column), found.offsets), column, size * times,
        2.0 + column.extent * size * times / 16,
    )  # fmt: skip


def _reverse(views: tuple[View, View], found: Nest, size: int) -> Plan:
    column = found.loops[-1]
    return _two_loops(
        f"reverse_rows{size}", partial(bodies.reverse_rows, size),
        views, found, column, size, 2.0 + column.extent * size / 8,
    )  # fmt: skip


def _items(views: tuple[View, View], found: Nest, size: int) -> Plan:
    column = found.loops[-1]
    return _two_loops(
        f"copy_items{size}", partial(bodies.copy_items, size),
        views, found, column, size, 2.0 + column.extent * max(0.5, size / 8),
    )  # fmt: skip


def _two_loops(
    name: str,
    body: Body,
    views: tuple[View, View],
    found: Nest,
    column: Loop,
    step: int,
    row_cost: float,
) -> Plan:
    """Plan blocks of the innermost two loops; a column takes `step` bytes."""
    outer = found.loops[:-1]
    row = outer[-1] if outer else None
    columns = min(column.extent, BLOCK_BYTES // step)
    rows = max(1, BLOCK_BYTES // (columns * step))
    grid = grid_of(views, Nest((*outer, column), found.offsets), row, column, rows, columns)
    lines = views[1].nbytes / max(1, column.extent * step)
    return Plan(name, body, grid, lines * row_cost)


def _tiles(
    views: tuple[View, View],
    found: Nest,
    row: Loop,
    size: int,
    machine: Machine,
    may_stream: bool,
    streaming: bool,
) -> Plan:
    column = found.loops[-1]
    side = tiles.side(size, machine, min(row.extent, column.extent))
    whole = not any(
        number % tiles.LINE
        for number in (
            column.extent * size,
            views[1].offset,
            *(loop.strides[1] for loop in found.loops[:-1]),
        )
    )
    rows, columns = 512 // size * 8, 512 // size
    if size >= 4 and row.strides[1] % CROWDED == 0:
        rows, columns = 256 // size, 2048 // size
        streaming |= may_stream and views[1].nbytes >= 2 * machine.l2_bytes
    streaming = streaming and whole and row.extent % side == 0
    body = partial(tiles.copy_tiles, size, side, streaming)
    grid = grid_of(views, found, row, column, max(rows, side), max(columns, side))
    few = "" if side == tiles.side(size, machine) else f"_of_{side}"
    name = f"copy_tiles{size}{few}{_ways(streaming)}"
    return Plan(name, body, grid, views[1].nbytes / 10)
