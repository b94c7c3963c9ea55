"""Sharding groups: members with equal, absent or conflicting shardings."""

import pytest

from shardir.errors import PropagateError
from shardir.passes.explain import explain
from shardir.passes.propagation.draft import FunctionDraft
from shardir.passes.propagation.propagate import edge_owners, stated_shardings
from shardir.passes.propagation.sharding_groups import merge_groups, unify_groups
from shardir.text.parser import parse
from tests.passes.propagation.propagation_result import MESH, propagate, types_by_name

TWO = """\
func @f(
  %a: f32[8@x?, 4],
  %b: f32[8, 4],
) -> (f32[8, 4], f32[8, 4]) {
  sharding_group(%a, group=0)
  sharding_group(%b, group=0)
  %c = neg(%a) : f32[8, 4]
  %d = exp(%b) : f32[8, 4@y?]
  return %c, %d
}
"""


def test_members_have_equal_shardings() -> None:
    """The sharding of one member applies to the others, and so do axes that reach one of them."""
    assert (
        str(propagate(TWO))
        == MESH
        + """\
func @f(
  %a: f32[8@x, 4@y],
  %b: f32[8@x, 4@y],
) -> (f32[8@x, 4@y], f32[8@x, 4@y]) {
  sharding_group(%a, group=0)
  sharding_group(%b, group=0)
  %c = neg(%a) : f32[8@x, 4@y]
  %d = exp(%b) : f32[8@x, 4@y]
  return %c, %d
}
"""
    )


def test_conflicting_members_get_new_constraints() -> None:
    """An open constraint replaces each; one of the requested shardings propagates to it first."""
    module = propagate("""\
func @f(
  %a: f32[8@x, 4@-],
  %b: f32[8@y, 4@-],
) -> (f32[8, 4], f32[8, 4]) {
  sharding_group(%a, group=0)
  sharding_group(%b, group=0)
  %c = neg(%a) : f32[8, 4]
  %d = exp(%b) : f32[8, 4]
  return %c, %d
}
""")
    assert (
        str(module)
        == MESH
        + """\
func @f(
  %a: f32[8@x, 4@-],
  %b: f32[8@y, 4@-],
) -> (f32[8@y, 4@-], f32[8@y, 4@-]) {
  %b.1 = sharding_constraint(%b) : f32[8@y, 4@-]
  %a.1 = sharding_constraint(%a) : f32[8@y, 4@-]
  sharding_group(%a.1, group=0)
  sharding_group(%b.1, group=0)
  %c = neg(%a.1) : f32[8@y, 4@-]
  %d = exp(%b.1) : f32[8@y, 4@-]
  return %c, %d
}
"""
    )


def test_a_trimmed_member_conflicts_in_the_next_run() -> None:
    """Axes that do not divide a parameter are trimmed, and its group contains other shardings.

    The next run inserts a constraint behind each member, and further runs change nothing.
    """
    once = propagate("""\
func @f(
  %a: f32[3],
) -> (f32[3@x]) {
  %b = neg(%a) : f32[3]
  sharding_group(%a, group=0)
  sharding_group(%b, group=0)
  %c = exp(%a) : f32[3]
  return %c
}
""")
    assert (
        str(once)
        == MESH
        + """\
func @f(
  %a: f32[3@-],
) -> (f32[3@-]) {
  %b = neg(%a) : f32[3@x]
  sharding_group(%a, group=0)
  sharding_group(%b, group=0)
  %c = exp(%a) : f32[3@x]
  return %c
}
"""
    )
    twice = propagate(str(once))
    assert (
        str(twice)
        == MESH
        + """\
func @f(
  %a: f32[3@-],
) -> (f32[3@-]) {
  %a.1 = sharding_constraint(%a) : f32[3@x]
  %b = neg(%a.1) : f32[3@x]
  %b.1 = sharding_constraint(%b) : f32[3@x]
  sharding_group(%a.1, group=0)
  sharding_group(%b.1, group=0)
  %c = exp(%a.1) : f32[3@x]
  return %c
}
"""
    )
    assert str(propagate(str(twice))) == str(twice)


def test_groups_with_a_common_value_are_merged() -> None:
    types = types_by_name("""\
func @f(
  %a: f32[8@x],
  %b: f32[8],
  %c: f32[8],
) -> (f32[8], f32[8], f32[8]) {
  sharding_group(%a, group=5)
  sharding_group(%b, group=5)
  sharding_group(%b, group=2)
  sharding_group(%c, group=2)
  return %a, %b, %c
}
""")
    assert {types[name] for name in "abc"} == {"f32[8@x]"}


