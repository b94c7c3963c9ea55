"""Propagation edges in StableHLO text, as Shardy writes them."""

import re

import pytest

from shardir.passes import Propagate
from shardir.passes.explain.propagation_history.propagation_edges import show_propagation_edges
from shardir.text.parser import parse

MESH = "mesh @m = [a=2, b=2, c=8]\n\n"


def edges(text: str, level: str = "aggressive") -> list[str]:
    """Return the edges in the order of the text."""
    shown = show_propagation_edges(parse(MESH + text), Propagate(level=level))
    return re.findall(r"((?:\w+_)?propagation_edges = \[?#.*?\]\}\]>\]?)(?=[,}])", shown)


def attribute(*steps: str) -> str:
    return f"propagation_edges = #sdy.propagation_edges<[{', '.join(steps)}]>"


def test_operations_and_results_state_their_steps() -> None:
    """The steps of the result are those with the returned value."""
    text = """\
func @f(
  %x: f32[8@a, 8@?],
  %y: f32[8@?, 8@c],
) -> (f32[8@?, 8@?], f32[8@b?, 8@?]) {
  %z = add(%x, %y) : f32[8, 8]
  %n = neg(%y) : f32[8, 8]
  return %z, %n
}
"""
    assert edges(text) == [
        attribute('{step-3 = [{"a" = operand-0 -> [result-0]}, {"c" = operand-0 -> [result-0]}]}'),
        attribute(
            '{step-0 = [{"b" = result-0 -> [operand-0]}]}',
            '{step-4 = [{"c" = operand-0 -> [result-0]}]}',
        ),
        attribute(
            '{step-1 = [{"a" = operand-0 -> [operand-1, result-0]}, '
            '{"c" = operand-1 -> [operand-0, result-0]}]}',
        ),
        attribute('{step-2 = [{"c" = operand-0 -> [result-0]}]}'),
    ]


@pytest.mark.parametrize(
    ("operand", "result", "axes"),
    [
        ("f32[16@c]", "f32[4, 4]", ('"c":(1)4', '"c":(4)2')),
        ("f32[4@c:(1)4, 4@c:(4)2]", "f32[16]", ('"c"',)),
    ],
)
def test_parts_of_axes_are_those_of_the_dimensions(
    operand: str, result: str, axes: tuple[str, ...]
) -> None:
    """Parts along several factors of one dimension are one axis."""
    text = f"""\
func @f(
  %x: {operand},
) -> ({result}) {{
  %y = reshape(%x) : {result}
  return %y
}}
"""
    moves = ", ".join(f"{{{axis} = operand-0 -> [result-0]}}" for axis in axes)
    assert edges(text) == [
        attribute(f"{{step-1 = [{moves}]}}"),
        attribute(f"{{step-0 = [{moves}]}}"),
    ]


def test_an_applied_constraint_is_a_step_before_propagation() -> None:
    text = """\
func @f(
  %x: f32[8, 8],
) -> (f32[8, 8]) {
  %y = neg(%x) : f32[8, 8]
  %c = sharding_constraint(%y) : f32[8@a, 8@b]
  return %c
}
"""
    assert edges(text)[1:] == [
        attribute('{step-2 = [{"a" = result-0 -> [operand-0]}, {"b" = result-0 -> [operand-0]}]}'),
        attribute('{step-0 = [{"a" = result-0 -> [operand-0]}, {"b" = result-0 -> [operand-0]}]}'),
    ]


def test_edges_of_blocks_are_those_of_parameters_and_results() -> None:
    text = """\
func @f(
  %x: f32[8@a],
) -> (f32[8]) {
  %y = manual_computation(%x, axes=[b], in_axes=[[[]]], out_axes=[[[]]]) : f32[8] {
    (%p: f32[8]) =>
    %q = neg(%p) : f32[8]
    yield %q
  }
  return %y
}
"""
    move = '[{"a" = operand-0 -> [result-0]}]'
    assert edges(text) == [
        attribute(f"{{step-3 = {move}}}"),
        attribute(f"{{step-1 = {move}}}"),
        f"block_arg_propagation_edges = [#sdy.propagation_edges<[{{step-0 = {move}}}]>]",
        f"result_propagation_edges = [#sdy.propagation_edges<[{{step-2 = {move}}}]>]",
    ]


def test_steps_between_members_of_a_group_have_no_edges() -> None:
    text = """\
func @f(
  %x: f32[8@a],
  %y: f32[8],
) -> (f32[8]) {
  %z = neg(%x) : f32[8]
  sharding_group(%z, group=0)
  sharding_group(%y, group=0)
  %w = neg(%y) : f32[8]
  return %w
}
"""
    steps = [int(step) for each in edges(text) for step in re.findall(r"step-(\d+)", each)]
    assert sorted(steps) == [0, 1, 2]


