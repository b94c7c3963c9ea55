"""Collectives in control flow that diverges between devices are errors of the verifier."""

import pytest

from shardir.errors import VerifyError
from shardir.text.parser import parse
from shardir.verify.divergence import find_divergences
from shardir.verify.verifier import verify

MESH = "mesh @m = [x=4, y=2]\n\n"


def loop(condition: str, body: str, *, param: str = "f32[] of f32[]") -> str:
    """Return a loop that runs while its `condition`, a few lines that define %more, is true."""
    return (
        MESH
        + f"""\
spmd func @f(
  %a: f32[2] of f32[8@x],
  %s: {param},
) -> (f32[2] of f32[8@x]) {{
  %zero = constant(value=0.0) : f32[]
  %h = while(%a) : f32[2] {{
    (%c: f32[2]) =>
    {condition}
    yield %more
  }} {{
    (%d: f32[2]) =>
    {body}
    yield %e
  }}
  return %h
}}
"""
    )


LOCAL = "%t = sum(%c, dims=[0]) : f32[]\n    %more = gt(%t, %zero) : bool[]"
ALIKE = (
    "%t = sum(%c, dims=[0]) : f32[]\n    %u = all-reduce(%t, axes=[x], op=add) : f32[]\n"
    "    %more = gt(%u, %zero) : bool[]"
)
SWAP = "%e = collective-permute(%d, source=[x], target=[x]) : f32[2]"
ALONE = "%e = neg(%d) : f32[2]"


def count_divergences(text: str) -> int:
    return len(find_divergences(parse(text).main))


def test_a_loop_with_a_varying_condition_is_an_error() -> None:
    with pytest.raises(VerifyError) as caught:
        verify(parse(loop(LOCAL, SWAP)))
    assert str(caught.value).splitlines()[0] == (
        "collective-permute may be executed by only some devices: while depends on %more, which "
        "differs along x; use a value that is equal on all devices, such as an all-reduce of it"
    )
    assert "^^^^^^^^^^^^^^^^^^" in str(caught.value)


def test_collectives_in_the_condition_are_checked() -> None:
    condition = (
        "%t = sum(%c, dims=[0]) : f32[]\n    %u = all-reduce(%t, axes=[y], op=add) : f32[]\n"
        "    %more = gt(%u, %zero) : bool[]"
    )
    assert count_divergences(loop(condition, ALONE)) == 1


def test_a_condition_reduced_over_the_axes_is_uniform() -> None:
    verify(parse(loop(ALIKE, SWAP)))


def test_divergence_without_collectives_is_allowed() -> None:
    verify(parse(loop(LOCAL, ALONE)))


def test_a_condition_of_replicated_values_is_uniform() -> None:
    verify(parse(loop("%more = gt(%s, %zero) : bool[]", SWAP)))


def test_an_unreduced_argument_varies_along_its_axes() -> None:
    text = loop("%more = gt(%s, %zero) : bool[]", SWAP, param="f32[] of f32[] unreduced(y)")
    (one,) = find_divergences(parse(text).main)
    assert [axis.name for axis in one.axes] == ["y"]


def test_a_carried_value_may_become_varying() -> None:
    text = (
        MESH
        + """\
spmd func @f(
  %a: i32[] of i32[],
  %n: i32[] of i32[],
) -> (i32[] of i32[]) {
  %h, %m = while(%a, %n) : i32[], i32[] {
    (%c: i32[], %i: i32[]) =>
    %more = lt(%c, %i) : bool[]
    yield %more
  } {
    (%d: i32[], %j: i32[]) =>
    %p = axis-index(axes=[x]) : i32[]
    %e = add(%d, %j) : i32[]
    %g = all-reduce(%e, axes=[y], op=add) : i32[]
    yield %g, %p
  }
  return %h
}
"""
    )
    (one,) = find_divergences(parse(text).main)
    assert [axis.name for axis in one.axes] == ["x"]


BRANCHES = (
    MESH
    + """\
spmd func @f(
  %a: f32[2] of f32[8@x],
) -> (f32[2] of f32[8@x]) {
  %p = axis-index(axes=[AXIS]) : i32[]
  DECIDE
  %h = case(%q) : f32[2] {
    %e = collective-permute(%a, source=[x], target=[x]) : f32[2]
    yield %e
  } {
    yield %a
  }
  return %h
}
"""
)


