"""`cse`: equal computations are merged, similar ones are not."""

from typing import Any

import pytest
from hypothesis import given

from shardir.ir.module import Module
from shardir.passes import CommonSubexpressionElimination, Pipeline
from shardir.passes.simplify.cse import exact_attribute
from shardir.text.parser import parse
from shardir.verify.verifier import verify
from tests.programs.bit_exact_programs import must_be_exact
from tests.programs.strategies import modules


def run_cse(text: str) -> str:
    module = CommonSubexpressionElimination()(parse(text))
    verify(module)
    return str(module)


def test_equal_operations_are_merged_through_chains() -> None:
    assert (
        run_cse("""\
func @f(
  %x: f32[4],
) -> (f32[4]) {
  %a = exp(%x) : f32[4]
  %b = exp(%x) : f32[4]
  %c = neg(%a) : f32[4]
  %d = neg(%b) : f32[4]
  %y = add(%c, %d) : f32[4]
  return %y
}
""")
        == """\
func @f(
  %x: f32[4],
) -> (f32[4]) {
  %a = exp(%x) : f32[4]
  %c = neg(%a) : f32[4]
  %y = add(%c, %c) : f32[4]
  return %y
}
"""
    )


@pytest.mark.parametrize(
    ("one", "other"),
    [("0.0", "-0.0"), ("1", "true"), ("1", "1.0"), ("2.0", "2.5")],
)
def test_constants_with_different_text_are_not_merged(one: str, other: str) -> None:
    text = """\
func @f() -> (f32[4], f32[4]) {{
  %a = constant(value={}) : f32[4]
  %b = constant(value={}) : f32[4]
  return %a, %b
}}
"""
    assert run_cse(text.format(one, other)) == text.format(one, other)
    assert "return %a, %a" in run_cse(text.format(one, one))


def test_nan_constants_are_merged() -> None:
    assert "return %a, %a" in run_cse("""\
func @f() -> (f32[], f32[]) {
  %a = constant(value=nan) : f32[]
  %b = constant(value=nan) : f32[]
  return %a, %b
}
""")


def test_operations_with_different_types_or_shardings_are_not_merged() -> None:
    text = """\
mesh @m = [x=2]

func @f(
  %x: f32[4],
) -> (f32[4], f32[4], f64[4], f16[4]) {
  %a = reshard(%x) : f32[4@x]
  %b = reshard(%x) : f32[4@-]
  %c = convert(%x) : f64[4]
  %d = convert(%x) : f16[4]
  return %a, %b, %c, %d
}
"""
    assert run_cse(text) == text


def test_collectives_are_merged() -> None:
    assert "return %a, %a" in run_cse("""\
mesh @m = [x=2]

spmd func @f(
  %x: f32[2] of f32[4@x],
) -> (f32[4] of f32[4@-], f32[4] of f32[4@-]) {
  %a = all-gather(%x, dim=0, axes=[x]) : f32[4]
  %b = all-gather(%x, dim=0, axes=[x]) : f32[4]
  return %a, %b
}
""")


def test_nothing_is_merged_across_a_barrier() -> None:
    text = """\
func @f(
  %x: f32[4],
) -> (f32[4], f32[4]) {
  %a = optimization_barrier(%x) : f32[4]
  %b = optimization_barrier(%x) : f32[4]
  return %a, %b
}
"""
    assert run_cse(text) == text


def test_a_block_uses_values_before_it_but_not_after_it() -> None:
    assert (
        run_cse("""\
func @f(
  %x: f32[4],
  %p: bool[],
) -> (f32[4], f32[4]) {
  %a = exp(%x) : f32[4]
  %r = case(%p) : f32[4] {
    %b = exp(%x) : f32[4]
    %c = sin(%b) : f32[4]
    yield %c
  } {
    %d = sin(%x) : f32[4]
    %e = sin(%x) : f32[4]
    %g = add(%d, %e) : f32[4]
    yield %g
  }
  %h = sin(%a) : f32[4]
  return %r, %h
}
""")
        == """\
func @f(
  %x: f32[4],
  %p: bool[],
) -> (f32[4], f32[4]) {
  %a = exp(%x) : f32[4]
  %r = case(%p) : f32[4] {
    %c = sin(%a) : f32[4]
    yield %c
  } {
    %d = sin(%x) : f32[4]
    %g = add(%d, %d) : f32[4]
    yield %g
  }
  %h = sin(%a) : f32[4]
  return %r, %h
}
"""
    )


def test_a_module_without_repetitions_is_returned_unchanged() -> None:
    module = parse("""\
func @f(%x: f32[4], %p: bool[]) -> (f32[4]) {
  %a = exp(%x) : f32[4]
  %b = case(%p) : f32[4] {
    yield %a
  } {
    %c = sin(%x) : f32[4]
    yield %c
  }
  return %b
}
""")
    assert CommonSubexpressionElimination()(module) is module


@given(modules())
def test_results_are_bitwise_equal(module: Module) -> None:
    merged = CommonSubexpressionElimination()(module)
    verify(merged)
    must_be_exact(module, merged)


def test_a_process_keeps_equal_collectives_that_differ_in_others() -> None:
    program = parse("""\
mesh @m = [x=2]

spmd func @f(
  %x: f32[4] of f32[8@x],
) -> (f32[4] of f32[8@x]) {
  %a = neg(%x) : f32[4]
  %b = neg(%x) : f32[4]
  %y = all-reduce(%a, axes=[x], op=add) : f32[4]
  %z = all-reduce(%b, axes=[x], op=add) : f32[4]
  %s = add(%y, %z) : f32[4]
  return %s
}
""")
    joined = Pipeline.parse("cse")(program)
    assert [op.name for op in joined.main.body.ops] == ["neg", "all-reduce", "add"]
    kept = Pipeline.parse("cse{keep=collectives}")(program)
    assert [op.name for op in kept.main.body.ops] == ["neg", "all-reduce", "all-reduce", "add"]


def test_operations_with_different_blocks_are_not_merged() -> None:
    text = """\
func @f(
  %x: f32[4],
  %p: bool[],
) -> (f32[4], f32[4]) {
  %a = case(%p) : f32[4] {
    yield %x
  } {
    %b = exp(%x) : f32[4]
    yield %b
  }
  %c = case(%p) : f32[4] {
    %d = sin(%x) : f32[4]
    yield %d
  } {
    yield %x
  }
  return %a, %c
}
"""
    assert run_cse(text) == text


def test_an_unused_last_operation_is_merged() -> None:
    assert "%b" not in run_cse("""\
func @f(%x: f32[4]) -> (f32[4]) {
  %a = exp(%x) : f32[4]
  %b = exp(%x) : f32[4]
  return %a
}
""")


def test_a_block_returns_the_first_of_equal_operations() -> None:
    assert "yield %a" in run_cse("""\
func @f(%x: f32[4], %p: bool[]) -> (f32[4], f32[4]) {
  %a = exp(%x) : f32[4]
  %b = exp(%x) : f32[4]
  %c = case(%p) : f32[4] {
    yield %b
  } {
    yield %x
  }
  return %a, %c
}
""")


@pytest.mark.parametrize(
    ("one", "other"), [(0.0, -0.0), (1, True), (complex(0.0, 0.0), complex(0.0, -0.0))]
)
def test_attributes_that_python_calls_equal_differ(one: Any, other: Any) -> None:
    assert one == other
    assert exact_attribute(one) != exact_attribute(other)
    assert exact_attribute((2, one)) != exact_attribute((2, other))
    assert exact_attribute((2, one)) == exact_attribute((2, one))
