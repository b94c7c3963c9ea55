"""Copy arrays that are strided along the vector axis so that they are contiguous along it.

Strided reads cost more than a tiled transpose beforehand, which the copies of
`kernels.data_movement` do at nearly memory bandwidth.
"""

from collections.abc import Sequence
from math import prod
from typing import NamedTuple

from shardir.backends.cpu.native.data import Context, Phase, View
from shardir.backends.cpu.native.loops.axes import (
    GENERAL,
    UNIT,
    Array,
    Axis,
    lying,
    ordered,
    price,
)
from shardir.backends.cpu.native.moves.copying import copy_phases

LEAST = 1 << 12
"""Elements from which on a copy is worth a phase."""
SHORT = 8
"""Axes shorter than this are traversed with any stride."""


class Straight(NamedTuple):
    """The arrays and axes of a loop nest after the copies, and the phases before and after it."""

    arrays: list[Array]
    axes: list[Axis]
    before: list[Phase]
    after: list[Phase]


def straightened(
    axes: Sequence[Axis], arrays: Sequence[Array], written: range, lanes: int, context: Context
) -> Straight:
    """Copy strided arrays; `written` are the numbers of results."""
    transposed = Straight(list(arrays), list(axes), [], [])
    column = min(ordered(axes, arrays), key=lambda axis: price(arrays, axis, lanes), default=None)
    if column is None or column.extent < SHORT:
        return transposed
    inner = _innermost(axes, column)
    for i, array in enumerate(arrays):
        if inner is None or array.view is None or not _is_across(axes, i, array, inner):
            continue
        copy, strides = _dense(axes, i, array.view, inner, context)
        strided_view = _seen(axes, i, array.view)
        copied_view = View(copy, 0, strided_view.shape, _along(axes, i, strides), array.dtype)
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


def _innermost(axes: Sequence[Axis], column: Axis) -> int | None:
    """Return the axis at the inner end of the vector axis, which may be several merged axes."""
    for k, axis in enumerate(axes):
        if axis.strides == column.strides and axis.reduced == column.reduced:
            return k
    return None


def _is_across(axes: Sequence[Axis], i: int, array: Array, inner: int) -> bool:
    size = prod(axis.extent for axis in axes if axis.strides[i])
    if size < LEAST or lying(array, axes[inner].strides[i]) != GENERAL:
        return False
    return any(lying(array, axis.strides[i]) == UNIT and axis.extent >= SHORT for axis in axes)


def _dense(
    axes: Sequence[Axis], i: int, view: View, inner: int, context: Context
) -> tuple[int, list[int]]:
    """Allocate a buffer for a copy; return its slot and its strides, with `inner` innermost."""
    step, strides = view.itemsize, [0] * len(axes)
    order = [k for k in range(len(axes)) if k != inner]
    for k in [inner, *reversed(order)]:
        if axes[k].strides[i]:
            strides[k] = step
            step *= axes[k].extent
    return context.temporary(step), strides


def _seen(axes: Sequence[Axis], i: int, view: View) -> View:
    """Return an array as a view along the axes."""
    extents = tuple(axis.extent for axis in axes if axis.strides[i])
    strides = tuple(axis.strides[i] for axis in axes if axis.strides[i])
    return view._replace(shape=extents, strides=strides)


def _along(axes: Sequence[Axis], i: int, strides: Sequence[int]) -> tuple[int, ...]:
    return tuple(s for s, axis in zip(strides, axes, strict=True) if axis.strides[i])
