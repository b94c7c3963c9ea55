"""The axes of a nest as they lie in memory: joined where every array allows, and in order.

An array is anything with a stride along each axis: a view, or an index that an `iota` counts (its
"address" is a number, which grows by one along its axis).
"""

from collections.abc import Sequence
from math import prod
from typing import NamedTuple

from shardir.backends.cpu.native.data import View
from shardir.backends.cpu.native.loops.body import Walk
from shardir.ops.fused import Lie
from shardir.types import NUMPY_DTYPES

UNIT, SPLAT, GENERAL = "unit", "splat", "general"
"""How an array lies along the axis of vectors: side by side, all the same, or anyhow."""


class Array(NamedTuple):
    """What is read or written in a nest, or a counted index, which lies in no memory (it has no
    view) and begins at `begin`."""

    view: View | None
    dtype: str
    begin: int = 0

    @property
    def step(self) -> int:
        """Bytes from one element to its neighbour; 1 for an index."""
        return 1 if self.view is None else NUMPY_DTYPES[self.dtype].itemsize


class Axis(NamedTuple):
    """A loop: its extent, the stride of each array, and whether reductions end it."""

    extent: int
    strides: tuple[int, ...]
    reduced: bool = False


def strides_along(view: View, lie: Lie, axes: int) -> tuple[int, ...]:
    """The stride of a view along each axis of a nest."""
    strides = [0] * axes
    dims = (dim for dim, size in enumerate(view.shape) if size != 1)
    for dim, axis in zip(dims, lie, strict=True):
        if axis >= 0:
            strides[axis] = view.strides[dim]
    return tuple(strides)


def arrays_of(
    walk: Walk, operands: Sequence[View], results: Sequence[View]
) -> tuple[list[Array], list[Axis]]:
    """What a walk reads, what it writes, and what it counts, in this order; and its axes."""
    count = len(walk.nest.extents)
    views = [operands[i] for i in walk.operands] + list(results)
    lies = (*walk.operand_lies, *walk.result_lies)
    arrays = [Array(view, view.dtype) for view in views]
    arrays += [Array(None, "i64") for _ in walk.counted]
    strides = [strides_along(view, lie, count) for view, lie in zip(views, lies, strict=True)]
    strides += [tuple(int(i == axis) for i in range(count)) for axis in walk.counted]
    axes = [
        Axis(extent, tuple(each[i] for each in strides), i in walk.nest.reduced)
        for i, extent in enumerate(walk.nest.extents)
    ]
    return arrays, axes


def ordered(axes: Sequence[Axis], arrays: Sequence[Array]) -> list[Axis]:
    """The axes, outermost in memory first; neighbours that no array tells apart are one."""
    weights = [
        prod(axis.extent for axis in axes if axis.strides[i]) if a.view is not None else 0
        for i, a in enumerate(arrays)
    ]
    order = sorted(range(len(arrays)), key=lambda i: -weights[i])
    return joined(sorted(axes, key=lambda axis: [-abs(axis.strides[i]) for i in order]))


def joined(axes: Sequence[Axis]) -> list[Axis]:
    """Neighbours made one where every array goes on from one to the next as along the inner."""
    made: list[Axis] = []
    for axis in axes:
        if made and _follows(made[-1], axis):
            outer = made.pop()
            made.append(Axis(outer.extent * axis.extent, axis.strides, axis.reduced))
        else:
            made.append(axis)
    return made


def _follows(outer: Axis, inner: Axis) -> bool:
    if outer.reduced != inner.reduced:
        return False
    pairs = zip(outer.strides, inner.strides, strict=True)
    return all(far == near * inner.extent for far, near in pairs)


def lying(array: Array, stride: int) -> str:
    """How an array lies along an axis where it has this stride."""
    return UNIT if stride == array.step else SPLAT if stride == 0 else GENERAL


def price(arrays: Sequence[Array], axis: Axis, lanes: int) -> float:
    """What an element costs if vectors go along the axis, in nanoseconds, for choosing one."""
    each = {UNIT: 0.05, SPLAT: 0.01, GENERAL: 1.0}
    kinds = (lying(a, s) for a, s in zip(arrays, axis.strides, strict=True) if a.view is not None)
    waste = -(-axis.extent // lanes) * lanes / axis.extent
    return sum(each[kind] for kind in kinds) * waste + 5.0 / axis.extent
