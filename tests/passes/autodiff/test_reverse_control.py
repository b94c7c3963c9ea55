"""Reverse mode of loops and branches: text of the programs."""

import numpy as np
import pytest

from shardir.interpret.interpreter import evaluate, run
from shardir.ir.module import Module
from shardir.passes.autodiff.vjp import linearize, vjp
from shardir.text.parser import parse
from tests.derivatives import check_gradients
from tests.passes.autodiff.derivative_programs import CASE, SCAN, function, normal, print_verified


def test_the_backward_scan_reads_stacked_residuals() -> None:
    """Values that the scan stacks already (`%xs`, `%ys`) are not stacked again."""
    assert (
        print_verified(vjp(function(SCAN), [0, 1, 2]))
        == """\
func @run.vjp(
  %c0: f64[2],
  %xs: f64[5, 2],
  %w: f64[2, 2],
  %c.grad: f64[2],
  %ys.grad: f64[5, 2],
) -> (f64[2], f64[5, 2], f64[2], f64[5, 2], f64[2, 2]) {
  %c, %ys, %y.saved, %c1.saved = scan(%c0, %xs, carries=1, length=5) : \
f64[2], f64[5, 2], f64[5, 2], f64[5, 2] {
    (%c1: f64[2], %x: f64[2]) =>
    %h = dot(%c1, %w, dims="i,ij->j") : f64[2]
    %z = mul(%h, %x) : f64[2]
    %y = tanh(%z) : f64[2]
    yield %y, %h, %y, %c1
  }
  %0 = constant(value=0) : f64[2, 2]
  %c0.grad, %w.grad, %xs.grad = scan(\
%c.grad, %0, %ys.grad, %y.saved, %xs, %ys, %c1.saved, carries=2, length=5, reverse=true) : \
f64[2], f64[2, 2], f64[5, 2] {
    (%y.grad: f64[2], %w.grad.sum: f64[2, 2], %h.grad: f64[2], \
%y.1: f64[2], %x.1: f64[2], %h.1: f64[2], %c1.1: f64[2]) =>
    %1 = mul(%y.1, %y.1) : f64[2]
    %2 = constant(value=1) : f64[2]
    %3 = sub(%2, %1) : f64[2]
    %z.grad = mul(%y.grad, %3) : f64[2]
    %4 = mul(%z.grad, %x.1) : f64[2]
    %x.grad = mul(%z.grad, %h.1) : f64[2]
    %h.grad.1 = add(%h.grad, %4) : f64[2]
    %c1.grad = dot(%h.grad.1, %w, dims="j,ij->i") : f64[2]
    %5 = dot(%h.grad.1, %c1.1, dims="j,i->ij") : f64[2, 2]
    %6 = add(%w.grad.sum, %5) : f64[2, 2]
    yield %c1.grad, %6, %x.grad
  }
  return %c, %ys, %c0.grad, %xs.grad, %w.grad
}
"""
    )


@pytest.mark.parametrize("direction", ["", ", reverse=true", ", reverse=false"])
def test_scans_have_gradients_of_any_order(direction: str) -> None:
    plain = function(SCAN.replace("length=5", f"length=5{direction}"))

    check_gradients(plain, normal((2,), (5, 2), (2, 2)), order=3)


@pytest.mark.parametrize("length", [0, 1])
def test_short_scans_have_gradients(length: int) -> None:
    text = SCAN.replace("length=5", f"length={length}").replace("[5, 2]", f"[{length}, 2]")

    check_gradients(function(text), normal((2,), (length, 2), (2, 2)), order=2)


def test_counters_of_a_loop_have_no_cotangents() -> None:
    plain = function(
        "func @f(%x: f64[]) -> (f64[], i32[]) {\n"
        "  %n = constant(value=0) : i32[]\n"
        "  %y, %m = scan(%x, %n, carries=2, length=3) : f64[], i32[] { (%a: f64[], %i: i32[]) =>\n"
        "    %one = constant(value=1) : i32[]\n"
        "    %j = add(%i, %one) : i32[]\n"
        "    %k = convert(%j) : f64[]\n"
        "    %b = mul(%a, %k) : f64[]\n"
        "    %s = sin(%b) : f64[]\n"
        "    yield %s, %j\n"
        "  }\n"
        "  return %y, %m\n}\n"
    )

    back = vjp(plain, [0]).body.ops[-1]

    assert back.attrs == {"carries": 1, "length": 3, "reverse": True}
    check_gradients(plain, normal(()), order=2)


