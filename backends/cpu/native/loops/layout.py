"""The axes of a reduction: the vector axis, the parallel axes, and the reduced axes."""

from collections.abc import Sequence
from math import prod
from typing import NamedTuple

from shardir.backends.cpu.native.loops.axes import Array, Axis, lying, ordered, price


class Layout(NamedTuple):
    """The axes of a reduction by role; `column` is the vector axis."""

    arrays: tuple[Array, ...]
    counted: int
    column: Axis
    kept: tuple[Axis, ...]
    reduced: tuple[Axis, ...]
    lanes: int

    @property
    def size(self) -> int:
        return prod(axis.extent for axis in (self.column, *self.kept, *self.reduced))

    @property
    def kinds(self) -> tuple[tuple[str, str], ...]:
        pairs = zip(self.arrays, self.column.strides, strict=True)
        return tuple((a.dtype, lying(a, stride)) for a, stride in pairs)

    @property
    def whole(self) -> bool:
        return self.column.extent % self.lanes == 0


def layout_of(axes: Sequence[Axis], arrays: Sequence[Array], counted: int, lanes: int) -> Layout:
    """Choose the vector axis of a loop nest and classify the others."""
    axes = ordered(axes, arrays)
    column = min(axes, key=lambda axis: price(arrays, axis, lanes))
    others = [axis for axis in axes if axis is not column]
    return Layout(
        tuple(arrays),
        counted,
        column,
        tuple(axis for axis in others if not axis.reduced),
        tuple(axis for axis in others if axis.reduced),
        lanes,
    )
