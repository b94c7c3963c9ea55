"""Evaluations end early where the shardings cost more than the search permits."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

import shardir as sd
from shardir.errors import PartitionError
from shardir.ir.mesh import Mesh
from shardir.nn import relu
from shardir.passes.pipeline import DEFAULT_PIPELINE, Pipeline
from shardir.passes.planning.programs.assignment import ArgumentAxes
from shardir.passes.planning.programs.evaluation import (
    Cost,
    Evaluation,
    Evaluator,
    annotate_arguments,
)
from shardir.passes.planning.programs.planning_request import PlanningRequest, make_evaluator
from shardir.text.parser import parse
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


def test_an_evaluation_that_ended_early_is_continued_if_more_is_permitted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    evaluator = make(None)
    arguments = CANDIDATES[0]
    full = make(None).require(arguments)
    cheaper = replace(full, flops=full.flops - 1)
    assert evaluator.evaluate(arguments, cheaper) is None
    assert not evaluator.has_failed(arguments)
    with monkeypatch.context() as patch:
        patch.setattr(evaluator, "steps", lambda *_: pytest.fail("the cost is known to be higher"))
        assert evaluator.evaluate(arguments, cheaper) is None
    found = evaluator.evaluate(arguments, replace(full, flops=full.flops + 1))
    assert found == full
    assert evaluator.evaluate_all() == [found]
    assert evaluator.count == 1


def test_the_time_is_the_cost_on_a_machine() -> None:
    found = make(None).require(CANDIDATES[0])
    assert found.cost == (found.flops, found.bytes_sent, found.collective_count)
    assert found.key(None) == (0, *found.cost, found.peak)
    timed = replace(found, seconds=2.0)
    assert timed.cost == (2.0,)
    assert timed.key(found.peak - 3) == (3, 2.0, found.bytes_sent, found.peak)


def test_the_error_of_required_shardings_is_raised() -> None:
    class Failing(Evaluator):
        def on_mesh(self, mesh: Mesh, machine: object) -> "Failing":
            return self

        def steps(
            self, arguments: ArgumentAxes, worst: Evaluation | None = None
        ) -> Iterator[Cost | Evaluation]:
            raise PartitionError("uneven")

    evaluator = Failing()
    with pytest.raises(PartitionError, match="uneven"):
        evaluator.require(())
    assert evaluator.has_failed(())


def test_annotated_programs_keep_their_meshes() -> None:
    text = "mesh @m = [x=2, y=2]\nfunc @f(%v: f32[4@x]) -> (f32[4]) {\n  return %v\n}\n"
    given, line = parse(text), Mesh("line", (("x", 4),))
    assert annotate_arguments(given, line, (None,), {}).meshes == given.meshes
    plain = parse(text.partition("\n")[2].replace("@x", ""))
    assert annotate_arguments(plain, line, ((("x",),),), {}).meshes == (line,)
