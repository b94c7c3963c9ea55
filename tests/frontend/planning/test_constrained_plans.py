"""Plans constrain values inside of a program where that costs less than what propagation from the
arguments chooses; each constraint is needed, stated and exported."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shardir as sd
from shardir.passes.planning.programs import constrained_values
from shardir.report import load
from tests.frontend.planning.test_parts_of_axes import (
    FEW_EVALUATIONS,
    arguments,
    check_program,
    mesh,
    step,
)

ARGUMENTS = arguments(64, *[64] * 5)
UNCONSTRAINED_BYTES = 56 * 1024
"""The bytes that each device sends with the best plan of `step` without constraints."""


def plan_step(**options: Any) -> Any:
    return sd.plan(step, ARGUMENTS, mesh(), **options)


@pytest.fixture(scope="module")
def plan() -> Any:
    return plan_step()


def test_constraints_cost_less_than_propagation_alone(plan: Any) -> None:
    assert plan.constraints
    assert plan.evaluation.bytes_sent == 48 * 1024
    check_program(plan, ARGUMENTS)


def test_each_constraint_states_the_cost_without_it(plan: Any) -> None:
    """None of the constraints can be removed."""
    for name, _, line, without in plan.constraint_rows():
        assert name.removeprefix("%") in plan.constraints
        assert line.endswith("test_parts_of_axes.py:21")
        assert without.startswith(("flops +", "sent bytes +"))
    for text in (str(plan), plan.as_jax()):
        assert all(row[3] in text for row in plan.constraint_rows())


def test_exported_constraints_are_those_of_the_plan(plan: Any) -> None:
    for name, sharded, *_ in plan.constraint_rows():
        assert f"# {name}: {sharded}" in plan.as_jax()
    shardings = {value.name: value.sharding for op in plan.module.main.body.ops
                 for value in op.results if value.sharding is not None}  # fmt: skip
    assert shardings.keys() == plan.constraints.keys()
    compiled = sd.parse(plan.as_ir())
    assert [op.results[0].sharding for op in compiled.main.body.ops if op.results] == [
        op.results[0].sharding for op in plan.module.main.body.ops if op.results
    ]
    assert plan.as_sdy().count("sdy.sharding_per_value") >= len(plan.constraints)


def test_programs_with_more_operations_have_no_such_constraints(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    count = len(sd.jit(step).lower(*ARGUMENTS).module.main.body.ops)
    monkeypatch.setattr(constrained_values, "MAX_CONSTRAINED_OPERATIONS", count - 1)
    plan = plan_step(evaluations=FEW_EVALUATIONS)
    assert plan.constraints == {}
    assert plan.evaluation.bytes_sent == UNCONSTRAINED_BYTES


def test_planning_problems_with_more_pairs_are_not_searched(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(constrained_values, "MAX_PAIRS_OF_STRATEGIES", 1000)
    plan = plan_step(evaluations=FEW_EVALUATIONS)
    assert plan.evaluation.bytes_sent == UNCONSTRAINED_BYTES


def test_the_number_of_evaluations_is_limited(plan: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The plan with few evaluations has more constraints than necessary, or none."""
    monkeypatch.setattr(constrained_values, "MAX_CONSTRAINT_EVALUATIONS", 4)
    few = plan_step(evaluations=FEW_EVALUATIONS)
    assert few.evaluation_count <= FEW_EVALUATIONS + 4 < plan.evaluation_count
    assert len(few.constraints) > len(plan.constraints)
    assert few.evaluation.bytes_sent == 48 * 1024
    check_program(few, ARGUMENTS)
    monkeypatch.setattr(constrained_values, "MAX_CONSTRAINT_EVALUATIONS", 0)
    none = plan_step(evaluations=FEW_EVALUATIONS)
    assert none.evaluation.bytes_sent == UNCONSTRAINED_BYTES


def test_given_shardings_are_kept() -> None:
    params, x, y = ARGUMENTS
    rows = sd.NamedSharding(mesh(), sd.P("x"))
    struct = sd.ShapeDtypeStruct(x.shape, np.float32, sharding=rows)
    plan = sd.plan(step, (params, struct, y), mesh(), keep=True)
    assert plan.in_specs[1] in (sd.P("x"), sd.P(("x_0", "x_1")))


def test_the_report_shows_the_constraints(plan: Any, tmp_path: Path) -> None:
    made = plan.report(tmp_path / "plan.html")
    assert load(tmp_path / "plan.html") == made
    assert made.data.planning is not None
    tables = {table.head[0]: table for table in made.data.planning.tables}
    assert list(tables)[:2] == ["argument", "constraint"]
    assert tables["constraint"].head == ("constraint", "sharding", "line", "without it")
    rows = plan.constraint_rows()
    assert tables["constraint"].rows == tuple(rows)
    assert [word for row in rows for word in row if word not in str(made)] == []
    values = [each for each in made.data.annotations if each.subject == "value"]
    # Without the marks of dimensions that the program leaves unsharded.
    types = {each.name: each.type.replace("@-", "") for each in values}
    assert types == {name: sharded for name, sharded, *_ in rows}
    assert made.data.total.sent == plan.evaluation.bytes_sent


@pytest.mark.needs("pytoulbar2")
def test_toulbar2_proves_a_bound_near_the_plan(plan: Any) -> None:
    """This is the optimum of the planning problem, whose proof takes message passing longer."""
    assert plan.lower_bound().bound.bytes_sent == 46 * 1024
