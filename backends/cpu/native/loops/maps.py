"""Loop nests without reductions: every result element is computed once from its operands.

The nest is divided into blocks of rows and columns; vectors go along the columns. An array that is
strided along the columns is read in blocks small enough that the cache lines of one row are still
cached for the next.
"""

from collections.abc import Sequence
from math import prod

from shardir.backends.cpu.native.data import Context, Phase
from shardir.backends.cpu.native.llvm.target import Machine
from shardir.backends.cpu.native.loops.axes import (
    GENERAL,
    UNIT,
    Array,
    Axis,
    lying,
    ordered,
    price,
)
from shardir.backends.cpu.native.loops.body import Body
from shardir.backends.cpu.native.loops.inlining import abreast
from shardir.backends.cpu.native.loops.map_kernel import Shape, kernel_of
from shardir.backends.cpu.native.loops.prices import nanoseconds
from shardir.backends.cpu.native.loops.record import Record
from shardir.backends.cpu.native.loops.streaming import streams
from shardir.backends.cpu.native.vector.registers import MEMORY, SIZES
from shardir.types import REAL_OF

BLOCK = 1 << 15
"""Elements of a block: enough to hide the overhead of a block, few enough to balance the load."""
TILE_ROWS, TILE_COLUMNS = 32, 128
TASK_NANOSECONDS = 20_000.0


def lanes_of(body: Body, machine: Machine) -> int:
    """Return the elements of a vector: one register of the smallest type, at most four of the
    largest."""
    sizes = [
        SIZES[MEMORY[step.dtype]] * (2 if step.dtype in REAL_OF else 1)
        if step.dtype not in ("f16", "bf16")
        else 4
        for step in body.steps
        if step.dtype != "bool"
    ] or [1]
    width = machine.vector_bytes
    fullest = max(width // min(sizes), 16 if min(sizes) == 4 else 1)
    return max(2, min(fullest, 4 * width // max(sizes)))


def phases_of_map(
    axes: Sequence[Axis],
    body: Body,
    arrays: Sequence[Array],
    counted: int,
    context: Context,
    label: str,
) -> list[Phase]:
    """Return the phase of a loop nest without reductions; `arrays` end with `counted` iota
    indices."""
    lanes = lanes_of(body, context.machine)
    lanes *= abreast(body, lanes)
    axes = ordered(axes, arrays)
    column = min(axes, key=lambda axis: price(arrays, axis, lanes), default=None)
    outer = [axis for axis in axes if axis is not column]
    none = Axis(1, (0,) * len(arrays))
    column = column or none
    row, rows, columns = _cut(arrays, outer, column, lanes)
    outer = [axis for axis in outer if axis is not row]
    row = row or none
    kinds = tuple(
        (a.dtype, lying(a, stride)) for a, stride in zip(arrays, column.strides, strict=True)
    )
    results = len(arrays) - counted - len(body.results)
    written = range(results, len(arrays) - counted)
    streaming = streams(arrays, written, axes, column, lanes, context.machine)
    single = not outer and row.extent == 1
    shape = Shape(body, kinds, counted, lanes, column.extent % lanes == 0, streaming, single)
    size = prod(axis.extent for axis in axes)
    cost = nanoseconds(body, size, arrays, column.strides)
    row_blocks, column_blocks = -(-row.extent // rows), -(-column.extent // columns)
    blocks = row_blocks * column_blocks * prod(axis.extent for axis in outer)
    tasks = max(1, min(blocks, 4 * context.workers, int(cost / TASK_NANOSECONDS)))
    each = -(-blocks // tasks)
    record = Record()
    if single:
        record.add(column.extent, each * columns, *column.strides)
        record.arrays(arrays)
    else:
        record.add(blocks, each)
        record.add(row.extent, rows, row_blocks, *row.strides)
        record.add(column.extent, columns, column_blocks, *column.strides)
        record.arrays(arrays)
        record.table(outer)
    return [Phase(kernel_of(shape), tuple(record.words), -(-blocks // each), cost, label)]


def _cut(
    arrays: Sequence[Array], outer: Sequence[Axis], column: Axis, lanes: int
) -> tuple[Axis | None, int, int]:
    """Return the axis of rows, and the rows and columns of a block."""
    across = [
        i
        for i, (a, stride) in enumerate(zip(arrays, column.strides, strict=True))
        if a.view is not None and lying(a, stride) == GENERAL
    ]
    for axis in reversed(outer):
        if any(lying(arrays[i], axis.strides[i]) == UNIT for i in across):
            return axis, TILE_ROWS, TILE_COLUMNS
    columns = min(column.extent, BLOCK)
    columns = -(-columns // lanes) * lanes
    return (outer[-1] if outer else None), max(1, BLOCK // columns), columns
