"""Scatter: combines updates into computed indices, in a fixed order.

The updates of an element are combined in batch order for any number of tasks: tasks partition the
target, not the updates. For rows, each task has some columns of all rows; for single elements in a
large target, each task has a range of indices and skips the others.
"""

from collections.abc import Sequence
from functools import partial

from shardir.backends.cpu.codegen.llvm_text import LLVMFunction, LLVMValue
from shardir.backends.cpu.kernel_api import (
    TASKS_PER_WORKER,
    BufferView,
    LoweringContext,
    Phase,
    Rule,
    choose_task_count,
    row_major_strides,
)
from shardir.backends.cpu.kernels.data_movement import element_values
from shardir.backends.cpu.kernels.data_movement.block_grid import (
    GridBlock,
    KernelForm,
    block_grid_of,
    grid_kernel,
    load_index,
)
from shardir.backends.cpu.kernels.data_movement.copy import copy_phases
from shardir.backends.cpu.kernels.data_movement.copy_bodies import item_type
from shardir.backends.cpu.kernels.data_movement.element_cast import cast_phases, fits_before
from shardir.backends.cpu.kernels.data_movement.gather import window_views
from shardir.backends.cpu.kernels.data_movement.loop_nest import (
    LoopNest,
    StridedLoop,
    merge_strided_loops,
)
from shardir.ir.dtypes import NARROW_FLOATS
from shardir.ir.module import Op
from shardir.ir.types import COMPLEX, REAL_OF, TensorType
from shardir.ops.indexing.layout import (
    IndexingLayout,
    ScatterAttributes,
)

_MAX_INDEX = 1 << 62
MIN_SCATTER_TASK_NS = 200_000.0
"""Minimum duration of a task in nanoseconds; all tasks read all indices."""


def scatter_rule(
    op: Op, operands: Sequence[BufferView], results: Sequence[BufferView], context: LoweringContext
) -> list[Phase] | None:
    """Lower a scatter: copy the operand, unless it is the same memory, then combine the updates."""
    (x, indices, updates), (y,) = operands, results
    combine = str(op.attrs["op"])
    if x.dtype in COMPLEX and combine not in ("add", "set"):
        return None
    if updates.size == 0:
        return copy_phases(x, y, context)
    layout = IndexingLayout.for_shapes(x.shape, len(updates.shape), ScatterAttributes.of(op).dims)
    if x.dtype in NARROW_FLOATS and combine in ("add", "mul"):
        type = TensorType(x.shape, "f32")
        wide = BufferView(
            context.temporary(type.nbytes), 0, x.shape, row_major_strides(type), "f32"
        )
        return [
            *cast_phases(x, wide, context),
            _updates(combine, wide, indices, updates, layout, context),
            *cast_phases(wide, y, context),
        ]
    return [
        *copy_phases(x, y, context),
        _updates(combine, y, indices, updates, layout, context),
    ]


def _updates(
    op: str,
    target: BufferView,
    indices: BufferView,
    updates: BufferView,
    layout: IndexingLayout,
    context: LoweringContext,
) -> Phase:
    pointers, places = window_views(target, indices, updates.shape, layout)
    components = layout.index_map
    mapped = {d: k for k, d in enumerate(components)}
    free: list[StridedLoop] = []
    led: list[StridedLoop] = []
    for s, extent in enumerate(updates.shape):
        strides = [pointers.strides[s], updates.strides[s], places.strides[s]]
        component = mapped.get(layout.window.get(s, -1))
        along = [int(component == k) for k in range(len(components))]
        if component is not None:
            strides[2] = 0
        loop = StridedLoop(extent, (*strides, *along))
        (free if s in layout.window and component is None else led).append(loop)
    dtype = updates.dtype
    if op != "set" and dtype in COMPLEX:
        part, zeros = target.itemsize // 2, (0,) * len(components)
        free.append(StridedLoop(2, (0, part, part, *zeros)))
        dtype = REAL_OF[dtype]
        target = target._replace(dtype=dtype)
    *around, column = (
        None,
        *merge_strided_loops(sorted(free, key=lambda loop: -abs(loop.strides[2]))),
    )
    batch = merge_strided_loops(led)
    row = batch[-1] if batch else None
    nest = LoopNest(
        tuple(loop for loop in (*around, *batch, column) if loop),
        (indices.offset, updates.offset, target.offset, *(0 for _ in components)),
    )
    return _phase(op, dtype, target, indices, updates, layout, nest, row, column, context)


