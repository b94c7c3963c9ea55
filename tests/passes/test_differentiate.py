"""`differentiate`: what is made on the way back, what it is called, and where there is none."""

from collections import Counter

import numpy as np
import pytest

from shardir import parse
from shardir.errors import DifferentiateError
from shardir.interpret import evaluate
from shardir.ir import Function, Loc, Module
from shardir.passes.differentiate import linearize, vjp
from shardir.verify import verify
from tests.derivatives import check_gradients


def function(text: str) -> Function:
    return parse(text).main


def shown(*functions: Function) -> str:
    module = Module((), functions)
    verify(module)
    assert str(parse(str(module))) == str(module)
    return str(module)


def normal(*shapes: tuple[int, ...]) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.normal(size=shape) for shape in shapes]


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


def test_the_program_runs_forward_then_back() -> None:
    assert (
        shown(vjp(function(LAYER), [1, 2]))
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


def test_every_operation_says_whom_it_serves() -> None:
    plain = function(LAYER.replace("f64[2, 4]\n  %y", 'f64[2, 4] loc("mlp.py":7:3)\n  %y'))
    assert plain.body.ops[2].loc == Loc("mlp.py", 7, 3)

    back = vjp(plain, [2]).body.ops[4:]

    assert [op.why for op in back] == ["gradient of %y"] * 4 + ["gradient of %c"]
    assert [op.loc for op in back] == [None] * 5
    (last,) = vjp(plain, [0]).body.ops[-1:]
    assert (last.name, last.why) == ("dot", "gradient of %h")


def test_operations_keep_the_line_they_serve() -> None:
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


def test_nothing_is_done_for_what_is_not_asked() -> None:
    ops = vjp(function(LAYER), [2]).body.ops

    assert Counter(op.name for op in ops)["dot"] == 1


def test_gradients_come_in_the_order_asked_for() -> None:
    x, w, b, g = normal((2, 3), (3, 4), (4,), (2, 4))

    _, first, second, third = evaluate(vjp(function(LAYER), [2, 0, 2]), [x, w, b, g])

    assert (first.shape, second.shape) == ((4,), (2, 3))
    np.testing.assert_array_equal(first, third)


def test_a_parameter_that_changes_nothing_has_gradient_zero() -> None:
    plain = function("func @f(%x: f64[2], %y: f64[2]) -> (f64[2]) {\n  return %x\n}\n")
    x, y, g = normal((2,), (2,), (2,))

    made = vjp(plain, [0, 1])

    assert made.body.ops[0].why == "gradient of %y, which changes nothing"
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


def test_a_constraint_constrains_the_cotangent_too() -> None:
    plain = parse(
        "mesh @m = [x=2]\n\n"
        "func @f(%x: f64[4]) -> (f64[4]) {\n"
        "  %h = sin(%x) : f64[4]\n"
        "  %y = sharding_constraint(%h) : f64[4@x]\n"
        "  return %y\n}\n"
    )

    made = Module(plain.meshes, (vjp(plain.main, [0]),))

    assert "%h.grad = sharding_constraint(%y.grad) : f64[4@x]" in str(made)


SCAN = """\
func @run(
  %c0: f64[2],
  %xs: f64[5, 2],
  %w: f64[2, 2],
) -> (f64[2], f64[5, 2]) {
  %c, %ys = scan(%c0, %xs, carries=1, length=5) : f64[2], f64[5, 2] {
    (%c1: f64[2], %x: f64[2]) =>
    %h = dot(%c1, %w, dims="i,ij->j") : f64[2]
    %z = mul(%h, %x) : f64[2]
    %y = tanh(%z) : f64[2]
    yield %y, %h
  }
  return %c, %ys
}
"""


def test_a_scan_runs_back_over_what_it_stacked() -> None:
    """What is stacked anyhow (`%xs`, `%ys`) is not stacked again."""
    assert (
        shown(vjp(function(SCAN), [0, 1, 2]))
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


def test_what_costs_nothing_is_made_again() -> None:
    """Only the argument of the sine is stacked, no constant and nothing spread out."""
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


CASE = """\
func @choose(
  %i: i32[],
  %x: f64[2],
  %y: f64[2],
) -> (f64[2]) {
  %r = case(%i) : f64[2] {
    %s = sin(%x) : f64[2]
    %t = tanh(%s) : f64[2]
    %u = mul(%t, %y) : f64[2]
    yield %u
  } {
    %e = exp(%y) : f64[2]
    yield %e
  } {
    yield %x
  }
  return %r
}
"""


def test_branches_share_the_places_of_what_they_hand_over() -> None:
    assert (
        shown(vjp(function(CASE), [1, 2]))
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


def test_a_function_comes_apart_at_the_turning_point() -> None:
    apart = linearize(function(SCAN), [0, 2])
    args = normal((2,), (5, 2), (2, 2))
    (*given,) = normal((2,), (5, 2))
    shown(apart.forward, apart.pullback)

    results, residuals = (made := evaluate(apart.forward, args))[:2], made[2:]
    gradients = evaluate(apart.pullback, [*residuals, *given])

    assert len(residuals) == apart.residuals == 4
    whole = evaluate(vjp(function(SCAN), [0, 2]), [*args, *given])
    for got, wanted in zip([*results, *gradients], whole, strict=True):
        np.testing.assert_array_equal(got, wanted)


def test_a_pullback_makes_constants_itself() -> None:
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
def test_the_way_back_is_as_long_as_the_way_forward(count: int) -> None:
    lines = [f"  %v{i + 1} = sin(%v{i}) : f64[2]\n" for i in range(count)]
    plain = function(
        f"func @f(%v0: f64[2]) -> (f64[2]) {{\n{''.join(lines)}  return %v{count}\n}}\n"
    )

    assert len(vjp(plain, [0]).body.ops) == 3 * count


def test_while_has_no_way_back() -> None:
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
        "%r = while has no gradient, for how often a while loop runs is not known before it does; "
        "use scan, or fori_loop with a static trip count\n --> train.py:12"
    )


def test_integers_have_no_gradient() -> None:
    plain = function(CASE)

    with pytest.raises(DifferentiateError) as caught:
        vjp(plain, [0])

    assert str(caught.value) == (
        "parameter 0 of @choose, %i: i32[], has no derivative; "
        "only floating-point and complex parameters do"
    )


def test_there_must_be_such_a_parameter() -> None:
    with pytest.raises(DifferentiateError) as caught:
        vjp(function(CASE), [3])

    assert str(caught.value) == "@choose has no parameter 3; it has 3 parameters"


def test_integer_results_cannot_be_chosen() -> None:
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


def test_per_device_programs_are_too_late() -> None:
    plain = function(
        "mesh @m = [x=2]\n\n"
        "spmd func @f(%x: f64[2] of f64[4@x]) -> (f64[2] of f64[4@x]) {\n  return %x\n}\n"
    )

    with pytest.raises(DifferentiateError) as caught:
        vjp(plain, [0])

    assert str(caught.value) == ("@f is a per-device program; differentiate before 'partition'")