EDGE = """\
func @f(
  %v: f32[8],
  %q: f32[8@x],
  %u: f32[8@y],
  %w: f32[8],
  %a: f32[8],
) -> (f32[8], f32[8], f32[8], f32[8], f32[8]) {{
{before}  %r = while(%a) : f32[8] {{
    (%t: f32[8]) =>
    %s = sum(%t, dims=[0]) : f32[]
    %k = constant(value=9.0) : f32[]
    %l = lt(%s, %k) : bool[]
    yield %l
  }} {{
    (%c: f32[8]) =>
    sharding_group(%c, group={inner})
    sharding_group(%u, group={inner})
    %d = sort(%c, dim=0) : f32[8]
    yield %d
  }}
  sharding_group(%r, group={outer})
  sharding_group(%q, group={outer})
{after}  return %r, %v, %q, %u, %w
}}
"""


def stated(*members: tuple[str, int]) -> str:
    return "".join(f"  sharding_group(%{name}, group={number})\n" for name, number in members)


@pytest.mark.parametrize(
    ("inner", "outer", "before", "after", "carried"),
    [
        (0, 1, "", "", "f32[8@y]"),
        (1, 0, "", "", "f32[8@y]"),
        (0, 1, stated(("v", 1)), "", "f32[8@x]"),
        (1, 0, stated(("v", 0)), "", "f32[8@x]"),
        (1, 0, stated(("v", 0)), stated(("w", 2), ("w", 0)), "f32[8@y]"),
        (1, 0, stated(("v", 0)), stated(("w", 0), ("w", 2)), "f32[8@x]"),
    ],
)
def test_groups_of_one_edge_apply_in_the_order_in_which_they_are_stated(
    inner: int, outer: int, before: str, after: str, carried: str
) -> None:
    """The first group decides the sharding of the carried value and the result of the loop, and the
    members of the other one contradict it. Numbers have no effect.
    """
    types = types_by_name(EDGE.format(inner=inner, outer=outer, before=before, after=after))
    assert types["c"] == carried


def test_a_barrier_does_not_separate_members() -> None:
    types = types_by_name("""\
func @f(
  %a: f32[8@x],
  %b: f32[8],
) -> (f32[8], f32[8]) {
  %c = neg(%a) : f32[8]
  %d = propagation_barrier(%b, direction=none) : f32[8]
  %e = add(%c, %d) : f32[8]
  sharding_group(%b, group=0)
  sharding_group(%e, group=0)
  return %e, %b
}
""")
    assert {types[name] for name in "abcde"} == {"f32[8@x]"}


def test_a_member_in_a_loop() -> None:
    types = types_by_name("""\
func @f(
  %a: f32[8@x],
  %n: i32[],
  %b: f32[8],
) -> (f32[8], f32[8]) {
  %r, %i = while(%a, %n) : f32[8], i32[] {
    (%t: f32[8], %k: i32[]) =>
    %l = lt(%k, %n) : bool[]
    yield %l
  } {
    (%p: f32[8], %k2: i32[]) =>
    %q = add(%p, %p) : f32[8]
    sharding_group(%q, group=0)
    yield %q, %k2
  }
  sharding_group(%b, group=0)
  return %r, %b
}
""")
    assert types["b"] == "f32[8@x]"


def test_the_constraint_of_a_member_in_a_loop_comes_first_in_its_block() -> None:
    """It takes the sharding of its operand before `add` can shard it."""
    types = types_by_name("""\
func @f(
  %a: f32[8],
  %n: i32[],
  %w: f32[8@y],
) -> (f32[8], f32[8]) {
  %r, %i = while(%a, %n) : f32[8@x], i32[] {
    (%t: f32[8], %k: i32[]) =>
    %l = lt(%k, %n) : bool[]
    yield %l
  } {
    (%p: f32[8], %k2: i32[]) =>
    sharding_group(%p, group=0)
    %q = add(%p, %w) : f32[8]
    yield %q, %k2
  }
  %b = neg(%a) : f32[8@z]
  sharding_group(%b, group=0)
  return %r, %b
}
""")
    assert {types[name] for name in ("r", "p", "p.1", "q", "b.1")} == {"f32[8@x]"}
    assert types["b"] == "f32[8@z]"


@pytest.mark.parametrize(("member", "moved"), [("r", ["r"]), ("p", [])])
def test_only_constraints_of_results_follow_the_edge_of_a_loop(
    member: str, moved: list[str]
) -> None:
    """The group has conflicts, so that each member gets a constraint."""
    group = f"sharding_group(%{member}, group=0)"
    module = parse(f"""{MESH}\
func @f(
  %a: f32[8@x],
  %b: f32[8@y],
) -> (f32[8]) {{
  %r = scan(%a, carries=1, length=4) : f32[8] {{
    (%p: f32[8]) =>
    {group if member == "p" else ""}
    %q = neg(%p) : f32[8]
    yield %q
  }}
  {group if member == "r" else ""}
  sharding_group(%a, group=0)
  sharding_group(%b, group=0)
  return %r
}}
""")
    draft = FunctionDraft(module.main)
    owners, stated = edge_owners(draft), stated_shardings(draft)
    meshes = {mesh.name: mesh for mesh in module.meshes}
    unify_groups(draft, merge_groups(draft), owners, stated, {}, meshes)
    assert [value.name for value in draft.moved_behind] == moved


