"""The peak of a program of many layers follows from those of two programs of few layers."""

from types import SimpleNamespace

import pytest

from shardir.passes.planning.programs.evaluation import Evaluation
from shardir.passes.planning.programs.extrapolation import ExtrapolatingEvaluator
from shardir.text.parser import parse

MODULE = parse("func @f(%x: f32[4]) -> (f32[4]) {\n  return %x\n}\n")


def evaluation(alive: dict[str, int]) -> Evaluation:
    return Evaluation((), None, 0, 0, 0, max(alive.values()), alive, MODULE)


@pytest.mark.parametrize(
    ("small", "large", "peak"),
    [
        ({"a": 8, "z": 9}, {"a": 10, "z": 11}, 11 + 3 * 2),
        ({"a": 8, "z": 9}, {"a": 13, "z": 9}, 13 + 3 * 5),
        # A value of a pass has the same name in both programs, but another role.
        ({"a": 8, "p": 3, "z": 9}, {"a": 10, "p": 12, "z": 11}, 12 + 3 * 2),
        # A pass derived a value from one that both programs have.
        ({"a.1": 8, "z": 9}, {"a.1": 14, "z": 9}, 14 + 3 * 6),
        # Only the larger program has the operation.
        ({"a": 8, "z": 9}, {"a": 9, "b": 20, "z": 11}, 20 + 3 * 2),
    ],
)
def test_each_layer_adds_memory_at_each_operation(
    small: dict[str, int], large: dict[str, int], peak: int
) -> None:
    """The programs have two layers and one, and the whole program five."""
    evaluator = object.__new__(ExtrapolatingEvaluator)
    evaluator.programs = SimpleNamespace(layers=5, kept=2)  # type: ignore[assignment]
    evaluator._names = {"a", "z"}
    assert evaluator._extend_peak(evaluation(large), evaluation(small)) == peak
