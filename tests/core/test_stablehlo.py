"""Modules as StableHLO text: Shardy's attributes, names and source locations."""

import pytest

from shardir import ops as ops  # declares the operations
from shardir.ir.operation import OPS
from shardir.passes import Pipeline
from shardir.stablehlo.printer import show
from shardir.stablehlo.writing.writer import WRITERS
from shardir.text.parser import parse

PROGRAM = """\
mesh @m = [x=4, y=2]

func @f(
  %a: f32[8@x?, 4@-],
  %b: f32[4, 6@y p1] replicated(x),
) -> (f32[8@x?, 6]) {
  %0 = dot(%a, %b, dims="ik,kj->ij") : f32[8, 6@x:(2)2?]
  %0.partial = tanh(%0) : f32[8, 6]
  %c = sharding_constraint(%0.partial) : f32[8@-, 6@y]
  return %c
}
"""


def test_shardings_are_attributes_of_shardy() -> None:
    assert (
        show(parse(PROGRAM))
        == """\
module {
  sdy.mesh @m = <["x"=4, "y"=2]>
  func.func @f(%a: tensor<8x4xf32> {sdy.sharding = #sdy.sharding<@m, [{"x", ?}, {}]>}, \
%b: tensor<4x6xf32> {sdy.sharding = #sdy.sharding<@m, [{?}, {"y"}p1], replicated={"x"}>}) -> \
(tensor<8x6xf32> {sdy.sharding = #sdy.sharding<@m, [{"x", ?}, {?}]>}) {
    %0 = "stablehlo.dot_general"(%a, %b) <{dot_dimension_numbers = #stablehlo.dot<\
lhs_batching_dimensions = [], rhs_batching_dimensions = [], lhs_contracting_dimensions = [1], \
rhs_contracting_dimensions = [0]>}> \
{sdy.sharding = #sdy.sharding_per_value<[<@m, [{?}, {"x":(2)2, ?}]>]>} : \
(tensor<8x4xf32>, tensor<4x6xf32>) -> (tensor<8x6xf32>)
    %v0.partial = "stablehlo.tanh"(%0) : (tensor<8x6xf32>) -> (tensor<8x6xf32>)
    %c = "sdy.sharding_constraint"(%v0.partial) <{sharding = #sdy.sharding<@m, [{}, {"y"}]>}> : \
(tensor<8x6xf32>) -> (tensor<8x6xf32>)
    return %c : tensor<8x6xf32>
  }
}
"""
    )


def test_locations_have_names_and_lines() -> None:
    text = """\
func @f(
  %a: f32[8],
) -> (f32[8]) {
  %b = neg(%a) : f32[8] loc("mlp.py":12:9)
  return %b
}
"""
    assert (
        '%b = "stablehlo.negate"(%a) : (tensor<8xf32>) -> (tensor<8xf32>) loc("b"("mlp.py":12:9))'
        in show(parse(text), locations=True)
    )


@pytest.mark.parametrize(
    ("value", "type", "text"),
    [
        ("0.5", "f32[2]", "dense<0.5> : tensor<2xf32>"),
        ("1e-05", "f32[]", "dense<1.0e-05> : tensor<f32>"),
        ("inf", "f32[]", "dense<0x7F800000> : tensor<f32>"),
        ("-inf", "bf16[]", "dense<0xFF80> : tensor<bf16>"),
        ("3", "u8[4]", "dense<3> : tensor<4xui8>"),
        ("true", "bool[]", "dense<true> : tensor<i1>"),
    ],
)
def test_constants_are_decimal_where_exact(value: str, type: str, text: str) -> None:
    module = parse(
        f"func @f() -> ({type}) {{\n  %a = constant(value={value}) : {type}\n  return %a\n}}\n"
    )
    assert f"<{{value = {text}}}>" in show(module)


def test_every_operation_has_a_rule() -> None:
    assert [name for name, spec in OPS.items() if spec not in WRITERS] == []


def test_per_device_programs_have_collectives_between_replicas() -> None:
    module = parse("""\
mesh @m = [x=2, y=2]

func @f(
  %a: f32[8@x, 4],
) -> (f32[4@y]) {
  %s = sum(%a, dims=[0]) : f32[4@-]
  return %s
}
""")
    text = show(Pipeline.parse("propagate,reshard,partition")(module))
    assert text.startswith("module attributes {mhlo.num_replicas = 4 : i32} {\n  func.func @f(")
    groups = "replica_groups = dense<[[0, 2], [1, 3]]> : tensor<2x2xi64>"
    assert f'"stablehlo.all_reduce"(%s.partial) <{{{groups}}}> ({{' in text
    assert '"stablehlo.replica_id"() : () -> (tensor<ui32>)' in text
