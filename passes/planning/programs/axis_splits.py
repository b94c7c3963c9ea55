"""Splits of a mesh axis into a major and a minor part, which shard different dimensions.

A plan with whole axes shards one dimension of each value along an axis. With the axis `x=16` as
`x_0=4, x_1=4`, batches may be sharded along one part and layers along the other one, and an axis
whose size does not divide a dimension may shard it along a part that does. The search considers
splits after that with whole axes, and only those that a model of the contractions
(`contraction_model.py`) predicts to be better.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product

from shardir.ir.mesh import Mesh
from shardir.passes.planning.programs.assignment import (
    ArgumentAxes,
    Assignment,
    DimAxes,
)
from shardir.passes.planning.programs.contraction_model import ContractionModel, Prediction


@dataclass(frozen=True, slots=True)
class AxisSplit:
    """An axis of a mesh that the mesh `mesh` has as two axes, the major and the minor part."""

    axis: str
    parts: tuple[str, str]
    mesh: Mesh

    def split_axes(self, axes: DimAxes) -> DimAxes:
        """Return the axes of each dimension on the mesh with the parts."""
        return tuple(
            tuple(part for axis in dim for part in (self.parts if axis == self.axis else (axis,)))
            for dim in axes
        )

    def split_arguments(self, arguments: ArgumentAxes) -> ArgumentAxes:
        """Return the axes of arguments on the mesh with the parts."""
        return tuple(None if axes is None else self.split_axes(axes) for axes in arguments)

    def split_assignment(self, assignment: Assignment, parts: Sequence[str]) -> Assignment:
        """Return the assignment with some parts in place of the axis."""

        def rename(axis: str) -> Sequence[str]:
            return parts if axis == self.axis else (axis,)

        return Assignment(
            tuple((group, new) for group, axis in assignment.groups for new in rename(axis)),
            tuple(
                (kind, dim, new) for kind, dim, axis in assignment.storage for new in rename(axis)
            ),
            tuple((kind, new) for kind, axis in assignment.exceptions for new in rename(axis)),
        )


def list_splits(mesh: Mesh) -> Iterator[AxisSplit]:
    """Yield each split of an axis of a mesh into two parts."""
    for position, (axis, size) in enumerate(mesh.axes):
        names = f"{axis}_0", f"{axis}_1"
        if not mesh.sizes.keys().isdisjoint(names):
            continue
        for major in range(2, size // 2 + 1):
            if size % major == 0:
                parts = (names[0], major), (names[1], size // major)
                axes = (*mesh.axes[:position], *parts, *mesh.axes[position + 1 :])
                yield AxisSplit(axis, names, replace(mesh, axes=axes))


def predict_splits(
    plan: Assignment, model: ContractionModel, mesh: Mesh
) -> list[tuple[AxisSplit, Assignment]]:
    """Return the assignments with split axes that are predicted to be better than a plan, the best
    one first.

    A set of groups that divides all contractions is assigned to each part of an axis. The other
    axes keep their groups.
    """
    found: list[tuple[Prediction, int, AxisSplit, Assignment]] = []
    groups = {
        axis: frozenset(g for g, other in plan.groups if other == axis) for axis in mesh.sizes
    }
    now = model.predict([(groups[axis], size) for axis, size in mesh.axes])
    for split in list_splits(mesh):
        others = [(groups[axis], size) for axis, size in mesh.axes if axis != split.axis]
        parts = [(part, split.mesh.sizes[part]) for part in split.parts]
        kept = replace(plan, groups=tuple(pair for pair in plan.groups if pair[1] != split.axis))
        base = split.split_assignment(kept, split.parts)
        for chosen in product(*(model.list_covers(size) for _, size in parts)):
            sharing = zip(chosen, (size for _, size in parts), strict=True)
            predicted = model.predict([*others, *sharing])
            if predicted.is_better_than(now):
                pairs = (
                    (group, part)
                    for cover, (part, _) in zip(chosen, parts, strict=True)
                    for group in sorted(cover)
                )
                assignment = replace(base, groups=(*pairs, *base.groups))
                found.append((predicted, len(found), split, assignment))
    found.sort(key=lambda each: (each[0].flops, each[0].bytes_sent, each[1]))
    return [(split, assignment) for _, _, split, assignment in found]
