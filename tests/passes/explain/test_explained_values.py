"""Texts of the origins of axes and of the reasons of absent ones, by the place in the program."""

import pytest

from shardir.passes.explain import ExplainError, explain, summarize
from shardir.text.definition_locations import find_definition_locations
from shardir.text.parser import parse
from tests.passes.explain.programs import explained, program

WITHOUT_RESOLUTION = "propagate,reshard,partition"


def test_a_loop_names_what_it_carries() -> None:
    text = program(
        "%x: f32[8], %z: f32[4, 8@b]",
        "f32[8], f32[4, 8]",
        "%r, %s = scan(%x, %z, carries=2, length=3, reverse=false) : f32[8], f32[4, 8] {",
        "  (%c: f32[8], %d: f32[4, 8]) =>",
        "  %e = neg(%c) : f32[8]",
        "  %g = exp(%d) : f32[4, 8]",
        "  yield %e, %g",
        "}",
        "return %r, %s",
    )
    assert explained(text, "%g")[1] == (
        "b shards dimension 1\n"
        "  stated by argument %z: f32[4, 8@b]  f.ir:2\n"
        "  %z -> %g  across through %s of scan  along dimension 1 of %z  round 0  f.ir:3"
    )


MANUAL = program(
    "%x: f32[8, 4]",
    "f32[8, 4]",
    "%y = manual_computation(%x, axes=[a], in_axes=[[[a], []]], out_axes=[[[a], []]]) "
    ": f32[8, 4] {",
    "  (%c: f32[4, 4]) =>",
    "  %d = neg(%c) : f32[4, 4]",
    "  yield %d",
    "}",
    "%z = exp(%y) : f32[8, 4]",
    "return %z",
)


def test_a_manual_computation_states_the_shardings_of_its_operands_and_results() -> None:
    """They are those of the whole tensors, of which parameters have shards."""
    assert (
        explained(MANUAL, "%z")[1].splitlines()[1] == "  stated by value %y: f32[8@a?, 4]  f.ir:3"
    )
    assert (
        explained(MANUAL, "%x")[1].splitlines()[1] == "  stated by value %c: f32[8@a?, 4]  f.ir:4"
    )
    located = MANUAL.replace(": f32[8, 4] {", ': f32[8, 4] loc("m.py":9:1) {')
    (chain,) = explain(parse(located), "%x").chains
    assert str(chain.annotation.loc) == "m.py:9"
    assert explained(MANUAL, "%d")[2] == (
        "a does not shard it\n"
        "  the axis is manual in the enclosing computation, where tensors are local along it\n"
        "    %y = manual_computation  f.ir:3"
    )


def test_annotations_of_constraints_and_values() -> None:
    text = program(
        "%x: f32[8, 4]",
        "f32[8, 4]",
        "%y = sharding_constraint(%x) : f32[8@a, 4]",
        "%w = neg(%x) : f32[8, 4@b]",
        "%z = add(%y, %w) : f32[8, 4]",
        "return %z",
    )
    found = summarize(parse(text), places=find_definition_locations(text, "f.ir"))
    assert str(found).split("\n\n")[1] == (
        "annotations\n  constraint %y: f32[8@a, 4]  f.ir:3\n  value %w: f32[8, 4@b]       f.ir:4"
    )
    assert explained(text, "%x")[1].splitlines()[1] == (
        "  stated by constraint %y: f32[8@a, 4]  f.ir:3"
    )


def test_the_line_of_the_user_comes_before_that_of_the_text() -> None:
    text = program("%x: f32[8@a]", "f32[8]", '%y = neg(%x) : f32[8] loc("m.py":7:3)', "return %y")
    found = explain(parse(text), "%y", places=find_definition_locations(text, "f.ir"))
    assert str(found.loc) == "m.py:7"
    assert [str(link.loc) for link in found.chains[0].links] == ["m.py:7"]


def test_a_value_that_a_later_pass_removes_is_explained() -> None:
    text = program(
        "%x: f32[8@a]", "f32[8]", "%u = exp(%x) : f32[8]", "%y = neg(%x) : f32[8]", "return %y"
    )
    head, *_ = explained(text, "%u", pipeline="propagate,dce,reshard,partition")
    assert head == "%u: f32[8@a]  f.ir:3"


@pytest.mark.parametrize(
    ("suffix", "reason"),
    [
        ("replicated(a, b)", "the tensor is explicitly replicated over the axis"),
        ("unreduced(a, b)", "the tensor is unreduced over the axis"),
    ],
)
def test_an_annotation_that_excludes_axes(suffix: str, reason: str) -> None:
    line = f"%y = neg(%x) : f32[8, 4] {suffix}"
    text = program("%x: f32[8@a, 4]", "f32[8, 4]", line, "%z = neg(%x) : f32[8, 4]", "return %z")
    assert [explained(text, "%y", pipeline=WITHOUT_RESOLUTION)[i] for i in (-2, -1)] == [
        f"{axis} does not shard it\n  {reason}\n    value %y: f32[8, 4] {suffix}" for axis in "ab"
    ]