def test_each_copy_of_a_constant_is_a_member() -> None:
    """The operation that states the group of a constant is no use of the constant."""
    module = propagate("""\
func @f(
  %a: f32[8@x],
  %b: f32[8],
) -> (f32[8], f32[8]) {
  %zero = constant(value=0.0) : f32[8]
  %c = add(%a, %zero) : f32[8]
  %d = add(%b, %zero) : f32[8]
  sharding_group(%zero, group=0)
  return %c, %d
}
""")
    assert (
        str(module)
        == MESH
        + """\
func @f(
  %a: f32[8@x],
  %b: f32[8@x],
) -> (f32[8@x], f32[8@x]) {
  %zero = constant(value=0.0) : f32[8@x]
  sharding_group(%zero, group=0)
  %zero.1 = constant(value=0.0) : f32[8@x]
  sharding_group(%zero.1, group=0)
  %c = add(%a, %zero) : f32[8@x]
  %d = add(%b, %zero.1) : f32[8@x]
  return %c, %d
}
"""
    )


def test_explanations_state_paths_through_groups() -> None:
    explained = explain(parse(MESH + TWO), "c")
    assert (
        str(explained)
        == """\
%c: f32[8@x, 4@y]

x shards dimension 0
  stated by argument %a: f32[8@x?, 4]
  %a -> %c  forwards through %c = neg  along dimension 0 of %a  round 1

y shards dimension 1
  stated by value %d: f32[8, 4@y?]
  %d -> %b  backwards through %d = exp         along dimension 1 of %b  round 1
  %b -> %a  forwards through sharding group 0  along dimension 1 of %b  round 1
  %a -> %c  forwards through %c = neg          along dimension 1 of %a  round 1

z does not shard it
  no annotation states the axis"""
    )


def test_explanations_state_annotations_of_other_members() -> None:
    explained = explain(parse(MESH + TWO), "b")
    assert [chain.annotation.name for chain in explained.chains] == ["%a", "%d"]


def test_members_of_different_shapes_are_errors() -> None:
    with pytest.raises(PropagateError) as error:
        propagate("""\
func @f(
  %a: f32[8],
  %b: f32[8, 4],
) -> (f32[8]) {
  sharding_group(%a, group=7)
  sharding_group(%b, group=7)
  return %a
}
""")
    assert str(error.value) == (
        "sharding group 7 has members of different shapes, %a of f32[8] and %b of f32[8, 4]; "
        "members share one sharding and need equal shapes"
    )


@pytest.mark.parametrize(
    ("first", "second", "is_equal"),
    [
        ("f32[8@x]", "f32[8@x]", True),
        ("f32[8@x]", "f32[8@x] on @same", True),
        ("f32[8@x]", "f32[8@x] on @larger", False),
        # Members that state axes in an open dimension are constrained too, others are not.
        ("f32[8@x?]", "f32[8@-]", False),
        ("f32[8]", "f32[8@-]", True),
    ],
)
def test_members_with_other_shardings_get_constraints(
    first: str, second: str, is_equal: bool
) -> None:
    module = propagate(f"""\
mesh @m = [x=2]
mesh @same = [x=2]
mesh @larger = [x=2, y=2]

func @f(
  %a: {first},
  %b: {second},
) -> (f32[8], f32[8]) {{
  sharding_group(%a, group=0)
  sharding_group(%b, group=0)
  return %a, %b
}}
""")
    names = [op.name for op in module.main.body.ops]
    assert names.count("sharding_constraint") == (0 if is_equal else 2)


def test_a_stated_sharding_of_a_member_makes_the_other_results_of_its_operation_open() -> None:
    """Results that only edges connect with their operands stay without a sharding."""
    types = types_by_name(
        """\
func @f(
  %a: f32[8],
  %b: f32[8],
  %c: f32[8@x],
) -> (f32[8]) {
  %d, %e = sort(%a, %b, dim=0) : f32[8], f32[8]
  %g, %h = optimization_barrier(%a, %b) : f32[8], f32[8]
  sharding_group(%c, group=0)
  sharding_group(%d, group=0)
  sharding_group(%g, group=0)
  return %c
}
""",
        keep_open=True,
        level="basic",
    )
    assert (types["d"], types["g"]) == ("f32[8@x]", "f32[8@x]")
    assert (types["e"], types["h"]) == ("f32[8] on @m", "f32[8]")
