"""Operations with custom derivative rules keep them through every transformation."""

import numpy as np
import pytest

from shardir.errors import DifferentiateError, ParseError
from shardir.interpret.interpreter import run
from shardir.ir.module import Function, Module
from shardir.passes.autodiff import jvp, vjp
from shardir.passes.autodiff.checkpoint_policies import is_saved
from shardir.passes.batching.vectorize import vectorize
from shardir.passes.simplify.inline import Inline
from shardir.text.parser import parse
from shardir.verify.verifier import verify

TWICE_COS = """\
func @f(
  %x: f32[3],
) -> (f32[3]) {
  %y = custom-jvp(%x, rule="twice_cos") : f32[3] {
    (%a: f32[3]) =>
    %b = sin(%a) : f32[3]
    yield %b
  } {
    (%c: f32[3], %c.tangent: f32[3]) =>
    %d = sin(%c) : f32[3]
    %e = cos(%c) : f32[3]
    %two = constant(value=2.0) : f32[3]
    %g = mul(%e, %two) : f32[3]
    %h = mul(%g, %c.tangent) : f32[3]
    yield %d, %h
  }
  return %y
}
"""
THRICE_COS = """\
func @f(
  %x: f32[3],
  %n: i32[],
) -> (f32[3]) {
  %y = custom-vjp(%x, %n, rule="thrice_cos") : f32[3] {
    (%a: f32[3], %m: i32[]) =>
    %b = sin(%a) : f32[3]
    yield %b
  } {
    (%c: f32[3], %o: i32[]) =>
    %d = sin(%c) : f32[3]
    %e = cos(%c) : f32[3]
    yield %d, %e
  } {
    (%saved: f32[3], %d.grad: f32[3]) =>
    %three = constant(value=3.0) : f32[3]
    %g = mul(%saved, %three) : f32[3]
    %h = mul(%g, %d.grad) : f32[3]
    yield %h
  }
  return %y
}
"""
CHECKPOINT = """\
func @f(
  %x: f32[3],
  %w: f32[3],
) -> (f32[3]) {
  %y = checkpoint(%x) : f32[3] {
    (%a: f32[3]) =>
    %b = mul(%a, %w) : f32[3]
    %c = sin(%b) : f32[3]
    %d = exp(%c) : f32[3]
    yield %d
  }
  return %y
}
"""
X = np.array([0.3, 1.0, -2.0], np.float32)
ONES = np.ones(3, np.float32)


def module(function: Function) -> Module:
    made = Module((), (function,))
    verify(made)
    return Inline()(made)


@pytest.mark.parametrize("text", [TWICE_COS, THRICE_COS, CHECKPOINT])
def test_custom_derivative_operations_round_trip(text: str) -> None:
    parsed = parse(text)
    assert str(parse(str(parsed))) == str(parsed)
    verify(parsed)


def test_inlining_replaces_the_operation_by_its_first_block() -> None:
    assert (
        str(Inline()(parse(TWICE_COS)))
        == """\
func @f(
  %x: f32[3],
) -> (f32[3]) {
  %y = sin(%x) : f32[3]
  return %y
}
"""
    )


def test_inlining_does_not_change_other_programs() -> None:
    plain = parse("func @f(\n  %x: f32[],\n) -> (f32[]) {\n  return %x\n}\n")
    assert Inline()(plain).main is plain.main


def test_a_custom_jvp_applies_in_both_modes() -> None:
    function = parse(TWICE_COS).main
    ahead = module(jvp.jvp(function, [0]))
    back = module(vjp.vjp(function, [0]))
    for made in (ahead, back):
        results = run(made, [X, ONES])
        np.testing.assert_allclose(results[0], np.sin(X), rtol=1e-6)
        np.testing.assert_allclose(results[1], 2 * np.cos(X), rtol=1e-6)


def test_a_custom_vjp_applies_in_reverse_mode() -> None:
    function = parse(THRICE_COS).main
    results = run(module(vjp.vjp(function, [0])), [X, np.int32(4), ONES])
    np.testing.assert_allclose(results[1], 3 * np.cos(X), rtol=1e-6)


