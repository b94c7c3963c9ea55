"""The order of propagation by operation priorities and user priorities."""

import pytest

from shardir.ir.sharding import Sharding
from tests.passes.propagation.propagation_result import propagate, types_by_name


def test_elementwise_operations_propagate_before_contractions() -> None:
    """Without rounds the product, which is first, would shard the rows of its result over x."""
    text = """\
func @f(
  %a: f32[8@x, 16],
  %b: f32[16, 8],
  %c: f32[8, 8@x],
) -> (f32[8, 8]) {
  %d = dot(%a, %b, dims="ik,kj->ij") : f32[8, 8]
  %e = add(%d, %c) : f32[8, 8]
  return %e
}
"""
    assert types_by_name(text, level="op-priority")["d"] == "f32[8@-, 8@x]"
    assert types_by_name(text, level="aggressive")["d"] == "f32[8@x, 8@-]"


def test_a_value_with_several_uses_propagates_a_round_later() -> None:
    """%p has two uses that request different shardings; the chain of values with one use
    propagates first.
    """
    text = """\
func @f(
  %p: f32[8, 8],
  %q: f32[8@x, 8],
  %r: f32[8, 8@x],
) -> (f32[8, 8], f32[8, 8], f32[8, 8]) {
  %a = add(%p, %r) : f32[8, 8]
  %b = neg(%p) : f32[8, 8]
  %c = neg(%q) : f32[8, 8]
  %d = add(%c, %b) : f32[8, 8]
  return %a, %d, %b
}
"""
    types = types_by_name(text)
    assert types["c"] == "f32[8@x, 8@-]"
    assert types["a"] == "f32[8@-, 8@x]"


def test_broadcasts_propagate_last() -> None:
    """The sharding of the bias would use x, which the rows need; the product propagates before
    it.
    """
    text = """\
func @f(
  %a: f32[8@x, 4],
  %w: f32[4, 8],
  %bias: f32[8@x],
) -> (f32[8, 8]) {
  %p = dot(%a, %w, dims="ik,kj->ij") : f32[8, 8]
  %b = broadcast(%bias, dims=[1]) : f32[8, 8]
  %s = add(%p, %b) : f32[8, 8]
  return %s
}
"""
    assert types_by_name(text)["s"] == "f32[8@x, 8@-]"


def test_lower_priorities_propagate_first() -> None:
    def sums(first: str, second: str) -> dict[str, str]:
        return types_by_name(f"""\
func @f(
  %a: f32[8@x{first}, 8],
  %b: f32[8, 8@x{second}],
) -> (f32[8, 8]) {{
  %c = add(%a, %b) : f32[8, 8]
  return %c
}}
""")

    assert sums("", " p1")["c"] == "f32[8@x, 8@-]"
    assert sums(" p1", "")["c"] == "f32[8@-, 8@x]"
    assert sums(" p2", " p1")["c"] == "f32[8@-, 8@x]"
    assert sums(" p2", " p1")["a"] == "f32[8@x, 8@-]"


def test_lower_levels_ignore_priorities() -> None:
    text = """\
func @f(
  %a: f32[8@x p1, 8],
  %b: f32[8, 8@x],
) -> (f32[8, 8]) {
  %c = add(%a, %b) : f32[8, 8]
  return %c
}
"""
    assert types_by_name(text, level="op-priority")["c"] == "f32[8@x, 8@-]"
    assert types_by_name(text, level="user-priority")["c"] == "f32[8@-, 8@x]"


@pytest.mark.parametrize(
    ("type", "expected"),
    [("f32[32@? p3]", Sharding.open("m", 1)), ("f32[32]", None)],
)
def test_a_step_removes_priorities_also_if_it_adds_no_axes(
    type: str, expected: Sharding | None
) -> None:
    """The axis `z` would shard the second factor of `%a`, whose first factor is unsharded.

    A value without a sharding keeps none.
    """
    text = f"""\
func @f(
  %a: {type},
) -> (f32[8, 4]) {{
  %r = reshape(%a) : f32[8@-, 4@z]
  return %r
}}
"""
    (parameter,) = propagate(text, level="basic", keep_open=True).main.body.params
    assert parameter.sharding == expected


def test_axes_of_a_later_priority_are_reserved() -> None:
    """Before the priority of x, x may not shard the second dimension of %a either."""
    text = """\
func @f(
  %a: f32[8@x p1, 8],
  %b: f32[8, 8@x],
) -> (f32[8, 8], f32[8, 8]) {
  %c = neg(%a) : f32[8, 8]
  %d = add(%a, %b) : f32[8, 8]
  return %c, %d
}
"""
    types = types_by_name(text)
    assert types["a"] == "f32[8@x, 8@-]"
    assert types["c"] == "f32[8@x, 8@-]"


def test_aggressive_propagation_follows_basic_propagation() -> None:
    """The first product has no conflict, so that it is decided before the second resolves its
    conflict.
    """
    text = """\
func @f(
  %a: f32[6@x, 4],
  %b: f32[4, 6],
  %c: f32[6, 4@x],
) -> (f32[6, 4]) {
  %d = dot(%a, %b, dims="ik,kj->ij") : f32[6, 6]
  %e = dot(%d, %c, dims="ij,jk->ik") : f32[6, 4]
  return %e
}
"""
    both = types_by_name(text, level="aggressive", strategy="basic-then-aggressive")
    assert both["d"] == "f32[6@x, 6@-]"
    assert both["e"] == "f32[6@x, 4@-]"
    assert types_by_name(text, level="basic")["e"] == "f32[6@-, 4@-]"


def test_the_order_of_the_work_list_is_observable() -> None:
    """Three additions request one axis for different dimensions; the first in the list gets it."""
    text = """\
func @f(
  %a: f32[8@x, 8, 8],
  %b: f32[8, 8, 8],
  %c: f32[8, 8@x, 8],
) -> (f32[8, 8, 8]) {
  %d = neg(%b) : f32[8, 8, 8]
  %e = add(%b, %a) : f32[8, 8, 8]
  %f = add(%d, %c) : f32[8, 8, 8]
  %g = add(%e, %f) : f32[8, 8, 8]
  return %g
}
"""
    lifo = types_by_name(text, level="basic", order="lifo")
    fifo = types_by_name(text, level="basic", order="fifo")
    assert lifo["d"] == "f32[8@x, 8@-, 8@-]"
    assert fifo["d"] == "f32[8@-, 8@x, 8@-]"


def test_parts_of_an_axis_are_compared_by_divisibility() -> None:
    """%e takes half of x, which is no prefix of the third that %b takes: the half of x and the
    minor half that shards %b are not parts of one split.
    """
    text = """\
mesh @m = [x=6]

func @f(
  %a: f32[6, 6, 6],
  %c: f32[6@x, 6, 6],
) -> (f32[6, 6, 6]) {
  %b = neg(%a) : f32[6, 6@x:(3)2, 6]
  %e = add(%b, %c) : f32[6, 6, 6@x:(2)3]
  return %e
}
"""
    types = types_by_name(text)
    assert types["b"] == "f32[6@x:(1)3, 6@x:(3)2, 6@-]"
    assert types["e"] == "f32[6@x:(1)2, 6@-, 6@x:(2)3]"
