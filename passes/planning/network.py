"""The arrays of a planning problem that the kernels of the search engine read."""

from collections.abc import Callable, Sequence

import numpy as np

from shardir.passes.planning.kernel_compiler import Floats, Ints
from shardir.passes.planning.kernel_records import FORBIDDEN_COST, Graph, Incidence
from shardir.passes.planning.problem import (
    FORBIDDEN,
    PlanningProblem,
    infeasible_problem_error,
)


class Network:
    """A planning problem as arrays, without the strategies that no solution has.

    `kernel_records` describes the arrays. `kept[n]` holds the strategies of the problem that the
    strategies of node `n` of the network stand for. `check_time` is called often, and may raise
    an error.
    """

    def __init__(self, problem: PlanningProblem, check_time: Callable[[], None]) -> None:
        is_allowed = find_allowed_strategies(problem, check_time)
        self.kept = [np.flatnonzero(strategies) for strategies in is_allowed]
        self.node_count = problem.node_count
        self.edge_count = len(problem.edges)
        self.counts: Ints = np.array([len(kept) for kept in self.kept], np.int64)
        self.offsets = _offsets(self.counts)
        self.costs: Floats = _select(problem.costs, self.kept).astype(np.float64)
        self.usages = _select(problem.usages, self.kept)
        self._set_edges(problem, check_time)
        self._set_lifetimes(problem)

    def _set_edges(self, problem: PlanningProblem, check_time: Callable[[], None]) -> None:
        edges = problem.edges
        self.first: Ints = np.array([edge.a for edge in edges], np.int64)
        self.second: Ints = np.array([edge.b for edge in edges], np.int64)
        self.tables_of = np.zeros(len(edges), np.int64)
        tables: list[Floats] = []
        places: dict[tuple[tuple[int, ...], bytes], int] = {}
        size = 0
        for number, edge in enumerate(edges):
            check_time()
            table = edge.costs
            if table.shape != (self.counts[edge.a], self.counts[edge.b]):
                table = table[np.ix_(self.kept[edge.a], self.kept[edge.b])]
            # Equal edges, such as those of repeated layers, share one table.
            key = (table.shape, table.tobytes())
            if key not in places:
                places[key] = size
                size += table.size
                costs = table.ravel().astype(np.float64)
                costs[costs >= FORBIDDEN] = np.inf
                tables.append(costs)
            self.tables_of[number] = places[key]
        self.tables: Floats = np.concatenate([*tables, np.zeros(1)])
        sizes = np.stack([self.counts[self.first], self.counts[self.second]], axis=1).ravel()
        places_of_messages = _offsets(sizes)
        self.to_first = places_of_messages[:-1:2].copy()
        self.to_second = places_of_messages[1::2].copy()
        self.message_count = int(places_of_messages[-1])
        numbers = np.arange(len(edges), dtype=np.int64)
        self.later = _group(self.first, numbers, self.node_count)
        self.earlier = _group(self.second, numbers, self.node_count)
        self.neighbors = _group(
            np.concatenate([self.first, self.second]),
            np.concatenate([numbers, numbers]),
            self.node_count,
        )
        self.graph = Graph(
            self.offsets, self.first, self.second, self.tables_of, self.to_first, self.to_second,
            self.tables,
        )  # fmt: skip

    def _set_lifetimes(self, problem: PlanningProblem) -> None:
        """Set the lifetimes of the nodes in points, and the memory limit."""
        lives = problem.point_lifetimes
        self.point_count, self.starts, self.ends = lives.point_count, lives.starts, lives.ends
        self.sum_over_points = lives.sum_over_points
        usages = self.usages.astype(np.float64).sum()
        self.limit = int(usages) + 1 if problem.usage_limit is None else problem.usage_limit
        least = np.zeros(0, np.int64)
        if self.node_count:
            least = np.minimum.reduceat(self.usages, self.offsets[:-1])
        if (self.sum_over_points(least) > self.limit).any():
            raise infeasible_problem_error(problem.name)

    def usage_of(self, strategies: Ints) -> Ints:
        """Return the memory that an assignment uses at each point."""
        return self.sum_over_points(self.usages[self.offsets[:-1] + strategies])

    def least_positive_cost(self) -> float:
        """Return the least positive cost of a strategy or an edge; 1.0 if there is none."""
        parts = (self.costs, self.tables)
        least = min(float(part.min(where=part > 0, initial=np.inf)) for part in parts)
        return least if np.isfinite(least) else 1.0

    def cost_of(self, strategies: Ints) -> float:
        """Return the cost of an assignment; each forbidden pair adds `FORBIDDEN_COST`."""
        entries = self.tables_of + strategies[self.second]
        entries += strategies[self.first] * self.counts[self.second]
        edge_costs = np.minimum(self.tables[entries], FORBIDDEN_COST)
        return float(self.costs[self.offsets[:-1] + strategies].sum() + edge_costs.sum())

    def strategies_of_problem(self, strategies: Ints) -> tuple[int, ...]:
        """Return an assignment with the strategies of the problem."""
        return tuple(int(kept[chosen]) for kept, chosen in zip(self.kept, strategies, strict=True))

    def strategies_of_network(self, strategies: Sequence[int]) -> Ints:
        """Return a solution of the problem with the strategies of the network."""
        pairs = zip(self.kept, strategies, strict=True)
        return np.array([np.searchsorted(kept, chosen) for kept, chosen in pairs], np.int64)


def find_allowed_strategies(
    problem: PlanningProblem, check_time: Callable[[], None]
) -> list[np.ndarray]:
    """Return which strategies of each node have an allowed partner across each of its edges.

    This is arc consistency: the function removes strategies until all that remain have one. Raises
    `PlanningError` if a node has none.
    """
    is_allowed = [costs < FORBIDDEN for costs in problem.costs]
    tables: dict[int, np.ndarray] = {}
    edges_of: list[list[int]] = [[] for _ in problem.costs]
    for number, edge in enumerate(problem.edges):
        check_time()
        table = edge.costs < FORBIDDEN
        if not table.all():
            tables[number] = table
            edges_of[edge.a].append(number)
            edges_of[edge.b].append(number)
    waiting = dict.fromkeys(tables)
    while waiting:
        check_time()
        number, _ = waiting.popitem()
        edge, table = problem.edges[number], tables[number]
        for node, has_partner in (
            (edge.a, table[:, is_allowed[edge.b]].any(axis=1)),
            (edge.b, table[is_allowed[edge.a]].any(axis=0)),
        ):
            remaining = is_allowed[node] & has_partner
            if (remaining != is_allowed[node]).any():
                is_allowed[node] = remaining
                waiting.update(dict.fromkeys(edges_of[node]))
    if not all(strategies.any() for strategies in is_allowed):
        raise infeasible_problem_error(problem.name)
    return is_allowed


def _select(rows: Sequence[Ints], kept: Sequence[Ints]) -> Ints:
    selected = [row[places] for row, places in zip(rows, kept, strict=True)]
    return np.concatenate([np.zeros(0, np.int64), *selected])


def _offsets(counts: Ints) -> Ints:
    return np.concatenate([[0], counts.cumsum()]).astype(np.int64)


def _group(nodes: Ints, numbers: Ints, node_count: int) -> Incidence:
    """Return the integers of each node."""
    order = np.argsort(nodes, kind="stable")
    return Incidence(_offsets(np.bincount(nodes, minlength=node_count)), numbers[order])
