"""Reading and printing of the operations of the sdy dialect."""

import pytest

from shardir.errors import ParseError
from shardir.ir.equality import find_difference
from shardir.ir.sharding import Axis, Sharding
from shardir.passes import Propagate
from shardir.stablehlo.printer import show
from shardir.stablehlo.reader import read
from shardir.stablehlo.writing.writer import ExportError
from shardir.text.parser import parse
from shardir.text.printer import print_module as show_ir
from shardir.verify.verifier import verify

MANUAL = """\
sdy.mesh @m = <["x"=2, "y"=2]>
func.func @main(%a: tensor<16x32xf32>) -> tensor<16x32xf32> {
  %r = sdy.manual_computation(%a)
      in_shardings=[<@m, [{"x", ?}, {"y"}]>] out_shardings=[<@m, [{?}, {?}], replicated={"x"}>]
      manual_axes={"x"} (%p: tensor<8x32xf32>) {
    %s = stablehlo.negate %p : tensor<8x32xf32>
    %t = stablehlo.concatenate %s, %s, dim = 0
        : (tensor<8x32xf32>, tensor<8x32xf32>) -> tensor<16x32xf32>
    sdy.return %t : tensor<16x32xf32>
  } : (tensor<16x32xf32>) -> tensor<16x32xf32>
  return %r : tensor<16x32xf32>
}
"""


def test_manual_axes_are_removed_inside_a_manual_computation() -> None:
    module = read(MANUAL)
    verify(module)

    assert (
        show_ir(module)
        == """\
mesh @m = [x=2, y=2]

func @main(
  %a: f32[16, 32],
) -> (f32[16, 32]) {
  %r = manual_computation(%a, axes=[x], in_axes=[[[x], []]], out_axes=[[[], []]]) : f32[16, 32] {
    (%p: f32[8, 32@y]) =>
    %s = neg(%p) : f32[8, 32]
    %t = concatenate(%s, %s, dim=0) : f32[16, 32]
    yield %t
  }
  return %r
}
"""
    )
    assert find_difference(module, read(show(module))) is None


def test_a_manual_sub_axis_is_an_error() -> None:
    module = parse(
        """\
mesh @m = [x=4]
func @main(%a: f32[8]) -> (f32[8]) {
  %r = manual_computation(%a, axes=[x:(1)2], in_axes=[[[x:(1)2]]], out_axes=[[[x:(1)2]]]) : f32[8] {
    (%p: f32[4]) =>
    yield %p
  }
  return %r
}
"""
    )
    with pytest.raises(ExportError) as caught:
        show(module)

    assert str(caught.value) == (
        "a manual computation along x:(1)2, a sub-axis, cannot be expressed in StableHLO"
    )


def test_manual_axes_must_be_axes_of_the_mesh() -> None:
    with pytest.raises(ParseError) as caught:
        read(MANUAL.replace('manual_axes={"x"}', 'manual_axes={"z"}'))

    assert str(caught.value) == (
        "none of its meshes has the axes z\n"
        " --> <text>:3:8\n"
        "  |\n"
        "3 |   %r = sdy.manual_computation(%a)\n"
        "  |        ^^^^^^^^^^^^^^^^^^^^^^"
    )


def test_the_sharding_of_a_data_flow_edge_applies_to_its_operand() -> None:
    module = read("""\
sdy.mesh @m = <["x"=2]>
func.func @main(%i: tensor<i32>, %a: tensor<8xf32>) -> tensor<8xf32> {
  %0 = "stablehlo.case"(%i) ({
    stablehlo.return %a : tensor<8xf32>
  }, {
    stablehlo.return %a : tensor<8xf32>
  }) : (tensor<i32>) -> tensor<8xf32>
  %1 = sdy.data_flow_edge %0 sharding=<@m, [{"x"}]> : tensor<8xf32>
  return %1 : tensor<8xf32>
}
""")

    (case,) = module.main.body.ops
    assert case.result.sharding == Sharding.of("m", [(Axis("x", 1, 2),)])
    assert module.main.body.returns == case.results


@pytest.mark.parametrize("stated", ["", ' sharding=<@m, [{"x"}]>'])
def test_a_data_flow_edge_of_another_value_is_a_barrier(stated: str) -> None:
    """The constraint of a target of an edge replaces its other uses, and does not move to it."""
    module = read(f"""\
sdy.mesh @m = <["x"=2]>
func.func @main(%a: tensor<8xf32>) -> tensor<8xf32> {{
  %0 = stablehlo.sine %a : tensor<8xf32>
  %1 = sdy.data_flow_edge %0{stated} : tensor<8xf32>
  %2 = sdy.data_flow_edge %a : tensor<8xf32>
  %3 = stablehlo.add %1, %2 : tensor<8xf32>
  return %3 : tensor<8xf32>
}}
""")
    ops = module.main.body.ops
    assert [op.name for op in ops] == [
        "sin", "optimization_barrier", "optimization_barrier", "add"
    ]  # fmt: skip
    assert (ops[1].result.sharding is None) == (not stated)
    assert [op.result.sharding for op in (ops[0], ops[2])] == [None, None]


