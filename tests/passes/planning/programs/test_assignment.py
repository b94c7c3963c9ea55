"""The axes of arguments and anchors that assignments state."""

from collections.abc import Sequence
from typing import Any

import pytest

from shardir.ir.mesh import Mesh
from shardir.ir.module import Value
from shardir.ir.types import TensorType
from shardir.passes.planning.programs.assignment import (
    Assignment,
    AssignmentReader,
    DimAxes,
    find_problem,
)
from shardir.passes.planning.programs.repeated_layers import share_decisions

MESH = Mesh("m", (("x", 2), ("y", 4), ("one", 1)))
X, Y = ("x",), ("y",)


def reader_of(
    params: Sequence[tuple[tuple[int, ...], tuple[int, ...]]],
    anchors: Sequence[tuple[tuple[int, ...], tuple[int, ...]]] = (),
    fixed: Sequence[DimAxes | None] | None = None,
    count: int | None = None,
    **options: Any,
) -> AssignmentReader:
    """Return the reader for parameters and anchors with these shapes and groups."""
    both = [*params, *anchors]
    values = [Value(TensorType(shape, "f32"), f"v{i}") for i, (shape, _) in enumerate(both)]
    groups = dict(zip(values, (own for _, own in both), strict=True))
    first = len(params)
    decisions = share_decisions(values[:first], groups, dict(enumerate(values[first:], first)))
    return AssignmentReader(
        values[:first], decisions, MESH, fixed or (None,) * first,
        first if count is None else count, values[first:], **options,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("axes", "shape", "pads", "problem"),
    [
        ((X, Y), (2, 4), False, None),
        ((("y", "x"), ()), (8, 3), False, None),
        ((X, X), (2, 4), False, "uses the mesh axis 'x' twice; each axis shards one dimension"),
        (
            ((), ("x", "y")),
            (2, 12),
            False,
            "shards dimension 1, of size 12, into 8 parts; a plan shards only dimensions that the "
            'mesh axes divide, except for jit(..., uneven="pad")',
        ),
        (((), ("x", "y")), (2, 12), True, None),
    ],
)
def test_problems_of_axes(
    axes: DimAxes, shape: tuple[int, ...], pads: bool, problem: str | None
) -> None:
    assert find_problem(axes, shape, MESH, pads=pads) == problem


def test_an_axis_shards_the_first_dimension_that_it_can() -> None:
    reader = reader_of([((8, 4), (0, 1)), ((6, 3), (1, 0))])
    assert reader.axes_of(Assignment(((1, "x"), (0, "x"), (0, "y")))) == ((Y, X), (X, ()))
    assert reader.axes_of(Assignment(((0, "y"), (0, "x")))) == ((("y", "x"), ()), ((), ()))
    assert reader.axes_of(Assignment()) == (((), ()), ((), ()))


def test_parameters_are_excepted_from_groups_and_stored_along_other_axes() -> None:
    """Both weights are alike; a class of storage has one of them."""
    reader = reader_of([((8, 8), (0, 1)), ((8, 8), (0, 1))])
    groups = ((0, "x"), (1, "y"))
    assert reader.axes_of(Assignment(groups, exceptions=((0, "x"),))) == (((), Y), ((), Y))
    stored = Assignment(((0, "x"),), ((1, 1, "y"), (0, 1, "x")))
    assert reader.axes_of(stored) == ((X, ()), (X, Y))


def test_given_axes_and_captured_arrays_are_not_decided() -> None:
    reader = reader_of([((8,), (0,))] * 3, fixed=(None, (Y,), None), count=2)
    assert reader.axes_of(Assignment(((0, "x"),))) == ((X,), (Y,), None)


def test_shards_are_even_unless_they_are_padded() -> None:
    """Each device has elements of a padded dimension, too."""
    params = [((6,), (0,)), ((2,), (0,)), ((0,), (0,)), ((1,), (0,))]
    plan = Assignment(((0, "y"),))
    assert reader_of(params).axes_of(plan) == (((),),) * 4
    assert reader_of(params, pads=True).axes_of(plan) == ((Y,), ((),), ((),), ((),))
    assert reader_of(params, pads_anchors=True).axes_of(plan) == (((),),) * 4
    wide = reader_of([], [((6,), (0,))], pads_anchors=True)
    assert wide.axes_of(plan) == ((Y,),)
    assert reader_of([], [((6,), (0,))], pads=True).axes_of(plan) == (None,)


def test_an_anchor_is_stated_where_no_argument_determines_its_dimension() -> None:
    """Then the other anchors with such dimensions are, too, but not those without them."""
    anchors = [((8, 8), (0, 1)), ((8,), (2,)), ((8,), (0,)), ((1,), (3,))]
    reader = reader_of([((8,), (0,))], anchors)
    assert reader.axes_of(Assignment(((0, "x"),))) == ((X,), None, None, None, None)
    assert reader.axes_of(Assignment(((1, "x"),))) == (((),), ((), X), ((),), None, None)
    assert reader.axes_of(Assignment(((0, "x"), (1, "y")))) == ((X,), (X, Y), ((),), None, None)


def test_a_dimension_that_no_axis_can_shard_determines_no_anchor() -> None:
    """The argument has the group of the anchor, but one row, or rows that no axis divides."""
    for rows in (1, 3):
        reader = reader_of([((rows,), (0,))], [((8,), (0,))])
        assert reader.axes_of(Assignment(((0, "x"),))) == (((),), (X,))


def test_a_clash_is_stated_alone() -> None:
    """The dimensions of the clash are decisions of their own; other anchors are not stated then
    unless an axis shards them."""
    reader = reader_of([((8,), (0,))], [((8, 8), (0, 0)), ((8,), (0,))])
    assert reader.decisions.groups == (((0, 0), (2, 0)), ((1, 0),), ((1, 1),))
    assert reader.axes_of(Assignment(((2, "x"),))) == (((),), ((), X), None)