def test_forward_mode_of_a_custom_vjp_is_an_error() -> None:
    with pytest.raises(DifferentiateError) as caught:
        jvp.jvp(parse(THRICE_COS).main, [0])
    assert str(caught.value) == (
        "%y = thrice_cos has a custom_vjp, which defines no forward-mode derivative; take grad or "
        "vjp of it, or define a custom_jvp"
    )


def test_forward_mode_keeps_a_custom_vjp_without_tangents() -> None:
    text = """\
func @f(%w: f32[], %x: f32[3], %n: i32[]) -> (f32[3]) {
""" + THRICE_COS.split("{\n", 1)[1].replace("return %y", "%b1 = broadcast(%w, dims=[]) : f32[3]\n"
        "  %z = mul(%y, %b1) : f32[3]\n  return %z")  # fmt: skip
    ahead = jvp.jvp(parse(text).main, [0])
    z, tangent = run(module(ahead), [np.float32(2), X, np.int32(1), np.float32(1)])
    np.testing.assert_allclose([z, tangent], [2 * np.sin(X), np.sin(X)], rtol=1e-6)
    assert "custom-vjp" in str(ahead)


def test_a_checkpoint_is_recomputed_after_a_barrier() -> None:
    back = vjp.vjp(parse(CHECKPOINT).main, [0])
    names = [op.name for op in back.body.ops]
    turn = names.index("optimization_barrier")
    assert names[:turn] == ["mul", "sin", "exp"]
    assert names[turn + 1 : turn + 4] == ["mul", "sin", "exp"]
    both = vjp.linearize(parse(CHECKPOINT).main, [0, 1])
    assert both.residuals == 2  # its operand and its captured values
    results = run(module(back), [X, X, ONES])
    expected = np.exp(np.sin(X * X)) * np.cos(X * X) * X
    np.testing.assert_allclose(results[1], expected, rtol=1e-5)


def test_saved_values_of_a_checkpoint_are_not_recomputed() -> None:
    text = CHECKPOINT.replace("checkpoint(%x)", 'checkpoint(%x, save=["anything"])')
    names = [op.name for op in vjp.vjp(parse(text).main, [0]).body.ops]
    assert names.count("exp") == names.count("sin") == 1


def test_a_policy_saves_values_of_a_checkpoint_inside_of_a_checkpoint() -> None:
    text = """\
func @f(%x: f32[3], %w: f32[3, 3]) -> (f32[3]) {
  %y = checkpoint(%x, save=["SAVED"]) : f32[3] {
    (%a: f32[3]) =>
    %b = checkpoint(%a) : f32[3] {
      (%c: f32[3]) =>
      %d = dot(%c, %w, dims="i,ij->j") : f32[3]
      %e = sin(%d) : f32[3]
      yield %e
    }
    %g = exp(%b) : f32[3]
    yield %g
  }
  return %y
}
"""
    back, again = (vjp.vjp(parse(text.replace("SAVED", saved)).main, [0])
                   for saved in ("dots", "named"))  # fmt: skip
    # The product, the product that the inner checkpoint computes again, and its gradient; the outer
    # one computes the product again if its policy does not save it.
    assert (str(back).count("= dot("), str(again).count("= dot(")) == (3, 4)
    # The next derivative recomputes values of the inner checkpoint, unless they are saved.
    assert ("= checkpoint(" in str(back), "= checkpoint(" in str(again)) == (False, True)
    w = np.arange(9, dtype=np.float32).reshape(3, 3) / 9
    for each in (back, again):
        y, gradient = run(module(each), [X, w, ONES])
        np.testing.assert_allclose(y, np.exp(np.sin(X @ w)), rtol=1e-6)
        np.testing.assert_allclose(gradient, w @ (np.exp(np.sin(X @ w)) * np.cos(X @ w)), rtol=1e-5)


def test_a_checkpoint_that_saves_everything_has_no_effect() -> None:
    text = CHECKPOINT.replace("checkpoint(%x)", 'checkpoint(%x, save=["everything"])')
    found = vjp.vjp(parse(text).main, [0, 1])
    plain = vjp.vjp(Inline()(parse(CHECKPOINT)).main, [0, 1])
    assert [op.name for op in found.body.ops] == [op.name for op in plain.body.ops]


