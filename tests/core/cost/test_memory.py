"""Peak memory of programs by the live ranges of their values."""

import pytest

from shardir.cost.memory import MemoryEstimate, estimate_memory, memory_timeline
from shardir.text.parser import parse


def memory(text: str) -> MemoryEstimate:
    return estimate_memory(parse(text))


def test_a_value_lives_until_its_last_use() -> None:
    chain = """
    func @f(%x: f32[256]) -> (f32[256]) {
      %a = exp(%x) : f32[256]
      %b = sin(%a) : f32[256]
      %c = cos(%b) : f32[256]
      return %c
    }"""
    # Two of the three values are live at the same time: an operand and a result.
    assert memory(chain) == MemoryEstimate(1024, 1024, 1024, 3072)


def test_a_late_use_extends_the_live_range() -> None:
    late = """
    func @f(%x: f32[256]) -> (f32[256]) {
      %a = exp(%x) : f32[256]
      %b = sin(%a) : f32[256]
      %c = cos(%b) : f32[256]
      %d = add(%a, %c) : f32[256]
      return %d
    }"""
    assert memory(late) == MemoryEstimate(1024, 1024, 2048, 4096)


def test_an_unused_value_is_freed_immediately() -> None:
    unused = """
    func @f(%x: f32[256]) -> (f32[256]) {
      %a = exp(%x) : f32[256]
      %b = sin(%x) : f32[256]
      return %b
    }"""
    assert memory(unused) == MemoryEstimate(1024, 1024, 0, 2048)


def test_results_that_are_arguments_count_twice() -> None:
    same = "func @f(%x: f32[256]) -> (f32[256], f32[256]) {\n  return %x, %x\n}"
    assert memory(same) == MemoryEstimate(1024, 2048, 0, 3072)


@pytest.mark.parametrize("length", [2, 200])
def test_a_loop_needs_the_memory_of_one_iteration(length: int) -> None:
    loop = f"""
    func @f(%x: f32[256]) -> (f32[256]) {{
      %y = scan(%x, carries=1, length={length}, reverse=false) : f32[256] {{
        (%c: f32[256]) =>
        %a = exp(%c) : f32[256]
        %b = sin(%a) : f32[256]
        yield %b
      }}
      return %y
    }}"""
    # The live values are the result, the carried value and both values of the body.
    assert memory(loop) == MemoryEstimate(1024, 1024, 3072, 5120)


def test_an_empty_program_needs_no_memory() -> None:
    assert memory("func @f() -> () {\n  return\n}") == MemoryEstimate(0, 0, 0, 0)


def test_a_fused_operation_has_no_intermediate_arrays() -> None:
    fused = """
    func @f(%x: f32[256]) -> (f32[256]) {
      %c = fused(%x) : f32[256] {
        (%p: f32[256]) =>
        %a = exp(%p) : f32[256]
        %b = sin(%a) : f32[256]
        yield %b
      }
      return %c
    }"""
    assert memory(fused) == MemoryEstimate(1024, 1024, 0, 2048)


def test_values_that_share_memory_count_once() -> None:
    module = parse("""
    func @f(%x: f32[256]) -> (f32[16, 16]) {
      %a = exp(%x) : f32[256]
      %b = reshape(%a) : f32[16, 16]
      %c = sin(%b) : f32[16, 16]
      return %c
    }""")
    a, b, c = (op.result for op in module.main.body.ops)
    assert memory_timeline(module).alive == (1024, 2048, 2048)
    assert memory_timeline(module, {b: a}).alive == (1024, 1024, 2048)
    (x,) = module.main.body.params
    assert memory_timeline(module, {b: a, c: x}).alive == (1024, 1024, 1024)
