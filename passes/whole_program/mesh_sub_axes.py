"""The finest sub-axes of a mesh that a program uses.

Each of them becomes one dimension of values that differ along it. Overlapping sub-axes of the
program, such as all of `x` and its major half, consist of the same finest ones.
"""

from collections.abc import Iterable, Iterator
from functools import cached_property
from itertools import pairwise
from math import prod

from shardir.cost.mesh_axes import crossed_axes
from shardir.errors import MergeError
from shardir.ir.mesh import Mesh
from shardir.ir.module import Function
from shardir.ir.process_levels import ProcessLevels
from shardir.ir.sharding import Axes, Axis
from shardir.ops.control_flow.pipelines import pipeline_call


class SubAxes:
    """The finest sub-axes of a mesh, in its order: major first, and the parts of an axis from the
    major one on.

    Those between the processes of `levels` are no dimensions: a process has one position along
    them. Raises `MergeError` when the parts of an axis have no common refinement, such as thirds
    and halves.
    """

    def __init__(
        self, mesh: Mesh, named: Iterable[Axis], levels: ProcessLevels | None = None
    ) -> None:
        self.mesh = mesh
        self.levels = ProcessLevels(mesh, {}) if levels is None else levels
        bounds: dict[str, set[int]] = {name: {1, size} for name, size in mesh.axes}
        for axis in self.levels.split(tuple(named)):
            bounds[axis.name].update((axis.pre, axis.next))
        self.all: Axes = ()
        for name, ends in bounds.items():
            for low, high in pairwise(sorted(ends)):
                if high % low:
                    raise MergeError(
                        f"the program uses parts of axis {name!r} without a common refinement"
                    )
                self.all += (Axis(name, low, high // low),)
        self.all = self.levels.near_parts(self.all)
        self.place = {sub_axis: i for i, sub_axis in enumerate(self.all)}
        self._of: dict[Axes, Axes] = {}
        self._union: dict[tuple[Axes, ...], Axes] = {}

    def of(self, axes: Axes) -> Axes:
        """Return the finest sub-axes of some axes, in the order of the axes; none has size 1."""
        result = self._of.get(axes)
        if result is None:
            result = tuple(
                sub_axis for axis in axes for sub_axis in self.all if axis.contains(sub_axis)
            )
            self._of[axes] = result
        return result

    def union(self, *several: Axes) -> Axes:
        """Return the union, in mesh order."""
        result = self._union.get(several)
        if result is None:
            result = self.in_mesh_order({sub_axis for sub_axes in several for sub_axis in sub_axes})
            self._union[several] = result
        return result

    def in_mesh_order(self, sub_axes: Iterable[Axis]) -> Axes:
        """Return sub-axes in mesh order."""
        return tuple(sorted(sub_axes, key=self.place.__getitem__))

    @cached_property
    def count(self) -> int:
        """The number of devices."""
        return prod(sub_axis.size for sub_axis in self.all)


def axis_sizes(sub_axes: Axes) -> tuple[int, ...]:
    """Return the size of each sub-axis."""
    return tuple(sub_axis.size for sub_axis in sub_axes)


def named_axes(function: Function) -> Iterator[Axis]:
    """Yield every axis that a per-device function names."""
    assert function.spmd is not None
    for outer in (*function.spmd.params, *function.spmd.results):
        yield from (*outer.sharding.used_axes(), *outer.sharding.unreduced)
    for op in function.body.walk():
        yield from crossed_axes(op.attrs)
        if op.spec is pipeline_call:
            for dims in (*op.attrs["in_axes"], *op.attrs["out_axes"]):
                for axes in dims:
                    yield from axes
