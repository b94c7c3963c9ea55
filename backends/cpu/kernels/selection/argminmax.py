"""`argmax` and `argmin` along a dimension.

The result is the index of the first NaN, or else of the first extreme. If lines are adjacent in
memory, a vector has an element of each. For long contiguous lines, the extreme of each chunk is
computed without its index, which is searched at the end in the one chunk that matters; for shorter
lines, each lane of a vector tracks its extreme and index. Few long lines are split into parts for
all workers, and the extreme of the parts is selected.
"""

from collections.abc import Callable, Sequence
from functools import partial

from shardir import ops
from shardir.backends.cpu.kernel_api import (
    BufferView,
    LoweringContext,
    Phase,
    Rule,
    row_major_strides,
)
from shardir.backends.cpu.kernels.data_movement.block_grid import (
    KernelForm,
    block_grid_of,
    grid_kernel,
)
from shardir.backends.cpu.kernels.data_movement.loop_nest import loop_nest_of
from shardir.backends.cpu.kernels.selection import argminmax_bodies as bodies
from shardir.backends.cpu.kernels.selection.argminmax_bodies import (
    MAX_ADJACENT_LINES,
    VECTORS_PER_CHUNK,
)
from shardir.ir.module import Op
from shardir.ir.operation import OpSpec
from shardir.ir.types import TensorType

CHUNKED_DTYPES = ("i8", "u8", "i16", "u16", "i32", "u32", "i64", "u64", "f32", "f64")
"""Types that are compared without widening."""
PART_BYTES = 1 << 18
"""Bytes of a part of a long line."""
MIN_UNSPLIT_LINES = 8
"""Minimum number of lines that are not split."""
MAX_LINE_ELEMENTS = 1 << 31
"""Maximum line length: indices have 32 bits."""


def argminmax_rule(
    op: Op, operands: Sequence[BufferView], results: Sequence[BufferView], context: LoweringContext
) -> list[Phase] | None:
    """Lower to one phase over all lines, or to phases over parts of lines."""
    (x,), (y,), dim = operands, results, op.attrs["dim"]
    steps, step = x.shape[dim], x.strides[dim]
    if steps >= MAX_LINE_ELEMENTS:
        return None
    if y.size == 0:
        return []
    lines = x._replace(
        shape=(*x.shape[:dim], *x.shape[dim + 1 :]),
        strides=(*x.strides[:dim], *x.strides[dim + 1 :]),
    )
    contiguous = step == x.itemsize and x.dtype in CHUNKED_DTYPES
    if contiguous and y.size < MIN_UNSPLIT_LINES and steps * step >= 2 * PART_BYTES:
        return _split_line_phases(op.spec, lines, y, steps, context)
    return [_phase(op.spec, lines, y, steps, step, context)]


def _phase(
    spec: OpSpec, x: BufferView, y: BufferView, steps: int, step: int, context: LoweringContext
) -> Phase:
    """Return the phase that writes the index of the extreme of each line; `x` views line starts."""
    found = loop_nest_of([x, y])
    size, lanes = x.itemsize, context.machine.lanes(max(x.itemsize, 4))
    is_truth = x.dtype == "bool" and step == size
    adjacent_loops = [
        loop for loop in found.loops if loop.strides[0] == size and loop.extent >= lanes
    ]
    column = found.loops[-1] if found.loops else None
    if is_truth:
        variant = "first"
    elif (
        step == size
        and x.dtype in CHUNKED_DTYPES
        and steps >= VECTORS_PER_CHUNK * context.machine.lanes(size)
    ):
        variant = "pieces"
    elif step == size and steps >= lanes:
        variant = "along" if steps < 8 * lanes else "far"
    elif adjacent_loops:
        variant, column = "beside", adjacent_loops[-1]
    else:
        variant = "items"
    rows = [loop for loop in found.loops if loop is not column]
    extent = column.extent if column else 1
    block_columns = max(1, -(-extent // (4 * context.workers)))
    if variant == "beside":
        block_columns = min(MAX_ADJACENT_LINES, -(-block_columns // 64) * 64)
    grid = block_grid_of([x, y], found, rows[-1] if rows else None, column, 1, block_columns)
    bodies_by_variant: dict[str, Callable[..., None]] = {
        "along": partial(bodies.scan_lanes, 1),
        "far": partial(bodies.scan_lanes, 4),
        "beside": bodies.scan_adjacent_lines,
        "items": bodies.scan_items,
        "first": bodies.find_first_bool,
        "pieces": bodies.scan_chunks,
    }
    kernel = grid_kernel(
        f"{spec.name}_{variant}_{x.dtype}_{y.dtype}",
        KernelForm(2, extras=2),
        partial(bodies_by_variant[variant], spec is ops.argmax, x.dtype, y.dtype),
    )
    elements = y.size * steps
    cost = elements * size / (40 if variant in ("first", "pieces") else 16)
    cost = elements * 1.5 if variant == "items" else cost
    return grid.phase(kernel, cost, context.workers, spec.name, (steps, step))


def _split_line_phases(
    spec: OpSpec, x: BufferView, y: BufferView, steps: int, context: LoweringContext
) -> list[Phase]:
    """Return the phases for the extreme of each part of lines of `steps` elements, then of each
    line."""
    size = x.itemsize
    part = PART_BYTES // size
    whole, rest = divmod(steps, part)
    count = whole + (rest > 0)
    slot = context.temporary(4 * count * y.size)
    type = TensorType((*x.shape, count), "i32")
    indices = BufferView(slot, 0, type.shape, row_major_strides(type), type.dtype)
    parts = x._replace(shape=(*x.shape, whole), strides=(*x.strides, PART_BYTES))
    made = [_phase(spec, parts, indices._replace(shape=parts.shape), part, size, context)]
    first = indices._replace(shape=x.shape, strides=indices.strides[:-1])
    if rest:
        last = x._replace(offset=x.offset + whole * PART_BYTES)
        to = first._replace(offset=4 * whole)
        made.append(_phase(spec, last, to, rest, size, context))
    views = [x, first, y]
    grid = block_grid_of(views, loop_nest_of(views), None, None, 1, 1)
    kernel = grid_kernel(
        f"{spec.name}_parts_{x.dtype}_{y.dtype}",
        KernelForm(3, extras=2),
        partial(bodies.select_part, spec is ops.argmax, x.dtype, y.dtype),
    )
    return [*made, grid.phase(kernel, 20.0 * count * y.size, 1, spec.name, (count, part))]


RULES: dict[str, Rule] = {"argmax": argminmax_rule, "argmin": argminmax_rule}
"""Lines of 2^31 elements or more are not supported."""
