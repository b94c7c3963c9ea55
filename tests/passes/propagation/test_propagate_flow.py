"""Propagation through loops, branches, constraints, and per-user copies of constants."""

import pytest

from shardir.text.parser import parse
from shardir.text.printer import print_module
from tests.passes.propagation.propagation_result import propagate, types_by_name


def test_a_sharding_propagates_around_a_loop() -> None:
    """The body shards its result; its parameter, the result and the operand of the loop get the
    same sharding.
    """
    types = types_by_name("""\
func @f(
  %a: f32[8, 8],
  %w: f32[8, 8@x],
) -> (f32[8, 8]) {
  %r = while(%a) : f32[8, 8] {
    (%t: f32[8, 8]) =>
    %s = sum(%t, dims=[0, 1]) : f32[]
    %n = constant(value=9.0) : f32[]
    %c = lt(%s, %n) : bool[]
    yield %c
  } {
    (%p: f32[8, 8]) =>
    %q = dot(%p, %w, dims="ik,kj->ij") : f32[8, 8]
    yield %q
  }
  return %r
}
""")
    assert {types[name] for name in ("a", "r", "t", "p", "q", "->0")} == {"f32[8@-, 8@x]"}


def test_a_branch_and_its_result_have_equal_shardings() -> None:
    types = types_by_name("""\
func @f(
  %i: i32[],
  %a: f32[8@x],
  %b: f32[8],
) -> (f32[8]) {
  %r = case(%i) : f32[8] {
    %c = neg(%a) : f32[8]
    yield %c
  } {
    %d = exp(%b) : f32[8]
    yield %d
  }
  return %r
}
""")
    assert {types[name] for name in ("b", "c", "d", "r")} == {"f32[8@x]"}


def test_slices_of_a_scan_have_the_sharding_of_the_array() -> None:
    types = types_by_name("""\
func @f(
  %c: f32[8],
  %xs: f32[5, 8@x],
) -> (f32[8], f32[5, 8]) {
  %r, %ys = scan(%c, %xs, carries=1, length=5) : f32[8], f32[5, 8] {
    (%p: f32[8], %x: f32[8]) =>
    %q = add(%p, %x) : f32[8]
    yield %q, %q
  }
  return %r, %ys
}
""")
    assert types["x"] == types["c"] == types["r"] == types["p"] == "f32[8@x]"
    assert types["ys"] == "f32[5@-, 8@x]"


def test_the_scanned_dimension_does_not_propagate() -> None:
    types = types_by_name("""\
func @f(
  %xs: f32[6@x, 8],
) -> (f32[6, 8]) {
  %ys = scan(%xs, carries=0, length=6) : f32[6, 8] {
    (%a: f32[8]) =>
    %b = neg(%a) : f32[8]
    yield %b
  }
  return %ys
}
""")
    assert types["xs"] == "f32[6@x, 8@-]"
    assert types["a"] == "f32[8@-]"
    assert types["ys"] == "f32[6@-, 8@-]"


def test_a_barrier_ties_each_operand_to_its_result() -> None:
    types = types_by_name("""\
func @f(
  %a: f32[8@x],
  %b: f32[8],
) -> (f32[8], f32[8]) {
  %c, %d = optimization_barrier(%a, %b) : f32[8], f32[8]
  return %c, %d
}
""")
    assert (types["c"], types["d"]) == ("f32[8@x]", "f32[8@-]")


def test_users_of_a_constraint_see_its_sharding() -> None:
    types = types_by_name("""\
func @f(
  %a: f32[8@x, 8],
) -> (f32[8, 8]) {
  %b = sharding_constraint(%a) : f32[8@-, 8@y]
  %c = neg(%b) : f32[8, 8]
  return %c
}
""")
    assert types["a"] == "f32[8@x, 8@y]"
    assert types["b"] == types["c"] == "f32[8@-, 8@y]"


def test_an_unused_constraint_applies_to_its_operand() -> None:
    types = types_by_name("""\
func @f(
  %a: f32[8, 8],
) -> (f32[8, 8]) {
  %b = neg(%a) : f32[8, 8]
  %c = sharding_constraint(%b) : f32[8@x, 8@-]
  %d = exp(%b) : f32[8, 8]
  return %d
}
""")
    assert types["b"] == types["d"] == "f32[8@x, 8@-]"


def test_conflicting_constraints_do_not_change_their_operand() -> None:
    """Propagation shards %b, which is not pinned: it takes the compatible axes of the
    constraints.
    """
    types = types_by_name(
        """\
func @f(
  %a: f32[8, 8@y],
) -> (f32[8, 8], f32[8, 8]) {
  %b = neg(%a) : f32[8, 8]
  %c = sharding_constraint(%b) : f32[8@x, 8@-]
  %d = sharding_constraint(%b) : f32[8@z, 8@-]
  return %c, %d
}
""",
        keep_open=True,
    )
    assert types["b"] in ("f32[8@x?, 8@y?]", "f32[8@z?, 8@y?]")


def test_uses_of_a_carried_value_after_a_constraint_read_the_constraint() -> None:
    module = propagate("""\
func @f(
  %a: f32[8],
) -> (f32[8], f32[8]) {
  %b = optimization_barrier(%a) : f32[8]
  %c = exp(%b) : f32[8]
  %d = sharding_constraint(%b) : f32[8@x]
  return %c, %d
}
""")
    lines = [line.strip() for line in str(module).splitlines()]
    at = lines.index("%d = sharding_constraint(%b) : f32[8@x]")
    assert lines[at + 1] == "%c = exp(%d) : f32[8@x]"