@pytest.mark.parametrize("again", ["", "  %z = sin(%y) : f32[3]\n"])
def test_a_checkpoint_without_a_barrier(again: str) -> None:
    """Its recomputation may be merged with the forward computation."""
    text = CHECKPOINT.replace("checkpoint(%x)", "checkpoint(%x, barrier=false)")
    if again:
        text = text.replace("  return %y\n", f"{again}  return %z\n")
    back = vjp.vjp(parse(text).main, [0])
    assert "optimization_barrier" not in [op.name for op in back.body.ops]
    results = run(module(back), [X, X, ONES])
    y = np.exp(np.sin(X * X))
    outer = np.cos(y) if again else ONES
    np.testing.assert_allclose(results[1], outer * y * np.cos(X * X) * X, rtol=1e-5)


def test_forward_mode_keeps_a_checkpoint() -> None:
    ahead = jvp.jvp(parse(CHECKPOINT).main, [0, 1])
    assert [op.name for op in ahead.body.ops if op.blocks] == ["checkpoint"]
    results = run(module(ahead), [X, X, ONES, 0 * ONES])
    expected = np.exp(np.sin(X * X)) * np.cos(X * X) * X
    np.testing.assert_allclose(results[1], expected, rtol=1e-5)


def test_rules_are_vectorized() -> None:
    many = vectorize(parse(TWICE_COS).main, [True], 4)
    xs = np.stack([X, X + 1, X + 2, X + 3])
    back = module(vjp.vjp(many, [0]))
    results = run(back, [xs, np.ones_like(xs)])
    np.testing.assert_allclose(results[1], 2 * np.cos(xs), rtol=1e-5)


def test_gradients_of_unbatched_operands_are_summed() -> None:
    text = THRICE_COS.replace("i32[]", "f32[]").replace("  yield %h\n", "  yield %h, %z\n")
    text = text.replace("%h = mul", "%z = sum(%d.grad, dims=[0]) : f32[]\n    %h = mul")
    function = parse(text).main
    many = vectorize(function, [True, False], 2)
    xs = np.stack([X, X + 1])
    results = run(module(vjp.vjp(many, [1])), [xs, np.float32(1), np.ones_like(xs)])
    assert results[1] == 6


def test_a_rule_known_by_name_only_is_an_error() -> None:
    text = TWICE_COS[: TWICE_COS.index(" {\n    (%c: f32[3], %c.tangent")] + "\n  return %y\n}\n"
    with pytest.raises(DifferentiateError) as caught:
        vjp.vjp(parse(text).main, [0])
    assert str(caught.value) == (
        "%y = custom-jvp has the derivative 'twice_cos', but the text holds only its name; add the "
        "blocks of the rule"
    )


def test_a_checkpoint_with_unknown_saved_values_is_an_error() -> None:
    (op, *_) = parse(CHECKPOINT).main.body.ops[0].blocks[0].ops
    with pytest.raises(DifferentiateError) as caught:
        is_saved(("dotz",), op)
    assert str(caught.value) == (
        "a checkpoint cannot save 'dotz'; it saves everything, anything, named, dots, "
        "dots-without-batch, name=..., named-but=..., anything-but=..."
    )


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        (
            "(%c: f32[3], %c.tangent: f32[3])",
            "(%c: f32[3], %c.tangent: f32[2])",
            "custom-jvp: its rule takes (f32[3], f32[2]), expected (f32[3], f32[3])",
        ),
        (
            "yield %d, %h",
            "yield %d",
            "custom-jvp: its rule gives (f32[3]), expected (f32[3], f32[3])",
        ),
    ],
)
def test_mismatched_rules_are_errors(before: str, after: str, message: str) -> None:
    with pytest.raises(ParseError, match="custom-jvp: its rule") as caught:
        parse(TWICE_COS.replace(before, after).replace("mul(%g, %c.tangent)", "mul(%g, %g)"))
    assert message in str(caught.value)


