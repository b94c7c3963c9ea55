"""Where sums may wait: the part of a program that pending sums can go through, and the best cut.

For one set of axes, every value that a pending sum can reach through linear operations is either
pending or complete. Values that operations leave pending are so for good; what needs a complete
value pays for the reduction, once a value, however many need it. An operation makes a pending
result if what it is linear in is pending; there a complete value may join as the part of the
first device, which sends nothing. Which values to leave pending is thus a minimum cut, and what
it finds is never dearer than what was there. Ties go to the earliest place.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from shardir.axes import overlap
from shardir.ir import Op, Value
from shardir.linearity import carries
from shardir.mesh import Mesh
from shardir.passes.mincut import ENDLESS, Network
from shardir.passes.prices import LATENCY, pending_over, place_of, price, weight
from shardir.passes.program import in_order
from shardir.passes.uses import Tie, Uses
from shardir.placement import Axes, Sharding

Arc = tuple[int, int, int]
"""From a node to a node, with what is paid if the first is pending and the second is not."""


@dataclass(eq=False, slots=True)
class Way:
    """How a flow can come to be pending: by `op` (or an edge), if the values in `group` are."""

    by: Op | Tie | None
    group: tuple[Value, ...]
    places: tuple[int, ...] = (0,)
    """Of an operation: where the group stands among its operands."""


class Region:
    """The flows that a sum over `axes` can reach, and the way to each.

    What is said of sums holds for any `reduction`.
    """

    def __init__(
        self,
        uses: Uses,
        mesh: Mesh,
        axes: Axes,
        sources: Sequence[Value],
        reduction: str = "add",
    ) -> None:
        self.uses, self.mesh, self.axes, self.reduced_by = uses, mesh, axes, reduction
        self.ways: dict[Value, Way] = {source: Way(None, ()) for source in sources}
        self.sources = frozenset(sources)
        self.nodes: dict[Value, int] = {}
        self.latency = 0
        waiting = list(sources)
        while waiting:
            flow = waiting.pop()
            for value in uses.members(flow):
                for use in uses.users[value]:
                    found = self.way(use, value)
                    if found and found[0] not in self.ways:
                        self.ways[found[0]] = found[1]
                        waiting.append(found[0])

    def way(self, use: Op | Tie | None, value: Value) -> tuple[Value, Way] | None:
        """The flow that a use of a pending value can make pending, and how."""
        if isinstance(use, Tie):
            edge = use.edge
            if all(map(self.free, (*edge.sources, *edge.targets))):
                return edge.targets[0], Way(use, tuple(dict.fromkeys(edge.sources)))
            return None
        if use is None or len(use.results) != 1:
            return None
        if use.name == "reshard":
            return (use.result, Way(use, use.operands)) if self.free(use.result) else None
        for group in carries(use, self.reduced_by):
            members = tuple(dict.fromkeys(use.operands[i] for i in group))
            others = (v for i, v in enumerate(use.operands) if i not in group)
            tensors = (*members, use.result)
            clear = all(map(self.free, tensors)) and not any(map(self.cuts, others))
            if value in members and clear:
                return use.result, Way(use, members, group)
        return None

    def free(self, value: Value) -> bool:
        """Whether a sum over the axes may be pending in a value, or is by its own making."""
        sharding = self.place(value)
        if self.cuts(value) or (sharding.unreduced and sharding.reduction != self.reduced_by):
            return False
        return value in self.sources or not overlap(self.axes, sharding.unreduced)

    def cuts(self, value: Value) -> bool:
        """Whether one of the axes cuts a value."""
        return overlap(self.axes, tuple(self.place(value).used()))

    def place(self, value: Value) -> Sharding:
        return place_of(value, self.mesh.name)

    def complete(self, value: Value) -> Sharding:
        """A value's sharding without the sum."""
        sharding = self.place(value)
        if value not in self.sources:
            return sharding
        left = tuple(a for a in sharding.unreduced if a not in self.axes)
        return pending_over(sharding, left, self.reduced_by)

    def pending(self, value: Value) -> Sharding:
        """A value's sharding with the sum."""
        sharding = self.place(value)
        if value in self.sources:
            return sharding
        axes = in_order((*sharding.unreduced, *self.axes), self.mesh)
        return pending_over(sharding, axes, self.reduced_by)

    def reduction(self, value: Value) -> int:
        """What it costs to complete a value where it is."""
        return self.cost(self.pending(value), self.complete(value), value)

    def cost(self, source: Sharding, target: Sharding, value: Value) -> int:
        """The weight of a change of place, as often as it is made."""
        cost = weight(price(source, target, value.type), self.latency)
        return cost * self.uses.times[value]

    # The cut

    def decide(self, latency: int = LATENCY) -> set[Value] | None:
        """The flows to leave pending, or `None` if nothing gets better.

        A collective weighs as much as `latency` bytes, unless the program would then send more
        bytes than it does as it is: then bytes alone decide.
        """
        network, _, kept = self.network(latency)
        weight, side = network.cut()
        if latency and weight < kept:
            _, exact, before = self.network(0)
            if _paid_for(exact, side) > before:
                return self.decide(0)
        if weight >= kept:
            return self.decide(0) if latency else None
        return {flow for flow, node in self.nodes.items() if node in side}

    def network(self, latency: int) -> tuple[Network, list[Arc], int]:
        """The graph to cut, and the weight of the program as it is: only the sources wait."""
        self.latency = latency
        network = Network()
        self.nodes = {flow: network.node() for flow in self.ways}
        arcs = list(self.arcs(network, self.nodes))
        for arc in arcs:
            network.arc(*arc)
        now = {0, *(self.nodes[source] for source in self.sources)}
        return network, arcs, _paid_for(arcs, now)

    def arcs(self, network: Network, node: dict[Value, int]) -> Iterator[Arc]:
        for source in self.ways:
            if source in self.sources:
                yield 0, node[source], ENDLESS
        for flow, way in self.ways.items():
            if way.by is None:
                continue
            if isinstance(way.by, Op) and way.by.name == "reshard":
                continue
            alone = len(way.group) == 1 and isinstance(way.by, Op)
            for value in way.group:
                start = node.get(self.uses.flow(value))
                joining = ENDLESS if alone else self.uses.times[value]
                yield node[flow], 1 if start is None else start, joining
        for flow in self.ways:
            for value in self.uses.members(flow):
                yield from self.users(value, network, node)

    def users(self, value: Value, network: Network, node: dict[Value, int]) -> Iterator[Arc]:
        """What it takes if the value is pending and some of its users want it complete."""
        start = node[self.uses.flow(value)]
        ends: dict[int, None] = {}
        for use in self.uses.users[value]:
            if isinstance(use, Op) and use.name == "reshard":
                yield from self.move(value, use, start, node)
            elif use is None and value in self.sources:
                continue
            else:
                ends[self.end(value, use, node)] = None
        if not ends:
            return
        cost = self.reduction(value)
        if 1 in ends:
            yield start, 1, cost
        elif len(ends) == 1:
            yield start, next(iter(ends)), cost
        else:
            paid = network.node()
            yield start, paid, cost
            for end in ends:
                yield paid, end, ENDLESS

    def end(self, value: Value, use: Op | Tie | None, node: dict[Value, int]) -> int:
        """The node that must be pending for a use to take the value pending; 1 if none can."""
        if use is None or (isinstance(use, Op) and len(use.results) != 1):
            return 1
        flow = use.edge.targets[0] if isinstance(use, Tie) else use.result
        way = self.ways.get(flow)
        if way is None or way.by is not use or value not in way.group:
            return 1
        if isinstance(use, Op) and any(
            v is value for i, v in enumerate(use.operands) if i not in way.places
        ):
            return 1
        return node[flow]

    def move(self, value: Value, op: Op, start: int, node: dict[Value, int]) -> Iterator[Arc]:
        """A change of place, of the pending or the complete value, may complete it on the way."""
        target = self.place(op.result)
        whole = self.cost(self.complete(value), target, op.result)
        completing = self.cost(self.pending(value), target, op.result)
        yield from _paid(start, completing - whole)
        end = node.get(op.result)
        if end is not None and self.ways[op.result].by is op:
            along = self.cost(self.pending(value), self.pending(op.result), op.result)
            yield from _paid(end, along - completing)
            yield end, start, ENDLESS


def _paid(node: int, weight: int) -> Iterator[Arc]:
    """A weight that is paid if a node is pending, or, if it is negative, unless it is."""
    if weight > 0:
        yield node, 1, weight
    elif weight < 0:
        yield 0, node, -weight


def _paid_for(arcs: list[Arc], pending: set[int]) -> int:
    """What is paid if these nodes are pending and no others."""
    return sum(cost for start, end, cost in arcs if start in pending and end not in pending)