def _phase(
    op: str,
    dtype: str,
    target: BufferView,
    indices: BufferView,
    updates: BufferView,
    layout: IndexingLayout,
    nest: LoopNest,
    row: StridedLoop | None,
    column: StridedLoop | None,
    context: LoweringContext,
) -> Phase:
    count, extent = len(layout.index_map), column.extent if column else 1
    contiguous = column is not None and column.strides[1:3] == (
        TensorType((), dtype).numpy.itemsize,
        target.itemsize,
    )
    cost = updates.size / extent * (4.0 + 2.0 * count)
    # An update with all strides zero is one fill value, used for the few out-of-bounds elements.
    if any(updates.strides):
        cost += updates.nbytes / (8 if contiguous else 2)
    # Every block of columns reads all indices, so long scatters have no more tasks than others.
    enough = choose_task_count(cost, context.workers, MIN_SCATTER_TASK_NS)
    enough = min(enough, TASKS_PER_WORKER * context.workers)
    block_columns = max(-(-extent // enough), 256 // target.itemsize if contiguous else 16)
    across = -(-extent // block_columns)
    # Reading all indices several times pays off if the target exceeds the caches.
    exceeds_cache = across == 1 and count and target.nbytes >= context.machine.shared_cache_bytes
    times = context.workers if exceeds_cache and enough > 1 else 1
    grid = block_grid_of(
        [indices, updates, target],
        nest,
        row,
        column,
        row.extent if row else 1,
        min(block_columns, extent),
    )
    extra = [indices.strides[-1], times]
    widest = max(range(count), key=lambda k: layout.operand[layout.index_map[k]], default=0)
    for k, d in enumerate(layout.index_map):
        extra += [layout.operand[d], target.strides[d], int(k == widest)]
    variant = "rows" if contiguous else "items" if column else "single"
    name = f"scatter_{op}_{variant}_{dtype}_{target.dtype}_{count}_{indices.dtype}"
    if op == "set":
        name = f"scatter_set_{variant}{updates.itemsize}_{count}_{indices.dtype}"
    body = partial(_scatter, op, dtype, target.dtype, count, indices.dtype, variant)
    kernel = grid_kernel(name, KernelForm(3, count, len(extra), by_columns=True), body)
    return grid.phase_by_columns(kernel, cost, "scatter", extra, times)


def _scatter(
    op: str,
    dtype: str,
    target_dtype: str,
    count: int,
    index_dtype: str,
    variant: str,
    f: LLVMFunction,
    block: GridBlock,
) -> None:
    step, times = block.extra(0), block.extra(1)
    part = block.task % times
    strides, lows, widths = [], [], []
    for k in range(count):
        extent, stride, shared = (block.extra(2 + 3 * k + word) for word in range(3))
        low = f.select(shared.is_("ne", 0), extent * part // times, 0)
        high = f.select(shared.is_("ne", 0), extent * (part + 1) // times, extent)
        strides.append(stride)
        lows.append(low)
        widths.append(high - low)
    with f.loop(0, block.rows) as i:
        pointer, source, target = (
            f.offset(address, i * stride)
            for address, stride in zip(block.addresses[:3], block.row_strides[:3], strict=True)
        )
        inside = f.value(1, "i1")
        for k in range(count):
            index = load_index(f, f.offset(pointer, step * k), index_dtype)
            if index_dtype == "u64":
                index = f.umin(index, _MAX_INDEX)
            at = index + block.addresses[3 + k] + i * block.row_strides[3 + k]
            inside = inside & (at - lows[k]).is_("ult", widths[k])
            target = f.offset(target, at * strides[k])
        if variant == "single":
            # A branch would often be mispredicted; skipped updates are written to scratch memory
            # instead.
            _combine_one(
                op, dtype, target_dtype, f, source, f.select(inside, target, block.scratch), 1
            )
        else:
            with f.when(inside):
                _combine_row(op, dtype, target_dtype, variant == "rows", f, block, source, target)


def _combine_one(
    op: str,
    dtype: str,
    target_dtype: str,
    f: LLVMFunction,
    source: LLVMValue,
    target: LLVMValue,
    lanes: int,
) -> None:
    if op == "set":
        size = TensorType((), dtype).numpy.itemsize
        type = item_type(size) if lanes == 1 else f"<{lanes * size} x i8>"
        f.store(f.load(source, type, 1), target, 1)
        return
    kind = element_values.kind_of(dtype)
    into = element_values.ElementKind(target_dtype, kind.type)
    new = element_values.load(f, source, kind, lanes)
    old = element_values.load(f, target, into, lanes)
    element_values.store(f, element_values.combine(f, op, old, new, dtype), target, into)


def _combine_row(
    op: str,
    dtype: str,
    target_dtype: str,
    contiguous: bool,
    f: LLVMFunction,
    block: GridBlock,
    source: LLVMValue,
    target: LLVMValue,
) -> None:
    size = TensorType((), dtype).numpy.itemsize
    target_size = size if op == "set" else TensorType((), target_dtype).numpy.itemsize

    position = f.variable("i64", 0)
    for lanes in (f.machine.lanes(target_size), 1) if contiguous else (1,):
        with f.while_(partial(fits_before, position, block.columns, lanes)):
            at = position.get()
            _combine_one(
                op,
                dtype,
                target_dtype,
                f,
                f.offset(source, at * block.column_strides[1]),
                f.offset(target, at * block.column_strides[2]),
                lanes,
            )
            position.set(at + lanes)


RULES: dict[str, Rule] = {"scatter": scatter_rule}
"""Products and extremes of complex numbers are not supported."""
