"""Calls of functions whose program for each device the user states."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from shardir.ir.host_function import HostFunction
from shardir.ir.module import Block, Module
from shardir.ir.sharding import Axis, DimSharding, Sharding
from shardir.ops.control_flow.custom_partitioning import DeviceProgram, custom_partitioning
from shardir.passes import Partition
from shardir.passes.partitioning.custom_partitioning import (
    inline_custom_partitionings,
    rewrite_custom_partitionings,
)
from shardir.text.parser import parse
from tests.passes.op_lines import body

MESH = "mesh @m = [x=2]\n\n"
CALL = MESH + """func @f(
  %a: f32[8@x],
) -> (f32[8@x]) {
  %b = exp(%a) : f32[8@x]
  %c = custom-partitioning(%b, function="f", partition="p", factor_rule="([i]) -> ([i]) {i=8}") : \
f32[8@x]
  return %c
}
"""  # fmt: skip


def program(size: int) -> Block:
    """Return the program that each device runs for shards of this size."""
    text = f"""{MESH}func @f(
  %x: f32[{size}],
) -> (f32[{size}]) {{
  %y = sin(%x) : f32[{size}]
  %z = cos(%y) : f32[{size}]
  return %z
}}
"""
    return parse(text).main.body


def with_attributes(module: Module, attrs: Mapping[str, Any]) -> Module:
    """Return the module with other attributes of its calls."""
    function = rewrite_custom_partitionings(
        module.main, lambda op: replace(op, attrs={**op.attrs, **attrs})
    )
    return replace(module, functions=(function,))


def partitioned(size: int, *axes: str) -> Module:
    """Return the partitioned program, whose devices run the program for shards of this size."""
    sharding = Sharding("m", (DimSharding(tuple(Axis(name, 1, 2) for name in axes), open=False),))

    def partition(operands: Any, results: Any) -> DeviceProgram:
        return DeviceProgram(program(size), (sharding,), (sharding,))

    return Partition()(with_attributes(parse(CALL), {"partition": HostFunction("p", partition)}))


def test_a_program_of_the_given_shardings_takes_the_shards() -> None:
    module = partitioned(4, "x")
    assert body(module) == [
        "%b = exp(%a) : f32[4]",
        "%y = sin(%b) : f32[4]",
        "%c = cos(%y) : f32[4]",
    ]
    assert not any(op.why for op in module.main.body.ops)


def test_a_program_of_other_shardings_is_between_collectives() -> None:
    module = partitioned(8)
    assert body(module) == [
        "%b = exp(%a) : f32[4]",
        "%b.1 = all-gather(%b, dim=0, axes=[x]) : f32[8]",
        "%y = sin(%b.1) : f32[8]",
        "%z = cos(%y) : f32[8]",
        "%c = all-slice(%z, dim=0, axes=[x]) : f32[4]",
    ]
    reason = "the sharding that the partition function states"
    assert [op.why for op in module.main.body.ops] == ["", reason, "", "", reason]


LOOP = """func @f(
  %a: f32[8],
) -> (f32[8]) {
  %b = scan(%a, carries=1, length=3) : f32[8] {
    (%c: f32[8]) =>
    %d = checkpoint(%c) : f32[8] {
      (%e: f32[8]) =>
      %g = CALL : f32[8]
      yield %g
    }
    yield %d
  }
  return %b
}
"""
INNER = 'custom-partitioning(%e, function="f", partition="p", factor_rule="")'


def test_calls_in_blocks_are_rewritten() -> None:
    module = with_attributes(parse(LOOP.replace("CALL", INNER)), {"factor_rule": "r"})
    (call,) = [op for op in module.main.body.walk() if op.spec is custom_partitioning]
    assert call.attrs["factor_rule"] == "r"


def test_without_a_mesh_a_call_is_its_function() -> None:
    function = HostFunction("f", lambda: program(8))
    module = with_attributes(parse(LOOP.replace("CALL", INNER)), {"function": function})
    inlined = inline_custom_partitionings(module.main)
    assert [op.name for op in inlined.body.walk()] == ["scan", "sin", "cos"]


def test_a_function_without_calls_keeps_its_regions() -> None:
    main = parse(LOOP.replace("CALL", "exp(%e)")).main
    assert inline_custom_partitionings(main) is main
