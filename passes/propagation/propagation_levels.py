"""Levels of propagation: which strategies run to a fixed point, how often, with which shardings.

basic          once, only axes without conflicts
    aggressive     once, conflicts are resolved
    op-priority    aggressive in five rounds (`priorities`)
    user-priority  op-priority for the dimensions of priority 0, then again for those of p1, ...

Each includes the one before it. A dimension of a later priority is kept closed and unsharded, and
no other dimension of its tensor may use its axes until its priority comes.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from shardir.ir.mesh import Mesh
from shardir.ir.module import Value
from shardir.ir.sharding import REPLICATED_DIM, Axes, DimSharding, Sharding
from shardir.passes.propagation.aggressive import PropagationStrategy, propagate_aggressive
from shardir.passes.propagation.basic import propagate_basic
from shardir.passes.propagation.priorities import (
    LAST_ROUND,
    ROUND_COUNT,
    FactorDirections,
    PropagationDirection,
    round_directions,
)
from shardir.passes.propagation.propagation_network import (
    PropagationNetwork,
    StepperTable,
    edge_rule,
)
from shardir.passes.propagation.step import NO_SHARDING, StepOutcome
from shardir.passes.propagation.worklist import StepObserver as WatchStep, run_worklist

PROPAGATION_LEVELS = ("basic", "aggressive", "op-priority", "user-priority")
STRATEGIES: dict[str, tuple[PropagationStrategy, ...]] = {
    "basic": (propagate_basic,),
    "aggressive": (propagate_aggressive,),
    "basic-then-aggressive": (propagate_basic, propagate_aggressive),
}
WORKLIST_ORDERS = ("lifo", "fifo")

RoundObserver = Callable[[int, int, int, tuple[int, ...], StepOutcome], None]
"""Called with a priority, a round, a node, the previous shardings of its tensors, and the changes.

