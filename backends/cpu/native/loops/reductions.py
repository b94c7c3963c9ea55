"""Loop nests with reductions: choose the vector axis, and divide the work.

If there are enough rows or columns, each task processes some of them, with all of their passes.
Otherwise the reduced axis is split into blocks: the passes are phases, each of which writes a
partial result per block, and combines them. Splits depend on the shape only, so that results do not
depend on the number of workers.
"""

from collections.abc import Sequence
from dataclasses import replace
from math import prod

from shardir.backends.cpu.native.data import SCRATCH_BYTES, Context, Phase
from shardir.backends.cpu.native.llvm.target import Machine
from shardir.backends.cpu.native.loops.axes import Array, Axis
from shardir.backends.cpu.native.loops.columns import ColumnShape, column_kernel
from shardir.backends.cpu.native.loops.cuts import Cutter
from shardir.backends.cpu.native.loops.few import few_phase, few_rows
from shardir.backends.cpu.native.loops.layout import Layout, layout_of
from shardir.backends.cpu.native.loops.maps import TASK_NANOSECONDS, lanes_of
from shardir.backends.cpu.native.loops.prices import nanoseconds
from shardir.backends.cpu.native.loops.record import Record
from shardir.backends.cpu.native.loops.rows import RowShape, row_kernel
from shardir.backends.cpu.native.loops.stages import Stages
from shardir.backends.cpu.native.loops.streaming import layout_streams
from shardir.backends.cpu.native.vector.registers import itemsize

COLUMNS = 4096
"""Upper limit of the columns of a block: their accumulators stay in the caches of a core."""
NARROW = 128
"""Lower limit of the columns of a block, if there are as many."""
BLOCK_ROWS = 64
"""A sum of columns with a few times this many rows is split: many short rows are slow."""
WIDEST = 64
"""With registers of this width a vector of floats is one register; narrower ones need several."""
ROW_NANOSECONDS = 15.0
"""The overhead of a row, and of each of its reductions."""
FEW = 8
"""With fewer rows or blocks of columns than this, large loop nests are split."""
LARGE = 1 << 17
"""Elements from which on a split is worth more phases."""


def phases_of_reduction(
    axes: Sequence[Axis],
    stages: Stages,
    arrays: Sequence[Array],
    counted: int,
    context: Context,
    label: str,
) -> list[Phase]:
    """Return the phases of a loop nest with reductions; `arrays` end with `counted` iota
    indices."""
    lanes = lanes_of(stages.body, context.machine)
    if not _is_cut(layout_of(axes, arrays, counted, lanes), stages):
        return [_one_phase(axes, stages, arrays, counted, context, label)]
    return Cutter(axes, stages, arrays, counted, context, label, lanes, _one_phase).phases()


def _one_phase(
    axes: Sequence[Axis],
    stages: Stages,
    arrays: Sequence[Array],
    counted: int,
    context: Context,
    label: str,
) -> Phase:
    layout = layout_of(axes, arrays, counted, lanes_of(stages.body, context.machine))
    if layout.column.reduced:
        widest = context.machine.vector_bytes == WIDEST
        if layout.column.extent >= 4 * layout.lanes and widest:
            # Two vectors per step: a single accumulator would be bound by the latency of the
            # addition.
            layout = layout._replace(lanes=2 * layout.lanes)
        return _rows(layout, stages, context, label)
    if few_rows(layout, stages):
        return few_phase(layout, stages, context, label)
    return _columns(layout, stages, context, label)


