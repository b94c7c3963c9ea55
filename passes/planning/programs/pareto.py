"""The candidates that no other candidate surpasses in both cost and memory."""

from collections.abc import Iterable
from dataclasses import replace

from shardir.passes.planning.problem import PlanningError
from shardir.passes.planning.programs.evaluation import Evaluation
from shardir.passes.planning.programs.plan_program import (
    PlanningRequest,
    ProgramPlan,
    plan_program,
)

LIMIT_FACTORS = (0.5, 0.25, 0.125)
"""The fractions of the peak of a plan that further searches use as the memory limit."""


def pareto_front(evaluations: Iterable[Evaluation]) -> list[Evaluation]:
    """Return the evaluations that no other one surpasses in cost and peak, by their cost."""
    front: list[Evaluation] = []
    for each in sorted(evaluations, key=lambda found: found.key(None)):
        if not front or each.peak < front[-1].peak:
            front.append(each)
    return front


def search_pareto_front(request: PlanningRequest, plan: ProgramPlan) -> list[Evaluation]:
    """Return the front of the candidates of a plan and of searches with smaller memory limits."""
    found = plan.evaluator.evaluate_all()
    for factor in LIMIT_FACTORS:
        limit = int(plan.searched.peak * factor)
        try:
            smaller = plan_program(replace(request, memory_limit=limit))
        except PlanningError:  # No plan fits into this limit, and none into a smaller one.
            break
        found += smaller.evaluator.evaluate_all()
    return pareto_front(found)
