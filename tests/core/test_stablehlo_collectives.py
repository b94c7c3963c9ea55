"""Collectives in StableHLO text: those of Shardy's dialect, and those of manual computations."""

from typing import Any

import numpy as np
import pytest

from shardir.interpret.interpreter import run
from shardir.ops.opaque import unknown_operations
from shardir.passes import InsertExplicitReshards
from shardir.passes.pipeline import DEFAULT_PIPELINE, Pipeline
from shardir.stablehlo.reader import read
from shardir.text.parser import parse
from shardir.text.printer import print_module

MANUAL = """\
sdy.mesh @m = <["x"=2, "y"=2]>
func.func @f(%x: tensor<8xi32> {sdy.sharding = #sdy.sharding<@m, [{"x"}]>}) -> tensor<4xi32> {
  %r = sdy.manual_computation(%x) in_shardings=[<@m, [{"x"}]>] out_shardings=[<@m, [{}]>]
      manual_axes={"x", "y"} (%p: tensor<4xi32>) {
    %s = "stablehlo.all_reduce"(%p) ({
      ^bb0(%a: tensor<i32>, %b: tensor<i32>):
        %c = stablehlo.add %a, %b : tensor<i32>
        stablehlo.return %c : tensor<i32>
    }) {replica_groups = dense<GROUPS> : tensor<2x2xi64>} : (tensor<4xi32>) -> tensor<4xi32>
    sdy.return %s : tensor<4xi32>
  } : (tensor<8xi32>) -> tensor<4xi32>
  return %r : tensor<4xi32>
}
"""


def operations(groups: str) -> list[str]:
    (op,) = read(MANUAL.replace("GROUPS", groups)).main.body.ops
    return [str(inner.attrs.get("axes", inner.name)) for inner in op.blocks[0].ops]


def test_device_groups_become_axes() -> None:
    assert "name='x'" in operations("[[0, 2], [1, 3]]")[0]
    assert "name='y'" in operations("[[0, 1], [2, 3]]")[0]


@pytest.mark.parametrize("axis", ["x", "y"])
def test_groups_may_state_mesh_axes(axis: str) -> None:
    text = MANUAL.replace(
        "dense<GROUPS> : tensor<2x2xi64>",
        "#stablehlo.replica_group_mesh_axes<mesh = @m, axes = "
        f'[#stablehlo.axis_ref<name = "{axis}">]>',
    )
    (op,) = read(text).main.body.ops
    (inner,) = op.blocks[0].ops
    assert [each.name for each in inner.attrs["axes"]] == [axis]


def test_exchanges_of_several_tensors() -> None:
    pair = "tensor<2x3xf32>, tensor<2x3xf32>"
    module = read(f"""\
sdy.mesh @m = <["e"=2]>
func.func @f(%x: tensor<4x3xf32>, %y: tensor<4x3xf32>) -> (tensor<4x3xf32>, tensor<4x3xf32>) {{
  %r:2 = sdy.manual_computation(%x, %y)
      in_shardings=[<@m, [{{"e"}}, {{}}]>, <@m, [{{"e"}}, {{}}]>]
      out_shardings=[<@m, [{{"e"}}, {{}}]>, <@m, [{{"e"}}, {{}}]>]
      manual_axes={{"e"}} (%a: tensor<2x3xf32>, %b: tensor<2x3xf32>) {{
    %s:2 = "stablehlo.all_to_all"(%a, %b) <{{concat_dimension = 0 : i64,
        replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>, split_count = 2 : i64,
        split_dimension = 0 : i64}}> : ({pair}) -> ({pair})
    sdy.return %s#0, %s#1 : {pair}
  }} : (tensor<4x3xf32>, tensor<4x3xf32>) -> (tensor<4x3xf32>, tensor<4x3xf32>)
  return %r#0, %r#1 : tensor<4x3xf32>, tensor<4x3xf32>
}}
""")
    x = np.arange(12, dtype=np.float32).reshape(4, 3)
    found = run(module, [x, -x])
    swapped = x[[0, 2, 1, 3]]
    np.testing.assert_array_equal(found[0], swapped)
    np.testing.assert_array_equal(found[1], -swapped)


def test_other_device_groups_stay_opaque_text() -> None:
    assert operations("[[0, 3], [1, 2]]") == ["opaque"]


def test_operands_of_all_reduce_are_unreduced() -> None:
    module = read("""\
sdy.mesh @m = <["x"=2]>
func.func @f(%x: tensor<8xi32>) -> tensor<8xi32> {
  %y = stablehlo.negate %x {sdy.sharding = #sdy.sharding_per_value<[<@m, [{}]>]>} : tensor<8xi32>
  %z = sdy.all_reduce {"x"} %y out_sharding=<@m, [{}]> : tensor<8xi32>
  return %z : tensor<8xi32>
}
""")
    negated, summed = module.main.body.ops
    assert negated.result.sharding is not None
    assert [axis.name for axis in negated.result.sharding.unreduced] == ["x"]
    assert summed.name == "reshard"