def _is_cut(layout: Layout, stages: Stages) -> bool:
    """Return whether the reduction is split into a phase for each pass."""
    if layout.size < LARGE or few_rows(layout, stages):
        return False
    batch_size = prod(axis.extent for axis in layout.kept)
    rows = prod(axis.extent for axis in layout.reduced)
    if layout.column.reduced:
        independent_blocks = batch_size
        fits = _row_regions(layout, stages) is not None
    else:
        cut = _columns_cut(layout, stages)
        independent_blocks = batch_size * -(-layout.column.extent // cut)
        fits = _column_regions(layout, stages, cut) is not None
        if stages.passes == 1 and rows > 4 * BLOCK_ROWS and independent_blocks < 4 * FEW:
            return True
    return independent_blocks < FEW or not fits


def _row_regions(layout: Layout, stages: Stages) -> list[int] | None:
    padded = -(-layout.column.extent // layout.lanes) * layout.lanes
    count = padded * prod(axis.extent for axis in layout.reduced)
    dtypes = [stages.body.steps[i].dtype for i in sorted(stages.stored)]
    return _regions([(dtype, count) for dtype in dtypes])


def _rows(layout: Layout, stages: Stages, context: Context, label: str) -> Phase:
    ends = _row_regions(layout, stages)
    if ends is None:
        return _rows(layout, replace(stages, storing=False), context, label)
    rows = prod(axis.extent for axis in layout.kept)
    repeats = prod(axis.extent for axis in layout.reduced)
    padded = -(-layout.column.extent // layout.lanes) * layout.lanes
    nested = bool(layout.reduced)
    shape = RowShape(
        stages, layout.kinds, layout.counted, layout.lanes, layout.whole, nested,
        layout_streams(layout, stages, context.machine), _is_ahead(layout, stages, context.machine),
    )  # fmt: skip
    cost = nanoseconds(stages.body, layout.size, layout.arrays, layout.column.strides)
    cost += rows * ROW_NANOSECONDS * (1 + len(stages.body.reductions))
    tasks = max(1, min(rows, 4 * context.workers, int(cost / TASK_NANOSECONDS)))
    each = -(-rows // tasks)
    record = Record()
    record.add(rows, each, layout.column.extent, padded, repeats, *ends)
    record.arrays(layout.arrays)
    record.add(*layout.column.strides)
    record.table(layout.kept)
    record.table(layout.reduced)
    return Phase(row_kernel(shape), tuple(record.words), -(-rows // each), cost, label)


def _is_ahead(layout: Layout, stages: Stages, machine: Machine) -> bool:
    """Return whether the next row is prefetched while a row is processed.

    A row that is read several times from the first-level cache would leave memory idle meanwhile.
    """
    operands = layout.arrays[: len(layout.arrays) - layout.counted - len(stages.body.results)]
    if stages.passes == 1 or layout.reduced:
        return False
    second = machine.l2_bytes
    row = layout.column.extent * sum(array.step for array in operands)
    read = sum(array.view.nbytes for array in operands if array.view is not None)
    return row <= second // 4 and read > second // 2


def _columns_cut(layout: Layout, stages: Stages) -> int:
    """Return the columns of a block: as many as scratch memory holds, within limits."""
    cut = min(-(-layout.column.extent // layout.lanes) * layout.lanes, COLUMNS)
    while cut > NARROW and _column_regions(layout, stages, cut) is None:
        cut = max(NARROW, cut // 2 // layout.lanes * layout.lanes)
    return cut


def _column_regions(layout: Layout, stages: Stages, cut: int) -> list[int] | None:
    rows = prod(axis.extent for axis in layout.reduced)
    shape = ColumnShape(stages, layout.kinds, layout.counted, layout.lanes, layout.whole)
    return _regions(
        [(dtype, cut * (rows if by_row else 1)) for _, dtype, by_row in shape.regions()]
    )


def _columns(layout: Layout, stages: Stages, context: Context, label: str) -> Phase:
    cut = _columns_cut(layout, stages)
    ends = _column_regions(layout, stages, cut)
    if ends is None:
        return _columns(layout, replace(stages, storing=False), context, label)
    row = layout.reduced[-1] if layout.reduced else Axis(1, (0,) * len(layout.arrays), True)
    rest = layout.reduced[:-1]
    shape = ColumnShape(stages, layout.kinds, layout.counted, layout.lanes, layout.whole)
    cost = nanoseconds(stages.body, layout.size, layout.arrays, layout.column.strides)
    column_blocks = -(-layout.column.extent // cut)
    blocks = column_blocks * prod(axis.extent for axis in layout.kept)
    tasks = max(1, min(blocks, 4 * context.workers, int(cost / TASK_NANOSECONDS)))
    each = -(-blocks // tasks)
    record = Record()
    record.add(blocks, each, layout.column.extent, cut, column_blocks)
    record.add(row.extent, prod(axis.extent for axis in rest), *ends)
    record.arrays(layout.arrays)
    record.add(*layout.column.strides)
    record.add(*row.strides)
    record.table(layout.kept)
    record.table(rest)
    return Phase(column_kernel(shape), tuple(record.words), -(-blocks // each), cost, label)


def _regions(regions: Sequence[tuple[str, int]]) -> list[int] | None:
    """Return the offsets of regions in scratch memory; `None` if they do not fit."""
    ends, at = [], 0
    for dtype, count in regions:
        ends.append(at)
        at += -(-count * itemsize(dtype) // 64) * 64
    return ends if at <= SCRATCH_BYTES // 2 else None
