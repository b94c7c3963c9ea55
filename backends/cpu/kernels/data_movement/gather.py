"""Windows at computed indices: dynamic slices and gathers.

A gather iterates over the result. Along index dimensions it loads the start of a window; along
window dimensions it copies. Rows of bytes are copied as such: an embedding lookup runs at memory
bandwidth.
"""

from collections.abc import Sequence
from functools import partial

from shardir.backends.cpu.kernel_api import BufferView, LoweringContext, Phase, Rule
from shardir.backends.cpu.kernels.data_movement.block_grid import (
    DynamicStart,
    KernelForm,
    block_grid_of,
    grid_kernel,
)
from shardir.backends.cpu.kernels.data_movement.copy import (
    BLOCK_BYTES,
    copy_phases,
    dynamic_copy_phases,
)
from shardir.backends.cpu.kernels.data_movement.gather_bodies import IndexMode, gather_rows
from shardir.backends.cpu.kernels.data_movement.loop_nest import StridedLoop, loop_nest_of
from shardir.backends.cpu.kernels.data_movement.view_transforms import slice_view
from shardir.ir.module import Op
from shardir.ops.indexing.layout import (
    GatherAttributes,
    IndexingLayout,
)


def dynamic_slice_rule(
    op: Op, operands: Sequence[BufferView], results: Sequence[BufferView], context: LoweringContext
) -> list[Phase]:
    """Lower a dynamic slice to a copy from the part that begins at the starts."""
    x, *starts = operands
    (y,) = results
    none, one = (0,) * len(x.shape), (1,) * len(x.shape)
    return dynamic_copy_phases(
        slice_view(x, none, one, y.shape), y, 0, _dynamic_starts(x, y.shape, starts), context
    )


def dynamic_update_slice_rule(
    op: Op, operands: Sequence[BufferView], results: Sequence[BufferView], context: LoweringContext
) -> list[Phase]:
    """Lower a dynamic update: copy the operand, unless it is the same memory, then the update."""
    x, update, *starts = operands
    (y,) = results
    none, one = (0,) * len(x.shape), (1,) * len(x.shape)
    target = slice_view(y, none, one, update.shape)
    moves = _dynamic_starts(y, update.shape, starts)
    return [
        *copy_phases(x, y, context),
        *dynamic_copy_phases(update, target, 1, moves, context),
    ]


def _dynamic_starts(
    whole: BufferView, shape: Sequence[int], starts: Sequence[BufferView]
) -> list[DynamicStart]:
    return [
        DynamicStart(start, size - extent, stride)
        for start, size, extent, stride in zip(
            starts, whole.shape, shape, whole.strides, strict=True
        )
    ]


def gather_rule(
    op: Op, operands: Sequence[BufferView], results: Sequence[BufferView], context: LoweringContext
) -> list[Phase] | None:
    """Lower a gather; windows that would reach out of bounds are clamped."""
    return _gather_phases(op, operands, results, context)


def lookup_phases(
    op: Op,
    operands: Sequence[BufferView],
    results: Sequence[BufferView],
    fill: int | None,
    context: LoweringContext,
) -> list[Phase]:
    """Return phases that look up single elements by indices; negative indices count from the end.

    Out-of-bounds indices yield the element with the bits of `fill`, or are clamped if it is None.
    """
    return _gather_phases(op, operands, results, context, True, fill)


def _gather_phases(
    op: Op,
    operands: Sequence[BufferView],
    results: Sequence[BufferView],
    context: LoweringContext,
    wraps: bool = False,
    fill: int | None = None,
) -> list[Phase]:
    (x, indices), (y,) = operands, results
    if y.size == 0:
        return []
    layout = IndexingLayout.for_shapes(x.shape, len(y.shape), GatherAttributes.of(op).dims)
    pointers, source = window_views(x, indices, y.shape, layout)
    components = [
        (layout.operand[d] - _window_extent(layout, y.shape, d), x.strides[d])
        for d in layout.index_map
    ]
    step = indices.strides[-1]
    return [gather_phase(pointers, source, y, components, step, context, wraps, fill)]


def gather_phase(
    pointers: BufferView,
    source: BufferView,
    target: BufferView,
    components: Sequence[tuple[int, int]],
    step: int,
    context: LoweringContext,
    wraps: bool = False,
    fill: int | None = None,
) -> Phase:
    """Return the phase that copies elements of `source`, offset by the indices at `pointers`.

    All views have the shape of `target`. `components` are pairs (limit, stride): a component of an
    index vector, `step` bytes after the one before it, is clamped to [0, limit] and multiplied by
    the stride. With `wraps`, negative components count from limit + 1; with a `fill`, that is
    written for out-of-bounds indices.
    """
    found = loop_nest_of([pointers, source, target])
    size = target.itemsize
    # Windows are the columns of a row, unless the result interleaves elements of different windows.
    *_, inner = (None, *found.loops)
    column = inner if inner and not inner.strides[0] else None
    rows = [loop for loop in found.loops if loop is not column]
    row = rows[-1] if rows else None
    is_bytewise = column is not None and column.strides[1:] == (size, size)
    if is_bytewise:
        assert column is not None
        joined = StridedLoop(column.extent * size, (0, 1, 1))
        found = found._replace(
            loops=tuple(joined if loop is column else loop for loop in found.loops)
        )
        column = joined
    extent = column.extent if column else 1
    across = min(extent, BLOCK_BYTES)
    down = max(1, BLOCK_BYTES // (across * (1 if is_bytewise else size)))
    grid = block_grid_of([pointers, source, target], found, row, column, down, across)
    count, kind = len(components), pointers.dtype
    variant = "rows" if is_bytewise else f"items{size}" if column else f"single{size}"
    wrapping = IndexMode(wraps, fill is not None)
    name = f"gather_{variant}_{count}_{kind}{wrapping.name}"
    body = partial(gather_rows, count, kind, variant, size, wrapping)
    lines = target.size / max(1, extent // size if is_bytewise else extent)
    cost = lines * (3.0 + 2.0 * count) + target.nbytes / (12 if is_bytewise else size)
    extra = [step, *(word for pair in components for word in pair), fill or 0]
    kernel = grid_kernel(name, KernelForm(3, extras=len(extra)), body)
    return grid.phase(kernel, cost, context.workers, "gather", extra)


def window_views(
    x: BufferView, indices: BufferView, slices: Sequence[int], layout: IndexingLayout
) -> tuple[BufferView, BufferView]:
    """Return indices and operand as views over the dimensions of the slices.

    The first view addresses the index vectors, along batch dimensions; the second the elements
    along window and batching dimensions for indices of zero.
    """
    pointers, source = [0] * len(slices), [0] * len(slices)
    for i, s in enumerate(layout.batch):
        pointers[s] = indices.strides[i]
    for s, d in layout.window.items():
        source[s] = x.strides[d]
    for d, i in layout.batching.items():
        source[layout.batch[i]] = x.strides[d]
    shape = tuple(slices)
    return (
        BufferView(indices.slot, indices.offset, shape, tuple(pointers), indices.dtype),
        BufferView(x.slot, x.offset, shape, tuple(source), x.dtype),
    )


def _window_extent(layout: IndexingLayout, slices: Sequence[int], dim: int) -> int:
    """Return the number of elements along a dimension of the operand that a window covers."""
    return next((slices[s] for s, d in layout.window.items() if d == dim), 1)


RULES: dict[str, Rule] = {
    "dynamic_slice": dynamic_slice_rule,
    "dynamic_update_slice": dynamic_update_slice_rule,
    "gather": gather_rule,
}
"""Each rule supports any strides."""
