"""Assignments: the mesh axes that each decision gives to dimensions."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from shardir.errors import count_noun
from shardir.ir.mesh import Mesh
from shardir.ir.module import Value
from shardir.passes.planning.programs.repeated_layers import SharedDecisions

DimAxes = tuple[tuple[str, ...], ...]
"""The names of the axes of each dimension of a tensor, major to minor."""
ArgumentAxes = tuple[DimAxes | None, ...]
"""The axes of each argument of a program, and of each anchor after them; `None` where no sharding
is stated."""


def find_problem(
    axes: DimAxes, shape: Sequence[int], mesh: Mesh, *, pads: bool = False
) -> str | None:
    """Return why a plan cannot have the axes of a tensor, as the end of a sentence about them, or
    `None` if it can. With `pads`, shards may be uneven."""
    used = [axis for dim in axes for axis in dim]
    for axis in used:
        if used.count(axis) > 1:
            return f"uses the mesh axis {axis!r} twice; each axis shards one dimension"
    for number, (dim, size) in enumerate(zip(axes, shape, strict=True)):
        parts = prod(mesh.sizes[axis] for axis in dim)
        if size % parts and not pads:
            return (
                f"shards dimension {number}, of size {size}, into {count_noun(parts, 'part')}; a "
                "plan shards "
                'only dimensions that the mesh axes divide, except for jit(..., uneven="pad")'
            )
    return None


@dataclass(frozen=True, slots=True)
class Assignment:
    """Axes of groups of dimensions, and of single parameters.

    `groups` are pairs of a class of groups and an axis. A tensor with two dimensions that an axis
    could shard uses it for the pair that comes first. `exceptions` are pairs of parameters that are
    alike and an axis that no group gives to them. `storage` are triples of a class of parameters, a
    dimension and an axis, which the parameter uses if no group uses the axis.
    """

    groups: tuple[tuple[int, str], ...] = ()
    storage: tuple[tuple[int, int, str], ...] = ()
    exceptions: tuple[tuple[int, str], ...] = ()


class AssignmentReader:
    """Translates assignments to the axes of arguments.

    `fixed` has the axes of arguments that are not decided, and `None` for all others. Only the
    first `count` parameters are arguments; the others are arrays that the function captures. An
    anchor has a sharding if an axis shards a dimension of it that belongs to no argument's group.
    Then the anchors whose dimensions no argument determines have one, too: otherwise propagation
    from the others would shard them. With `pads`, axes need not divide a dimension of an argument,
    and with `pads_anchors` none of an anchor.
    """

    def __init__(
        self,
        params: Sequence[Value],
        decisions: SharedDecisions,
        mesh: Mesh,
        fixed: Sequence[DimAxes | None],
        count: int,
        anchors: Sequence[Value] = (),
        *,
        pads: bool = False,
        pads_anchors: bool = False,
    ) -> None:
        self.params, self.decisions, self.mesh, self.fixed = params, decisions, mesh, fixed
        self.pads, self.pads_anchors = pads, pads_anchors
        self.count, self.anchors = count, anchors
        self.values = (*params, *anchors)
        self._own_dims = {
            each
            for dims in decisions.groups
            if not self._has_shardable_argument(dims)
            for each in dims
        }
        self._free = {
            number
            for number, dim in self._own_dims - decisions.clashes
            if self.values[number].type.shape[dim] > 1
        }

    def axes_of(self, assignment: Assignment) -> ArgumentAxes:
        """Return the axes of each argument and anchor; an axis shards a dimension only if it
        can (`can_shard`)."""
        dims = [[list[str]() for _ in value.type.shape] for value in self.values]
        used = [set[str]() for _ in self.values]

        def shard(number: int, dim: int, axis: str) -> None:
            if axis in used[number] or not self.can_shard(number, dim, (*dims[number][dim], axis)):
                return
            dims[number][dim].append(axis)
            used[number].add(axis)

        excepted = {
            (number, axis)
            for kind, axis in assignment.exceptions
            for number in self.decisions.alike[kind]
        }
        for group, axis in assignment.groups:
            for number, dim in self.decisions.groups[group]:
                if (number, axis) not in excepted:
                    shard(number, dim, axis)
        for kind, dim, axis in assignment.storage:
            for number in self.decisions.params[kind]:
                shard(number, dim, axis)
        arguments = (
            None
            if number >= self.count
            else tuple(map(tuple, dims[number]))
            if fixed is None
            else fixed
            for number, fixed in enumerate(self.fixed)
        )
        numbers = range(len(self.params), len(self.values))
        stated = {number for number in numbers if self._is_stated(number, dims[number])}
        if stated:
            stated |= self._free
        anchors = (
            tuple(map(tuple, dims[number])) if number in stated else None for number in numbers
        )
        return (*arguments, *anchors)

    def _is_stated(self, number: int, dims: Sequence[Sequence[str]]) -> bool:
        """Return whether an axis shards a dimension of an anchor that no argument determines."""
        return any(axes and (number, dim) in self._own_dims for dim, axes in enumerate(dims))

    def can_shard(self, number: int, dim: int, axes: Sequence[str]) -> bool:
        """Return whether the axes may shard a dimension of an argument or anchor: they divide it,
        or its shards may be uneven."""
        size = self.values[number].type.shape[dim]
        shards = 1
        for axis in axes:
            shards *= self.mesh.sizes[axis]
        pads = self.pads if number < len(self.params) else self.pads_anchors
        return size >= shards and (pads or size % shards == 0)

    def _has_shardable_argument(self, dims: Sequence[tuple[int, int]]) -> bool:
        return any(number < len(self.params) and self._is_shardable(number, dim)
                   for number, dim in dims)  # fmt: skip

    def _is_shardable(self, number: int, dim: int) -> bool:
        """Return whether an axis may shard a dimension of an argument or anchor."""
        return any(
            size > 1 and self.can_shard(number, dim, (axis,)) for axis, size in self.mesh.axes
        )
