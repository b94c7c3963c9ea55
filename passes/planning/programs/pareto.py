"""The candidates that no other candidate surpasses in both cost and memory."""

from collections.abc import Iterable

from shardir.passes.planning.programs.evaluation import Evaluation

LIMIT_FACTORS = (0.5, 0.25, 0.125)
"""The fractions of the peak of a plan that further searches use as the memory limit."""


def pareto_front(evaluations: Iterable[Evaluation]) -> list[Evaluation]:
    """Return the evaluations that no other one surpasses in cost and peak, by their cost."""
    front: list[Evaluation] = []
    for each in sorted(evaluations, key=lambda found: found.key(None)):
        if not front or each.peak < front[-1].peak:
            front.append(each)
    return front
