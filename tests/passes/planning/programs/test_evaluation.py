"""Evaluations end early where the shardings cost more than the search permits."""

from dataclasses import replace
from typing import Any

import pytest

import shardir as sd
from shardir.ir.mesh import Mesh
from shardir.nn import relu
from shardir.passes.pipeline import DEFAULT_PIPELINE, Pipeline
from shardir.passes.planning.programs.assignment import ArgumentAxes
from shardir.passes.planning.programs.evaluation import Evaluation, Evaluator
from shardir.passes.planning.programs.planning_request import PlanningRequest, make_evaluator
from tests.passes.planning.programs.machines import SimpleMachine

ROWS, COLUMNS, WHOLE = (("x",), ()), ((), ("x",)), ((), ())
CANDIDATES: tuple[ArgumentAxes, ...] = (
    (WHOLE, WHOLE, WHOLE),
    (ROWS, WHOLE, WHOLE),
    (COLUMNS, ROWS, COLUMNS),
    (WHOLE, COLUMNS, ROWS),
)


def make(machine: SimpleMachine | None) -> Evaluator:
    def step(x: Any, w: Any, v: Any) -> Any:
        return sd.grad(lambda w: (relu(x @ w) @ v).sum())(w)

    structs = [sd.ShapeDtypeStruct(shape, "float32") for shape in ((64, 32), (32, 128), (128, 32))]
    module = sd.jit(step).lower(*structs).module
    mesh = Mesh("mesh", (("x", 4),))
    return make_evaluator(PlanningRequest(module, mesh, Pipeline.parse(DEFAULT_PIPELINE), machine))


@pytest.mark.parametrize("machine", [None, SimpleMachine()], ids=["no machine", "machine"])
def test_steps_are_lower_bounds_of_the_cost(machine: SimpleMachine | None) -> None:
    evaluator = make(machine)
    for arguments in CANDIDATES:
        *bounds, found = evaluator.steps(arguments)
        assert isinstance(found, Evaluation)
        assert bounds
        for bound in bounds:
            assert isinstance(bound, tuple)
            assert (0,) * len(bound) < bound <= found.cost


def test_an_evaluation_that_ended_early_is_continued_if_more_is_permitted() -> None:
    evaluator = make(None)
    arguments = CANDIDATES[0]
    full = make(None).require(arguments)
    cheaper = replace(full, flops=full.flops - 1)
    assert evaluator.evaluate(arguments, cheaper) is None
    assert not evaluator.has_failed(arguments)
    assert evaluator.evaluate(arguments, cheaper) is None
    found = evaluator.evaluate(arguments, replace(full, flops=full.flops + 1))
    assert found == full
    assert evaluator.evaluate_all() == [found]
    assert evaluator.count == 1
