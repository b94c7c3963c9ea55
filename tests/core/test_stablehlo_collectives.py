"""Collectives in StableHLO text: those of Shardy's dialect, and those of manual computations."""

from shardir.passes import ReshardExactly
from shardir.stablehlo.reader import read
from shardir.text.parser import parse
from shardir.text.printer import show

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


def test_groups_of_devices_are_axes() -> None:
    assert "name='x'" in operations("[[0, 2], [1, 3]]")[0]
    assert "name='y'" in operations("[[0, 1], [2, 3]]")[0]


def test_other_groups_are_carried_through() -> None:
    assert operations("[[0, 3], [1, 2]]") == ["opaque"]


def test_what_a_sum_is_of_is_pending() -> None:
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


def test_exact_moves_leave_exchanges_alone() -> None:
    module = parse("""\
mesh @m = [x=2]

func @f(
  %x: f32[16@x],
) -> (f32[8@-]) {
  %y = slice(%x, starts=[0], strides=[1]) : f32[8@-]
  return %y
}
""")
    text = show(ReshardExactly()(module))
    assert "%x.whole = reshard(%x) : f32[16@-]" in text
    assert "%y = slice(%x.whole, starts=[0], strides=[1]) : f32[8@-]" in text
