"""`manual_computation`: per-device programs inside of global programs."""

import pytest

from shardir.errors import ParseError
from shardir.ir.equality import are_equal, find_difference
from shardir.text.parser import parse
from shardir.verify.verifier import find_faults, verify

PROGRAM = """\
mesh @m = [x=2, y=4]

func @f(
  %a: f32[8, 4],
  %b: f32[8],
) -> (f32[8, 4]) {
  %r = manual_computation(%a, %b, HOW) : f32[8, 4] {
    (%p: f32[4, 4@y], %q: f32[8]) =>
    %s = all-reduce(%p, axes=[x], op=add) : f32[4, 4]
    %h = slice(%s, starts=[0, 0], strides=[1, 1]) : f32[4, 2]
    %e = concatenate(%h, %h, dim=0) : f32[8, 2]
    yield %e
  }
  return %r
}
""".replace("HOW", "axes=[x], in_axes=[[[x], []], [[]]], out_axes=[[[], [x]]]")

PART_OF_AN_AXIS = """\
mesh @m = [x=12]

func @f(
  %a: f32[6],
) -> (f32[6]) {
  %r = manual_computation(%a, axes=[x:(1)6], in_axes=[[[]]], out_axes=[[[]]]) : f32[6] {
    (%p: f32[6]) =>
    %s = all-reduce(%p, axes=[x:(2)3], op=add) : f32[6]
    yield %s
  }
  return %r
}
"""

NESTED = """\
mesh @m = [x=2, y=4]

func @f(
  %a: f32[8],
) -> (f32[8]) {
  %r = manual_computation(%a, axes=[x], in_axes=[[[x]]], out_axes=[[[x]]]) : f32[8] {
    (%p: f32[4]) =>
    %s = manual_computation(%p, axes=[y], in_axes=[[[y]]], out_axes=[[[y]]]) : f32[4] {
      (%q: f32[1]) =>
      %t = all-reduce(%q, axes=[y, x], op=add) : f32[1]
      yield %t
    }
    yield %s
  }
  return %r
}
"""


@pytest.mark.parametrize("text", [PROGRAM, NESTED])
def test_text_round_trips(text: str) -> None:
    module = parse(text)
    verify(module)
    assert str(module) == text
    assert are_equal(module, parse(text))


def test_different_shardings_are_unequal() -> None:
    other = PROGRAM.replace("[[[x], []], [[]]]", "[[[x], []], [[x]]]").replace(
        "%q: f32[8]", "%q: f32[4]"
    )
    found = find_difference(parse(PROGRAM), parse(other))
    assert found is not None
    assert found.startswith("@f: the attributes differ")


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        (
            "in_axes=[[[x], []], [[]]]",
            "in_axes=[[[x], [x]], [[]]]",
            "in_axes shards f32[8, 4] along a part of 'x' twice",
        ),
        (
            "in_axes=[[[x], []], [[]]]",
            "in_axes=[[[y], []], [[]]]",
            "in_axes shards f32[8, 4] along y:(1)4, which is not in axes=[x:(1)2]",
        ),
        ("in_axes=[[[x], []], [[]]]", "in_axes=[[[x]], [[]]]",
         "in_axes lists 1 dimension for f32[8, 4]"),
        ("in_axes=[[[x], []], [[]]]", "in_axes=[[[x], []]]",
         "in_axes lists 1 operand, not 2"),
        ("out_axes=[[[], [x]]]", "out_axes=[]",
         "out_axes lists 0 results, not 1"),
        ("in_axes=[[[x], []], [[]]]", "in_axes=[[x, []], [[]]]",
         "in_axes has a list of mesh axes for each dimension of f32[8, 4]"),
        ("%a: f32[8, 4]", "%a: f32[7, 4]",
         "in_axes splits dimension 0 of f32[7, 4] into 2 shards, which do not divide it"),
        ("%q: f32[8]", "%q: f32[4]",
         "its body takes (f32[4, 4], f32[4]), expected (f32[4, 4], f32[8])"),
        ("axes=[x], in", "axes=[x, x], in", "axes=[x:(1)2, x:(1)2] uses a part of 'x' twice"),
    ],
)  # fmt: skip
def test_mismatched_shardings_are_errors(old: str, new: str, says: str) -> None:
    with pytest.raises(ParseError) as caught:
        parse(PROGRAM.replace(old, new, 1))
    assert str(caught.value).splitlines()[0] == f"manual_computation: {says}"


