"""Lowering rules of operations that rearrange data: copies of views and of parts of views."""

from collections.abc import Sequence

from shardir.backends.cpu.kernel_api import (
    BufferView,
    LoweringContext,
    Phase,
    Rule,
    row_major_strides,
)
from shardir.backends.cpu.kernels.data_movement.copy import copy_phases
from shardir.backends.cpu.kernels.data_movement.interleave import interleave_phases
from shardir.backends.cpu.kernels.data_movement.view_transforms import (
    broadcast_view,
    reverse_view,
    slice_dim,
    slice_view,
)
from shardir.backends.cpu.schedule.buffer_views import reshape_strides, view_results
from shardir.ir.module import Op
from shardir.ir.types import TensorType


def view_rule(
    op: Op, operands: Sequence[BufferView], results: Sequence[BufferView], context: LoweringContext
) -> list[Phase]:
    """Lower an operation whose result is a view of its operand but needs memory of its own."""
    seen = view_results(op, operands)
    if seen is not None:
        return [p for s, t in zip(seen, results, strict=True) for p in copy_phases(s, t, context)]
    return reshape_phases(operands[0], results[0], context)


def reshape_phases(source: BufferView, target: BufferView, context: LoweringContext) -> list[Phase]:
    """Return phases that copy `source` in row-major order to the shape of `target`."""
    strides = reshape_strides(source.shape, source.strides, target.shape)
    if strides is not None:
        return copy_phases(source._replace(shape=target.shape, strides=strides), target, context)
    strides = reshape_strides(target.shape, target.strides, source.shape)
    if strides is not None:
        return copy_phases(source, target._replace(shape=source.shape, strides=strides), context)
    before, after = (TensorType(view.shape, source.dtype) for view in (source, target))
    slot = context.temporary(before.nbytes)
    dense = BufferView(slot, 0, before.shape, row_major_strides(before), before.dtype)
    again = dense._replace(shape=after.shape, strides=row_major_strides(after))
    return [*copy_phases(source, dense, context), *copy_phases(again, target, context)]


def concatenate_rule(
    op: Op, operands: Sequence[BufferView], results: Sequence[BufferView], context: LoweringContext
) -> list[Phase]:
    """Lower a concatenation: copy every operand to its part, or interleave all operands."""
    interleave = interleave_phases(operands, results[0], op.attrs["dim"], context)
    if interleave is not None:
        return interleave
    dim, start = op.attrs["dim"], 0
    phases: list[Phase] = []
    for view in operands:
        size = view.shape[dim]
        phases += copy_phases(view, slice_dim(results[0], dim, start, size), context)
        start += size
    return phases


def roll_rule(
    op: Op, operands: Sequence[BufferView], results: Sequence[BufferView], context: LoweringContext
) -> list[Phase]:
    """Lower a roll to two copies: the elements that stay in order and the ones that wrap around."""
    (x,), (y,), dim, shift = operands, results, op.attrs["dim"], op.attrs["shift"]
    size = x.shape[dim]
    return [
        *copy_phases(
            slice_dim(x, dim, 0, size - shift), slice_dim(y, dim, shift, size - shift), context
        ),
        *copy_phases(slice_dim(x, dim, size - shift, shift), slice_dim(y, dim, 0, shift), context),
    ]


def pad_rule(
    op: Op, operands: Sequence[BufferView], results: Sequence[BufferView], context: LoweringContext
) -> list[Phase]:
    """Lower padding: the padding value around the operand, or everywhere if it is interior."""
    (x, value), (y,) = operands, results
    starts, steps, firsts, counts = [], [], [], []
    for size, low, gap, extent in zip(
        x.shape, op.attrs["low"], op.attrs["interior"], y.shape, strict=True
    ):
        step = gap + 1
        first = max(-(low // step), 0)
        last = min(size, -((low - extent) // step))
        starts.append(low + first * step)
        steps.append(step)
        firsts.append(first)
        counts.append(max(last - first, 0))
    inside = slice_view(x, firsts, [1] * len(x.shape), counts)
    target = slice_view(y, starts, steps, counts)
    phases: list[Phase] = []
    if inside.size == 0 or any(step > 1 for step in steps):
        borders = [y]
    else:
        borders = _boxes_around(y, starts, counts)
    for border in borders:
        phases += copy_phases(broadcast_view(value, (), border.shape), border, context)
    return [*phases, *copy_phases(inside, target, context)]


def _boxes_around(
    view: BufferView, starts: Sequence[int], counts: Sequence[int]
) -> list[BufferView]:
    """Return the boxes that remain of a view without the box at `starts`."""
    borders = []
    for d, (start, count) in enumerate(zip(starts, counts, strict=True)):
        end = start + count
        borders += [slice_dim(view, d, 0, start), slice_dim(view, d, end, view.shape[d] - end)]
        view = slice_dim(view, d, start, count)
    return [border for border in borders if border.size]


def bitcast_rule(
    op: Op, operands: Sequence[BufferView], results: Sequence[BufferView], context: LoweringContext
) -> list[Phase]:
    """Lower a bitcast: copy items of the narrower type, of which a row is the wider type."""
    (x,), (y,) = operands, results
    key = "key" in (x.dtype, y.dtype) and x.dtype != y.dtype
    if x.itemsize > y.itemsize:
        x = _as_narrower_rows(x, y, key)
    elif y.itemsize > x.itemsize:
        y = _as_narrower_rows(y, x, key)
    return copy_phases(x, y._replace(dtype=x.dtype), context)


def _as_narrower_rows(wide: BufferView, narrow: BufferView, reverse: bool) -> BufferView:
    """Return elements as rows of narrower ones, lowest first, or highest first with `reverse`."""
    size = narrow.itemsize
    parts = BufferView(
        wide.slot,
        wide.offset,
        (*wide.shape, wide.itemsize // size),
        (*wide.strides, size),
        narrow.dtype,
    )
    return reverse_view(parts, [len(wide.shape)]) if reverse else parts


RULES: dict[str, Rule] = {
    "broadcast": view_rule,
    "transpose": view_rule,
    "reshape": view_rule,
    "slice": view_rule,
    "reverse": view_rule,
    "concatenate": concatenate_rule,
    "roll": roll_rule,
    "pad": pad_rule,
    "bitcast": bitcast_rule,
}
"""Each rule supports any strides."""
