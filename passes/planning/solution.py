"""Solutions of planning problems, with bounds."""

from dataclasses import dataclass

from shardir.passes.planning.problem import PlanningError, PlanningProblem


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
            f"{problem.node_count} nodes"
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
