"""`axis_index_groups`: collectives among some of the positions along an axis.

Groups that cut the axis regularly, such as `[[0, 1], [2, 3]]` or `[[0, 2], [1, 3]]`, are positions
along a part of it, and so collectives along that part. For any others, everybody gathers what all
have and takes what concerns its group.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from shardir.frontend.errors import ArgumentError
from shardir.frontend.lax.slicing import dynamic_index_in_dim
from shardir.frontend.locations import point
from shardir.frontend.named_axes import Named
from shardir.frontend.operands import as_tracer, reshape, splat
from shardir.frontend.trace import emit
from shardir.frontend.tracer import Tracer
from shardir.opset import Dense
from shardir.placement import Axis
from shardir.types import TensorType

Groups = tuple[tuple[int, ...], ...]


def read_groups(axis: Named, groups: Any, what: str, *, even: bool = True) -> Groups:
    """The groups, checked: they have every position along the axis once.

    `even`: all of them must be of one size.
    """
    try:
        read = tuple(tuple(int(place) for place in group) for group in groups)
    except (TypeError, ValueError):
        raise ArgumentError(
            point(f"axis_index_groups of {what} is {groups!r}; it is a list of lists of positions")
        ) from None
    if sorted(place for group in read for place in group) != list(range(axis.size)):
        raise ArgumentError(
            point(
                f"axis_index_groups of {what} is {groups!r}; it has every position along "
                f"{axis.name}, 0 to {axis.size - 1}, once"
            )
        )
    if even and len(set(map(len, read))) > 1:
        raise ArgumentError(
            point(
                f"axis_index_groups of {what} has groups of different sizes, {groups!r}; make "
                "them of one size"
            )
        )
    return read


def part_of(axis: Named, groups: Groups) -> Named | None:
    """The part of the axis whose positions the groups are, each in order; `None` if none is."""
    size = len(groups[0])
    if not axis.manual or any(len(group) != size for group in groups):
        return None
    if size == 1 or not axis.axes:
        return Named(axis.name, 1, (), axis.manual, axis.checked)
    if len(axis.axes) > 1:
        return None
    (whole,) = axis.axes
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
    part = Axis(whole.name, axis.size // (size * stride), size)
    return Named(axis.name, size, (part,), axis.manual, axis.checked)


@dataclass(frozen=True)
class Members:
    """The groups along an axis, for who asks there."""

    axis: Named
    groups: Groups

    def all(self, x: Tracer) -> Tracer:
        """`x` of every position, stacked in front."""
        stacked = reshape(x, (1, *x.shape))
        gathered: Tracer = emit("all-gather", stacked, dim=0, axes=self.axis.axes, weak=x.weak_type)
        return gathered

    def mine(self, x: Tracer) -> Tracer:
        """`x` of the positions of my group, in its order, stacked in front."""
        table: list[list[int]] = [[]] * self.axis.size
        for group in self.groups:
            for place in group:
                table[place] = list(group)
        everything = self.all(x)
        row = self._own(np.array(table, np.int32))
        made: Tracer = as_tracer(everything)[row]
        return made

    def masked(self, x: Tracer, nothing: complex) -> Tracer:
        """`x` of every position, and `nothing` for those that are not in my group."""
        mask = np.zeros((self.axis.size, self.axis.size), bool)
        for group in self.groups:
            mask[np.ix_(group, group)] = True
        everything = self.all(x)
        mine = self._own(mask)
        wide: Tracer = emit(
            "broadcast", mine, dims=(0,), result=everything.value.type.with_dtype("bool")
        )
        none = splat(nothing, everything.value.type)
        chosen: Tracer = emit("select", wide, everything, none, weak=x.weak_type)
        return chosen

    def rank(self) -> Tracer:
        """My place in my group."""
        ranks = np.zeros(self.axis.size, np.int32)
        for group in self.groups:
            ranks[list(group)] = np.arange(len(group))
        return self._own(ranks)

    def _own(self, table: np.ndarray[Any, Any]) -> Tracer:
        """The row of a table that is for the position that asks."""
        dtype = "bool" if table.dtype == bool else "i32"
        known: Tracer = emit("constant", value=Dense(table), result=TensorType(table.shape, dtype))
        place: Tracer = emit("axis-index", axes=self.axis.axes)
        row: Tracer = dynamic_index_in_dim(known, place, 0, keepdims=False)
        return row
