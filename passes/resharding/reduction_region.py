"""The part of a program through which unreduced values can propagate, and its minimum cut.

For one set of axes, every value that a pending reduction can reach through linear operations is
either unreduced or complete. Values that operations leave unreduced remain so; a use that needs a
complete value pays for the reduction, once per value. An operation makes an unreduced result if its
linear operands are unreduced; a complete value may join as the contribution of the first device,
which sends nothing. The choice of unreduced values is therefore a minimum cut, whose cost never
exceeds that of the given program. Ties are decided for the earliest reduction.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from shardir import ops
from shardir.ir.mesh import Mesh
from shardir.ir.module import Op, Value
from shardir.ir.sharding import Axes, Sharding
from shardir.ir.sub_axes import is_overlapping
from shardir.op_rules.linearity import commuting_groups
from shardir.passes.def_use import DefUse, EdgeUse
from shardir.passes.resharding.cost import (
    COLLECTIVE_LATENCY_BYTES,
    reshard_cost,
    scalar_cost,
    sharding_or_unsharded,
    with_unreduced,
)
from shardir.passes.resharding.mincut import UNCUTTABLE_CAPACITY, FlowNetwork
from shardir.passes.rewriting import merge_in_mesh_order

CutArc = tuple[int, int, int]
"""Start node, end node, and the cost if the first is unreduced and the second is not."""


@dataclass(eq=False, slots=True)
class ReductionPath:
    """States how a flow can become unreduced: through `through` if all values in `group` are
    unreduced."""

    through: Op | EdgeUse | None
    group: tuple[Value, ...]
    operand_indices: tuple[int, ...] = (0,)
    """Operand indices of the group in an operation."""


class ReductionRegion:
    """The flows that a reduction over `axes` can reach, and how each becomes unreduced.

    The comments describe sums; they apply to any `reduction`.
    """

    def __init__(
        self,
        uses: DefUse,
        mesh: Mesh,
        axes: Axes,
        sources: Sequence[Value],
        reduction: str = "add",
    ) -> None:
        self.uses, self.mesh, self.axes, self.reduction_kind = uses, mesh, axes, reduction
        self.paths: dict[Value, ReductionPath] = {
            source: ReductionPath(None, ()) for source in sources
        }
        self.sources = frozenset(sources)
        self.nodes: dict[Value, int] = {}
        self.latency = 0
        waiting = list(sources)
        while waiting:
            flow = waiting.pop()
            for value in uses.members(flow):
                for use in uses.users[value]:
                    path = self.path_through(use, value)
                    if path and path[0] not in self.paths:
                        self.paths[path[0]] = path[1]
                        waiting.append(path[0])

    def path_through(
        self, use: Op | EdgeUse | None, value: Value
    ) -> tuple[Value, ReductionPath] | None:
        """Return the flow that a use of an unreduced value can make unreduced, and how."""
        if isinstance(use, EdgeUse):
            edge = use.edge
            if all(map(self.can_be_unreduced, (*edge.sources, *edge.targets))):
                return edge.targets[0], ReductionPath(use, tuple(dict.fromkeys(edge.sources)))
            return None
        if use is None:
            return None
        if use.spec is ops.reshard:
            return (
                (use.result, ReductionPath(use, use.operands))
                if self.can_be_unreduced(use.result)
                else None
            )
        for group in commuting_groups(use, self.reduction_kind):
            members = tuple(dict.fromkeys(use.operands[i] for i in group))
            if value in members and all(map(self.can_be_unreduced, (*members, use.result))):
                return use.result, ReductionPath(use, members, group)
        return None

    def can_be_unreduced(self, value: Value) -> bool:
        """Return whether a value may be unreduced over the axes."""
        sharding = self.place(value)
        if self.is_sharded_by_axes(value) or (
            sharding.unreduced and sharding.reduction != self.reduction_kind
        ):
            return False
        return not is_overlapping(self.axes, sharding.unreduced)

    def is_sharded_by_axes(self, value: Value) -> bool:
        """Return whether one of the axes shards a value."""
        return is_overlapping(self.axes, tuple(self.place(value).used_axes()))

    def place(self, value: Value) -> Sharding:
        return sharding_or_unsharded(value, self.mesh.name)

    def complete_sharding(self, value: Value) -> Sharding:
        """Return the sharding of a value without the pending reduction."""
        sharding = self.place(value)
        left = tuple(a for a in sharding.unreduced if a not in self.axes)
        return with_unreduced(sharding, left, self.reduction_kind)

    def unreduced_sharding(self, value: Value) -> Sharding:
        """Return the sharding of a value with the pending reduction."""
        sharding = self.place(value)
        if value in self.sources:
            return sharding
        axes = merge_in_mesh_order((*sharding.unreduced, *self.axes), self.mesh)
        return with_unreduced(sharding, axes, self.reduction_kind)

    def completion_cost(self, value: Value) -> int:
        """Return the cost of completing a value in place."""
        return self.cost(self.unreduced_sharding(value), self.complete_sharding(value), value)

    def cost(self, source: Sharding, target: Sharding, value: Value) -> int:
        """Return the weight of a reshard, multiplied by how often it runs."""
        cost = scalar_cost(reshard_cost(source, target, value.type), self.latency)
        return cost * self.uses.times[value]

    # Minimum cut

    def choose_unreduced_flows(self, latency: int = COLLECTIVE_LATENCY_BYTES) -> set[Value] | None:
        """Return the flows to leave unreduced, or `None` if that improves nothing.

        A collective weighs as much as `latency` bytes; if the program would then send more bytes
        than before, bytes alone decide.
        """
        network, _, old_weight = self.network(latency)
        weight, side = network.minimum_cut()
        if latency and weight < old_weight:
            _, exact, before = self.network(0)
            if _cut_cost(exact, side) > before:
                return self.choose_unreduced_flows(0)
        if weight >= old_weight:
            return self.choose_unreduced_flows(0) if latency else None
        return {flow for flow, node in self.nodes.items() if node in side}

    def network(self, latency: int) -> tuple[FlowNetwork, list[CutArc], int]:
        """Return the flow network, its arcs, and the cost of the program as it is, where only
        sources are unreduced."""
        self.latency = latency
        network = FlowNetwork()
        self.nodes = {flow: network.add_node() for flow in self.paths}
        arcs = list(self.arcs(network, self.nodes))
        for arc in arcs:
            network.add_arc(*arc)
        now = {0, *(self.nodes[source] for source in self.sources)}
        return network, arcs, _cut_cost(arcs, now)

    def arcs(self, network: FlowNetwork, node: dict[Value, int]) -> Iterator[CutArc]:
        for source in self.paths:
            if source in self.sources:
                yield 0, node[source], UNCUTTABLE_CAPACITY
        for flow, way in self.paths.items():
            alone = len(way.group) == 1 and isinstance(way.through, Op)
            for value in way.group:
                start = node.get(self.uses.flow(value))
                joining = UNCUTTABLE_CAPACITY if alone else self.uses.times[value]
                yield node[flow], 1 if start is None else start, joining
        for flow in self.paths:
            for value in self.uses.members(flow):
                yield from self.users(value, network, node)

    def users(self, value: Value, network: FlowNetwork, node: dict[Value, int]) -> Iterator[CutArc]:
        """Yield the arcs for the uses of a value that may need it complete."""
        start = node[self.uses.flow(value)]
        ends: dict[int, None] = {}
        for use in self.uses.users[value]:
            if isinstance(use, Op) and use.spec is ops.reshard:
                yield from self.move(value, use, start, node)
            elif value in self.sources:
                continue  # The use requires the value as it is.
            else:
                ends[self.accepting_node(value, use, node)] = None
        if not ends:
            return
        cost = self.completion_cost(value)
        if 1 in ends:
            yield start, 1, cost
        elif len(ends) == 1:
            yield start, next(iter(ends)), cost
        else:
            paid = network.add_node()
            yield start, paid, cost
            for end in ends:
                yield paid, end, UNCUTTABLE_CAPACITY

    def accepting_node(self, value: Value, use: Op | EdgeUse | None, node: dict[Value, int]) -> int:
        """Return the node that must be unreduced for a use to accept an unreduced value; 1 if none
        can."""
        if use is None or (isinstance(use, Op) and len(use.results) != 1):
            return 1
        flow = use.edge.targets[0] if isinstance(use, EdgeUse) else use.result
        way = self.paths.get(flow)
        if way is None or value not in way.group:
            return 1
        if isinstance(use, Op) and any(
            v is value for i, v in enumerate(use.operands) if i not in way.operand_indices
        ):
            return 1
        return node[flow]

    def move(self, value: Value, op: Op, start: int, node: dict[Value, int]) -> Iterator[CutArc]:
        """Yield the arcs of a reshard, which may complete the reduction of its operand."""
        target = self.place(op.result)
        completed_cost = self.cost(self.complete_sharding(value), target, op.result)
        completing = self.cost(self.unreduced_sharding(value), target, op.result)
        yield from _conditional_arc(start, completing - completed_cost)
        end = node.get(op.result)
        if end is not None:
            along = self.cost(
                self.unreduced_sharding(value), self.unreduced_sharding(op.result), op.result
            )
            yield from _conditional_arc(end, along - completing)


def _conditional_arc(node: int, weight: int) -> Iterator[CutArc]:
    """Yield an arc whose weight is paid if a node is unreduced, or, if negative, if it is not."""
    if weight > 0:
        yield node, 1, weight
    elif weight < 0:
        yield 0, node, -weight


def _cut_cost(arcs: list[CutArc], pending: set[int]) -> int:
    """Return the cost if exactly the nodes in `pending` are unreduced."""
    return sum(cost for start, end, cost in arcs if start in pending and end not in pending)
