"""Cost of changing the sharding of a tensor on a machine: the time of the collectives of the plan.

The planner chooses the collectives by bytes; the machine decides between the plans that the
candidates of an operation need.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, final

from shardir._imports.lazy_import import lazy_import
from shardir.cost.mesh_axes import crossed_axes, name_axes
from shardir.ir.mesh import Mesh
from shardir.ir.sharding import Axes, Sharding
from shardir.ir.types import TensorType
from shardir.passes.resharding.planner import plan_reshard

if TYPE_CHECKING:
    from shardir import machine as machines
else:
    machines = lazy_import("shardir.machine")

PICOSECONDS = 1e12
"""Picoseconds per second."""

ReshardCost = Callable[[Sharding, Sharding, TensorType], tuple[int, int]]
"""Returns the cost of a reshard in one unit, and the number of collectives."""


@final
class MachineCost:
    """The picoseconds and the number of collectives of a reshard on a machine."""

    def __init__(self, machine: str, mesh: Mesh) -> None:
        self.mesh = mesh
        self.machine = machines.load_machine(machine, axes=dict(mesh.axes))
        self._known: dict[tuple[Sharding, Sharding, TensorType], tuple[int, int]] = {}

    def __call__(self, source: Sharding, target: Sharding, type: TensorType) -> tuple[int, int]:
        key = source, target, type
        if key not in self._known:
            self._known[key] = self._cost(source, target, type)
        return self._known[key]

    def collective_cost(self, kind: str, nbytes: int, axes: Axes) -> int:
        """Return the picoseconds of a collective, of which `nbytes` are the larger of the operand
        and the result on one device."""
        names = name_axes((self.mesh,), axes)
        return round(self.machine.collective_seconds(kind, nbytes, names) * PICOSECONDS)

    def _cost(self, source: Sharding, target: Sharding, type: TensorType) -> tuple[int, int]:
        picoseconds = collectives = 0
        before = source
        for step in plan_reshard(source, target, type):
            if step.nbytes:
                nbytes = max(
                    type.with_shape(each.local_shape(type.shape)).nbytes
                    for each in (before, step.sharding)
                )
                picoseconds += self.collective_cost(
                    step.kind.value, nbytes, crossed_axes(dict(step.attrs))
                )
                collectives += 1
            before = step.sharding
        return picoseconds, collectives
