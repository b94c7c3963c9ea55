"""`axis_index_groups`: collectives between some of the positions along an axis.

Regular groups, such as `[[0, 1], [2, 3]]` or `[[0, 2], [1, 3]]`, are the positions along a
sub-axis, so that the collective runs along that sub-axis. For other groups, every position gathers
the values of all positions and selects those of its group.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from operator import index

import numpy as np

from shardir.frontend.errors import ArgumentError
from shardir.frontend.source_locations import with_location
from shardir.frontend.tracing.named_axes import NamedAxis
from shardir.frontend.tracing.operands import as_tracer, reshape, splat
from shardir.frontend.tracing.trace import emit
from shardir.frontend.tracing.tracer import Tracer
from shardir.ir.dtypes import NumpyArray
from shardir.ir.operation import Dense
from shardir.ir.sharding import Axis
from shardir.ir.types import TensorType

PositionGroups = tuple[tuple[int, ...], ...]


def check_groups(
    axis: NamedAxis, groups: Sequence[Sequence[int]], what: str, *, even: bool = True
) -> PositionGroups:
    """Return the groups as tuples; raise `ArgumentError` unless they partition the positions.

    With `even`, all groups must have the same size.
    """
    try:
        result = tuple(tuple(map(index, group)) for group in groups)
    except (TypeError, ValueError):
        raise ArgumentError(
            with_location(
                f"axis_index_groups of {what} is {groups!r}; it is a list of lists of positions"
            )
        ) from None
    if sorted(position for group in result for position in group) != list(range(axis.size)):
        raise ArgumentError(
            with_location(
                f"axis_index_groups of {what} is {groups!r}; it must contain every position "
                f"along {axis.name}, 0 to {axis.size - 1}, exactly once"
            )
        )
    if even and len(set(map(len, result))) > 1:
        raise ArgumentError(
            with_location(
                f"axis_index_groups of {what} has groups of different sizes, {groups!r}; make "
                "them of one size"
            )
        )
    return result


def find_sub_axis(axis: NamedAxis, groups: PositionGroups) -> NamedAxis | None:
    """Return the sub-axis whose positions the groups are, in order; `None` if there is none."""
    size = len(groups[0])
    if not axis.manual or any(len(group) != size for group in groups):
        return None
    if size == 1 or not axis.axes:
        return NamedAxis(axis.name, 1, (), axis.manual, axis.checked)
    if len(axis.axes) > 1:
        return None
    (axis_of_mesh,) = axis.axes
    stride = groups[0][1] - groups[0][0]
    if stride < 1 or axis.size % (size * stride):
        return None
    regular = {
        tuple(outer * size * stride + inner + i * stride for i in range(size))
        for outer in range(axis.size // (size * stride))
        for inner in range(stride)
    }
    if set(groups) != regular:
        return None
    part = Axis(axis_of_mesh.name, axis.size // (size * stride), size)
    return NamedAxis(axis.name, size, (part,), axis.manual, axis.checked)


@dataclass(frozen=True)
class IrregularGroups:
    """Groups along an axis that do not correspond to a sub-axis."""

    axis: NamedAxis
    groups: PositionGroups

    def gather_all(self, x: Tracer) -> Tracer:
        """Gather `x` of every position, stacked in a leading dimension."""
        stacked = reshape(x, (1, *x.shape))
        gathered: Tracer = emit("all-gather", stacked, dim=0, axes=self.axis.axes, weak=x.weak_type)
        return gathered

    def gather_group(self, x: Tracer) -> Tracer:
        """Gather `x` of the positions of the own group, in its order, stacked in a leading
        dimension.
        """
        table: list[list[int]] = [[]] * self.axis.size
        for group in self.groups:
            for position in group:
                table[position] = list(group)
        gathered = self.gather_all(x)
        row = self._row_for_position(np.array(table, np.int32))
        result: Tracer = as_tracer(gathered)[row]
        return result

    def gather_masked(self, x: Tracer, nothing: complex) -> Tracer:
        """Gather `x` of every position, with `nothing` for those outside of the own group."""
        mask = np.zeros((self.axis.size, self.axis.size), bool)
        for group in self.groups:
            mask[np.ix_(group, group)] = True
        gathered = self.gather_all(x)
        in_group = self._row_for_position(mask)
        mask_of_elements: Tracer = emit(
            "broadcast", in_group, dims=(0,), result=gathered.value.type.with_dtype("bool")
        )
        fill = splat(nothing, gathered.value.type)
        result: Tracer = emit("select", mask_of_elements, gathered, fill, weak=x.weak_type)
        return result

    def group_rank(self) -> Tracer:
        """Return the index of the own position in its group."""
        ranks = np.zeros(self.axis.size, np.int32)
        for group in self.groups:
            ranks[list(group)] = np.arange(len(group))
        return self._row_for_position(ranks)

    def _row_for_position(self, table: NumpyArray) -> Tracer:
        """Return the row of a table for the own position."""
        dtype = "bool" if table.dtype == bool else "i32"
        constant: Tracer = emit(
            "constant", value=Dense(table), result=TensorType(table.shape, dtype)
        )
        position: Tracer = emit("axis-index", axes=self.axis.axes)
        starts = [position, *(splat(0, position.value.type) for _ in table.shape[1:])]
        row_type = TensorType((1, *table.shape[1:]), dtype)
        row: Tracer = emit("dynamic_slice", constant, *starts, result=row_type)
        return reshape(row, table.shape[1:])