Nodes below 0 are the function's results: -1 is the first.
"""


@dataclass(slots=True)
class PropagationState:
    """The sharding of every cell and of every result of the function, by number."""

    cells: list[int]
    results: list[int]


class PropagationRun:
    """The run of propagation in one function to its fixed point."""

    def __init__(
        self,
        network: PropagationNetwork,
        returned: Sequence[Value],
        steppers: StepperTable,
        *,
        level: str,
        strategy: str,
        order: str,
        watch: RoundObserver | None = None,
    ) -> None:
        self.network = network
        self.shardings = steppers.shardings
        self.level = level
        self.strategies = STRATEGIES["basic" if level == "basic" else strategy]
        self.order = order
        self.watch = watch
        self.several_meshes = len(self.shardings.meshes) > 1
        self.priority = 0
        self.returned = [network.cells[value] for value in returned]
        self.result_steppers = [
            steppers.of(edge_rule((v.type, v.type), (False, False))) for v in returned
        ]

    def run(self, state: PropagationState) -> None:
        """Propagate at the requested level."""
        if self.level != "user-priority":
            self.run_rounds(state)
            return
        originals = list(self.prioritized_shardings(state))
        for originals_of, cell, original in originals:
            originals_of[cell] = self.shardings.number(self.postpone_later_dims(original))
        self.run_rounds(state)
        priorities = {
            dim.priority for _, _, original in originals for dim in original.dims if dim.priority
        }
        for priority in sorted(priorities):
            for numbers, cell, original in originals:
                present = self.shardings[numbers[cell]]
                assert present is not None
                numbers[cell] = self.shardings.number(restore_priority(present, original, priority))
            self.priority = priority
            self.run_rounds(state)

    def prioritized_shardings(
        self, state: PropagationState
    ) -> Iterator[tuple[list[int], int, Sharding]]:
        """Yield the shardings that state a priority, and where they are."""
        for numbers in (state.cells, state.results):
            for cell, number in enumerate(numbers):
                sharding = self.shardings[number]
                if sharding and any(dim.priority is not None for dim in sharding.dims):
                    yield numbers, cell, sharding

    def postpone_later_dims(self, sharding: Sharding) -> Sharding:
        """Return the sharding at priority 0: later dimensions are unsharded, their axes
        replicated."""
        later = tuple(axis for dim in sharding.dims if dim.priority for axis in dim.axes)
        dims = tuple(
            REPLICATED_DIM if dim.priority else DimSharding(dim.axes, dim.open)
            for dim in sharding.dims
        )
        mesh = self.shardings.meshes[sharding.mesh]
        return replace(sharding, dims=dims, replicated=in_mesh_order(
            sharding.replicated + later, mesh))  # fmt: skip

    def run_rounds(self, state: PropagationState) -> None:
        """Run the five rounds, or only the last one if operations have no priorities."""
        prioritise = self.level in ("op-priority", "user-priority")
        changed = partial(self.open_siblings, state.cells)
        for round in range(ROUND_COUNT) if prioritise else (LAST_ROUND,):
            ways = self.directions(round)
            for propagate in self.strategies:
                watch = self.watch and partial(self.watch, self.priority, round)
                self.propagate_results(state, propagate, watch)
                run_worklist(
                    self.network,
                    state.cells,
                    propagate,
                    ways,
                    order=self.order,
                    watch=watch,
                    changed=changed if self.several_meshes else None,
                )
                self.propagate_results(state, propagate, watch)

    def open_siblings(self, cells: list[int], cell: int) -> None:
        """Put the other results of the operation on the same mesh if they have no sharding.

        An open sharding differs from none only if there are several meshes.
        """
        for sibling in self.network.siblings.get(cell, ()) if self.several_meshes else ():
            if cells[sibling] == NO_SHARDING:
                sharding = self.shardings[cells[cell]]
                assert sharding is not None
                rank = self.network.owners[sibling].type.rank
                cells[sibling] = self.shardings.number(Sharding.open(sharding.mesh, rank))

    def directions(self, round: int) -> list[FactorDirections]:
        cached: dict[tuple[int, object, bool], FactorDirections] = {}
        ways = []
        for node in self.network.nodes:
            key = (id(node.stepper), node.kind, node.single_use)
            way = cached.get(key)
            if way is None:
                way = cached[key] = round_directions(
                    node.stepper.rule, node.kind, single_use=node.single_use, round=round
                )
            ways.append(way)
        return ways

    def propagate_results(
        self, state: PropagationState, propagate: PropagationStrategy, watch: WatchStep | None
    ) -> None:
        """Propagate between each result of the function and the value it returns."""
        for i, (cell, stepper) in enumerate(zip(self.returned, self.result_steppers, strict=True)):
            both = PropagationDirection.BOTH
            before = (state.cells[cell], state.results[i])
            ways = (both,) * len(stepper.rule.factors)
            outcome = stepper.step(propagate, ways, before)
            for tensor, number in outcome.updates:
                if tensor == 0:
                    for alike in (cell, *(c for c, _ in self.network.groups.get(cell, ()))):
                        state.cells[alike] = number
                        self.open_siblings(state.cells, alike)
                else:
                    state.results[i] = number
            if outcome.updates and watch:
                watch(-1 - i, before, outcome)


def restore_priority(present: Sharding, original: Sharding, priority: int) -> Sharding:
    """Return `present` with the dimensions of a priority as they were stated."""
    dims = list(present.dims)
    returned: set[object] = set()
    for i, dim in enumerate(original.dims):
        if dim.priority == priority:
            dims[i] = DimSharding(dim.axes, dim.open)
            returned.update(dim.axes)
    replicated = tuple(axis for axis in present.replicated if axis not in returned)
    return replace(present, dims=tuple(dims), replicated=replicated)


def in_mesh_order(axes: Axes, mesh: Mesh) -> Axes:
    names = list(mesh.sizes)
    return tuple(sorted(axes, key=lambda axis: (names.index(axis.name), axis.pre, axis.size)))
