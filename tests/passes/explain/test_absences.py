"""Why axes do not shard a value: which operations are reasons, and which are none."""

import pytest

from shardir.passes import Propagate
from tests.passes.explain.programs import explained, program

MESH = "mesh @m = [a=2, b=2, c=2]"
NO_CONNECTION = "no factor connects the value with a dimension that the axis shards"
UNSTATED = "no annotation states the axis"


def test_an_axis_of_the_value_could_not_shard_a_dimension_that_takes_no_axes() -> None:
    line = "%v, %i = top_k(%x) : f32[4, 2], i32[4, 2]"
    params, results = "%x: f32[4, 8@a]", "f32[4@a, 2], i32[4, 2]"
    text = program(params, results, line, "return %v, %i", mesh="mesh @m = [a=2]")
    assert [each.splitlines()[0] for each in explained(text, "%v")] == [
        "%v: f32[4@a, 2@-]  f.ir:3",
        "a shards dimension 0",
    ]


def test_the_rest_of_an_axis_shards_an_adjacent_dimension() -> None:
    lines = "%s = sort(%x, dim=0) : f32[6]", "%v = neg(%x) : f32[6]", "return %s, %v"
    mesh = "mesh @m = [a=6]"
    text = program("%x: f32[6@a:(2)3]", "f32[6@a], f32[6]", *lines, mesh=mesh)
    assert explained(text, "%v")[2] == (
        f"a:(1)2 does not shard it\n  {NO_CONNECTION}\n    %s at %s = sort  f.ir:3\n"
        "    the axis shards the rest of dimension 0"
    )


def test_an_operation_without_a_rule_is_no_reason_if_its_other_side_lacks_the_axis() -> None:
    text = program(
        "%v: f32[8, 4], %y: f32[8@a, 4@b]",
        "f32[8, 4], f32[8, 4]",
        "%z = reshard(%v) : f32[8, 4@b]",
        "return %z, %y",
    )
    assert explained(text, "%v")[2:] == [
        f"a does not shard it\n  {NO_CONNECTION}",
        "b does not shard it\n"
        "  it stops earlier: the operation has no factor rule\n"
        "    %z at %z = reshard  f.ir:3",
    ]


def test_the_value_itself_is_not_the_other_side_of_an_operation_without_a_rule() -> None:
    lines = "%w = broadcast(%v, dims=[0]) : f32[8, 4@a]", "%z = reshard(%w) : f32[8, 4]"
    text = program("%v: f32[8]", "f32[8, 4]", *lines, "return %z")
    assert explained(text, "%v")[2] == (
        f"a does not shard it\n  {NO_CONNECTION}\n    %w at %w = broadcast  f.ir:3\n"
        "    the axis shards dimension 1 of %w"
    )


def test_an_unsharded_dimension_of_an_operation_does_not_have_the_axis() -> None:
    params = "%x: f32[8, 4], %y: f32[8@a]"
    text = program(params, "f32[8], f32[8]", "%v = sum(%x, dims=[1]) : f32[8]", "return %v, %y")
    assert explained(text, "%v")[2] == f"a does not shard it\n  {NO_CONNECTION}"


def test_the_first_refusal_is_that_of_the_same_dimension() -> None:
    """Along dimension 1, `b` and `c` disagree."""
    result = "f32[8@(b, a)?, 8@c]"
    text = program("%x: f32[8, 8@b]", result, "return %x", mesh=MESH)
    assert explained(text, "%x")[3] == (
        "a does not shard it\n"
        "  dimension 0: an axis before it in the list was refused\n"
        "    %x at result 0 of @f  f.ir:2\n"
        "    b: the axis already shards the tensor along another factor"
    )


def test_basic_propagation_stops_at_another_tensor() -> None:
    """Then the reason of the first axis is stated for that axis."""
    text = program(
        "%x: f32[8@(a, b)], %y: f32[8]",
        "f32[8]",
        "%v = add(%x, %y) : f32[8] replicated(a)",
        "return %v",
    )
    assert explained(text, "%y", propagate=Propagate(level="basic"))[2:] == [
        "a does not shard it\n"
        "  dimension 0: the tensor is explicitly replicated over the axis\n"
        "    %v at %v = add  f.ir:3\n"
        "    value %v: f32[8] replicated(a)",
        "b does not shard it\n"
        "  dimension 0: an axis before it in the list was refused\n"
        "    %y at %v = add  f.ir:3",
    ]


@pytest.mark.parametrize(
    ("type", "shown", "absences"),
    [
        ("f32[] on @n", "f32[]", ["c does not shard it\n  the tensor is a scalar"]),
        (
            "f32[8] on @one",
            "f32[8@-]",
            [f"{axis} does not shard it\n  {UNSTATED}" for axis in "ab"],
        ),
    ],
)
def test_the_axes_are_those_of_the_mesh_of_the_value(
    type: str, shown: str, absences: list[str]
) -> None:
    """A value on a single device is replicated on the first other mesh."""
    meshes = "mesh @one = [] devices=[0]\nmesh @m = [a=2, b=2]\nmesh @n = [c=2]"
    text = program(f"%x: {type}", type.partition(" ")[0], "return %x", mesh=meshes)
    assert explained(text, "%x")[2:] == absences
