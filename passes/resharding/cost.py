"""Cost of changing the sharding of a tensor: the bytes that a device receives, or the time on a
machine, and the number of collectives.

The planner chooses the collectives of a reshard by bytes; a machine decides between the plans that
the candidates of an operation need.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, final

from shardir._imports.lazy_import import lazy_import
from shardir.cost.mesh_axes import crossed_axes, name_axes
from shardir.ir.mesh import Mesh
from shardir.ir.module import Value
from shardir.ir.sharding import Axes, Sharding
from shardir.ir.types import TensorType
from shardir.passes.resharding.planner import plan_reshard

if TYPE_CHECKING:
    from shardir import machine as machines
else:
    machines = lazy_import("shardir.machine")

COLLECTIVE_LATENCY_BYTES = 1 << 18
"""Bytes that one collective counts as, unless the program would send more bytes for it."""
BYTE_WEIGHT = 1 << 20
"""Weight of one byte. It exceeds the local steps of a whole program, which weigh 1 each."""
PICOSECONDS = 1e12
"""Picoseconds per second."""

ReshardCost = Callable[[Sharding, Sharding, TensorType], tuple[int, int]]
"""Returns the cost of a reshard in one unit, and the number of collectives."""


@lru_cache(maxsize=1 << 14)
def reshard_cost(source: Sharding, target: Sharding, type: TensorType) -> tuple[int, int]:
    """Return the bytes received and the number of collectives of the plan from `source` to
    `target`."""
    steps = plan_reshard(source, target, type)
    return sum(step.nbytes for step in steps), sum(step.nbytes > 0 for step in steps)


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


def scalar_cost(price: tuple[int, int], latency: int) -> int:
    """Return a cost as one integer, in which a collective weighs slightly more than `latency`
    bytes."""
    nbytes, collectives = price
    return (nbytes + latency * collectives) * BYTE_WEIGHT + (collectives << 8)


def sharding_or_unsharded(value: Value, mesh: str) -> Sharding:
    """Return the sharding of a value; unsharded on `mesh` if the value states none."""
    return value.sharding or Sharding.fully_replicated(mesh, value.type.rank)


@lru_cache(maxsize=1 << 14)
def with_unreduced(sharding: Sharding, axes: Axes, reduction: str = "add") -> Sharding:
    """Return `sharding` unreduced over `axes` by `reduction`, with the same dimension shardings."""
    return replace(sharding, unreduced=axes, reduction=reduction if axes else "add")
