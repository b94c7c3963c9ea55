"""`differentiate`: operations and names of the backward pass, and values without cotangents."""

from collections import Counter

import numpy as np
import pytest

from shardir import parse
from shardir.errors import DifferentiateError
from shardir.interpret.interpreter import evaluate
from shardir.ir.module import Loc, Module
from shardir.passes.autodiff.vjp import vjp
from tests.derivatives import check_gradients
from tests.passes.autodiff.derivative_programs import CASE, function, normal, print_verified

LAYER = """\
func @layer(
  %x: f64[2, 3],
  %w: f64[3, 4],
  %b: f64[4],
) -> (f64[2, 4]) {
  %h = dot(%x, %w, dims="bi,ih->bh") : f64[2, 4]
  %c = broadcast(%b, dims=[1]) : f64[2, 4]
  %z = add(%h, %c) : f64[2, 4]
  %y = tanh(%z) : f64[2, 4]
  return %y
}
"""


def test_the_backward_pass_follows_the_forward_pass() -> None:
    assert (
        print_verified(vjp(function(LAYER), [1, 2]))
        == """\
func @layer.vjp(
  %x: f64[2, 3],
  %w: f64[3, 4],
  %b: f64[4],
  %y.grad: f64[2, 4],
) -> (f64[2, 4], f64[3, 4], f64[4]) {
  %h = dot(%x, %w, dims="bi,ih->bh") : f64[2, 4]
  %c = broadcast(%b, dims=[1]) : f64[2, 4]
  %z = add(%h, %c) : f64[2, 4]
  %y = tanh(%z) : f64[2, 4]
  %0 = mul(%y, %y) : f64[2, 4]
  %1 = constant(value=1) : f64[2, 4]
  %2 = sub(%1, %0) : f64[2, 4]
  %z.grad = mul(%y.grad, %2) : f64[2, 4]
  %b.grad = sum(%z.grad, dims=[0]) : f64[4]
  %w.grad = dot(%z.grad, %x, dims="bh,bi->ih") : f64[3, 4]
  return %y, %w.grad, %b.grad
}
"""
    )


def test_every_operation_states_its_reason() -> None:
    plain = function(LAYER.replace("f64[2, 4]\n  %y", 'f64[2, 4] loc("mlp.py":7:3)\n  %y'))
    assert plain.body.ops[2].loc == Loc("mlp.py", 7, 3)

    back = vjp(plain, [2]).body.ops[4:]

    assert [op.why for op in back] == ["gradient of %y"] * 4 + ["gradient of %c"]
    assert [op.loc for op in back] == [None] * 5
    (last,) = vjp(plain, [0]).body.ops[-1:]
    assert (last.name, last.why) == ("dot", "gradient of %h")


def test_operations_have_the_source_line_of_the_forward_operation() -> None:
    plain = function(
        "func @f(%x: f64[2]) -> (f64[2]) {\n"
        '  %y = sin(%x) : f64[2] loc("wave.py":3:5)\n'
        "  return %y\n}\n"
    )

    forward, *back = vjp(plain, [0]).body.ops

    assert (forward.loc, forward.why) == (Loc("wave.py", 3, 5), "")
    assert [(op.name, op.loc) for op in back] == [
        ("cos", Loc("wave.py", 3, 5)),
        ("mul", Loc("wave.py", 3, 5)),
    ]


def test_unselected_parameters_add_no_operations() -> None:
    ops = vjp(function(LAYER), [2]).body.ops

    assert Counter(op.name for op in ops)["dot"] == 1


def test_gradients_have_the_selected_order() -> None:
    x, w, b, g = normal((2, 3), (3, 4), (4,), (2, 4))

    _, first, second, third = evaluate(vjp(function(LAYER), [2, 0, 2]), [x, w, b, g])

    assert (first.shape, second.shape) == ((4,), (2, 3))
    np.testing.assert_array_equal(first, third)


def test_an_unused_parameter_has_gradient_zero() -> None:
    plain = function("func @f(%x: f64[2], %y: f64[2]) -> (f64[2]) {\n  return %x\n}\n")
    x, y, g = normal((2,), (2,), (2,))

    made = vjp(plain, [0, 1])

    assert made.body.ops[0].why == "gradient of %y, on which no result depends"
    outs = evaluate(made, [x, y, g])
    np.testing.assert_array_equal(outs, [x, g, np.zeros(2)])


def test_only_float_results_get_cotangents() -> None:
    plain = function(
        "func @f(%x: f64[2]) -> (f64[2], i32[], f64[]) {\n"
        "  %n = argmax(%x, dim=0) : i32[]\n"
        "  %s = sum(%x, dims=[0]) : f64[]\n"
        "  return %x, %n, %s\n}\n"
    )

    assert [p.name for p in vjp(plain, [0]).body.params] == ["x", "x.grad", "s.grad"]
    assert [p.name for p in vjp(plain, [0], of=[2]).body.params] == ["x", "s.grad"]


