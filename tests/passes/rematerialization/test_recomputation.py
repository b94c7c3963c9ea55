"""Operations that may be computed again, and the copies of them."""

import pytest

from shardir.ir.builder import UniqueNames
from shardir.ir.module import Op
from shardir.passes.rematerialization.recomputation import copy_operation, is_recomputable
from shardir.text.parser import parse

PROGRAM = """\
mesh @m = [x=2]

spmd func @f(
  %x: f32[8] of f32[16@x],
  %i: i32[] of i32[],
) -> (f32[8] of f32[16@x]) {
  %y = neg(%x) : f32[8] why("a reason")
  %zero = constant(value=0.0) : f32[8]
  %io = iota(dim=0) : i32[8]
  %plain = all-reduce(%x, axes=[x], op=add) : f32[8]
  %sum = all-reduce(%x, axes=[x], op=add) : f32[8] why("partial sums")
  %start = all-reduce-start(%x, axes=[x], op=add) : f32[8]
  %end = done(%start) : f32[8]
  %called = pure-callback(%x, function="f") : f32[8]
  %unknown = opaque(%x, operation="x.y", head="x.y %", attributes="", types="") : f32[8]
  %fused = fused(%x) : f32[8] {
    (%p: f32[8]) =>
    %q = exp(%p) : f32[8]
    yield %q
  }
  %branch = case(%i) : f32[8] {
    yield %x
  } {
    %n = neg(%x) : f32[8]
    yield %n
  }
  return %y
}
"""
OPERATIONS = {op.result.name: op for op in parse(PROGRAM).main.body.ops}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("y", True),
        ("plain", True),
        ("fused", True),
        # Without operands, they cannot be distinguished from their copies.
        ("zero", False),
        ("io", False),
        # One part of an asynchronous collective.
        ("start", False),
        ("end", False),
        # The cost or the effects are unknown.
        ("called", False),
        ("unknown", False),
        ("branch", False),
    ],
)
def test_operations_without_blocks_and_effects_may_be_repeated(name: str, expected: bool) -> None:
    assert is_recomputable(OPERATIONS[name]) == expected


def copy(name: str) -> Op:
    *_, last = copy_operation(OPERATIONS[name], {}, OPERATIONS["fused"], UniqueNames())
    return last


@pytest.mark.parametrize(
    ("name", "reason"), [("y", ""), ("plain", ""), ("sum", "; partial sums"), ("fused", "")]
)
def test_the_copy_of_a_collective_keeps_its_reason(name: str, reason: str) -> None:
    expected = f"%{name} is recomputed, which was freed to save memory{reason}"
    made = copy(name)
    assert made.why == expected
    assert all(op.why == expected for block in made.blocks for op in block.ops)
