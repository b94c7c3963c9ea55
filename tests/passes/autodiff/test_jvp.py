"""`jvp`: names of tangents, and operations without tangents."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies

from shardir import parse
from shardir.errors import DifferentiateError
from shardir.interpret.interpreter import evaluate
from shardir.ir.builder import Builder
from shardir.ir.module import Function, Loc, Module
from shardir.ir.operation import OPS
from shardir.ir.types import TensorType
from shardir.passes.autodiff.jvp import jvp, linearize_forward
from shardir.passes.autodiff.vjp import vjp
from shardir.verify.verifier import verify
from tests.derivatives import check_gradients, check_tangents
from tests.passes.nested_regions import Programs, arguments
from tests.samples import LONG


def function(text: str) -> Function:
    return parse(text).main


def print_verified(function: Function) -> str:
    module = Module((), (function,))
    verify(module)
    assert str(parse(str(module))) == str(module)
    return str(module)


LAYER = """\
func @layer(
  %x: f64[2, 3],
  %w: f64[3, 4],
  %n: i32[],
) -> (f64[2, 4], i32[]) {
  %h = dot(%x, %w, dims="bi,ih->bh") : f64[2, 4]
  %y = tanh(%h) : f64[2, 4]
  return %y, %n
}
"""


def test_tangent_operations_follow_their_operation() -> None:
    assert (
        print_verified(jvp(function(LAYER), [1]))
        == """\
func @layer.jvp(
  %x: f64[2, 3],
  %w: f64[3, 4],
  %n: i32[],
  %w.tangent: f64[3, 4],
) -> (f64[2, 4], i32[], f64[2, 4]) {
  %h = dot(%x, %w, dims="bi,ih->bh") : f64[2, 4]
  %h.tangent = dot(%x, %w.tangent, dims="bi,ih->bh") : f64[2, 4]
  %y = tanh(%h) : f64[2, 4]
  %0 = mul(%y, %y) : f64[2, 4]
  %1 = constant(value=1) : f64[2, 4]
  %2 = sub(%1, %0) : f64[2, 4]
  %y.tangent = mul(%h.tangent, %2) : f64[2, 4]
  return %y, %n, %y.tangent
}
"""
    )


def test_every_operation_states_its_reason() -> None:
    plain = function(LAYER.replace("f64[2, 4]\n  return", 'f64[2, 4] loc("mlp.py":7:3)\n  return'))
    ahead = jvp(plain, [1]).body.ops
    assert [op.why for op in ahead] == ["", "tangent of %h", "", *["tangent of %y"] * 4]
    assert {op.loc for op in ahead[3:]} == {Loc("mlp.py", 7, 3)}


def test_constant_results_have_zero_tangents() -> None:
    still = function("func @f(%x: f64[2], %y: f64[2]) -> (f64[2]) {\n  return %y\n}\n")
    (_, tangent) = evaluate(jvp(still, [0]), [np.ones(2), np.ones(2), np.ones(2)])
    np.testing.assert_array_equal(tangent, [0, 0])


def test_a_parameter_may_be_selected_twice() -> None:
    plain = function("func @f(%x: f64[]) -> (f64[]) {\n  %y = sin(%x) : f64[]\n  return %y\n}\n")
    (_, tangent) = evaluate(jvp(plain, [0, 0]), [0.0, 2.0, 3.0])
    assert tangent == 5


def power() -> Function:
    """Compute `x` to the power of n / 2, rounded up, by a while loop that swaps its carried
    values.
    """
    vector, count = TensorType((3,), "f64"), TensorType((), "i32")
    b = Builder()
    x, n = b.param(vector, "x"), b.param(count, "n")
    test = b.inner()
    tested = [test.param(count), test.param(vector), test.param(vector)]
    condition = test.block(tested, [test.lt(tested[0], n)])
    step = b.inner()
    i, y, z = step.param(count), step.param(vector), step.param(vector)
    further = step.add(i, step.full(1, count))
    body = step.block([i, y, z], [further, step.mul(z, x), y])
    one = b.full(1, vector)
    _, made, _ = b.emit(OPS["while"], b.full(0, count), one, one, blocks=(condition, body))
    return Function("power", b.block([x, n], [made]), (None,))


def test_a_while_loop_carries_tangents() -> None:
    x, direction = np.array([0.5, 1.5, 2.0]), np.array([1.0, -2.0, 0.5])
    ahead = jvp(power(), [0])
    verify(Module((), (ahead,)))
    for n in range(5):
        up = (n + 1) // 2
        made, tangent = evaluate(ahead, [x, np.int32(n), direction])
        np.testing.assert_allclose(made, x**up)
        np.testing.assert_allclose(tangent, up * x ** max(up - 1, 0) * direction)


@given(seed=strategies.integers(0, 2**32 - 1))
def test_tangents_of_nested_loops_and_branches(seed: int) -> None:
    check_tangents(Programs(seed).function(), arguments(seed), seed=seed)


@settings(max_examples=30 if LONG else 10)
@given(seed=strategies.integers(0, 2**32 - 1))
def test_gradients_of_tangents_and_tangents_of_gradients(seed: int) -> None:
    plain, args = Programs(seed).function(), arguments(seed)
    rng = np.random.default_rng(seed)
    ahead = jvp(plain, [0, 2])
    check_gradients(ahead, [*args, rng.normal(size=3), rng.normal(size=(4, 3))], rel=1e-4)
    back = vjp(plain, [0, 2])
    check_tangents(back, [*args, rng.normal(size=3), rng.normal(size=3)], rel=1e-4)


def test_linearization_makes_two_functions() -> None:
    parts = linearize_forward(function(LAYER), [1])
    assert parts.residuals == 2
    assert (
        print_verified(parts.pushforward)
        == """\
