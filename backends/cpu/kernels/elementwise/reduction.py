"""Loop nests with reductions: choose the vector axis, and divide the work.

If there are enough rows or columns, each task processes some of them, with all of their passes.
Otherwise the reduced axis is split into blocks: the passes are phases, each of which writes a
partial result per block, and combines them. Splits depend on the shape only, so that results do not
depend on the number of workers.
"""

from collections.abc import Sequence
from dataclasses import replace
from math import prod

from shardir.backends.cpu.codegen.memory_hints import is_prefetch_useful
from shardir.backends.cpu.codegen.target import HostDescription
from shardir.backends.cpu.kernel_api import (
    SCRATCH_BYTES_PER_WORKER,
    LoweringContext,
    Phase,
    blocks_per_task,
)
from shardir.backends.cpu.kernels.elementwise.column_reduction import ColumnShape, column_kernel
from shardir.backends.cpu.kernels.elementwise.cost_model import estimate_nanoseconds
from shardir.backends.cpu.kernels.elementwise.elementwise_loops import (
    choose_lanes,
)
from shardir.backends.cpu.kernels.elementwise.loop_axes import LoopArray, LoopAxis
from shardir.backends.cpu.kernels.elementwise.math_inlining import math_function_steps
from shardir.backends.cpu.kernels.elementwise.phase_record import PhaseRecord
from shardir.backends.cpu.kernels.elementwise.reduction_layout import ReductionLayout, choose_layout
from shardir.backends.cpu.kernels.elementwise.reduction_passes import ReductionPasses
from shardir.backends.cpu.kernels.elementwise.register_reduction import (
    register_reduction_phase,
    register_row_count,
)
from shardir.backends.cpu.kernels.elementwise.row_reduction import RowShape, row_kernel
from shardir.backends.cpu.kernels.elementwise.split_reduction import SplitReduction
from shardir.backends.cpu.kernels.elementwise.streaming_stores import can_stream_layout
from shardir.backends.cpu.kernels.math.registers import itemsize

MAX_BLOCK_COLUMNS = 4096
"""Upper limit of the columns of a block: their accumulators stay in the caches of a core."""
MAX_PREFETCHED_BLOCK_COLUMNS = 2048
"""The limit for steps of few rows that prefetch later ones (`ROWS_PER_PREFETCHING_STEP`), whose
accumulators should be in the first-level cache: on one core of a Zen 5, the sums of columns of
2,000 x 4,000 elements of f32 take 705 microseconds, with blocks of 4,096 columns 1355, of 1,024
columns 872."""
MIN_BLOCK_COLUMNS = 128
"""Lower limit of the columns of a block, if there are as many."""
SPLIT_BLOCK_ROWS = 64
"""A sum of columns with a few times this many rows is split: many short rows are slow."""
MAX_VECTOR_BYTES = 64
"""With registers of this width a vector of floats is one register; narrower ones need several."""
ROW_OVERHEAD_NANOSECONDS = 15.0
"""The overhead of a row, and of each of its reductions."""
MIN_UNSPLIT_BLOCKS = 8
"""With fewer rows or blocks of columns than this, large loop nests are split."""
MIN_SPLIT_ELEMENTS = 1 << 17
"""Elements from which on a split is worth more phases."""


def reduction_phases(
    axes: Sequence[LoopAxis],
    stages: ReductionPasses,
    arrays: Sequence[LoopArray],
    counted: int,
    context: LoweringContext,
    label: str,
) -> list[Phase]:
    """Return the phases of a loop nest with reductions; `arrays` end with `counted` iota
    indices."""
    lanes = choose_lanes(stages.body, context.machine)
    if not _is_split(choose_layout(axes, arrays, counted, lanes), stages, context.machine):
        return [_single_phase(axes, stages, arrays, counted, context, label)]
    return SplitReduction(
        axes, stages, arrays, counted, context, label, lanes, _single_phase
    ).phases()


