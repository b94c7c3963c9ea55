"""Factor rules of operations that stay opaque text."""

import pytest

from shardir.errors import ParseError
from shardir.op_rules.factor_rule_text import parse_rule
from shardir.passes import Propagate
from shardir.stablehlo.printer import show
from shardir.stablehlo.reader import read
from shardir.text.printer import print_module as show_ir

PROGRAM = """\
sdy.mesh @m = <["x"=2]>
func.func @main(%a: tensor<8x4xf32> {sdy.sharding = #sdy.sharding<@m, [{"x"}, {}]>})
    -> tensor<4x8xf32> {
  %r = stablehlo.custom_call @turn(%a)
      {sdy.sharding_rule = #sdy.op_sharding_rule<([i, j])->([j, i]) {i=8, j=4}, custom>}
      : (tensor<8x4xf32>) -> tensor<4x8xf32>
  return %r : tensor<4x8xf32>
}
"""


def test_a_stated_rule_is_used_and_printed() -> None:
    module = Propagate()(read(PROGRAM))

    assert "f32[4@-, 8@x]" in show_ir(module)
    assert "sdy.sharding_rule = #sdy.op_sharding_rule<([i, j])->([j, i]) {i=8, j=4}, custom>" in (
        show(module)
    )


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        (
            '%r:2 = "stablehlo.all_gather"(%a, %a) {all_gather_dim = 1 : i64} : '
            "(tensor<8x4xf32>, tensor<8x4xf32>) -> (tensor<8x12xf32>, tensor<8x12xf32>)",
            "([i, j], [i, j])->([i, k], [i, k]) {i=8, j=4, k=12} need_replication={j, k}",
        ),
        (
            "%r = stablehlo.custom_call @Eigh(%a) : (tensor<8x4xf32>) -> tensor<8x4xf32>",
            "",
        ),
        (
            '%r:2 = "stablehlo.sort"(%a, %a) ({\n^bb0(%p: tensor<f32>, %q: tensor<f32>, '
            "%s: tensor<f32>, %t: tensor<f32>):\n"
            "  %u = stablehlo.compare LT, %q, %s : (tensor<f32>, tensor<f32>) -> tensor<i1>\n"
            "  stablehlo.return %u : tensor<i1>\n}) {dimension = 1 : i64} : "
            "(tensor<8x4xf32>, tensor<8x4xf32>) -> (tensor<8x4xf32>, tensor<8x4xf32>)",
            "([i, j], [i, j])->([i, j], [i, j]) {i=8, j=4} need_replication={j}",
        ),
    ],
)
def test_operations_without_counterpart_have_the_factors_of_shardy(text: str, rule: str) -> None:
    start = "func.func @main(%a: tensor<8x4xf32>) {\n"
    (op,) = read(f"{start}  {text}\n  return\n}}\n").main.body.ops

    assert op.name == "opaque"
    assert op.factors() == (parse_rule(rule) if rule else None)


def test_the_error_of_an_invalid_rule_points_at_it() -> None:
    with pytest.raises(ParseError) as caught:
        read(PROGRAM.replace("([i, j])->([j, i]) {i=8, j=4}, custom", "([i])"))

    assert str(caught.value) == (
        "'#sdy.op_sharding_rule<([i])>' is not a factor rule of Shardy; write "
        "([i, k])->([i]) {i=8, k=4} reduction={k} need_replication={} permutation={}\n"
        " --> <text>:5:28\n"
        "  |\n"
        "5 |       {sdy.sharding_rule = #sdy.op_sharding_rule<([i])>}\n"
        "  |                            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^"
    )