func @layer.pushforward(
  %x: f64[2, 3],
  %2: f64[2, 4],
  %w.tangent: f64[3, 4],
) -> (f64[2, 4]) {
  %h.tangent = dot(%x, %w.tangent, dims="bi,ih->bh") : f64[2, 4]
  %y.tangent = mul(%h.tangent, %2) : f64[2, 4]
  return %y.tangent
}
"""
    )


@settings(max_examples=30)
@given(seed=strategies.integers(0, 2**32 - 1))
def test_both_parts_of_a_linearization_compute_the_jvp(seed: int) -> None:
    plain, args = Programs(seed).function(), arguments(seed)
    parts, rng = linearize_forward(plain, [0, 2]), np.random.default_rng(seed)
    directions = [rng.normal(size=3), rng.normal(size=(4, 3))]
    verify(Module((), (parts.forward, parts.pushforward)))
    made = evaluate(parts.forward, args)
    results = made[: len(plain.body.returns)]
    tangents = evaluate(parts.pushforward, [*made[len(results) :], *directions])
    expected = evaluate(jvp(plain, [0, 2]), [*args, *directions])
    for ours, theirs in zip([*results, *tangents], expected, strict=True):
        np.testing.assert_array_equal(ours, theirs)


def assert_parts_compute_the_jvp(text: str, args: Sequence[Any], direction: Any) -> Function:
    """Return the second function of a linearization by the first parameter."""
    plain = function(text)
    parts = linearize_forward(plain, [0])
    verify(Module((), (parts.forward, parts.pushforward)))
    made, *residuals = evaluate(parts.forward, args)
    (tangent,) = evaluate(parts.pushforward, [*residuals, direction])
    expected = evaluate(jvp(plain, [0]), [*args, direction])
    for ours, theirs in zip([made, tangent], expected, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    return parts.pushforward


def test_the_second_part_repeats_a_loop_in_the_body_of_a_loop() -> None:
    """The inner loop has no tangents, and the outer one saves no values."""
    assert_parts_compute_the_jvp(
        """\
func @f(%x: f64[], %n: i32[]) -> (f64[]) {
  %j, %y = while(%n, %x) : i32[], f64[] {
    (%i: i32[], %a: f64[]) =>
    %zero = constant(value=0) : i32[]
    %more = gt(%i, %zero) : bool[]
    yield %more
  } {
    (%i.1: i32[], %a.1: f64[]) =>
    %k = while(%i.1) : i32[] {
      (%c: i32[]) =>
      %five = constant(value=5) : i32[]
      %less = lt(%c, %five) : bool[]
      yield %less
    } {
      (%c.1: i32[]) =>
      %two = constant(value=2) : i32[]
      %d = add(%c.1, %two) : i32[]
      yield %d
    }
    %s = convert(%k) : f64[]
    %z = mul(%a.1, %s) : f64[]
    %one = constant(value=1) : i32[]
    %m = sub(%i.1, %one) : i32[]
    yield %m, %z
  }
  return %y
}
""",
        [np.float64(0.5), np.int32(6)],
        np.float64(2),
    )


def test_the_second_part_repeats_the_broadcast_of_a_saved_value() -> None:
    """A loop stacks the smaller value."""
    second = assert_parts_compute_the_jvp(
        """\
func @f(%x: f64[4], %w: f64[3]) -> (f64[4]) {
  %y = scan(%x, %w, carries=1, length=3) : f64[4] {
    (%c: f64[4], %v: f64[]) =>
    %s = sin(%v) : f64[]
    %b = broadcast(%s, dims=[]) : f64[4]
    %z = mul(%c, %b) : f64[4]
    yield %z
  }
  return %y
}
""",
        [np.arange(4.0), np.array([0.5, 1, 2])],
        np.ones(4),
    )
    assert [param.type.shape for param in second.body.params] == [(3,), (4,)]


def test_integers_have_no_tangents() -> None:
    with pytest.raises(DifferentiateError) as caught:
        jvp(function(LAYER), [2])
    assert str(caught.value) == (
        "parameter 2 of @layer, %n: i32[], has no derivative; only floating-point and complex "
        "parameters do"
    )


def test_invalid_parameter_numbers_are_errors() -> None:
    with pytest.raises(DifferentiateError) as caught:
        jvp(function(LAYER), [3])
    assert str(caught.value) == "@layer has no parameter 3; it has 3 parameters"


@pytest.mark.parametrize("transform", [jvp, linearize_forward])
def test_per_device_programs_are_errors(transform: Callable[..., object]) -> None:
    plain = function(
        "mesh @m = [x=2]\n\n"
        "spmd func @f(%x: f64[2] of f64[4@x]) -> (f64[2] of f64[4@x]) {\n  return %x\n}\n"
    )
    with pytest.raises(DifferentiateError) as caught:
        transform(plain, [0])
    assert str(caught.value) == "@f is a per-device program; differentiate before 'partition'"
