"""Costs of operations in bytes and floating-point operations."""

import pytest
from hypothesis import given

from shardir.cost.op_cost import Cost, cost_of, cost_of_block, flops_of, memory_of, sent_by
from shardir.ir.module import Module, Op
from shardir.text.parser import parse
from tests.programs.strategies import any_modules

PARAMS = """\
  %x: f32[4, 8],
  %w: f32[8, 2],
  %z: c64[4, 8],
  %zw: c64[8, 2],
  %image: f32[1, 6, 6, 4],
  %filter: f32[3, 3, 2, 8],
"""


def op(line: str) -> Op:
    return parse(f"func @f(\n{PARAMS}) -> () {{\n{line}\nreturn\n}}").main.body.ops[0]


@pytest.mark.parametrize(
    ("line", "flops"),
    [
        ('%y = dot(%x, %w, dims="bi,ih->bh") : f32[4, 2]', 2 * 4 * 8 * 2),
        ('%y = dot(%z, %zw, dims="bi,ih->bh") : c64[4, 2]', 8 * 4 * 8 * 2),
        ('%y = dot(%x, %x, dims="bi,bi->b") : f32[4]', 2 * 4 * 8),
        ('%y = dot(%x, %w, dims="bi,jh->bijh") : f32[4, 8, 8, 2]', 2 * 4 * 8 * 8 * 2),
        (
            "%y = convolution(%image, %filter, strides=[1, 1], padding=[[0, 0], [0, 0]], "
            'lhs_dilation=[1, 1], rhs_dilation=[1, 1], dims="b01f,01io->b01f", groups=2) '
            ": f32[1, 4, 4, 8]",
            2 * (4 * 4 * 8) * (3 * 3 * 2),
        ),
        ("%y = exp(%x) : f32[4, 8]", 32),
        ("%y = convert(%x) : bf16[4, 8]", 0),
        ("%y = transpose(%x, perm=[1, 0]) : f32[8, 4]", 0),
        ("%y = sum(%x, dims=[0]) : f32[8]", 32),
        ("%y = cumsum(%x, dim=0, reverse=false) : f32[4, 8]", 32),
        (
            "%y = reduce_window(%x, op=max, window=[2, 2], strides=[2, 2], "
            "padding=[[0, 0], [0, 0]], base_dilation=[1, 1], window_dilation=[1, 1]) : f32[2, 4]",
            8 * 4,
        ),
        ("%y = constant(value=1.0) : f32[4, 8]", 0),
    ],
)
def test_floating_point_operations(line: str, flops: int) -> None:
    assert flops_of(op(line)) == flops


def test_memory_traffic_is_operands_and_results() -> None:
    assert memory_of(op('%y = dot(%x, %w, dims="bi,ih->bh") : f32[4, 2]')) == 4 * (32 + 16 + 8)
    assert memory_of(op("%y = convert(%x) : bf16[4, 8]")) == 4 * 32 + 2 * 32


@pytest.mark.parametrize(
    ("line", "sent"),
    [
        ("%y = all-reduce(%x, axes=[a, b], op=add) : f32[8, 8]", 2 * 256 * 7 // 8),
        ("%y = all-reduce(%x, axes=[a:(2)2], op=add) : f32[8, 8]", 2 * 256 // 2),
        ("%y = all-gather(%x, dim=0, axes=[a]) : f32[32, 8]", 256 * 3),
        ("%y = reduce-scatter(%x, dim=0, axes=[a], op=add) : f32[2, 8]", 256 * 3 // 4),
        ("%y = all-to-all(%x, split=0, concat=1, axes=[a]) : f32[2, 32]", 256 * 3 // 4),
        ("%y = collective-permute(%x, source=[a, b], target=[b, a]) : f32[8, 8]", 256),
        ("%y = collective-permute(%x, source=[a], target=[a]) : f32[8, 8]", 0),
        ("%y = collective-permute(%x, axes=[b], pairs=[[0, 1]]) : f32[8, 8]", 256),
        ("%y = all-slice(%x, dim=0, axes=[a]) : f32[2, 8]", 0),
        ("%y = axis-index(axes=[a]) : i32[]", 0),
        ("%y = exp(%x) : f32[8, 8]", 0),
    ],
)
def test_bytes_sent_by_each_device(line: str, sent: int) -> None:
    text = (
        "mesh @m = [a=4, b=2]\n"
        f"spmd func @f(%x: f32[8, 8] of f32[8, 8]) -> () {{\n{line}\nreturn\n}}"
    )
    assert sent_by(parse(text).main.body.ops[0]) == sent


def test_costs_of_blocks_are_multiplied_by_executions() -> None:
    body = """\
  {BLOCKED} {
    (%c: f32[4]) =>
    %n = exp(%c) : f32[4]
    yield %n
  }
"""
    once = Cost(memory=32, flops=4)
    scan = body.replace("{BLOCKED}", "%s = scan(%v, carries=1, length=10) : f32[4]")
    text = f"func @f(%v: f32[4]) -> () {{\n{scan}return\n}}"

    assert cost_of_block(parse(text).main.body) == once * 10


def test_a_case_costs_its_most_expensive_branch() -> None:
    text = """\
func @f(
  %p: bool[],
  %v: f32[4],
) -> () {
  %y = case(%p) : f32[4] {
    yield %v
  } {
    %n = exp(%v) : f32[4]
    yield %n
  }
  return
}
"""
    assert cost_of(parse(text).main.body.ops[0]) == Cost(memory=32, flops=4)


@given(any_modules())
def test_every_operation_has_a_cost(module: Module) -> None:
    for each in module.main.body.walk():
        cost = cost_of(each)
        assert min(cost.memory, cost.flops, cost.sent) >= 0
        assert cost.sent == 0 or each.spec.collective or each.blocks
