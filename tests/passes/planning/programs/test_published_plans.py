"""The search finds plans that cost at most as much as those of publications."""

from collections.abc import Iterable
from typing import Any

import pytest

from shardir.ir.mesh import Mesh
from shardir.passes.pipeline import DEFAULT_PIPELINE, Pipeline
from shardir.passes.planning.programs.plan_program import ProgramPlan
from shardir.passes.planning.programs.planning_request import PlanningRequest, make_evaluator
from tests.passes.planning.programs.machines import SimpleMachine
from tests.passes.planning.programs.published_plans import (
    ALPA,
    AUTOPARALLEL,
    LLAMA,
    PublishedPlan,
)
from tests.passes.planning.programs.test_plan_program import is_optimal

TWO_SPEEDS = SimpleMachine({"data": 1e-9, "model": 1e-10}, seconds_per_flop=1e-6, latency=0)
"""The machine of Alpa's tests: the second axis is ten times as fast as the first one. Computation
takes most of the time, so that all plans divide it."""


def check(
    row: PublishedPlan, machine: SimpleMachine | None = None, limited: bool = False
) -> ProgramPlan:
    plan, published = row.plan(machine, is_limited=limited)
    limit = published.peak if limited else None
    assert plan.chosen.key(limit) <= published.key(limit)
    return plan


SHORT = ("perceptron, data parallel", "DDP", "FSDP")
"""The rows whose search takes few seconds."""


def names(rows: Iterable[str]) -> list[Any]:
    return [name if name in SHORT else pytest.param(name, marks=pytest.mark.long) for name in rows]


@pytest.mark.parametrize("name", names(ALPA))
def test_plans_cost_at_most_as_much_as_those_of_alpa(name: str) -> None:
    row = ALPA[name]
    check(row, TWO_SPEEDS if len(row.mesh) == 2 else None)


@pytest.mark.parametrize("name", names(AUTOPARALLEL))
def test_plans_cost_at_most_as_much_as_those_of_autoparallel(name: str) -> None:
    """The memory of the published plan is the limit, except for DDP."""
    check(AUTOPARALLEL[name], SimpleMachine(), limited=name != "DDP")


@pytest.mark.long
@pytest.mark.parametrize("name", LLAMA)
def test_layers_of_llama_are_sharded_by_columns_and_rows(name: str) -> None:
    """The search finds Megatron's choices: four all-reduces, two of them in the gradient."""
    row = LLAMA[name]
    plan = check(row)
    assert [each.kind for each in plan.chosen.collectives] == ["all-reduce"] * 4
    assert is_optimal(row.trace(), Mesh("mesh", row.mesh), plan.chosen)


PROVEN = (
    *("perceptron, data parallel", "perceptron, tensor parallel", "attention, data parallel"),
    *("attention, tensor parallel", "language model, data parallel", "convolutions, data parallel"),
    *("depthwise convolution", "DDP", "FSDP", "FSDP and tensor parallel", "8B", "70B"),
)
"""The published plans that the lower bound proves to be the best ones."""


@pytest.mark.long
@pytest.mark.parametrize("name", PROVEN)
def test_published_plans_are_proven_optimal(name: str) -> None:
    row = {**ALPA, **AUTOPARALLEL, **LLAMA}[name]
    module, mesh = row.trace(), Mesh("mesh", row.mesh)
    request = PlanningRequest(module, mesh, Pipeline.parse(DEFAULT_PIPELINE))
    published = make_evaluator(request).evaluate(row.arguments)
    assert published is not None
    assert is_optimal(module, mesh, published)
