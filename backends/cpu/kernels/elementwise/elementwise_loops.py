"""Loop nests without reductions: every result element is computed once from its operands.

The nest is divided into blocks of rows and columns; vectors go along the columns. An array that is
strided along the columns is read in blocks small enough that the cache lines of one row are still
cached for the next.
"""

from collections.abc import Sequence
from math import prod

from shardir.backends.cpu.codegen.dtypes import MEMORY_TYPES
from shardir.backends.cpu.codegen.target import HostDescription
from shardir.backends.cpu.kernel_api import LoweringContext, Phase, blocks_per_task
from shardir.backends.cpu.kernels.elementwise.cost_model import estimate_nanoseconds
from shardir.backends.cpu.kernels.elementwise.elementwise_kernel import (
    ElementwiseShape,
    elementwise_kernel,
)
from shardir.backends.cpu.kernels.elementwise.loop_axes import (
    CONTIGUOUS,
    STRIDED,
    LoopArray,
    LoopAxis,
    order_axes,
    vector_axis_cost,
    vector_layout,
)
from shardir.backends.cpu.kernels.elementwise.loop_body import LoopBody
from shardir.backends.cpu.kernels.elementwise.math_inlining import vectors_per_iteration
from shardir.backends.cpu.kernels.elementwise.phase_record import PhaseRecord
from shardir.backends.cpu.kernels.elementwise.streaming_stores import can_stream_results
from shardir.backends.cpu.kernels.math.registers import TYPE_BYTES
from shardir.ir.dtypes import NARROW_FLOATS
from shardir.ir.types import REAL_OF

BLOCK_ELEMENTS = 1 << 15
"""Elements of a block: enough to hide the overhead of a block, few enough to balance the load."""
TILE_ROWS, TILE_COLUMNS = 32, 128
"""Rows and columns of a block if an array is strided along the columns."""


def choose_lanes(body: LoopBody, machine: HostDescription) -> int:
    """Return the elements of a vector: one register of the smallest type, at most four of the
    largest."""
    sizes = [
        TYPE_BYTES[MEMORY_TYPES[step.dtype]] * (2 if step.dtype in REAL_OF else 1)
        if step.dtype not in NARROW_FLOATS
        else 4
        for step in body.steps
        if step.dtype != "bool"
    ] or [1]
    width = machine.vector_bytes
    fullest = max(width // min(sizes), 16 if min(sizes) == 4 else 1)
    return max(2, min(fullest, 4 * width // max(sizes)))


def elementwise_phases(
    axes: Sequence[LoopAxis],
    body: LoopBody,
    arrays: Sequence[LoopArray],
    counted: int,
    context: LoweringContext,
    label: str,
) -> list[Phase]:
    """Return the phase of a loop nest without reductions; `arrays` end with `counted` iota
    indices."""
    lanes = choose_lanes(body, context.machine)
    lanes *= vectors_per_iteration(body, lanes, context.machine)
    axes = order_axes(axes, arrays)
    column = min(axes, key=lambda axis: vector_axis_cost(arrays, axis, lanes), default=None)
    outer = [axis for axis in axes if axis is not column]
    none = LoopAxis(1, (0,) * len(arrays))
    column = column or none
    row, rows, columns = _choose_blocks(arrays, outer, column, lanes)
    outer = [axis for axis in outer if axis is not row]
    row = row or none
    kinds = tuple(
        (a.dtype, vector_layout(a, stride))
        for a, stride in zip(arrays, column.strides, strict=True)
    )
    results = len(arrays) - counted - len(body.results)
    written = range(results, len(arrays) - counted)
    streaming = can_stream_results(arrays, written, axes, column, lanes, context.machine)
    single = not outer and row.extent == 1
    shape = ElementwiseShape(
        body, kinds, counted, lanes, column.extent % lanes == 0, streaming, single
    )
    size = prod(axis.extent for axis in axes)
    cost = estimate_nanoseconds(body, size, arrays, column.strides)
    row_blocks, column_blocks = -(-row.extent // rows), -(-column.extent // columns)
    blocks = row_blocks * column_blocks * prod(axis.extent for axis in outer)
    each = blocks_per_task(blocks, cost, context.workers)
    record = PhaseRecord()
    if single:
        record.add(column.extent, each * columns, *column.strides)
        record.arrays(arrays)
    else:
        record.add(blocks, each)
        record.add(row.extent, rows, row_blocks, *row.strides)
        record.add(column.extent, columns, column_blocks, *column.strides)
        record.arrays(arrays)
        record.table(outer)
    return [
        Phase(
            elementwise_kernel(shape, context.machine),
            tuple(record.words),
            -(-blocks // each),
            cost,
            label,
        )
    ]


def _choose_blocks(
    arrays: Sequence[LoopArray], outer: Sequence[LoopAxis], column: LoopAxis, lanes: int
) -> tuple[LoopAxis | None, int, int]:
    """Return the axis of rows, and the rows and columns of a block."""
    across = [
        i
        for i, (a, stride) in enumerate(zip(arrays, column.strides, strict=True))
        if a.view is not None and vector_layout(a, stride) == STRIDED
    ]
    for axis in reversed(outer):
        if any(vector_layout(arrays[i], axis.strides[i]) == CONTIGUOUS for i in across):
            return axis, TILE_ROWS, TILE_COLUMNS
    columns = min(column.extent, BLOCK_ELEMENTS)
    columns = -(-columns // lanes) * lanes
    return (outer[-1] if outer else None), max(1, BLOCK_ELEMENTS // columns), columns
