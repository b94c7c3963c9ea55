"""Exact solution of planning problems whose memory is not limited, by elimination of their nodes.

The strategies of a node that has few neighbors are replaced by a table: the least cost of the node
and its edges for each choice of strategies of the neighbors, which from then on are neighbors of
each other. After the last node, the optimum is known, and the nodes choose their strategies in the
opposite order (U. Bertele and F. Brioschi, "Nonserial Dynamic Programming", 1972; R. Dechter,
"Bucket elimination: a unifying framework for reasoning", 1999). The sizes of all tables follow from
the graph, so that a problem with tables that are too large is recognized before any is computed.
The graphs of programs are chains of layers with few values between them, and have small tables.
"""

import heapq
from collections.abc import Callable, Iterator, Sequence
from math import prod

import numpy as np

from shardir.passes.planning.network import find_allowed_strategies
from shardir.passes.planning.problem import (
    FORBIDDEN,
    Ints,
    PlanningProblem,
    infeasible_problem_error,
)

MAX_TABLE_ENTRIES = 1 << 23
"""The number of entries of the largest table: 64 MiB."""
MAX_ENTRIES = 1 << 27
"""The number of entries of all tables together, each of which takes a few nanoseconds."""

Scope = tuple[int, ...]
"""The nodes of the dimensions of a table."""
Table = tuple[Scope, Ints]
Neighbors = Sequence[set[int]]
Rank = tuple[int, ...]
"""The position of a node in the order; the last number is that of the node."""


def find_optimum(
    problem: PlanningProblem, check_time: Callable[[], None]
) -> tuple[int, ...] | None:
    """Return an assignment of least cost; `None` if the memory limit could be exceeded, or the
    tables are too large.

    `check_time` is called often, and may raise an error. Raises `PlanningError` if the problem has
    no solution.
    """
    if not is_memory_sufficient(problem) or not _is_summable(problem):
        return None
    kept = [np.flatnonzero(each) for each in find_allowed_strategies(problem, check_time)]
    counts = [len(each) for each in kept]
    order = _find_order(problem, counts, _rank_by_table, check_time)
    order = order or _find_order(problem, counts, _rank_by_fill, check_time)
    if order is None:
        return None
    tables: list[dict[int, Table]] = [{} for _ in kept]
    number = 0
    for scope, costs in _list_tables(problem, kept):
        for node in scope:
            tables[node][number] = scope, costs
        number += 1
    joined: list[list[Table]] = []
    for node in order:
        check_time()
        own = list(tables[node].values())
        joined.append(own)
        for taken, (scope, _) in list(tables[node].items()):
            for each in scope:
                del tables[each][taken]
        scope, costs = _join(node, own)
        least = costs.min(axis=0)
        for each in scope:
            tables[each][number] = scope, least
        number += 1
        if not scope and least >= FORBIDDEN:
            raise infeasible_problem_error(problem.name)
    chosen = np.zeros(problem.node_count, np.int64)
    for node, own in zip(reversed(order), reversed(joined), strict=True):
        chosen[node] = int(np.argmin(_costs_of(node, own, chosen)))
    return tuple(int(each[number]) for each, number in zip(kept, chosen, strict=True))


def _list_tables(problem: PlanningProblem, kept: Sequence[Ints]) -> Iterator[Table]:
    """Yield the costs of the nodes and edges with a choice: a node with one strategy is part of the
    tables of its neighbors."""
    for node, own in enumerate(kept):
        if len(own) > 1:
            yield (node,), problem.costs[node][own]
    for edge in problem.edges:
        table = edge.costs[np.ix_(kept[edge.a], kept[edge.b])]
        dims = [dim for dim, node in enumerate((edge.a, edge.b)) if len(kept[node]) > 1]
        if dims:
            scope = tuple((edge.a, edge.b)[dim] for dim in dims)
            yield scope, table.reshape([table.shape[dim] for dim in dims])