@pytest.mark.parametrize(
    ("text", "old", "new", "says"),
    [
        (
            PROGRAM,
            "all-reduce(%p, axes=[x]",
            "all-reduce(%p, axes=[y]",
            "all-reduce is along y, which no manual_computation around it has among its axes; "
            "they have x",
        ),
        (
            PART_OF_AN_AXIS,
            "x:(2)3",
            "x:(2)2",
            "all-reduce is along x:(2)2, which no manual_computation around it has among its axes; "
            "they have x:(1)6",
        ),
        (
            PROGRAM,
            "%p: f32[4, 4@y]",
            "%p: f32[4, 4@x]",
            "values are local along 'x', which is manual here",
        ),
        (
            PROGRAM,
            "%s = all-reduce(%p, axes=[x], op=add)",
            "%s = slice(%a, starts=[0, 0], strides=[1, 1])",
            "block 0 of manual_computation uses %a of the blocks around it; make it an operand, so "
            "that in_axes state how it is sharded",
        ),
        (NESTED, "axes=[y], in_axes=[[[y]]]", "axes=[y, x], in_axes=[[[y]]]",
         "'x' is already manual in an enclosing manual_computation"),
    ],
)  # fmt: skip
def test_the_verifier_checks_local_types(text: str, old: str, new: str, says: str) -> None:
    assert [fault.message for fault in find_faults(parse(text.replace(old, new, 1)))] == [says]


MESHES_WITH_EQUAL_NAMES = """\
mesh @a = [x=2, y=4]
mesh @b = [y=3, z=2]

func @f(
  %a: f32[6] on @b,
) -> (f32[6]) {
  %r = manual_computation(%a, axes=[y:(1)3], in_axes=[[[y:(1)3]]], out_axes=HOW) : f32[6@y] on @b {
    (%p: f32[2@z] on @b) =>
    %s = all-reduce(%p, axes=[y:(1)3], op=add) : f32[2]
    yield %s
  }
  return %r
}
""".replace("HOW", "[[[y:(1)3]]]")


def test_an_axis_of_a_second_mesh_may_have_the_name_of_an_axis_of_the_first() -> None:
    module = parse(MESHES_WITH_EQUAL_NAMES)
    verify(module)
    assert are_equal(parse(str(module)), module)
    assert str(module) == MESHES_WITH_EQUAL_NAMES


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        (
            "f32[6@y] on @b",
            "f32[6] on @a",
            ["the sharding of %r is on the mesh @a, which lacks the manual axis y:(1)3"],
        ),
        (
            "axes=[y:(1)3], in",
            "axes=[y:(1)3, x], in",
            [
                "no mesh has all axes of manual_computation (y:(1)3, x); it runs on one mesh",
                "the sharding of %r is on the mesh @b, which lacks the manual axis 'x'",
            ],
        ),
    ],
)
def test_the_verifier_compares_manual_axes_with_their_mesh(
    old: str, new: str, says: list[str]
) -> None:
    text = MESHES_WITH_EQUAL_NAMES.replace(old, new, 1)
    assert [fault.message for fault in find_faults(parse(text))] == says


SPMD_ON_A_SECOND_MESH = """\
mesh @a = [x=2, y=4]
mesh @b = [y=3, z=2]

spmd func @f(
  %x: f32[2] of f32[6@y] on @b,
) -> (f32[2] of f32[2@-] on @b) {
  %s = all-reduce(%x, axes=[y:(1)3], op=add) : f32[2]
  return %s
}
"""


def test_the_axes_of_a_per_device_function_are_those_of_its_mesh() -> None:
    module = parse(SPMD_ON_A_SECOND_MESH)
    verify(module)
    assert str(module) == SPMD_ON_A_SECOND_MESH


@pytest.mark.parametrize(
    ("axis", "says"),
    [
        ("y", "axis 'y' of size 3 has no sub-axis (1)4; 1 * 4 must divide 3"),
        ("x", "mesh @b has no axis called 'x'; it has y, z"),
    ],
)
def test_a_collective_along_an_axis_of_another_mesh_is_a_fault(axis: str, says: str) -> None:
    text = SPMD_ON_A_SECOND_MESH.replace("y:(1)3", axis)
    assert [fault.message for fault in find_faults(parse(text))] == [says]
