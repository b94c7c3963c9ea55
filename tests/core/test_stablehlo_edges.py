"""Propagation edges in StableHLO text: read, checked, and printed again."""

import re

import pytest

from shardir.errors import ParseError
from shardir.frontend.random_programs.programs import random_program
from shardir.passes import Pipeline, Propagate
from shardir.passes.explain.propagation_history.propagation_edges import show_propagation_edges
from shardir.stablehlo.debug_attributes import DescribedModule
from shardir.stablehlo.printer import show
from shardir.stablehlo.reader import read_described
from shardir.text.parser import parse

EDGES = re.compile(r"sdy\.\w*edges = .*?\]\}\]\}\]>\]?")
PREFIX = "#sdy.propagation_edges"


def program(attributes: str, operation: str = "stablehlo.add %a, %b", mesh: str = "") -> str:
    return f"""\
sdy.mesh @m = <["x"=2, "y"=4]>
{mesh}func.func @main(%a: tensor<8xf32>, %b: tensor<8xf32>) -> tensor<8xf32> {{
  %c = {operation} {{{attributes}}} : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  return %c : tensor<8xf32>
}}
"""


def own_edges(steps: str) -> str:
    return f"sdy.propagation_edges = {PREFIX}<[{steps}]>"


def print_again(described: DescribedModule) -> str:
    return show(described.module, debug=described.debug)


def assert_round_trip(text: str, count: int) -> None:
    again = print_again(read_described(text))
    assert EDGES.findall(again) == EDGES.findall(text)
    assert len(EDGES.findall(text)) == count
    assert print_again(read_described(again)) == again


def test_edges_of_random_programs_are_printed_again() -> None:
    num_edges = 0
    for seed in range(24):
        text = show_propagation_edges(random_program(seed), Propagate())
        again = print_again(read_described(text))
        assert EDGES.findall(again) == EDGES.findall(text), f"seed {seed}"
        num_edges += len(EDGES.findall(text))
    assert num_edges > 30


LOOP = """\
mesh @m = [x=2, y=4]

func @f(
  %x: f32[8@x, 8],
  %n: i32[],
) -> (f32[8, 8], f32[8, 8]) {
  %y, %c = while(%x, %n) : f32[8, 8], i32[] {
    (%p: f32[8, 8], %i: i32[]) =>
    %zero = constant(value=0) : i32[]
    %go = gt(%i, %zero) : bool[]
    yield %go
  } {
    (%q: f32[8, 8], %j: i32[]) =>
    %r = neg(%q) : f32[8, 8]
    %one = constant(value=1) : i32[]
    %k = sub(%j, %one) : i32[]
    yield %r, %k
  }
  %z = manual_computation(%y, axes=[y], in_axes=[[[], []]], out_axes=[[[], []]]) : f32[8, 8] {
    (%s: f32[8, 8]) =>
    %t = neg(%s) : f32[8, 8]
    yield %t
  }
  return %y, %z
}
"""


def test_edges_of_loops_and_manual_computations_are_printed_again() -> None:
    text = show_propagation_edges(parse(LOOP), Propagate())
    assert "sdy.result_propagation_edges = [" in text
    assert "sdy.block_arg_propagation_edges = [" in text
    assert_round_trip(text, 6)


def test_edges_of_parts_of_axes_and_of_opaque_operations_are_printed_again() -> None:
    edges = own_edges('{step-0 = [{"x" = result-0 -> [operand-0]}, '
                      '{"y":(1)2 = operand-1 -> [operand-0, result-0]}]}, '
                      '{step-12345 = [{"y":(2)2 = operand-0 -> [result-0]}]}')  # fmt: skip
    assert_round_trip(program(edges), 1)
    assert_round_trip(program(edges, '"other.operation"(%a, %b)'), 1)


def test_a_pass_drops_the_edges_of_operations_that_it_replaces() -> None:
    """Edges of an earlier propagation are not true of another one."""
    edges = own_edges('{step-0 = [{"x" = operand-1 -> [result-0]}]}')
    for operation in ("stablehlo.add %a, %b", '"other.operation"(%a, %b)'):
        described = read_described(program(edges, operation))
        assert described.attributes_of(described.module) is described.debug
        changed = Pipeline.parse("propagate")(described.module)
        assert "edges" not in show(changed, debug=described.attributes_of(changed))


