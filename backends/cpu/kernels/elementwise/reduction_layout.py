"""The axes of a reduction: the vector axis, the parallel axes, and the reduced axes."""

from collections.abc import Sequence
from math import prod
from typing import NamedTuple

from shardir.backends.cpu.kernels.elementwise.loop_axes import (
    LoopArray,
    LoopAxis,
    order_axes,
    vector_axis_cost,
    vector_layout,
)


class ReductionLayout(NamedTuple):
    """The axes of a reduction by role; `column` is the vector axis."""

    arrays: tuple[LoopArray, ...]
    counted: int
    column: LoopAxis
    parallel: tuple[LoopAxis, ...]
    reduced: tuple[LoopAxis, ...]
    lanes: int

    @property
    def size(self) -> int:
        return prod(axis.extent for axis in (self.column, *self.parallel, *self.reduced))

    @property
    def kinds(self) -> tuple[tuple[str, str], ...]:
        pairs = zip(self.arrays, self.column.strides, strict=True)
        return tuple((a.dtype, vector_layout(a, stride)) for a, stride in pairs)

    @property
    def has_full_vectors(self) -> bool:
        return self.column.extent % self.lanes == 0


def choose_layout(
    axes: Sequence[LoopAxis], arrays: Sequence[LoopArray], counted: int, lanes: int
) -> ReductionLayout:
    """Choose the vector axis of a loop nest and classify the others."""
    axes = order_axes(axes, arrays)
    column = min(axes, key=lambda axis: vector_axis_cost(arrays, axis, lanes))
    others = [axis for axis in axes if axis is not column]
    return ReductionLayout(
        tuple(arrays),
        counted,
        column,
        tuple(axis for axis in others if not axis.reduced),
        tuple(axis for axis in others if axis.reduced),
        lanes,
    )
