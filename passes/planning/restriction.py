"""Restriction of a planning problem to assignments whose cost is near a lower bound.

Messages change the costs of strategies and edges, but not those of assignments. With these changed
costs, the minima of all nodes and edges together are a lower bound. A strategy, or a pair of
strategies of an edge, has a slack: each assignment that contains it costs at least the bound and
the slack. Without those whose slack exceeds a threshold, the problem has the same assignments up to
the bound and the threshold ("reduced cost fixing"), and is often small enough for elimination.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from shardir.passes.planning.elimination import find_optimum
from shardir.passes.planning.kernel_compiler import Floats
from shardir.passes.planning.network import Network
from shardir.passes.planning.problem import FORBIDDEN, Edge, Ints, PlanningProblem

Found = tuple[int, ...] | None
"""An assignment, or `None` if its search is too expensive."""


@dataclass(frozen=True)
class SlackProblem:
    """A problem without a memory limit, with messages between its nodes."""

    problem: PlanningProblem
    network: Network
    messages: Floats

    @property
    def bound(self) -> float:
        """The sum of the minima of the changed costs, which no assignment costs less than."""
        return sum(float(each.min()) for each in (*self._node_costs, *self._edge_costs))

    @cached_property
    def _edge_costs(self) -> list[Floats]:
        """The costs of each edge without the messages of its pairs of strategies."""
        network, messages = self.network, self.messages
        found = []
        for edge in range(network.edge_count):
            rows, columns = (
                int(network.counts[each]) for each in (network.first[edge], network.second[edge])
            )
            begin = network.tables_of[edge]
            table = network.tables[begin : begin + rows * columns].reshape(rows, columns)
            to_first, to_second = network.to_first[edge], network.to_second[edge]
            found.append(
                table
                - messages[to_first : to_first + rows, None]
                - messages[to_second : to_second + columns]
            )
        return found

    @cached_property
    def _node_costs(self) -> list[Floats]:
        """The costs of the strategies of each node with the messages of its edges."""
        network, messages = self.network, self.messages
        costs = network.costs.copy()
        ends = (network.first, network.to_first), (network.second, network.to_second)
        for nodes, places in ends:
            for node, place in zip(nodes, places, strict=True):
                begin, count = network.offsets[node], network.counts[node]
                costs[begin : begin + count] += messages[place : place + count]
        return np.split(costs, network.offsets[1:-1])

    @cached_property
    def _slacks(self) -> list[Floats]:
        """The slack of each strategy of each node."""
        network = self.network
        found = [each - each.min() for each in self._node_costs]
        for number, costs in enumerate(self._edge_costs):
            least = costs.min()
            found[network.first[number]] += costs.min(axis=1) - least
            found[network.second[number]] += costs.min(axis=0) - least
        return found

    def find_near(self, threshold: float, check_time: Callable[[], None]) -> Found:
        """Return the best assignment of the problem without the strategies and pairs whose slack
        exceeds a threshold; `None` if the tables of its elimination are too large.

        Raises `InfeasibleProblemError` if there is no such assignment.
        """
        kept = [np.flatnonzero(slack <= threshold) for slack in self._slacks]
        found = find_optimum(self._restrict(kept, threshold), check_time)
        if found is None:
            return None
        chosen: Ints = np.array([own[n] for own, n in zip(kept, found, strict=True)], np.int64)
        return self.network.strategies_of_problem(chosen)

    def _restrict(self, kept: Sequence[Ints], threshold: float) -> PlanningProblem:
        """Return the problem with some strategies of each node, and without the pairs of them whose
        slack exceeds a threshold."""
        network, problem = self.network, self.problem
        slacks = [costs[own] - costs.min() for costs, own in
                  zip(self._node_costs, kept, strict=True)]  # fmt: skip
        edges = []
        for number, (edge, changed) in enumerate(zip(problem.edges, self._edge_costs, strict=True)):
            a, b = network.first[number], network.second[number]
            pairs = changed[np.ix_(kept[a], kept[b])] - changed.min()
            costs = edge.costs[np.ix_(network.kept[a][kept[a]], network.kept[b][kept[b]])]
            is_near = pairs + slacks[a][:, None] + slacks[b] <= threshold
            edges.append(Edge(edge.a, edge.b, np.where(is_near, costs, FORBIDDEN)))
        chosen = [own[near] for own, near in zip(network.kept, kept, strict=True)]
        return replace(
            problem,
            costs=[costs[own] for costs, own in zip(problem.costs, chosen, strict=True)],
            usages=[usages[own] for usages, own in zip(problem.usages, chosen, strict=True)],
            edges=edges,
        )