@pytest.mark.parametrize(
    ("axis", "decide", "wrong"),
    [
        ("x", "%q = neg(%p) : i32[]", 1),
        ("y", "%q = neg(%p) : i32[]", 1),
        ("x", "%q = all-reduce(%p, axes=[x], op=max) : i32[]", 0),
        ("x", "%q = all-reduce(%p, axes=[x:(1)2], op=max) : i32[]", 1),
        ("x:(1)2", "%q = all-reduce(%p, axes=[x:(1)2], op=max) : i32[]", 0),
        ("x", "%q = collective-permute(%p, source=[y, x], target=[x, y]) : i32[]", 1),
    ],
)
def test_branches(axis: str, decide: str, wrong: int) -> None:
    assert count_divergences(BRANCHES.replace("AXIS", axis).replace("DECIDE", decide)) == wrong


NESTED = (
    MESH
    + """\
spmd func @f(
  %a: f32[2] of f32[8@x],
) -> (f32[2] of f32[8@x]) {
  %o = axis-index(axes=[OUTER]) : i32[]
  %i = axis-index(axes=[INNER]) : i32[]
  %h = case(%o) : f32[2] {
    %g = case(%i) : f32[2] {
      %e = all-reduce(%a, axes=[COLLECTIVE], op=add) : f32[2]
      yield %e
    } {
      yield %a
    }
    yield %g
  } {
    yield %a
  }
  return %h
}
"""
)


@pytest.mark.parametrize(
    ("outer", "inner", "collective", "predicate", "is_equal"),
    [
        ("y", "y", "x", "o", True),
        ("y", "x", "x", "i", False),
        ("x", "y", "x", "o", False),
        ("y", "y", "x, y", "o", False),
        ("x:(1)2", "y", "x:(2)2", "o", True),
        ("x:(1)2", "y", "x", "o", False),
    ],
)
def test_decisions_that_are_equal_in_each_group_of_a_collective(
    outer: str, inner: str, collective: str, predicate: str, is_equal: bool
) -> None:
    text = NESTED.replace("OUTER", outer).replace("INNER", inner)
    (one,) = find_divergences(parse(text.replace("COLLECTIVE", collective)).main)
    assert (one.predicate.name, one.is_equal_in_groups) == (predicate, is_equal)


@pytest.mark.parametrize(("axis", "is_equal"), [("x", False), ("y", True)])
def test_a_permute_may_be_between_positions_with_equal_decisions(axis: str, is_equal: bool) -> None:
    text = BRANCHES.replace("AXIS", axis).replace("DECIDE", "%q = neg(%p) : i32[]")
    (one,) = find_divergences(parse(text).main)
    assert one.is_equal_in_groups == is_equal


TWO_SPLITS = """\
mesh @m = [x=6]

spmd func @f(
  %a: f32[2] of f32[4@x:(1)2],
  %b: f32[2] of f32[6@x:(1)3],
) -> (f32[2] of f32[4@x:(1)2]) {
  %s = all-gather(%a, dim=0, axes=[x:(1)2]) : f32[4]
  %t = all-gather(%b, dim=0, axes=[x:AXIS]) : f32[6]
  %u = sum(%s, dims=[0]) : f32[]
  %v = sum(%t, dims=[0]) : f32[]
  %q = gt(%u, %v) : bool[]
  %h = case(%q) : f32[2] {
    %e = collective-permute(%a, axes=[x:(1)2], pairs=[[0, 1], [1, 0]]) : f32[2]
    yield %e
  } {
    yield %a
  }
  return %h
}
"""


def test_a_decision_may_depend_on_parts_of_two_splits_of_an_axis() -> None:
    """%s is equal on all devices, and so is %t; no split of x contains both gathered parts."""
    verify(parse(TWO_SPLITS.replace("AXIS", "(1)3")))
    with pytest.raises(VerifyError) as caught:
        verify(parse(TWO_SPLITS.replace("AXIS", "(3)2").replace(": f32[6]", ": f32[4]")))
    assert str(caught.value).splitlines()[0] == (
        "collective-permute may be executed by only some devices: case depends on %q, which "
        "differs along x:(1)3; use a value that is equal on all devices, such as an all-reduce of "
        "it"
    )