def test_uses_after_a_chain_of_constraints_read_its_last_constraint() -> None:
    module = propagate("""\
func @f(
  %a: f32[8],
) -> (f32[8]) {
  %b = neg(%a) : f32[8]
  %c = sharding_constraint(%b) : f32[8@x]
  %d = sharding_constraint(%c) : f32[8@y]
  %e = exp(%b) : f32[8]
  return %e
}
""")
    assert "  %e = exp(%d) : f32[8@y]" in str(module).splitlines()


def test_every_use_of_a_constant_gets_a_copy() -> None:
    module = propagate("""\
func @f(
  %a: f32[8@x],
  %b: f32[8@y],
) -> (f32[8], f32[8]) {
  %zero = constant(value=0.0) : f32[8]
  %minus = neg(%zero) : f32[8]
  %c = maximum(%a, %zero) : f32[8]
  %d = maximum(%b, %minus) : f32[8]
  return %c, %d
}
""")
    lines = [line.strip() for line in str(module).splitlines()]
    assert "%zero = constant(value=0.0) : f32[8@x]" in lines
    assert "%zero.1 = constant(value=0.0) : f32[8@y]" in lines
    assert "%minus = neg(%zero.1) : f32[8@y]" in lines


def test_a_broadcast_scalar_is_a_constant_too() -> None:
    module = propagate("""\
func @f(
  %s: f32[],
  %a: f32[8@x],
  %b: f32[8@y],
) -> (f32[8], f32[8]) {
  %w = broadcast(%s, dims=[]) : f32[8]
  %c = mul(%a, %w) : f32[8]
  %d = mul(%b, %w) : f32[8]
  return %c, %d
}
""")
    lines = [line.strip() for line in str(module).splitlines()]
    assert "%w = broadcast(%s, dims=[]) : f32[8@x]" in lines
    assert "%w.1 = broadcast(%s, dims=[]) : f32[8@y]" in lines


def test_scalars_are_shared() -> None:
    text = """\
mesh @m = [x=2]

func @f(
  %a: f32[8@x],
) -> (f32[8@x]) {
  %s = constant(value=2.0) : f32[]
  %b = clamp(%s, %a, %s) : f32[8@x]
  return %b
}
"""
    assert str(propagate(text)) == text


def test_an_operation_without_a_rule_stops_propagation() -> None:
    types = types_by_name("""\
func @f(
  %a: f32[8@x],
) -> (f32[8]) {
  %b = reshard(%a) : f32[8@-]
  %c = neg(%b) : f32[8]
  return %c
}
""")
    assert types["c"] == "f32[8@-]"


@pytest.mark.parametrize(
    ("direction", "cut"),
    [
        ("none", {"b": "f32[8@-]", "d": "f32[8@-]"}),
        ("forward", {"b": "f32[8@x]", "d": "f32[8@-]"}),
        ("backward", {"b": "f32[8@-]", "d": "f32[8@y]"}),
    ],
)
def test_a_propagation_barrier_may_allow_one_direction(direction: str, cut: dict[str, str]) -> None:
    """The sharding of `%a` propagates backward through one barrier, and that of `%d` forward
    through the other.
    """
    types = types_by_name(f"""\
func @f(
  %a: f32[8@x],
  %d: f32[8],
) -> (f32[8], f32[8@y]) {{
  %b = propagation_barrier(%a, direction={direction}) : f32[8]
  %e = propagation_barrier(%d, direction={direction}) : f32[8]
  return %b, %e
}}
""")
    assert {name: types[name] for name in cut} == cut


def test_an_operation_without_a_rule_is_marked() -> None:
    """The text has the mark and round-trips; a reshard blocks propagation by design and has no
    mark.
    """
    module = propagate("""\
func @f(
  %a: f32[8@x],
) -> (f32[8]) {
  %b = opaque(%a, operation="x.y", head="x.y %", attributes="", types="") : f32[8]
  %c = reshard(%b) : f32[8@y]
  return %c
}
""")
    first, second = module.main.body.ops
    assert first.why == "has no factor rule, so that no sharding passes through"
    assert second.why == ""
    text = print_module(module, locations=True)
    assert text.count("why") == 1
    assert [op.why for op in parse(text).main.body.ops] == [first.why, second.why]


def test_the_next_run_puts_other_scalar_results_on_a_single_device() -> None:
    """A replicated scalar has no sharding in the text: its sibling decides the next time."""
    once = propagate("""\
mesh @m = [x=8]
mesh @one = [] devices=[3]

func @main(%0: bool[], %1: bool[]) -> (bool[], bool[]) {
  %2, %3 = optimization_barrier(%0, %1) : bool[] replicated(x), bool[] on @one
  return %2, %3
}
""")
    twice = propagate(str(once))
    assert "optimization_barrier(%0, %1) : bool[], bool[] on @one\n" in str(once)
    assert "optimization_barrier(%0, %1) : bool[] on @one, bool[] on @one\n" in str(twice)
    assert str(propagate(str(twice))) == str(twice)