def is_memory_sufficient(problem: PlanningProblem) -> bool:
    """Return whether the memory suffices for the strategies that use most."""
    limit = problem.usage_limit
    if limit is None:
        return True
    return problem.peak_of([int(usages.argmax()) for usages in problem.usages]) <= limit


def _is_summable(problem: PlanningProblem) -> bool:
    """Return whether the costs of all assignments are below that of forbidden strategies."""
    tables = [*problem.costs, *(edge.costs for edge in problem.edges)]
    return sum(_largest_allowed(table) for table in tables) < FORBIDDEN


def _largest_allowed(costs: Ints) -> int:
    return int(costs.max(where=costs < FORBIDDEN, initial=0))


def _count_entries(node: int, neighbors: Neighbors, counts: Sequence[int]) -> int:
    """Return the number of entries of the table of a node and its neighbors."""
    return counts[node] * prod(counts[each] for each in neighbors[node])


def _rank_by_table(node: int, neighbors: Neighbors, counts: Sequence[int]) -> Rank:
    """Return a rank that is lower for nodes with smaller tables."""
    return _count_entries(node, neighbors, counts), node


def _rank_by_fill(node: int, neighbors: Neighbors, counts: Sequence[int]) -> Rank:
    """Return a rank that is lower for nodes whose elimination adds fewer edges."""
    own = neighbors[node]
    missing = len(own) * (len(own) - 1) - sum(len(own & neighbors[each]) for each in own)
    return missing, _count_entries(node, neighbors, counts), node


def _find_order(
    problem: PlanningProblem,
    counts: Sequence[int],
    rank: Callable[[int, Neighbors, Sequence[int]], Rank],
    check_time: Callable[[], None],
) -> list[int] | None:
    """Return the order in which the nodes with several strategies are eliminated, the one of the
    lowest rank first; `None` if the tables are too large. `counts` are the numbers of strategies of
    the nodes."""
    neighbors: list[set[int]] = [set() for _ in counts]
    for edge in problem.edges:
        neighbors[edge.a].add(edge.b)
        neighbors[edge.b].add(edge.a)
    waiting = [rank(node, neighbors, counts) for node, count in enumerate(counts) if count > 1]
    heapq.heapify(waiting)
    order: list[int] = []
    total = 0
    while waiting:
        check_time()
        known = heapq.heappop(waiting)
        node = known[-1]
        now = rank(node, neighbors, counts)
        if now != known:  # The neighbors have changed.
            heapq.heappush(waiting, now)
            continue
        entries = _count_entries(node, neighbors, counts)
        total += entries
        if entries > MAX_TABLE_ENTRIES or total > MAX_ENTRIES:
            return None
        order.append(node)
        for each in neighbors[node]:
            neighbors[each] |= neighbors[node]
            neighbors[each] -= {each, node}
    return order


def _join(node: int, tables: Sequence[Table]) -> Table:
    """Return the sum of the tables of a node, whose first dimension is that of the node, and the
    nodes of the other dimensions."""
    scope = tuple(sorted({each for nodes, _ in tables for each in nodes} - {node}))
    places = {each: place for place, each in enumerate((node, *scope))}
    total: Ints | None = None
    # Small tables first: their sums are small, too.
    for nodes, costs in sorted(tables, key=lambda each: each[1].size):
        order = sorted(range(len(nodes)), key=lambda i: places[nodes[i]])
        shape = [1] * len(places)
        for i in order:
            shape[places[nodes[i]]] = costs.shape[i]
        spread = costs.transpose(order).reshape(shape)
        total = spread if total is None else np.minimum(total + spread, FORBIDDEN)
    assert total is not None
    return scope, total


def _costs_of(node: int, tables: Sequence[Table], chosen: Ints) -> Ints:
    """Return the cost of each strategy of a node, with the chosen strategies of the others."""
    total: Ints | None = None
    for nodes, costs in tables:
        own = costs[tuple(slice(None) if each == node else chosen[each] for each in nodes)]
        total = own if total is None else np.minimum(total + own, FORBIDDEN)
    assert total is not None
    return total