def test_edges_of_results_of_functions_are_those_of_the_unchanged_module() -> None:
    edges = own_edges('{step-1 = [{"x" = operand-0 -> [result-0]}]}')
    text = f"""\
sdy.mesh @m = <["x"=2]>
func.func @main(%a: tensor<8xf32>) -> (tensor<8xf32> {{{edges}}}) {{
  return %a : tensor<8xf32>
}}
"""
    assert_round_trip(text, 1)
    described = read_described(text)
    changed = Pipeline.parse("dce")(described.module)
    assert "edges" not in show(changed, debug=described.attributes_of(changed))


def test_edges_of_an_operation_that_becomes_several_are_dropped() -> None:
    edges = own_edges('{step-0 = [{"x" = operand-0 -> [operand-1, result-0]}]}')
    text = f"""\
sdy.mesh @m = <["x"=2]>
func.func @main(%a: tensor<8xf32>, %b: tensor<1xf32>) -> tensor<8xf32> {{
  %c = chlo.broadcast_add %a, %b {{{edges}}} : (tensor<8xf32>, tensor<1xf32>) -> tensor<8xf32>
  return %c : tensor<8xf32>
}}
"""
    assert "edges" not in print_again(read_described(text))


def test_operations_that_are_written_as_several_state_no_edges() -> None:
    """The last written operation has other operands, or other results."""
    text = show_propagation_edges(parse("""\
mesh @m = [x=2]

func @f(
  %x: f32[8@x, 8],
) -> (i64[8]) {
  %y = argmax(%x, dim=1) : i64[8]
  return %y
}
"""), Propagate())  # fmt: skip
    assert EDGES.findall(text) == [
        f'sdy.propagation_edges = {PREFIX}<[{{step-1 = [{{"x" = operand-0 -> [result-0]}}]}}]>'
    ]


REFUSALS = [
    (own_edges('{step-1 = [{"x" = operand-0 -> [result-0]}]}, '
               '{step-1 = [{"y" = operand-1 -> [result-0]}]}'), "step 1 is stated twice"),
    (own_edges('{step-1 = [{"x" = operand-0 -> [operand-0]}]}'),
     "operand-0 is the source and a target"),
    (own_edges('{step-1 = [{"x" = result-0 -> [operand-0, operand-0]}]}'),
     "operand-0 is stated twice"),
    (own_edges('{step-1 = [{"x" = result-0 -> [operand-2]}]}'),
     "stablehlo.add has no operand 2 for operand-2"),
    (own_edges('{step-1 = [{"x" = operand-0 -> [operand-1, result-1]}]}'),
     "stablehlo.add has no result 1 for result-1"),
    (own_edges('{step-1 = [{"z" = operand-0 -> [result-0]}]}'),
     "mesh @m has no axis called 'z'; it has x, y"),
    (own_edges('{step-1234567890 = [{"x" = operand-0 -> [result-0]}]}'),
     "this number is too large"),
    (own_edges('{step--3 = [{"x" = operand-0 -> [result-0]}]}'),
     "unexpected 'step', expected a step such as step-2"),
    ("sdy.propagation_edges = 64",
     f"sdy.propagation_edges consists of {PREFIX}<...>"),
    ("sdy.result_propagation_edges = 64",
     f"sdy.result_propagation_edges is an array of {PREFIX}<...>"),
    ("sdy.block_arg_propagation_edges = [1, 2]",
     f"sdy.block_arg_propagation_edges consists of {PREFIX}<...>"),
]  # fmt: skip


@pytest.mark.parametrize(("attributes", "message"), REFUSALS)
def test_edges_that_are_not_true_are_refused(attributes: str, message: str) -> None:
    with pytest.raises(ParseError) as caught:
        read_described(program(attributes))
    assert str(caught.value).splitlines()[0] == message


def test_edges_need_one_mesh() -> None:
    edges = own_edges('{step-1 = [{"x" = operand-0 -> [result-0]}]}')
    other = 'sdy.mesh @n = <["x"=4]>\n'
    stated = "sdy.sharding = #sdy.sharding_per_value<[<@n, [{?}]>]>"
    assert_round_trip(program(f"{edges}, {stated}", mesh=other), 1)
    with pytest.raises(ParseError) as caught:
        read_described(program(edges, mesh=other))
    assert str(caught.value).splitlines()[0] == (
        "propagation edges and origins name axes of a mesh, and the module has 2 meshes with axes; "
        "state one of them by sdy.sharding"
    )
