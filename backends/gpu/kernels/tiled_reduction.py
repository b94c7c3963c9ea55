"""Kernels with reductions: each program reduces some rows or columns of the iteration space.

If the innermost axis is reduced, tiles are rows: one long or several short ones. If it is kept,
tiles are adjacent columns, so that loads are coalesced. Reductions that fit into a tile are loaded
once and stay in registers, even if several follow each other (a softmax); otherwise each round of
reductions loads its operands in a loop.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from shardir.backends.gpu.kernels.group import FusedGroup
from shardir.backends.gpu.kernels.kernel import KernelLaunch, KernelText
from shardir.backends.gpu.kernels.kernel_text import function_text
from shardir.backends.gpu.kernels.kernel_writer import KernelWriter
from shardir.backends.gpu.kernels.reduction_rounds import ReductionRounds
from shardir.backends.gpu.kernels.terms import KernelTerm
from shardir.backends.gpu.kernels.tile_reduction import (
    accumulate,
    initial_accumulator,
    mask_out_of_bounds,
    reduce_tile,
)
from shardir.backends.gpu.kernels.tile_sides import TileSide
from shardir.backends.gpu.kernels.tile_sizes import (
    TileSizes,
    ceil_divide,
    count_warps,
    next_power_of_two,
)
from shardir.ir.module import Op, Value


@dataclass(frozen=True, slots=True)
class ReductionTile:
    """The sides of a tile; `kept` is `None` if all axes are reduced."""

    kept: TileSide | None
    reduced_side: TileSide

    @property
    def sides(self) -> tuple[TileSide, ...]:
        """Return rows, then columns."""
        if self.kept is None:
            return (self.reduced_side,)
        return tuple(
            sorted((self.kept, self.reduced_side), key=lambda side: side.index, reverse=True)
        )

    @property
    def elements(self) -> int:
        return self.reduced_side.length * (self.kept.length if self.kept else 1)

    @property
    def programs(self) -> int:
        return ceil_divide(self.kept.size, self.kept.length) if self.kept else 1

    @property
    def warps(self) -> int:
        """Return the number of warps; fewer for a row, because its reduction synchronizes them."""
        is_row = self.kept is None or self.kept.length == 1
        return count_warps(self.elements, 16 if is_row else 8)

    @property
    def fits_reduction(self) -> bool:
        """Return whether the reduced side fits into one tile."""
        return self.reduced_side.size <= self.reduced_side.length

    @property
    def constants(self) -> dict[str, int]:
        return {side.block: side.length for side in self.sides if side.length > 1}


def choose_tile(group: FusedGroup, sizes: TileSizes) -> ReductionTile:
    """Return the tile of a group with reductions."""
    layout = group.layout
    kept, ended = layout.size(layout.kept_axes), layout.size(layout.reduced_axes)
    if layout.kept_axes and layout.kept_axes[-1] == len(layout.extents) - 1:
        columns, rows = _choose_columns(group, sizes, kept, ended)
        return _make_tile(group, (rows, ended), (columns, kept), is_row=False)
    held = max(sum(len(layout.strides[value]) == len(layout.extents) for value in group.params), 1)
    columns = next_power_of_two(ended)
    if columns * next_power_of_two(held) > sizes.max_row_elements:
        columns = min(sizes.row_step_elements, columns)
    rows = (
        min(sizes.short_rows_tile_elements // columns, next_power_of_two(kept))
        if columns <= sizes.max_shared_row_elements
        else 1
    )
    while rows > 1 and ceil_divide(kept, rows) < sizes.min_programs:
        rows //= 2
    return _make_tile(group, (columns, ended), (rows, kept), is_row=True)


def _choose_columns(group: FusedGroup, sizes: TileSizes, kept: int, ended: int) -> tuple[int, int]:
    """Return the numbers of columns and rows of a tile of columns.

    The number is halved while there are too few programs, unless reductions are split into parts.
    """
    columns = min(sizes.tile_columns, next_power_of_two(kept))
    is_cut = (
        ReductionRounds(group.make_writer()).is_single_round
        and next_power_of_two(ended) > sizes.max_column_elements
    )
    while (
        not is_cut
        and ceil_divide(kept, columns) < sizes.min_programs
        and columns * group.itemsize > sizes.min_column_bytes
    ):
        columns //= 2
    room = max(sizes.tile_columns // columns, 1)
    rows = next_power_of_two(ended)
    return (
        columns,
        rows if rows <= sizes.max_column_elements * room else sizes.row_step_of_columns * room,
    )


def _make_tile(
    group: FusedGroup, ended: tuple[int, int], kept: tuple[int, int], is_row: bool
) -> ReductionTile:
    """Return a tile with sides of these (length, size)."""
    layout = group.layout
    flat = kept[0] == 1
    row, column = ("row", "ROWS", "[:, None]"), ("column", "COLUMNS", "[None, :]")
    if not layout.kept_axes:
        column = ("at", "BLOCK", "")

    def side(place: tuple[str, str, str], axes: Sequence[int], length: int, size: int) -> TileSide:
        word, block, slot = place
        return group.make_side(word, axes, size, length, block, "" if flat else slot)

    of_ended = side(column if is_row else row, layout.reduced_axes, *ended)
    of_ended = replace(of_ended, is_wide=group.is_large)
    of_kept = side(row if is_row else column, layout.kept_axes, *kept)
    return ReductionTile(of_kept if layout.kept_axes else None, of_ended)


def write_tiled_kernel(group: FusedGroup, tile: ReductionTile) -> KernelText:
    """Return the one-stage kernel of a group with reductions."""
    writer = group.make_writer(*tile.sides)
    write_kept_index(group, tile, writer)
    if tile.fits_reduction:
        ended = tile.reduced_side
        writer.lines += [f"{ended.index} = {ended.offsets_text}", *ended.mask_lines()]
        writer.emit(writer.collect_needed(group.block.returns, through=True))
        for value, pointer, _ in group.stores():
            writer.store(value, pointer)
    else:
        _write_rounds(group, tile, writer)
    pointers = group.pointers(group.params)
    pointers.update((pointer, type) for _, pointer, type in group.stores())
    launch = KernelLaunch(
        f"{group.name}_kernel", (tile.programs,), pointers, tile.constants, tile.warps
    )
    return group.kernel([function_text(launch, group.docstring(), writer.lines)], [launch])


def write_kept_index(group: FusedGroup, tile: ReductionTile, writer: KernelWriter) -> None:
    """Write the index of the rows or columns that the program reduces."""
    kept = tile.kept
    if kept is None:
        return
    program = group.program_id(0)
    if kept.length > 1:
        program = f"{program} * {kept.block} + tl.arange(0, {kept.block})"
        program = f"({program}){kept.expansion}" if kept.expansion else program
    writer.lines += [f"{kept.index} = {program}", *kept.mask_lines()]


def _write_rounds(group: FusedGroup, tile: ReductionTile, writer: KernelWriter) -> None:
    """Write a loop for each round of reductions, and the kept values after them."""
    rounds = ReductionRounds(writer)
    for reductions, yields in rounds.iterate():
        write_reduction_loop(
            group, tile, writer, reductions, [(v, p) for v, p, _ in group.stores() if v in yields]
        )
        for op in reductions:
            write_final_reduction(writer, op, tile)
    kept = [(v, p) for v, p, _ in group.stores() if not rounds.has_reduced_axes(v)]
    writer.emit(writer.collect_needed([value for value, _ in kept], through=False))
    for value, pointer in kept:
        writer.store(value, pointer)


def write_reduction_loop(
    group: FusedGroup,
    tile: ReductionTile,
    writer: KernelWriter,
    reductions: Sequence[Op],
    yields: Sequence[tuple[Value, str]],
    bounds: str = "",
) -> None:
    """Write one loop over the reduced side: accumulators, and stores of yielded elements."""
    ended = tile.reduced_side
    roots = [op.operands[0] for op in reductions] + [value for value, _ in yields]
    rounds = ReductionRounds(writer)
    needed = writer.collect_needed(roots, through=False)
    writer.emit([value for value in needed if not rounds.has_reduced_axes(value)])
    for op in reductions:
        writer.append_line(
            f"{writer.names[op.result]}_acc = {initial_accumulator(op, writer.tile)}"
        )
    start = group.own_name("start")
    bounds = bounds or f"0, {ended.size}"
    with writer.loop_body(f"for {start} in range({bounds}, {ended.block}):"):
        writer.lines += [f"{ended.index} = {start} + {ended.offsets_text}", *ended.mask_lines()]
        writer.emit([value for value in needed if rounds.has_reduced_axes(value)])
        for op in reductions:
            accumulator = f"{writer.names[op.result]}_acc"
            x = mask_out_of_bounds(
                op, writer.broadcast_to_tile(writer.terms[op.operands[0]]), ended.mask
            )
            writer.append_line(f"{accumulator} = {accumulate(op, accumulator, x)}")
        for value, pointer in yields:
            writer.store(value, pointer)


def write_final_reduction(writer: KernelWriter, op: Op, tile: ReductionTile) -> None:
    """Reduce the accumulator to one element, or one per row or column."""
    spans = frozenset[str]().union(*(side.spans for side in tile.sides))
    term = KernelTerm(f"{writer.names[op.result]}_acc", op.result.type.dtype, spans=spans)
    text = reduce_tile(op, term, "", writer.axis(tile.reduced_side))
    writer.define(op.result, writer.round_if_used(op, text), spans - tile.reduced_side.spans)