def test_exact_reshards_keep_all_to_all() -> None:
    module = parse("""\
mesh @m = [x=2]

func @f(
  %x: f32[16@x],
) -> (f32[8@-]) {
  %y = slice(%x, starts=[0], strides=[1]) : f32[8@-]
  return %y
}
""")
    text = print_module(InsertExplicitReshards()(module))
    assert "%x.unsharded = reshard(%x) : f32[16@-]" in text
    assert "%y = slice(%x.unsharded, starts=[0], strides=[1]) : f32[8@-]" in text


EXCHANGE = """\
sdy.mesh @m = <["e"=2]ORDER>
func.func @main(%x: tensor<8x3xf32> {sdy.sharding = #sdy.sharding<@m, [{"e"}, {}]>}) -> TYPE {
  %r = sdy.manual_computation(%x) in_shardings=[<@m, [{"e"}, {}]>]
      out_shardings=[<@m, [{"e"}WHOLE]>] manual_axes={"e"} (%a: tensor<4x3xf32>) {
    OPERATION
    sdy.return %y : LOCAL
  } : (tensor<8x3xf32>) -> TYPE
  return %r : TYPE
}
"""
X = np.arange(24, dtype=np.float32).reshape(8, 3)
GROUPS = "replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>"


def run_operation(operation: str, *, scalar: bool = False, order: str = "") -> Any:
    text = EXCHANGE.replace("OPERATION", operation).replace("ORDER", order)
    text = text.replace("WHOLE", "" if scalar else ", {}")
    text = text.replace("TYPE", "tensor<2xui32>" if scalar else "tensor<8x3xf32>")
    text = text.replace("LOCAL", "tensor<1xui32>" if scalar else "tensor<4x3xf32>")
    module = read(text)
    assert not unknown_operations(module)
    (result,) = run(Pipeline.parse(DEFAULT_PIPELINE)(module), [X])
    return result


def test_all_to_all_along_one_dimension() -> None:
    found = run_operation(
        '%y = "stablehlo.all_to_all"(%a) <{concat_dimension = 0 : i64, split_count = 2 : i64, '
        f"split_dimension = 0 : i64, {GROUPS}}}> : (tensor<4x3xf32>) -> tensor<4x3xf32>"
    )
    pieces = X.reshape(2, 2, 2, 3)  # The dimensions are device, part, row and column.
    np.testing.assert_array_equal(found, pieces.swapaxes(0, 1).reshape(8, 3))


def test_collective_broadcast_returns_the_value_of_the_first_device() -> None:
    found = run_operation(
        f'%y = "stablehlo.collective_broadcast"(%a) <{{{GROUPS}}}> '
        ": (tensor<4x3xf32>) -> tensor<4x3xf32>"
    )
    np.testing.assert_array_equal(found, np.concatenate([X[:4], X[:4]]))


@pytest.mark.parametrize(("order", "ids"), [("", [0, 1]), (", device_ids=[1, 0]", [1, 0])])
def test_partition_id_is_the_device(order: str, ids: list[int]) -> None:
    found = run_operation(
        "%p = stablehlo.partition_id : tensor<ui32>\n"
        "    %y = stablehlo.reshape %p : (tensor<ui32>) -> tensor<1xui32>",
        scalar=True,
        order=order,
    )
    np.testing.assert_array_equal(found, np.array(ids, np.uint32))


def test_the_number_of_a_device_may_be_unused_outside_of_manual_computations() -> None:
    text = """\
func.func @f(%x: tensor<8xi32>) -> tensor<8xi32> {
  %p = stablehlo.partition_id : tensor<ui32>
  %r = stablehlo.replica_id : tensor<ui32>
  %y = stablehlo.add %x, %x : tensor<8xi32>
  return %y : tensor<8xi32>
}
"""
    module = read(text)
    assert [op.name for op in module.main.body.ops] == ["add"]
    used = read(text.replace("%x, %x : tensor<8xi32>", "%p, %r : tensor<ui32>")
                .replace("tensor<8xi32> {", "tensor<ui32> {")
                .replace("return %y : tensor<8xi32>", "return %y : tensor<ui32>"))  # fmt: skip
    assert [each.operation for each in unknown_operations(used)] == [
        "stablehlo.partition_id",
        "stablehlo.replica_id",
    ]


@pytest.mark.parametrize(
    ("move", "before", "partial"),
    [
        ('sdy.replicated_to_unreduced {"x"}', "[{}]", '[{}], unreduced={"x"}'),
        ('sdy.sharded_to_unreduced [{"x"}]', '[{"x"}]', '[{}], unreduced={"x"}'),
    ],
)
def test_moves_to_unreduced_axes(move: str, before: str, partial: str) -> None:
    module = read(f"""\
sdy.mesh @m = <["x"=2]>
func.func @f(%x: tensor<8xi32> {{sdy.sharding = #sdy.sharding<@m, {before}>}}) -> tensor<8xi32> {{
  %y = {move} %x out_sharding=<@m, {partial}> : tensor<8xi32>
  %z = sdy.all_reduce {{"x"}} %y out_sharding=<@m, [{{}}]> : tensor<8xi32>
  return %z : tensor<8xi32>
}}
""")
    x = np.arange(8, dtype=np.int32)
    np.testing.assert_array_equal(run(module, [x])[0], x)
    plan = Pipeline.parse(DEFAULT_PIPELINE)(module)
    np.testing.assert_array_equal(run(plan, [x])[0], x)
