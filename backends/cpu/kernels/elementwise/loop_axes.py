"""The axes of a loop nest in memory order, merged where the strides of all arrays permit.

An array is anything with a stride along each axis: a view, or an `iota` index (its "address" is an
integer, which grows by one along its axis).
"""

from collections.abc import Sequence
from math import prod
from typing import NamedTuple

from shardir.backends.cpu.kernel_api import BufferView
from shardir.backends.cpu.kernels.elementwise.loop_body import LoopNest
from shardir.ir.types import NUMPY_DTYPES
from shardir.ops.control_flow.loop_unification import LoopMapping

CONTIGUOUS, BROADCAST, STRIDED = "unit", "splat", "general"
"""The layout of an array along the vector axis: contiguous, broadcast, or strided."""


class LoopArray(NamedTuple):
    """An array that a loop nest reads or writes, or an iota index, which has no view and starts at
    `begin`."""

    view: BufferView | None
    dtype: str
    begin: int = 0

    @property
    def unit_stride(self) -> int:
        """The stride of contiguous elements in bytes; 1 for an index."""
        return 1 if self.view is None else NUMPY_DTYPES[self.dtype].itemsize


class LoopAxis(NamedTuple):
    """A loop: its extent, the stride of each array, and whether reductions reduce it."""

    extent: int
    strides: tuple[int, ...]
    reduced: bool = False


def strides_along(view: BufferView, lie: LoopMapping, axes: int) -> tuple[int, ...]:
    """Return the stride of a view along each axis of a loop nest."""
    strides = [0] * axes
    dims = (dim for dim, size in enumerate(view.shape) if size != 1)
    for dim, axis in zip(dims, lie, strict=True):
        if axis >= 0:
            strides[axis] = view.strides[dim]
    return tuple(strides)


def loop_arrays_and_axes(
    walk: LoopNest, operands: Sequence[BufferView], results: Sequence[BufferView]
) -> tuple[list[LoopArray], list[LoopAxis]]:
    """Return the arrays of a loop nest (operands, results, iota indices, in this order), and its
    axes."""
    count = len(walk.nest.extents)
    views = [operands[i] for i in walk.operands] + list(results)
    mappings = (*walk.operand_lies, *walk.result_lies)
    arrays = [LoopArray(view, view.dtype) for view in views]
    arrays += [LoopArray(None, "i64") for _ in walk.counted]
    strides = [strides_along(view, lie, count) for view, lie in zip(views, mappings, strict=True)]
    strides += [tuple(int(i == axis) for i in range(count)) for axis in walk.counted]
    axes = [
        LoopAxis(extent, tuple(each[i] for each in strides), i in walk.nest.reduced_loops)
        for i, extent in enumerate(walk.nest.extents)
    ]
    return arrays, axes


def order_axes(axes: Sequence[LoopAxis], arrays: Sequence[LoopArray]) -> list[LoopAxis]:
    """Return the axes, outermost in memory first; axes that all arrays traverse contiguously are
    merged."""
    weights = [
        prod(axis.extent for axis in axes if axis.strides[i]) if a.view is not None else 0
        for i, a in enumerate(arrays)
    ]
    order = sorted(range(len(arrays)), key=lambda i: -weights[i])
    return merge_axes(sorted(axes, key=lambda axis: [-abs(axis.strides[i]) for i in order]))


def merge_axes(axes: Sequence[LoopAxis]) -> list[LoopAxis]:
    """Merge adjacent axes where every array continues from one to the next with the inner
    stride."""
    merged: list[LoopAxis] = []
    for axis in axes:
        if merged and _can_merge(merged[-1], axis):
            outer = merged.pop()
            merged.append(LoopAxis(outer.extent * axis.extent, axis.strides, axis.reduced))
        else:
            merged.append(axis)
    return merged


def _can_merge(outer: LoopAxis, inner: LoopAxis) -> bool:
    if outer.reduced != inner.reduced:
        return False
    pairs = zip(outer.strides, inner.strides, strict=True)
    return all(outer_stride == inner_stride * inner.extent for outer_stride, inner_stride in pairs)


def vector_layout(array: LoopArray, stride: int) -> str:
    """Return the layout of an array along an axis with a given stride."""
    return CONTIGUOUS if stride == array.unit_stride else BROADCAST if stride == 0 else STRIDED


def vector_axis_cost(arrays: Sequence[LoopArray], axis: LoopAxis, lanes: int) -> float:
    """Estimate the nanoseconds per element if vectors go along the axis, to choose the vector
    axis."""
    each = {CONTIGUOUS: 0.05, BROADCAST: 0.01, STRIDED: 1.0}
    kinds = (
        vector_layout(a, s) for a, s in zip(arrays, axis.strides, strict=True) if a.view is not None
    )
    waste = -(-axis.extent // lanes) * lanes / axis.extent
    return sum(each[kind] for kind in kinds) * waste + 5.0 / axis.extent
