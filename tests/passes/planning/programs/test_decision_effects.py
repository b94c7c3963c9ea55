"""The costs of a plan without each of its decisions and constraints."""

from types import SimpleNamespace
from typing import Any

from shardir.ir.module import Value
from shardir.ir.types import TensorType
from shardir.passes.planning.programs.assignment import ArgumentAxes, Assignment
from shardir.passes.planning.programs.decision_effects import (
    measure_constraints,
    measure_decisions,
)
from tests.passes.planning.programs.test_assignment_search import GivenCosts, search_of, sharded

X, R = ("x",), ()


def plan_of(assignment: Assignment, costs: Any, **changes: Any) -> Any:
    """Return a plan for a matrix with the groups 0 and 1, and a vector with the group 1."""
    reader = search_of(costs, [(0, 1), (1,)]).reader
    arguments = reader.axes_of(assignment)
    evaluator = GivenCosts(costs)
    chosen = SimpleNamespace(arguments=arguments)
    plan = SimpleNamespace(
        assignment=assignment, reader=reader, searched=chosen, chosen=chosen,
        evaluator=evaluator, expand=lambda axes: axes, anchors=(),
    )  # fmt: skip
    return SimpleNamespace(**{**vars(plan), **changes})


def count_sharded(arguments: ArgumentAxes) -> tuple[int, int] | None:
    return 100 >> len(sharded(arguments)), 0


def test_a_decision_has_the_dimensions_that_change_without_it() -> None:
    """Without the first decision, the axis shards the other dimension of the matrix, and the vector
    as before. The decision with the largest effect comes first."""
    plan = plan_of(Assignment(((0, "x"), (1, "x"))), count_sharded)
    assert plan.chosen.arguments == ((X, R), (X,))
    second, first = measure_decisions(plan, None)
    assert (first.dims, first.axis) == (((0, 0),), "x")
    assert first.without is not None
    assert first.without.flops == 25
    assert (second.dims, second.axis) == (((1, 0),), "x")
    assert second.without is not None
    assert second.without.flops == 50


def test_a_decision_without_which_the_program_cannot_be_compiled_comes_first() -> None:
    def costs(arguments: ArgumentAxes) -> tuple[int, int] | None:
        return count_sharded(arguments) if 1 in sharded(arguments) else None

    plan = plan_of(Assignment(((0, "x"),), storage=((1, 0, "x"),)), costs)
    first, second = measure_decisions(plan, None)
    assert (first.dims, first.without) == (((1, 0),), None)
    assert (second.dims, second.axis) == (((0, 0),), "x")


def test_captured_arrays_have_no_decisions() -> None:
    plan = plan_of(Assignment(((1, "x"),)), count_sharded)
    arguments = (None, plan.chosen.arguments[1])
    plan.chosen = SimpleNamespace(arguments=arguments)
    (decision,) = measure_decisions(plan, None)
    assert decision.dims == ((1, 0),)


def test_a_given_plan_has_no_decisions() -> None:
    plan = plan_of(
        Assignment(((1, "x"),)), count_sharded, searched=SimpleNamespace(arguments=((R, R), (R,)))
    )
    assert measure_decisions(plan, None) == ()


def test_constraints_are_those_of_stated_anchors() -> None:
    """The last anchor has no axes, as in a plan that was given."""
    anchors = [Value(TensorType((8,), "f32"), name) for name in "abc"]
    chosen = SimpleNamespace(arguments=((X, R), (R,), (X,), None))
    plan = plan_of(Assignment(), count_sharded, anchors=anchors, chosen=chosen)
    found = measure_constraints(plan)
    assert list(found) == ["a"]
    assert found["a"] is not None
    assert found["a"].arguments == ((X, R), (R,), None, None)