def test_cheap_values_are_recomputed() -> None:
    """Only the argument of the sine is stacked, and neither constants nor broadcasts."""
    plain = function(
        "func @f(%x: f64[2], %s: f64[]) -> (f64[2]) {\n"
        "  %y = scan(%x, carries=1, length=3) : f64[2] { (%a: f64[2]) =>\n"
        "    %k = constant(value=0.5) : f64[]\n"
        "    %t = broadcast(%s, dims=[]) : f64[2]\n"
        "    %u = broadcast(%k, dims=[]) : f64[2]\n"
        "    %b = mul(%a, %t) : f64[2]\n"
        "    %c = mul(%b, %u) : f64[2]\n"
        "    %d = sin(%c) : f64[2]\n"
        "    yield %d\n"
        "  }\n"
        "  return %y\n}\n"
    )

    forward = next(op for op in vjp(plain, [0]).body.ops if op.name == "scan")

    assert [v.name for v in forward.results] == ["y", "c.saved"]
    check_gradients(plain, normal((2,), ()), order=2)


def test_branches_share_slots_for_residuals() -> None:
    assert (
        print_verified(vjp(function(CASE), [1, 2]))
        == """\
func @choose.vjp(
  %i: i32[],
  %x: f64[2],
  %y: f64[2],
  %r.grad: f64[2],
) -> (f64[2], f64[2], f64[2]) {
  %r, %t.saved = case(%i) : f64[2], f64[2] {
    %s = sin(%x) : f64[2]
    %t = tanh(%s) : f64[2]
    %u = mul(%t, %y) : f64[2]
    yield %u, %t
  } {
    %e = exp(%y) : f64[2]
    %0 = constant(value=0) : f64[2]
    yield %e, %0
  } {
    %1 = constant(value=0) : f64[2]
    yield %x, %1
  }
  %y.grad, %x.grad = case(%i) : f64[2], f64[2] {
    %t.grad = mul(%r.grad, %y) : f64[2]
    %2 = mul(%r.grad, %t.saved) : f64[2]
    %3 = mul(%t.saved, %t.saved) : f64[2]
    %4 = constant(value=1) : f64[2]
    %5 = sub(%4, %3) : f64[2]
    %s.grad = mul(%t.grad, %5) : f64[2]
    %6 = cos(%x) : f64[2]
    %7 = mul(%s.grad, %6) : f64[2]
    yield %2, %7
  } {
    %8 = mul(%r.grad, %r) : f64[2]
    %9 = constant(value=0) : f64[2]
    yield %8, %9
  } {
    %10 = constant(value=0) : f64[2]
    yield %10, %r.grad
  }
  return %r, %x.grad, %y.grad
}
"""
    )


@pytest.mark.parametrize("index", [0, 1, 2, 7, -1])
def test_each_branch_has_its_gradients(index: int) -> None:
    args = [np.array(index, np.int32), *normal((2,), (2,))]

    check_gradients(function(CASE), args, order=3)


def test_a_function_is_split_into_forward_and_backward() -> None:
    apart = linearize(function(SCAN), [0, 2])
    args = normal((2,), (5, 2), (2, 2))
    (*given,) = normal((2,), (5, 2))
    print_verified(apart.forward, apart.pullback)

    results, residuals = (made := evaluate(apart.forward, args))[:2], made[2:]
    gradients = evaluate(apart.pullback, [*residuals, *given])

    assert len(residuals) == apart.residuals == 4
    whole = evaluate(vjp(function(SCAN), [0, 2]), [*args, *given])
    for got, expected in zip([*results, *gradients], whole, strict=True):
        np.testing.assert_array_equal(got, expected)


def test_the_backward_function_recomputes_constants() -> None:
    plain = function(
        "func @f(%x: f64[2]) -> (f64[2]) {\n"
        "  %k = constant(value=0.5) : f64[2]\n"
        "  %y = mul(%x, %k) : f64[2]\n"
        "  return %y\n}\n"
    )

    apart = linearize(plain, [0])

    assert apart.residuals == 0
    assert [p.name for p in apart.pullback.body.params] == ["y.grad"]
    assert [op.name for op in apart.pullback.body.ops] == ["constant", "mul"]


