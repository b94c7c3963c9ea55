"""The planning problem: one strategy for each node, at least cost, within a memory limit.

This is the problem of the IOPDDL contest (M. D. Moffitt and P. Fegade, "The ASPLOS 2025 / EuroSys
2025 Contest on Intra-Operator Parallelism for Distributed Deep Learning", doi
10.1145/3676642.3736399). The cost of an assignment is the sum of the costs of the chosen
strategies and of the costs of each edge for the strategies of its two nodes. At each time, the sum
of the usages of the nodes that are alive may not exceed the limit.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from shardir.errors import ShardirError

Ints = npt.NDArray[np.int64]

FORBIDDEN = 10**18
"""A cost of at least this value forbids a strategy, or a pair of strategies."""


class PlanningError(ShardirError, ValueError):
    """A planning problem that is not valid, or has no solution."""


class InfeasibleProblemError(PlanningError):
    """A planning problem without a solution."""


def interrupted_search_error() -> PlanningError:
    """Return the error of a search that Ctrl-C stops before it has a solution."""
    return PlanningError("Ctrl-C stopped the search before it found a solution; let it run longer")


def infeasible_problem_error(name: str) -> InfeasibleProblemError:
    """Return the error of a problem without an assignment that satisfies its limits."""
    return InfeasibleProblemError(
        f"the problem {name!r} has no solution within its usage limit and its forbidden "
        "strategies; raise the limit, or allow more strategies"
    )


@dataclass(frozen=True, slots=True)
class Edge:
    """The cost of each pair of strategies of two nodes: `costs[strategy of a, strategy of b]`."""

    a: int
    b: int
    costs: Ints


@dataclass(frozen=True, slots=True)
class PointLifetimes:
    """The lifetimes of nodes in points instead of times.

    The points are the last times at which a node starts before another one ends: the nodes that are
    alive at any time are alive at one of them. Node `n` is alive at the points `p` with
    `starts[n] <= p < ends[n]`.
    """

    point_count: int
    starts: Ints
    ends: Ints

    def sum_over_points(self, amounts: Ints) -> Ints:
        """Return, for each point, the sum of the amounts of the nodes that are alive."""
        changes = np.zeros(self.point_count + 1, np.int64)
        np.add.at(changes, self.starts, amounts)
        np.add.at(changes, self.ends, -amounts)
        sums: Ints = changes.cumsum()[:-1]
        return sums


@dataclass(frozen=True)
class PlanningProblem:
    """A planning problem.

    `costs[n]` and `usages[n]` hold the cost and the memory of each strategy of node `n`, in units
    of the instance. Node `n` is alive at the times `t` with `starts[n] <= t < ends[n]`. There is at
    most one edge between two nodes. `usage_limit` is `None` if the memory is unlimited.
    """

    name: str
    starts: Ints
    ends: Ints
    costs: Sequence[Ints]
    usages: Sequence[Ints]
    edges: Sequence[Edge]
    usage_limit: int | None

    @property
    def node_count(self) -> int:
        return len(self.costs)

    def cost_of(self, strategies: Sequence[int]) -> int | None:
        """Return the cost of an assignment; `None` if it has a forbidden strategy or pair."""
        parts = [int(self.costs[node][chosen]) for node, chosen in enumerate(strategies)]
        parts += [int(e.costs[strategies[e.a], strategies[e.b]]) for e in self.edges]
        return None if any(part >= FORBIDDEN for part in parts) else sum(parts)

    def peak_of(self, strategies: Sequence[int]) -> int:
        """Return the largest sum of usages of the nodes that are alive at one time."""
        return int(self.usages_over_time(strategies).max(initial=0))

    def usages_over_time(self, strategies: Sequence[int]) -> Ints:
        """Return the sum of usages from each of `times` to the next one."""
        chosen = np.array([u[s] for u, s in zip(self.usages, strategies, strict=True)], np.int64)
        changes = np.zeros(len(self.times) + 1, np.int64)
        living = self.ends > self.starts
        np.add.at(changes, np.searchsorted(self.times, self.starts[living]), chosen[living])
        np.add.at(changes, np.searchsorted(self.times, self.ends[living]), -chosen[living])
        return changes.cumsum()[:-1]

    @cached_property
    def times(self) -> Ints:
        """The sorted times at which the lifetime of a node starts or ends."""
        living = self.ends > self.starts
        return np.unique(np.concatenate([self.starts[living], self.ends[living]]))

    @cached_property
    def point_lifetimes(self) -> PointLifetimes:
        """The lifetimes of the nodes in points."""
        is_living = self.ends > self.starts
        starts, ends = np.unique(self.starts[is_living]), np.unique(self.ends[is_living])
        points = np.unique(starts[np.searchsorted(starts, ends) - 1]) if len(ends) else starts
        return PointLifetimes(
            len(points),
            np.where(is_living, np.searchsorted(points, self.starts), 0),
            np.where(is_living, np.searchsorted(points, self.ends), 0),
        )

    def maximal_cliques(self) -> list[Ints]:
        """Return the maximal sets of nodes that are alive together.

        The nodes that are alive at a time are a maximal set if one of them starts there and the
        next event after it is an end. A sweep finds them in time linear in their size; networkx
        would first need all pairs of nodes that are alive together.
        """
        living = np.flatnonzero(self.ends > self.starts)
        by_start = living[np.argsort(self.starts[living], kind="stable")]
        by_end = living[np.argsort(self.ends[living], kind="stable")]
        alive: dict[int, None] = {}
        cliques = []
        ended = 0
        for position, node in enumerate(by_start):
            while self.ends[by_end[ended]] <= self.starts[node]:
                del alive[int(by_end[ended])]
                ended += 1
            alive[int(node)] = None
            is_last = position + 1 == len(by_start)
            if is_last or self.ends[by_end[ended]] <= self.starts[by_start[position + 1]]:
                cliques.append(np.array(sorted(alive), np.int64))
        return cliques