def test_a_value_used_twice_adds_its_cotangents() -> None:
    plain = function(
        "func @f(%x: f64[2]) -> (f64[2]) {\n"
        "  %y = sin(%x) : f64[2]\n"
        "  %z = mul(%y, %x) : f64[2]\n"
        "  %q = sub(%z, %y) : f64[2]\n"
        "  return %q\n}\n"
    )

    assert [op.name for op in vjp(plain, [0]).body.ops[3:]] == [
        *("neg", "mul", "mul", "add", "cos", "mul", "add")
    ]
    check_gradients(plain, normal((2,)), order=3)


def test_no_cotangent_passes_stop_gradient() -> None:
    plain = function(
        "func @f(%x: f64[]) -> (f64[]) {\n"
        "  %s = stop_gradient(%x) : f64[]\n"
        "  %r = while(%s) : f64[] { (%a: f64[]) =>\n"
        "    %one = constant(value=1.0) : f64[]\n"
        "    %go = lt(%a, %one) : bool[]\n"
        "    yield %go\n"
        "  } { (%c: f64[]) =>\n"
        "    %d = add(%c, %c) : f64[]\n"
        "    yield %d\n"
        "  }\n"
        "  %y = mul(%x, %r) : f64[]\n"
        "  return %y\n}\n"
    )

    y, gradient = evaluate(vjp(plain, [0]), [np.array(0.3), np.array(1.0)])

    assert [float(y), float(gradient)] == [0.3 * 1.2, 1.2]


def test_a_constraint_applies_to_the_cotangent() -> None:
    plain = parse(
        "mesh @m = [x=2]\n\n"
        "func @f(%x: f64[4]) -> (f64[4]) {\n"
        "  %h = sin(%x) : f64[4]\n"
        "  %y = sharding_constraint(%h) : f64[4@x]\n"
        "  return %y\n}\n"
    )

    made = Module(plain.meshes, (vjp(plain.main, [0]),))

    assert "%h.grad = sharding_constraint(%y.grad) : f64[4@x]" in str(made)


def test_reverse_mode_of_while_is_an_error() -> None:
    plain = function(
        "func @f(%x: f64[]) -> (f64[]) {\n"
        '  %r = while(%x) : f64[] loc("train.py":12:9) { (%a: f64[]) =>\n'
        "    %one = constant(value=1.0) : f64[]\n"
        "    %go = lt(%a, %one) : bool[]\n"
        "    yield %go\n"
        "  } { (%c: f64[]) =>\n"
        "    %d = add(%c, %c) : f64[]\n"
        "    yield %d\n"
        "  }\n"
        "  return %r\n}\n"
    )

    with pytest.raises(DifferentiateError) as caught:
        vjp(plain, [0])

    assert str(caught.value) == (
        "%r = while has no gradient, because the trip count of a while loop is unknown in "
        "advance; use scan, or fori_loop with a static trip count\n --> train.py:12"
    )


def test_integers_have_no_gradient() -> None:
    plain = function(CASE)

    with pytest.raises(DifferentiateError) as caught:
        vjp(plain, [0])

    assert str(caught.value) == (
        "parameter 0 of @choose, %i: i32[], has no derivative; "
        "only floating-point and complex parameters do"
    )


def test_an_unknown_parameter_is_an_error() -> None:
    with pytest.raises(DifferentiateError) as caught:
        vjp(function(CASE), [3])

    assert str(caught.value) == "@choose has no parameter 3; it has 3 parameters"


def test_a_selected_integer_result_is_an_error() -> None:
    plain = function(
        "func @f(%x: f64[2]) -> (i32[]) {\n"
        '  %n = argmax(%x, dim=0) : i32[] loc("best.py":4:2)\n'
        "  return %n\n}\n"
    )

    with pytest.raises(DifferentiateError) as caught:
        vjp(plain, [0], of=[0])

    assert str(caught.value) == (
        "result 0 of @f, %n: i32[], has no derivative; only floating-point and complex results do\n"
        " --> best.py:4"
    )
    assert len(vjp(plain, [0]).body.params) == 1


def test_per_device_programs_are_errors() -> None:
    plain = function(
        "mesh @m = [x=2]\n\n"
        "spmd func @f(%x: f64[2] of f64[4@x]) -> (f64[2] of f64[4@x]) {\n  return %x\n}\n"
    )

    with pytest.raises(DifferentiateError) as caught:
        vjp(plain, [0])

    assert str(caught.value) == ("@f is a per-device program; differentiate before 'partition'")