def test_a_factor_that_a_tensor_lacks_has_no_source_there() -> None:
    text = """\
func @f(
  %p: bool[],
  %x: f32[8],
) -> (f32[8@a]) {
  %v = select(%p, %x, %x) : f32[8]
  return %v
}
"""
    assert edges(text) == [
        attribute('{step-0 = [{"a" = result-0 -> [operand-0]}]}'),
        attribute('{step-1 = [{"a" = result-0 -> [operand-1, operand-2]}]}'),
    ]


def test_only_gained_axes_are_edges() -> None:
    text = """\
func @f(
  %x: f32[8@(a, b)],
) -> (f32[8]) {
  %v = neg(%x) : f32[8@a?]
  return %v
}
"""
    assert edges(text)[1] == attribute('{step-1 = [{"b" = operand-0 -> [result-0]}]}')


@pytest.mark.parametrize(
    ("operand", "moves"),
    [
        ("f32[2@a, 2@c:(2)2]", ('"a"', '"c":(2)2')),
        ("f32[2@c:(2)2, 2@c:(1)2]", ('"c":(1)2', '"c":(2)2')),
        ("f32[2@c:(1)2, 2@c:(2)2]", ('"c":(1)4',)),
    ],
)
def test_adjacent_parts_of_one_axis_are_one_edge(operand: str, moves: tuple[str, ...]) -> None:
    text = f"""\
func @f(
  %x: {operand},
) -> (f32[4]) {{
  %y = reshape(%x) : f32[4]
  return %y
}}
"""
    found = ", ".join(f"{{{axis} = operand-0 -> [result-0]}}" for axis in moves)
    assert edges(text)[1] == attribute(f"{{step-0 = [{found}]}}")


def test_a_factor_may_gain_nothing() -> None:
    text = """\
func @f(
  %x: f32[16@a],
) -> (f32[2, 8]) {
  %y = reshape(%x) : f32[2, 8]
  %z = reshape(%y) : f32[16]
  return %y
}
"""
    move = '{"a" = operand-0 -> [result-0]}'
    assert edges(text) == [attribute(f"{{step-{step} = [{move}]}}") for step in (2, 0, 1)]


def test_a_constraint_of_a_copied_constant_is_a_step() -> None:
    """Each use of the constant has a copy of its own."""
    text = """\
func @f(
  %x: f32[8],
) -> (f32[8], f32[8]) {
  %c = constant(value=1.0) : f32[8]
  %v = add(%x, %c) : f32[8]
  %k = sharding_constraint(%c) : f32[8@a]
  %w = neg(%k) : f32[8]
  return %v, %w
}
"""
    back, forth = '{"a" = result-0 -> [operand-0]}', '{"a" = operand-0 -> [result-0]}'
    moves = ((2, forth), (0, back), (1, forth))
    assert edges(text) == [attribute(f"{{step-{step} = [{move}]}}") for step, move in moves]


def test_a_manual_computation_states_the_shardings_of_operands_in_a_step_each() -> None:
    text = """\
func @f(
  %x: f32[8],
  %y: f32[8],
) -> (f32[8]) {
  %u = neg(%x) : f32[8]
  %m = manual_computation(%y, %u, axes=[a], in_axes=[[[]], [[a]]], out_axes=[[[a]]]) : f32[8] {
    (%p: f32[8@-], %q: f32[4@-]) =>
    yield %q
  }
  return %m
}
"""
    back, forth = '{"a" = result-0 -> [operand-0]}', '{"a" = operand-0 -> [result-0]}'
    assert edges(text) == [
        attribute(f"{{step-2 = [{forth}]}}"),
        attribute(f"{{step-3 = [{back}]}}"),
        f"block_arg_propagation_edges = [#sdy.propagation_edges<[{{step-1 = [{back}]}}]>]",
    ]


def test_a_barrier_has_edges_and_no_blocks() -> None:
    text = """\
func @f(
  %x: f32[8@a],
) -> (f32[8]) {
  %y = optimization_barrier(%x) : f32[8]
  return %y
}
"""
    assert [each.partition(" ")[0] for each in edges(text)] == [
        "propagation_edges", "result_propagation_edges"
    ]  # fmt: skip


def test_a_constraint_of_a_member_of_a_group_is_one_step() -> None:
    text = """\
func @f(
  %x: f32[8],
  %y: f32[8],
) -> (f32[8], f32[8]) {
  %u = neg(%x) : f32[8]
  %z = neg(%y) : f32[8]
  sharding_group(%u, group=0)
  sharding_group(%z, group=0)
  %k = sharding_constraint(%u) : f32[8@a]
  return %k, %z
}
"""
    steps = [int(step) for each in edges(text) for step in re.findall(r"step-(\d+)", each)]
    assert sorted(steps) == [0, 1, 2, 3, 4]