@pytest.mark.parametrize("count", [200, 400])
def test_the_gradient_is_linear_in_the_number_of_operations(count: int) -> None:
    lines = [f"  %v{i + 1} = sin(%v{i}) : f64[2]\n" for i in range(count)]
    plain = function(
        f"func @f(%v0: f64[2]) -> (f64[2]) {{\n{''.join(lines)}  return %v{count}\n}}\n"
    )

    assert len(vjp(plain, [0]).body.ops) == 3 * count


STEP_FUNCTION = """\
%{y} = custom-jvp(%{x}, rule="step") : f64[] {{ (%{y}a: f64[]) =>
      %{y}b = floor(%{y}a) : f64[]
      yield %{y}b
    }} {{ (%{y}c: f64[], %{y}t: f64[]) =>
      %{y}d = floor(%{y}c) : f64[]
      %{y}zero = constant(value=0.0) : f64[]
      yield %{y}d, %{y}zero
    }}"""
"""A function with a rule whose tangent does not depend on that of its argument."""
LOOP_OF_STEPS = f"""\
func @f(%xs: f64[3]) -> (f64[3]) {{
  %ys = scan(%xs, carries=0, length=3) : f64[3] {{ (%x: f64[]) =>
    {STEP_FUNCTION.format(x="x", y="y")}
    yield %y
  }}
  return %ys
}}
"""
BRANCH_OF_STEPS = f"""\
func @f(%x: f64[]) -> (f64[]) {{
  %i = constant(value=1) : i32[]
  %z = case(%i) : f64[] {{
    %k = constant(value=0.5) : f64[]
    yield %k
  }} {{
    {STEP_FUNCTION.format(x="x", y="y")}
    yield %y
  }}
  return %z
}}
"""
CHECKPOINT_OF_STEPS = f"""\
func @f(%x: f64[]) -> (f64[]) {{
  %z = checkpoint(%x) : f64[] {{ (%w: f64[]) =>
    {STEP_FUNCTION.format(x="w", y="y")}
    yield %y
  }}
  return %z
}}
"""
MANUAL_STEPS = f"""\
mesh @m = [a=2]

func @f(%x: f64[]) -> (f64[]) {{
  %z = manual_computation(%x, axes=[a], in_axes=[[]], out_axes=[[]]) : f64[] {{ (%w: f64[]) =>
    {STEP_FUNCTION.format(x="w", y="y")}
    yield %y
  }}
  return %z
}}
"""


@pytest.mark.parametrize(
    "text", [LOOP_OF_STEPS, BRANCH_OF_STEPS, CHECKPOINT_OF_STEPS, MANUAL_STEPS]
)
def test_a_rule_with_a_constant_tangent_adds_no_backward_operation(text: str) -> None:
    plain = parse(text)
    back = Module(plain.meshes, (vjp(plain.main, [0]),))
    names = [op.name for op in back.main.body.ops]
    for name in ("scan", "case", "manual_computation"):
        assert names.count(name) == text.count(f"= {name}(")
    assert "optimization_barrier" not in names
    (x,) = normal(plain.main.body.params[0].type.shape)
    y, gradient = run(back, [x, np.ones_like(x)])
    np.testing.assert_array_equal(y, np.floor(x))
    np.testing.assert_array_equal(gradient, np.zeros_like(x))


def test_the_backward_loop_carries_no_cotangents_of_values_that_results_do_not_need() -> None:
    plain = function(
        "func @f(%x: f64[], %y: f64[]) -> (f64[]) {\n"
        "  %p, %q = scan(%x, %y, carries=2, length=3) : f64[], f64[] { (%a: f64[], %b: f64[]) =>\n"
        "    %c = sin(%a) : f64[]\n"
        "    %d = mul(%b, %a) : f64[]\n"
        "    yield %c, %d\n"
        "  }\n"
        "  return %p\n}\n"
    )
    *_, back = (op for op in vjp(plain, [0, 1]).body.ops if op.name == "scan")
    assert back.attrs["carries"] == 1
    check_gradients(plain, normal((), ()))
