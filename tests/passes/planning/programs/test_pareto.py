"""The evaluations that no other one surpasses in cost and memory."""

import pytest

from shardir.passes.planning.programs.evaluation import Evaluation
from shardir.passes.planning.programs.pareto import pareto_front
from shardir.text.parser import parse


@pytest.mark.parametrize(
    ("found", "front"),
    [
        ([], []),
        ([(3, 1), (1, 3), (2, 2)], [(1, 3), (2, 2), (3, 1)]),
        ([(1, 2), (2, 2), (3, 3)], [(1, 2)]),
        ([(1, 2), (1, 1)], [(1, 1)]),
    ],
)
def test_cheaper_plans_have_a_larger_peak(
    found: list[tuple[int, int]], front: list[tuple[int, int]]
) -> None:
    module = parse("func @f(%x: f32[4]) -> (f32[4]) {\n  return %x\n}\n")
    evaluations = [Evaluation((), None, cost, 0, 0, peak, {}, module) for cost, peak in found]
    assert [(each.flops, each.peak) for each in pareto_front(evaluations)] == front
