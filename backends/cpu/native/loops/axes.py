"""The axes of a nest as they lie in memory: joined where every array allows, and in order.

An array is anything with a stride along each axis: a view, or an index that an `iota` counts (its
"address" is a number, which grows by one along its axis).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from shardir.backends.cpu.native.data import View
from shardir.backends.cpu.native.loops.body import Walk
from shardir.ops.fused import Lie, Nest
from shardir.types import NUMPY_DTYPES

UNIT, SPLAT, GENERAL = "unit", "splat", "general"
"""How an array lies along the axis of vectors: side by side, all the same, or anyhow."""


@dataclass(frozen=True, slots=True)
class Array:
    """What is read or written in a nest: `step` bytes from one element to its neighbour (1 for a
    counted index, which lies in no memory: it has no view)."""

    view: View | None
    dtype: str
    strides: tuple[int, ...]
    """One for each axis of the nest."""

    @property
    def step(self) -> int:
        return 1 if self.view is None else NUMPY_DTYPES[self.dtype].itemsize


@dataclass(frozen=True, slots=True)
class Axis:
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


def arrays_of(walk: Walk, operands: Sequence[View], results: Sequence[View]) -> list[Array]:
    """What a walk reads, what it writes, and what it counts, in this order."""
    count = len(walk.nest.extents)
    views = [operands[i] for i in walk.operands] + list(results)
    lies = (*walk.operand_lies, *walk.result_lies)
    arrays = [
        Array(view, view.dtype, strides_along(view, lie, count))
        for view, lie in zip(views, lies, strict=True)
    ]
    for axis in walk.counted:
        arrays.append(Array(None, "i64", tuple(int(i == axis) for i in range(count))))
    return arrays


def axes_of(nest: Nest, arrays: Sequence[Array]) -> list[Axis]:
    """The axes, outermost in memory first; neighbours that no array tells apart are one."""
    axes = [
        Axis(extent, tuple(a.strides[i] for a in arrays), i in nest.reduced)
        for i, extent in enumerate(nest.extents)
    ]
    weights = [
        prod(n for n, stride in zip(nest.extents, a.strides, strict=True) if stride)
        if a.view is not None
        else 0
        for a in arrays
    ]
    order = sorted(range(len(arrays)), key=lambda i: -weights[i])
    axes.sort(key=lambda axis: [-abs(axis.strides[i]) for i in order])
    return joined(axes)


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
