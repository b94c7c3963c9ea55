"""Copy arrays that are strided along the vector axis so that they are contiguous along it.

Strided reads cost more than a tiled transpose beforehand, which the copies of
`kernels.data_movement` do at nearly memory bandwidth.
"""

from collections.abc import Sequence
from math import prod
from typing import NamedTuple

from shardir.backends.cpu.kernel_api import BufferView, LoweringContext, Phase
from shardir.backends.cpu.kernels.data_movement.copy import copy_phases
from shardir.backends.cpu.kernels.elementwise.loop_axes import (
    CONTIGUOUS,
    STRIDED,
    LoopArray,
    LoopAxis,
    order_axes,
    vector_axis_cost,
    vector_layout,
)

MIN_COPIED_ELEMENTS = 1 << 12
"""Elements from which on a copy is worth a phase."""
MIN_VECTOR_AXIS_EXTENT = 8
"""Axes shorter than this are traversed with any stride."""


class TransposedArrays(NamedTuple):
    """The arrays and axes of a loop nest after the copies, and the phases before and after it."""

    arrays: list[LoopArray]
    axes: list[LoopAxis]
    before: list[Phase]
    after: list[Phase]


def transpose_arrays(
    axes: Sequence[LoopAxis],
    arrays: Sequence[LoopArray],
    written: range,
    lanes: int,
    context: LoweringContext,
) -> TransposedArrays:
    """Copy strided arrays; `written` are the indices of results."""
    transposed = TransposedArrays(list(arrays), list(axes), [], [])
    column = min(
        order_axes(axes, arrays),
        key=lambda axis: vector_axis_cost(arrays, axis, lanes),
        default=None,
    )
    if column is None or column.extent < MIN_VECTOR_AXIS_EXTENT:
        return transposed
    inner = _innermost_axis(axes, column)
    for i, array in enumerate(arrays):
        if inner is None or array.view is None or not _is_strided(axes, i, array, inner):
            continue
        copy, strides = _dense_strides(axes, i, array.view, inner, context)
        strided_view = _view_along_axes(axes, i, array.view)
        copied_view = BufferView(
            copy, 0, strided_view.shape, _strides_along_axes(axes, i, strides), array.dtype
        )
        if i in written:
            transposed.after.extend(copy_phases(copied_view, strided_view, context))
        else:
            transposed.before.extend(copy_phases(strided_view, copied_view, context))
        transposed.arrays[i] = array._replace(view=copied_view)
        for k, axis in enumerate(transposed.axes):
            changed = list(axis.strides)
            changed[i] = strides[k]
            transposed.axes[k] = axis._replace(strides=tuple(changed))
    return transposed


def _innermost_axis(axes: Sequence[LoopAxis], column: LoopAxis) -> int | None:
    """Return the axis at the inner end of the vector axis, which may be several merged axes."""
    for k, axis in enumerate(axes):
        if axis.strides == column.strides and axis.reduced == column.reduced:
            return k
    return None


def _is_strided(axes: Sequence[LoopAxis], i: int, array: LoopArray, inner: int) -> bool:
    size = prod(axis.extent for axis in axes if axis.strides[i])
    if size < MIN_COPIED_ELEMENTS or vector_layout(array, axes[inner].strides[i]) != STRIDED:
        return False
    return any(
        vector_layout(array, axis.strides[i]) == CONTIGUOUS
        and axis.extent >= MIN_VECTOR_AXIS_EXTENT
        for axis in axes
    )


def _dense_strides(
    axes: Sequence[LoopAxis], i: int, view: BufferView, inner: int, context: LoweringContext
) -> tuple[int, list[int]]:
    """Allocate a buffer for a copy; return its slot and its strides, with `inner` innermost."""
    step, strides = view.itemsize, [0] * len(axes)
    order = [k for k in range(len(axes)) if k != inner]
    for k in [inner, *reversed(order)]:
        if axes[k].strides[i]:
            strides[k] = step
            step *= axes[k].extent
    return context.temporary(step), strides


def _view_along_axes(axes: Sequence[LoopAxis], i: int, view: BufferView) -> BufferView:
    """Return an array as a view along the axes."""
    extents = tuple(axis.extent for axis in axes if axis.strides[i])
    strides = tuple(axis.strides[i] for axis in axes if axis.strides[i])
    return view._replace(shape=extents, strides=strides)


def _strides_along_axes(
    axes: Sequence[LoopAxis], i: int, strides: Sequence[int]
) -> tuple[int, ...]:
    return tuple(s for s, axis in zip(strides, axes, strict=True) if axis.strides[i])