def test_a_closed_value_that_nothing_uses() -> None:
    text = program("%x: f32[8@a], %v: f32[8@-]", "f32[8]", "return %x")
    assert explained(text, "%v")[2] == (
        "a does not shard it\n  the dimension is closed\n    argument %v: f32[8@-]"
    )


def test_an_open_value_that_nothing_uses() -> None:
    text = program("%x: f32[8@a], %v: f32[8@b?, 4]", "f32[8]", "return %x")
    assert explained(text, "%v")[2] == (
        "a does not shard it\n  no factor connects the value with a dimension that the axis shards"
    )


@pytest.mark.parametrize("name", ["%z", "%v"])
def test_an_axis_stops_at_an_operation_without_a_rule(name: str) -> None:
    """The operation uses a value with the axis `a`, and defines one without it."""
    lines = "%z = reshard(%x) : f32[8, 4]", "%v = neg(%z) : f32[8, 4]", "return %v"
    assert explained(program("%x: f32[8@a, 4]", "f32[8, 4]", *lines), name)[2:] == [
        "a does not shard it\n"
        "  it stops earlier: the operation has no factor rule\n"
        "    %x at %z = reshard  f.ir:3",
        "b does not shard it\n  no annotation states the axis",
    ]


def test_an_axis_shards_another_factor() -> None:
    text = program(
        "%x: f32[8@a, 4], %w: f32[4]",
        "f32[8]",
        '%z = dot(%x, %w, dims="ij,j->i") : f32[8]',
        "return %z",
    )
    assert explained(text, "%w")[2] == (
        "a does not shard it\n"
        "  no factor connects the value with a dimension that the axis shards\n"
        "    %x at %z = dot  f.ir:3\n"
        "    the axis shards 'i'"
    )


def test_tensors_that_are_sharded_differently() -> None:
    """The reason is stated once for the result, and for what is computed from it."""
    lines = "%c = add(%x, %y) : f32[8]", "%d = neg(%c) : f32[8]", "return %d"
    text = program("%x: f32[8@a], %y: f32[8@b]", "f32[8]", *lines)
    for name, place in (("%c", "dimension 0"), ("%d", "it stops earlier")):
        assert explained(text, name, pipeline=WITHOUT_RESOLUTION)[2:] == [
            f"{axis} does not shard it\n"
            f"  {place}: the tensors are sharded differently along this factor\n"
            f"    %{other} at %c = add  f.ir:3\n"
            f"    %x along a; %y along b"
            for axis, other in (("a", "y"), ("b", "x"))
        ]


def test_an_unknown_function_is_an_error_that_names_the_others() -> None:
    text = program("%x: f32[8@a]", "f32[8]", "return %x")
    with pytest.raises(ExplainError) as error:
        explain(parse(text), "%x", function="quite_another_name")
    assert str(error.value) == "no function is called 'quite_another_name'; there is @f"


def test_the_path_of_an_axis_through_a_group_names_its_members() -> None:
    text = program(
        "%x: f32[8@a], %y: f32[8]",
        "f32[8]",
        "%z = neg(%x) : f32[8]",
        "sharding_group(%z, group=0)",
        "sharding_group(%y, group=0)",
        "%w = neg(%y) : f32[8]",
        "return %w",
    )
    assert explained(text, "%w")[1].splitlines()[3] == (
        "  %z -> %y  forwards through sharding group 0  along dimension 0 of %z  round 0"
    )


def test_a_constraint_that_a_later_pass_removes_is_named() -> None:
    text = program(
        "%x: f32[8, 4]",
        "f32[8, 4]",
        '%y = sharding_constraint(%x) : f32[8@a, 4] loc("m.py":7:3)',
        "%w = neg(%x) : f32[8, 4]",
        "return %w",
    )
    paragraph = explained(text, "%w", pipeline="propagate,dce,reshard,partition")[1]
    assert paragraph.splitlines()[1] == "  stated by constraint %y: f32[8@a, 4]  m.py:7"


def test_a_summary_counts_values_without_a_sharding() -> None:
    text = program("%x: f32[8@a], %y: f32[4]", "f32[8], f32[4]", "return %x, %y")
    summary = summarize(parse(text), pipeline="propagate{keep_open=true},reshard,partition")
    assert str(summary).splitlines()[0] == "1 of 2 tensors sharded"