RULE_THAT_CALLS_A_RULE_IN_A_LOOP = """\
func @f(%x: f32[]) -> (f32[]) {
  %y = custom-jvp(%x, rule="outer") : f32[] {
    (%a: f32[]) =>
    %b = sin(%a) : f32[]
    yield %b
  } {
    (%c: f32[], %c.tangent: f32[]) =>
    %d = sin(%c) : f32[]
    %u = scan(%c.tangent, carries=1, length=1) : f32[] {
      (%t: f32[]) =>
      %g = custom-jvp(%c, rule="inner") : f32[] {
        (%h: f32[]) =>
        %i = cos(%h) : f32[]
        yield %i
      } {
        (%j: f32[], %j.tangent: f32[]) =>
        %k = cos(%j) : f32[]
        %ten = constant(value=10.0) : f32[]
        %l = mul(%ten, %j.tangent) : f32[]
        yield %k, %l
      }
      %v = mul(%g, %t) : f32[]
      yield %v
    }
    yield %d, %u
  }
  return %y
}
"""


def test_second_derivatives_use_the_rules_of_functions_that_rules_call() -> None:
    """Only functions that depend on tangents lose their rules, because they are linear in them."""
    twice = vjp.vjp(vjp.vjp(parse(RULE_THAT_CALLS_A_RULE_IN_A_LOOP).main, [0]), [0])
    x, zero, one = np.float32(0.5), np.float32(0), np.float32(1)
    y, gradient, second = run(module(twice), [x, one, zero, one])
    np.testing.assert_allclose([y, gradient, second], [np.sin(x), np.cos(x), 10], rtol=1e-6)


RULE_THAT_READS_ITS_TANGENT = """\
func @f(%x: f32[]) -> (f32[]) {{
  %y = custom-jvp(%x, rule="f") : f32[] {{
    (%a: f32[]) =>
    %b = sin(%a) : f32[]
    yield %b
  }} {{
    (%c: f32[], %t: f32[]) =>
    %d = sin(%c) : f32[]
    %limit = constant(value=1.0) : f32[]
{body}
    yield %d, %u
  }}
  return %y
}}
"""
BRANCH = """\
    %p = gt(%t, %limit) : bool[]
    %i = convert(%p) : i32[]
    %u = case(%i) : f32[] {
      yield %t
    } {
      %v = add(%t, %t) : f32[]
      yield %v
    }"""
LOOP = """\
    %u = while(%t) : f32[] {
      (%g: f32[]) =>
      %p = gt(%g, %limit) : bool[]
      yield %p
    } {
      (%h: f32[]) =>
      %v = sub(%h, %limit) : f32[]
      yield %v
    }"""


CONSTANT_OF_BRANCH = """\
    %p = gt(%t, %limit) : bool[]
    %i = convert(%p) : i32[]
    %s, %n = case(%i) : f32[], f32[] {
      yield %t, %limit
    } {
      %two = constant(value=2.0) : f32[]
      yield %t, %two
    }
    %u = mul(%s, %n) : f32[]"""
COUNT_OF_LOOP = """\
    %s, %n = while(%t, %limit) : f32[], f32[] {
      (%g: f32[], %k: f32[]) =>
      %p = gt(%g, %limit) : bool[]
      yield %p
    } {
      (%h: f32[], %l: f32[]) =>
      %v = sub(%h, %limit) : f32[]
      %w = add(%l, %limit) : f32[]
      yield %v, %w
    }
    %m = mul(%n, %n) : f32[]
    %u = mul(%s, %m) : f32[]"""


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (BRANCH, [0.5, 5.0]),
        (LOOP, [0.5, 0.5]),
        (CONSTANT_OF_BRANCH, [0.5, 5.0]),
        (COUNT_OF_LOOP, [0.5, 4.5]),
    ],
)
def test_branches_and_loops_that_depend_on_a_tangent_run_in_the_second_part(
    body: str, expected: list[float]
) -> None:
    parts = jvp.linearize_forward(parse(RULE_THAT_READS_ITS_TANGENT.format(body=body)).main, [0])
    y, *residuals = run(module(parts.forward), [np.float32(0.3)])
    np.testing.assert_allclose(y, np.sin(np.float32(0.3)), rtol=1e-6)
    found = [run(module(parts.pushforward), [*residuals, np.float32(t)])[0] for t in (0.5, 2.5)]
    assert found == expected
