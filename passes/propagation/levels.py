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

from shardir.ir import Value
from shardir.mesh import Mesh
from shardir.passes.propagation.aggressive import Propagate, propagate_aggressive
from shardir.passes.propagation.basic import propagate_basic
from shardir.passes.propagation.directions import Direction, Directions
from shardir.passes.propagation.network import Network, Steppers, edge_rule
from shardir.passes.propagation.priorities import LAST, ROUNDS, directions
from shardir.passes.propagation.step import NOTHING, Outcome
from shardir.passes.propagation.worklist import Watch as WatchStep, settle
from shardir.placement import WHOLE, Axes, Dim, Sharding

LEVELS = ("basic", "aggressive", "op-priority", "user-priority")
STRATEGIES: dict[str, tuple[Propagate, ...]] = {
    "basic": (propagate_basic,),
    "aggressive": (propagate_aggressive,),
    "basic-then-aggressive": (propagate_basic, propagate_aggressive),
}
ORDERS = ("lifo", "fifo")

Watch = Callable[[int, int, int, tuple[int, ...], Outcome], None]
"""Called with a priority, a round, a node, the previous shardings of its tensors, and the changes.

Nodes below 0 are the function's results: -1 is the first.
"""


@dataclass(slots=True)
class State:
    """The sharding of every cell and of every result of the function, by number."""

    cells: list[int]
    results: list[int]


class Run:
    """The run of propagation in one function to its fixed point."""

    def __init__(
        self,
        network: Network,
        returned: Sequence[Value],
        steppers: Steppers,
        *,
        level: str,
        strategy: str,
        order: str,
        watch: Watch | None = None,
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
        self.meets = [steppers.of(edge_rule((v.type, v.type), (False, False))) for v in returned]

    def run(self, state: State) -> None:
        """Propagate at the requested level."""
        if self.level != "user-priority":
            self.run_rounds(state)
            return
        originals = list(self.prioritised(state))
        for originals_of, cell, original in originals:
            originals_of[cell] = self.shardings.number(self.postponed(original))
        self.run_rounds(state)
        priorities = {
            dim.priority for _, _, original in originals for dim in original.dims if dim.priority
        }
        for priority in sorted(priorities):
            for numbers, cell, original in originals:
                present = self.shardings[numbers[cell]]
                assert present is not None
                numbers[cell] = self.shardings.number(restored(present, original, priority))
            self.priority = priority
            self.run_rounds(state)

    def prioritised(self, state: State) -> Iterator[tuple[list[int], int, Sharding]]:
        """Yield the shardings that state a priority, and where they are."""
        for numbers in (state.cells, state.results):
            for cell, number in enumerate(numbers):
                sharding = self.shardings[number]
                if sharding and any(dim.priority is not None for dim in sharding.dims):
                    yield numbers, cell, sharding

    def postponed(self, sharding: Sharding) -> Sharding:
        """Return the sharding at priority 0: later dimensions are unsharded, their axes
        replicated."""
        later = tuple(axis for dim in sharding.dims if dim.priority for axis in dim.axes)
        dims = tuple(WHOLE if dim.priority else Dim(dim.axes, dim.open) for dim in sharding.dims)
        mesh = self.shardings.meshes[sharding.mesh]
        return replace(sharding, dims=dims, replicated=in_mesh_order(
            sharding.replicated + later, mesh))  # fmt: skip

    def run_rounds(self, state: State) -> None:
        """Run the five rounds, or only the last one if operations have no priorities."""
        prioritise = self.level in ("op-priority", "user-priority")
        changed = partial(self.open_siblings, state.cells)
        for round in range(ROUNDS) if prioritise else (LAST,):
            ways = self.directions(round)
            for propagate in self.strategies:
                watch = self.watch and partial(self.watch, self.priority, round)
                self.meet(state, propagate, watch)
                settle(
                    self.network,
                    state.cells,
                    propagate,
                    ways,
                    order=self.order,
                    watch=watch,
                    changed=changed if self.several_meshes else None,
                )
                self.meet(state, propagate, watch)

    def open_siblings(self, cells: list[int], cell: int) -> None:
        """Put the other results of the operation on the same mesh if they have no sharding.

        An open sharding differs from none only if there are several meshes.
        """
        for sibling in self.network.siblings.get(cell, ()) if self.several_meshes else ():
            if cells[sibling] == NOTHING:
                known = self.shardings[cells[cell]]
                assert known is not None
                rank = self.network.owners[sibling].type.rank
                cells[sibling] = self.shardings.number(Sharding.open(known.mesh, rank))

    def directions(self, round: int) -> list[Directions]:
        found: dict[tuple[int, object, bool], Directions] = {}
        ways = []
        for node in self.network.nodes:
            key = (id(node.stepper), node.kind, node.single_use)
            way = found.get(key)
            if way is None:
                way = found[key] = directions(
                    node.stepper.rule, node.kind, single_use=node.single_use, round=round
                )
            ways.append(way)
        return ways

    def meet(self, state: State, propagate: Propagate, watch: WatchStep | None) -> None:
        """Propagate between each result of the function and the value it returns."""
        for i, (cell, stepper) in enumerate(zip(self.returned, self.meets, strict=True)):
            both = Direction.BOTH
            before = (state.cells[cell], state.results[i])
            ways = (both,) * len(stepper.rule.factors)
            outcome = stepper.ask(propagate, ways, before)
            for tensor, number in outcome.updates:
                if tensor == 0:
                    for alike in (cell, *(c for c, _ in self.network.groups.get(cell, ()))):
                        state.cells[alike] = number
                        self.open_siblings(state.cells, alike)
                else:
                    state.results[i] = number
            if outcome.updates and watch:
                watch(-1 - i, before, outcome)


def restored(present: Sharding, original: Sharding, priority: int) -> Sharding:
    """Return `present` with the dimensions of a priority as they were stated."""
    dims = list(present.dims)
    returned: set[object] = set()
    for i, dim in enumerate(original.dims):
        if (dim.priority or 0) == priority:
            dims[i] = Dim(dim.axes, dim.open)
            returned.update(dim.axes)
    replicated = tuple(axis for axis in present.replicated if axis not in returned)
    return replace(present, dims=tuple(dims), replicated=replicated)


def in_mesh_order(axes: Axes, mesh: Mesh) -> Axes:
    names = list(mesh.sizes)
    return tuple(sorted(axes, key=lambda axis: (names.index(axis.name), axis.pre, axis.size)))
