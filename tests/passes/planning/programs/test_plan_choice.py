"""The comparison of plans, the batch arguments, and the plans that given shardings permit."""

import pytest

from shardir.ir.mesh import Mesh
from shardir.passes.pipeline import DEFAULT_PIPELINE, Pipeline
from shardir.passes.planning.programs.assignment import ArgumentAxes, DimAxes
from shardir.passes.planning.programs.evaluation import Evaluation
from shardir.passes.planning.programs.plan_program import (
    _is_cheaper,
    _respects,
    find_batch,
    find_batch_groups,
)
from shardir.passes.planning.programs.planning_request import PlanningRequest
from shardir.passes.planning.programs.repeated_layers import SharedDecisions
from shardir.text.parser import parse

MODULE = parse(
    "func @f(%w: f32[4], %x: f32[8, 4], %rate: f32[], %table: f32[8]) -> (f32[4]) {\n"
    "  %y = neg(%w) : f32[4]\n  return %y\n}\n"
)
REQUEST = PlanningRequest(MODULE, Mesh("mesh", (("x", 4),)), Pipeline.parse(DEFAULT_PIPELINE))


def evaluation(flops: int, sent: int, peak: int) -> Evaluation:
    return Evaluation((), None, flops, sent, 0, peak, {}, MODULE)


@pytest.mark.parametrize(
    ("found", "best", "expected"),
    [
        ((100, 100, 5), (100, 100, 9), False),
        ((98, 500, 5), (100, 100, 5), True),
        ((99.5, 0, 5), (100, 100, 5), False),
        ((100, 98, 5), (100, 100, 5), True),
        ((100, 99.5, 5), (100, 100, 5), False),
        ((101, 0, 5), (100, 100, 5), False),
        ((900, 900, 11), (100, 100, 12), True),
        ((1, 1, 12), (100, 100, 11), False),
        ((50, 100, 12), (100, 100, 12), True),
    ],
)
def test_a_better_plan_fits_better_or_costs_less(
    found: tuple[int, int, int], best: tuple[int, int, int], expected: bool
) -> None:
    """The memory limit is 10; differences of less than 1 % do not count."""
    assert _is_cheaper(evaluation(*found), evaluation(*best), 10) == expected


@pytest.mark.parametrize(
    ("batch", "state", "count", "expected"),
    [
        ((2,), {0: 0}, None, (2,)),
        (None, {}, None, ()),
        (None, {0: 0}, None, (1, 3)),
        (None, {0: 0}, 3, (1,)),
        (None, {0: 1}, None, (0, 3)),
    ],
)
def test_batch_arguments_are_those_that_are_no_state(
    batch: tuple[int, ...] | None,
    state: dict[int, int],
    count: int | None,
    expected: tuple[int, ...],
) -> None:
    """Numbers and captured arrays have no batch, and neither has a program without state."""
    request = PlanningRequest(MODULE, REQUEST.mesh, REQUEST.pipeline, batch=batch, count=count)
    assert find_batch(request, state) == expected


def test_groups_of_the_batch_have_the_first_dimension_of_a_batch_argument() -> None:
    decisions = SharedDecisions((((0, 0), (1, 1)), ((1, 0),), ((3, 0),)), (), ())
    assert find_batch_groups((1,), decisions) == (1,)
    assert find_batch_groups((0, 3), decisions) == (0, 2)
    assert find_batch_groups((), decisions) == ()


@pytest.mark.parametrize(
    ("arguments", "fixed", "expected"),
    [
        (((("x",),), ((),)), (None, ((),)), True),
        (((("x",),), ((),)), (((),), None), False),
        (((("x",),), ((),), ((),)), ((("x",),),), True),
        (((("x",),),), (), True),
    ],
)
def test_given_shardings_are_required(
    arguments: ArgumentAxes, fixed: tuple[DimAxes | None, ...], expected: bool
) -> None:
    assert _respects(arguments, fixed) == expected