def test_a_data_flow_edge_of_a_parameter_of_a_block_applies_to_it() -> None:
    module = read("""\
sdy.mesh @m = <["x"=2]>
func.func @main(%a: tensor<8xf32>) -> tensor<8xf32> {
  %r = sdy.manual_computation(%a) in_shardings=[<@m, [{?}]>] out_shardings=[<@m, [{?}]>]
      manual_axes={} (%b: tensor<8xf32>) {
    %c = sdy.data_flow_edge %b sharding=<@m, [{"x"}]> : tensor<8xf32>
    sdy.return %c : tensor<8xf32>
  } : (tensor<8xf32>) -> tensor<8xf32>
  %s = sdy.data_flow_edge %r sharding=<@m, [{"x"}]> : tensor<8xf32>
  return %s : tensor<8xf32>
}
""")
    (op,) = module.main.body.ops
    sharded = Sharding.of("m", [(Axis("x", 1, 2),)])
    assert [v.sharding for v in (op.result, *op.blocks[0].params)] == [sharded, sharded]


def test_tokens_are_accepted() -> None:
    module = read("""\
sdy.mesh @m = <["x"=2]>
func.func @main(%t: !stablehlo.token {sdy.sharding = #sdy.sharding<@m, []>}, %a: tensor<4xf32>)
    -> !stablehlo.token {
  %0 = stablehlo.after_all %t, %t : !stablehlo.token
  return %0 : !stablehlo.token
}
""")
    verify(module)

    assert find_difference(module, parse(show_ir(module))) is None
    assert find_difference(module, read(show(module))) is None
    assert module.main.body.params[0].type.nbytes == 0


def test_tokens_of_manual_computations_are_not_replicated() -> None:
    """Shardy refuses tokens with replicated axes."""
    text = """\
sdy.mesh @m = <["a"=2]>
func.func @main(%t: !stablehlo.token, %x: tensor<4xf32>) -> (!stablehlo.token, tensor<4xf32>) {
  %r:2 = sdy.manual_computation(%t, %x) in_shardings=[<@m, []>, <@m, [{"a"}]>]
      out_shardings=[<@m, []>, <@m, [{"a"}]>] manual_axes={"a"}
      (%u: !stablehlo.token, %y: tensor<2xf32>) {
    sdy.return %u, %y : !stablehlo.token, tensor<2xf32>
  } : (!stablehlo.token, tensor<4xf32>) -> (!stablehlo.token, tensor<4xf32>)
  return %r#0, %r#1 : !stablehlo.token, tensor<4xf32>
}
"""
    module = read(text)
    assert "replicated" not in show(module)
    assert find_difference(read(show(module)), module) is None


def test_a_module_without_functions_is_printed() -> None:
    text = 'module {\n  sdy.mesh @m = <["a"=2]>\n}\n'
    assert show(read(text)) == text


@pytest.mark.parametrize("empty", ["@empty", "mesh<[]>"])
def test_a_mesh_without_axes_is_that_of_the_manual_computation(empty: str) -> None:
    text = f"""\
sdy.mesh @m = <["a"=2]>
sdy.mesh @empty = <[]>
func.func @main(%x: tensor<4xf32>) -> tensor<2xf32> {{
  %r = sdy.manual_computation(%x) in_shardings=[<@m, [{{"a"}}]>] out_shardings=[<{empty}, [{{}}]>]
      manual_axes={{"a"}} (%y: tensor<2xf32>) {{
    sdy.return %y : tensor<2xf32>
  }} : (tensor<4xf32>) -> tensor<2xf32>
  return %r : tensor<2xf32>
}}
"""
    module = read(text)
    verify(module)
    assert "out_axes=[[[]]]) : f32[2@-] {" in show_ir(module)


def test_meshes_in_shardings_have_the_names_of_shardy() -> None:
    params = ", ".join(
        f"%x{i}: tensor<4xf32> {{sdy.sharding = #sdy.sharding<{mesh}, {dims}>}}"
        for i, (mesh, dims) in enumerate(
            [('mesh<["a"=2]>', '[{"a"}]'), ("mesh<[]>", "[{}]"),
             ("mesh<[], device_ids=[3]>", "[]")]
        )
    )  # fmt: skip
    module = read(
        f"func.func @main({params}) -> tensor<4xf32> {{\n  return %x0 : tensor<4xf32>\n}}"
    )
    assert [mesh.name for mesh in module.meshes] == ["mesh", "empty_mesh", "maximal_mesh_3"]


def test_manual_axes_of_size_1_are_printed_once() -> None:
    """An axis of size 1 is manual like others: it either shards a dimension or is replicated."""
    module = read("""\
sdy.mesh @m = <["x"=2, "one"=1]>
func.func @main(%a: tensor<8x4xf32>) -> tensor<8x4xf32> {
  %r = sdy.manual_computation(%a)
      in_shardings=[<@m, [{"x"}, {"one", ?}]>] out_shardings=[<@m, [{"x", "one"}, {}]>]
      manual_axes={"x", "one"} (%p: tensor<4x4xf32>) {
    sdy.return %p : tensor<4x4xf32>
  } : (tensor<8x4xf32>) -> tensor<8x4xf32>
  return %r : tensor<8x4xf32>
}
""")
    verify(module)
    text = show(module)

    assert 'in_shardings = #sdy.sharding_per_value<[<@m, [{"x"}, {"one", ?}]>]>' in text
    assert 'out_shardings = #sdy.sharding_per_value<[<@m, [{"x", "one"}, {}]>]>' in text
    assert find_difference(module, read(text)) is None
    propagated = show(Propagate()(module))
    out = 'out_shardings = #sdy.sharding_per_value<[<@m, [{"x"}, {}], replicated={"one"}>]>'
    assert out in propagated
    assert show(read(propagated)) == propagated
