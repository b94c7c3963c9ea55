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
         "in_axes lists 1 dimensions for f32[8, 4]"),
        ("in_axes=[[[x], []], [[]]]", "in_axes=[[[x], []]]",
         "in_axes lists 1 operands, not 2"),
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
