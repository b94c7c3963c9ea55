"""Solutions of planning problems, with bounds."""

import time
from collections.abc import Callable
from dataclasses import dataclass

from shardir.errors import count_noun
from shardir.passes.planning.problem import PlanningError, PlanningProblem


class TimeLimitError(PlanningError):
    """The time limit was reached."""


@dataclass(frozen=True)
class Solution:
    """An assignment of strategies to the nodes of a problem.

    `cost` and `peak` are those of the assignment, and `lower_bound` is a number that the cost of no
    solution is below (`None` if the engine has none). `seconds` is the time of the search.
    """

    strategies: tuple[int, ...]
    cost: int
    peak: int
    lower_bound: int | None
    seconds: float

    @property
    def gap(self) -> float | None:
        """The relative difference of the cost to the lower bound: 0.0 if it is optimal."""
        if self.lower_bound is None:
            return None
        return (self.cost - self.lower_bound) / self.cost if self.cost else 0.0


Progress = Callable[[float, int | None, int | None], None]
"""Receives the seconds since the start, the best cost and the lower bound."""


class Incumbent:
    """The best assignment and the highest lower bound that a search has found so far.

    Raises `PlanningError` for `start` if it is not a solution.
    """

    def __init__(
        self,
        problem: PlanningProblem,
        seconds: float,
        start: tuple[int, ...] | None = None,
        progress: Progress | None = None,
    ) -> None:
        self.problem = problem
        self.seconds = seconds
        self.begun = time.monotonic()
        self.lower_bound: int | None = None
        self.best: tuple[int, tuple[int, ...]] | None = None
        """The cost and the strategies, which one assignment replaces together."""
        self._progress = progress
        if start is not None:
            self.best = evaluate(problem, start).cost, start

    @property
    def elapsed_seconds(self) -> float:
        """The time since the start."""
        return time.monotonic() - self.begun

    @property
    def remaining(self) -> float:
        """The seconds until the time limit."""
        return self.seconds - self.elapsed_seconds

    @property
    def cost(self) -> int | None:
        """The cost of the best assignment."""
        return None if self.best is None else self.best[0]

    @property
    def is_optimal(self) -> bool:
        """True if the lower bound proves that no assignment costs less than the best one."""
        is_known = self.best is not None and self.lower_bound is not None
        return is_known and self.lower_bound >= self.best[0]  # type: ignore[index,operator]

    def check_time(self) -> None:
        """Raise `TimeLimitError` after the time limit."""
        if self.remaining < 0:
            raise self.not_found()

    def not_found(self) -> TimeLimitError:
        """Return the error of a search that found no solution in its time."""
        return TimeLimitError(
            f"no solution was found in {self.seconds:g} seconds; allow more time (--seconds)"
        )

    def offer(self, strategies: tuple[int, ...]) -> int | None:
        """Keep an assignment if it is a solution that costs less than the best one.

        Returns its cost, or `None` if it is not a solution.
        """
        try:
            cost = evaluate(self.problem, strategies).cost
        except PlanningError:  # The numbers of the engine are rounded.
            return None
        if self.best is None or cost < self.best[0]:
            self.best = cost, strategies
            self.report()
        return cost

    def raise_bound(self, bound: int) -> None:
        """Keep a lower bound if it is above the known one."""
        if self.lower_bound is None or bound > self.lower_bound:
            self.lower_bound = bound
            self.report()

    def report(self) -> None:
        """Report the progress."""
        if self._progress is not None:
            self._progress(self.elapsed_seconds, self.cost, self.lower_bound)

    def solution(self) -> Solution:
        """Return the best solution, evaluated anew; raise `PlanningError` if there is none."""
        if self.best is None:
            raise self.not_found()
        cost, strategies = self.best
        bound = None if self.lower_bound is None else min(self.lower_bound, cost)
        return evaluate(self.problem, strategies, bound, self.elapsed_seconds)


def evaluate(
    problem: PlanningProblem,
    strategies: tuple[int, ...],
    lower_bound: int | None = None,
    seconds: float = 0.0,
) -> Solution:
    """Return the solution of an assignment; raise `PlanningError` if it is not valid."""
    if len(strategies) != problem.node_count:
        raise PlanningError(
            f"the assignment has {len(strategies)} strategies, and the problem has "
            f"{count_noun(problem.node_count, 'node')}"
        )
    for node, chosen in enumerate(strategies):
        if not 0 <= chosen < len(problem.costs[node]):
            raise PlanningError(
                f"node {node} has no strategy {chosen}; it has {len(problem.costs[node])}"
            )
    cost = problem.cost_of(strategies)
    if cost is None:
        raise PlanningError("the assignment has a forbidden strategy or pair of strategies")
    peak = problem.peak_of(strategies)
    if problem.usage_limit is not None and peak > problem.usage_limit:
        raise PlanningError(
            f"the assignment needs {peak} of memory, and the limit is {problem.usage_limit}"
        )
    return Solution(strategies, cost, peak, lower_bound, seconds)