def _single_phase(
    axes: Sequence[LoopAxis],
    stages: ReductionPasses,
    arrays: Sequence[LoopArray],
    counted: int,
    context: LoweringContext,
    label: str,
) -> Phase:
    layout = choose_layout(axes, arrays, counted, choose_lanes(stages.body, context.machine))
    if layout.column.reduced:
        widest = context.machine.vector_bytes == MAX_VECTOR_BYTES
        if layout.column.extent >= 4 * layout.lanes and widest:
            # Two vectors per step: a single accumulator would be bound by the latency of the
            # addition.
            layout = layout._replace(lanes=2 * layout.lanes)
        return _row_phase(layout, stages, context, label)
    if register_row_count(layout, stages):
        return register_reduction_phase(layout, stages, context, label)
    return _column_phase(layout, stages, context, label)


def _is_split(layout: ReductionLayout, stages: ReductionPasses, machine: HostDescription) -> bool:
    """Return whether the reduction is split into a phase for each pass."""
    if layout.size < MIN_SPLIT_ELEMENTS or register_row_count(layout, stages):
        return False
    batch_size = prod(axis.extent for axis in layout.parallel)
    rows = prod(axis.extent for axis in layout.reduced)
    if layout.column.reduced:
        independent_blocks = batch_size
        fits = _row_scratch_offsets(layout, stages) is not None
    else:
        block_columns = _choose_block_columns(layout, stages, machine)
        independent_blocks = batch_size * -(-layout.column.extent // block_columns)
        fits = _column_scratch_offsets(layout, stages, block_columns) is not None
        if (
            stages.passes == 1
            and rows > 4 * SPLIT_BLOCK_ROWS
            and independent_blocks < 4 * MIN_UNSPLIT_BLOCKS
        ):
            return True
    return independent_blocks < MIN_UNSPLIT_BLOCKS or not fits


def _row_scratch_offsets(layout: ReductionLayout, stages: ReductionPasses) -> list[int] | None:
    padded = -(-layout.column.extent // layout.lanes) * layout.lanes
    count = padded * prod(axis.extent for axis in layout.reduced)
    dtypes = [stages.body.steps[i].dtype for i in sorted(stages.stored_steps)]
    return _scratch_offsets([(dtype, count) for dtype in dtypes])


def _row_phase(
    layout: ReductionLayout, stages: ReductionPasses, context: LoweringContext, label: str
) -> Phase:
    ends = _row_scratch_offsets(layout, stages)
    if ends is None:
        return _row_phase(layout, replace(stages, can_store=False), context, label)
    rows = prod(axis.extent for axis in layout.parallel)
    repeats = prod(axis.extent for axis in layout.reduced)
    padded = -(-layout.column.extent // layout.lanes) * layout.lanes
    nested = bool(layout.reduced)
    prefetches_next_row = _should_prefetch_rows(layout, stages, context.machine)
    shape = RowShape(
        stages,
        layout.kinds,
        layout.counted,
        layout.lanes,
        layout.has_full_vectors,
        nested,
        can_stream_layout(layout, stages, context.machine),
        prefetches_next_row,
        not prefetches_next_row
        and is_prefetch_useful(context.machine)
        and _operand_bytes(layout, stages) > context.machine.l2_bytes,
    )
    cost = estimate_nanoseconds(stages.body, layout.size, layout.arrays, layout.column.strides)
    cost += rows * ROW_OVERHEAD_NANOSECONDS * (1 + len(stages.body.reductions))
    each = blocks_per_task(rows, cost, context.workers)
    record = PhaseRecord()
    record.add(rows, each, layout.column.extent, padded, repeats, *ends)
    record.arrays(layout.arrays)
    record.add(*layout.column.strides)
    record.table(layout.parallel)
    record.table(layout.reduced)
    return Phase(
        row_kernel(shape, context.machine), tuple(record.words), -(-rows // each), cost, label
    )


def _should_prefetch_rows(
    layout: ReductionLayout, stages: ReductionPasses, machine: HostDescription
) -> bool:
    """Return whether the next row is prefetched while a row is processed.

    A row that is read several times from the first-level cache would leave memory idle meanwhile.
    On a Zen 4, a softmax of 32 MiB in rows of 2,048 takes 4.2 ms instead of 4.7 ms with prefetches,
    but a layer norm, which has less arithmetic, 2.9 ms instead of 2.7 ms.
    """
    if stages.passes == 1 or layout.reduced:
        return False
    if not is_prefetch_useful(machine) and not math_function_steps(stages.body):
        return False
    second = machine.l2_bytes
    row = layout.column.extent * sum(array.unit_stride for array in _operands(layout, stages))
    return row <= second // 4 and _operand_bytes(layout, stages) > second // 2


def _operands(layout: ReductionLayout, stages: ReductionPasses) -> Sequence[LoopArray]:
    return layout.arrays[: len(layout.arrays) - layout.counted - len(stages.body.results)]


def _operand_bytes(layout: ReductionLayout, stages: ReductionPasses) -> int:
    """Return the bytes of all operands together."""
    operands = _operands(layout, stages)
    return sum(array.view.nbytes for array in operands if array.view is not None)


def _choose_block_columns(
    layout: ReductionLayout, stages: ReductionPasses, machine: HostDescription
) -> int:
    """Return the columns of a block: as many as scratch memory holds, within limits."""
    most = MAX_PREFETCHED_BLOCK_COLUMNS if is_prefetch_useful(machine) else MAX_BLOCK_COLUMNS
    block_columns = min(-(-layout.column.extent // layout.lanes) * layout.lanes, most)
    while (
        block_columns > MIN_BLOCK_COLUMNS
        and _column_scratch_offsets(layout, stages, block_columns) is None
    ):
        block_columns = max(MIN_BLOCK_COLUMNS, block_columns // 2 // layout.lanes * layout.lanes)
    return block_columns


def _column_scratch_offsets(
    layout: ReductionLayout, stages: ReductionPasses, block_columns: int
) -> list[int] | None:
    rows = prod(axis.extent for axis in layout.reduced)
    shape = ColumnShape(stages, layout.kinds, layout.counted, layout.lanes, layout.has_full_vectors)
    return _scratch_offsets(
        [
            (dtype, block_columns * (rows if by_row else 1))
            for _, dtype, by_row in shape.scratch_regions()
        ]
    )


def _column_phase(
    layout: ReductionLayout, stages: ReductionPasses, context: LoweringContext, label: str
) -> Phase:
    block_columns = _choose_block_columns(layout, stages, context.machine)
    ends = _column_scratch_offsets(layout, stages, block_columns)
    if ends is None:
        return _column_phase(layout, replace(stages, can_store=False), context, label)
    row = layout.reduced[-1] if layout.reduced else LoopAxis(1, (0,) * len(layout.arrays), True)
    rest = layout.reduced[:-1]
    shape = ColumnShape(
        stages,
        layout.kinds,
        layout.counted,
        layout.lanes,
        layout.has_full_vectors,
        2 * _operand_bytes(layout, stages) > context.machine.shared_cache_bytes,
    )
    cost = estimate_nanoseconds(stages.body, layout.size, layout.arrays, layout.column.strides)
    column_blocks = -(-layout.column.extent // block_columns)
    blocks = column_blocks * prod(axis.extent for axis in layout.parallel)
    each = blocks_per_task(blocks, cost, context.workers)
    record = PhaseRecord()
    record.add(blocks, each, layout.column.extent, block_columns, column_blocks)
    record.add(row.extent, prod(axis.extent for axis in rest), *ends)
    record.arrays(layout.arrays)
    record.add(*layout.column.strides)
    record.add(*row.strides)
    record.table(layout.parallel)
    record.table(rest)
    return Phase(
        column_kernel(shape, context.machine), tuple(record.words), -(-blocks // each), cost, label
    )


def _scratch_offsets(regions: Sequence[tuple[str, int]]) -> list[int] | None:
    """Return the offsets of regions in scratch memory; `None` if they do not fit."""
    ends, at = [], 0
    for dtype, count in regions:
        ends.append(at)
        at += -(-count * itemsize(dtype) // 64) * 64
    return ends if at <= SCRATCH_BYTES_PER_WORKER // 2 else None
