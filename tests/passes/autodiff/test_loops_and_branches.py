"""Derivatives of loops and branches whose carried values and results depend on the inputs in some
iterations or branches only, in both modes and in both parts of a linearization."""

import numpy as np
import pytest

from shardir.interpret.interpreter import evaluate
from shardir.ir.module import Function, Module
from shardir.passes.autodiff.jvp import jvp, linearize_forward
from shardir.verify.verifier import verify
from tests.derivatives import Array, check_gradients, check_tangents, random_like
from tests.passes.autodiff.derivative_programs import function

OVERWRITTEN_CARRY = """\
func @f(%c: f64[], %x: f64[]) -> (f64[], f64[3]) {
  %y, %ys = scan(%c, carries=1, length=3) : f64[], f64[3] { (%a: f64[]) =>
    %s = sin(%a) : f64[]
    %k = constant(value=0.5) : f64[]
    yield %k, %s
  }
  return %y, %ys
}
"""
"""The carried value depends on the input in the first iteration only."""
CAPTURE_ADDED_TO_CARRY = """\
func @f(%c: f64[], %x: f64[]) -> (f64[], f64[3]) {
  %y, %ys = scan(%c, carries=1, length=3) : f64[], f64[3] { (%a: f64[]) =>
    %s = sin(%a) : f64[]
    %b = mul(%s, %x) : f64[]
    %d = add(%b, %x) : f64[]
    yield %d, %s
  }
  return %y, %ys
}
"""
"""The carried value depends on the captured input after the first iteration."""
CHAIN_OF_CARRIES = """\
func @f(%c: f64[], %x: f64[]) -> (f64[], f64[], f64[]) {
  %k = constant(value=0.5) : f64[]
  %p, %q, %r = scan(%k, %k, %c, carries=3, length=4) : f64[], f64[], f64[] { \
(%a: f64[], %b: f64[], %d: f64[]) =>
    %s = sin(%b) : f64[]
    %t = mul(%d, %d) : f64[]
    yield %s, %t, %x
  }
  return %p, %q, %r
}
"""
"""Each carried value depends on the inputs one iteration after the next one does."""
LOOP_WITHOUT_ITERATIONS = """\
func @f(%c: f64[], %x: f64[]) -> (f64[]) {
  %y = scan(%c, carries=1, length=0) : f64[] { (%a: f64[]) =>
    %s = sin(%x) : f64[]
    yield %s
  }
  return %y
}
"""
"""The result is the initial value, which no iteration reads."""
WHILE_WITH_OVERWRITTEN_CARRY = """\
func @f(%c: f64[], %x: f64[]) -> (f64[], f64[]) {
  %zero = constant(value=0.0) : f64[]
  %n, %p, %q = while(%zero, %c, %zero) : f64[], f64[], f64[] { \
(%i: f64[], %a: f64[], %b: f64[]) =>
    %one = constant(value=0.5) : f64[]
    %go = lt(%i, %one) : bool[]
    yield %go
  } { (%j: f64[], %d: f64[], %e: f64[]) =>
    %two = constant(value=1.0) : f64[]
    %k = add(%j, %two) : f64[]
    %s = sin(%d) : f64[]
    %t = mul(%s, %x) : f64[]
    yield %k, %two, %t
  }
  return %p, %q
}
"""
WHILE_WITH_CAPTURE = """\
func @f(%c: f64[], %x: f64[]) -> (f64[], f64[]) {
  %zero = constant(value=0.0) : f64[]
  %n, %p, %q = while(%zero, %c, %zero) : f64[], f64[], f64[] { \
(%i: f64[], %a: f64[], %b: f64[]) =>
    %one = constant(value=2.5) : f64[]
    %go = lt(%i, %one) : bool[]
    yield %go
  } { (%j: f64[], %d: f64[], %e: f64[]) =>
    %two = constant(value=1.0) : f64[]
    %k = add(%j, %two) : f64[]
    %s = sin(%d) : f64[]
    %t = mul(%e, %s) : f64[]
    yield %k, %x, %t
  }
  return %p, %q
}
"""
BRANCH_BY_THE_COUNT_OF_A_WHILE = """\
func @f(%c: f64[], %x: f64[]) -> (f64[], i32[], f64[]) {
  %zero = constant(value=0) : i32[]
  %n, %p = while(%zero, %c) : i32[], f64[] { (%i: i32[], %a: f64[]) =>
    %limit = constant(value=3.0) : f64[]
    %square = mul(%a, %a) : f64[]
    %go = lt(%square, %limit) : bool[]
    yield %go
  } { (%j: i32[], %d: f64[]) =>
    %one = constant(value=1) : i32[]
    %k = add(%j, %one) : i32[]
    %e = add(%d, %d) : f64[]
    yield %k, %e
  }
  %s = case(%n) : f64[] {
    yield %x
  } {
    %t = mul(%x, %p) : f64[]
    yield %t
  }
  return %p, %n, %s
}
"""
"""The condition depends on the input, and so does the number of iterations."""
WHILE_INSIDE_OF_A_BRANCH = """\
func @f(%c: f64[], %x: f64[]) -> (f64[], f64[]) {
  %n = constant(value=1) : i32[]
  %y, %z = case(%n) : f64[], f64[] {
    yield %x, %c
  } {
    %k = constant(value=0.25) : f64[]
    %p = while(%k) : f64[] { (%i: f64[]) =>
      %one = constant(value=0.5) : f64[]
      %go = lt(%i, %one) : bool[]
      yield %go
    } { (%j: f64[]) =>
      %two = constant(value=1.0) : f64[]
      %l = add(%j, %two) : f64[]
      yield %l
    }
    %q = mul(%p, %c) : f64[]
    yield %p, %q
  }
  return %y, %z
}
"""
COUNT_AND_CONSTANT_OF_A_BRANCH = """\
func @f(%c: f64[], %x: f64[], %i: i32[]) -> (f64[], f64[], i32[]) {
  %m, %y, %z = case(%i) : i32[], f64[], f64[] {
    %s = sin(%x) : f64[]
    %n = constant(value=3) : i32[]
    %k = constant(value=0.25) : f64[]
    yield %n, %s, %k
  } {
    %t = mul(%c, %x) : f64[]
    %l = constant(value=0.5) : f64[]
    yield %i, %t, %l
  }
  return %y, %z, %m
}
"""
SCANS = [OVERWRITTEN_CARRY, CAPTURE_ADDED_TO_CARRY, CHAIN_OF_CARRIES, LOOP_WITHOUT_ITERATIONS]
WHILES = [WHILE_WITH_OVERWRITTEN_CARRY, WHILE_WITH_CAPTURE, BRANCH_BY_THE_COUNT_OF_A_WHILE]
"""Loops without a gradient."""
BRANCHES = [WHILE_INSIDE_OF_A_BRANCH, COUNT_AND_CONSTANT_OF_A_BRANCH]


def arguments(plain: Function) -> list[Array]:
    rng = np.random.default_rng(1)
    return [
        random_like(rng, param.type) if param.type.numpy.kind == "f" else np.array(1, np.int32)
        for param in plain.body.params
    ]


@pytest.mark.parametrize("wrt", [[0], [1], [0, 1]])
@pytest.mark.parametrize("text", [*SCANS, *WHILES, *BRANCHES])
def test_both_modes_compute_derivatives_of_loops_and_branches(text: str, wrt: list[int]) -> None:
    plain = function(text)
    check_tangents(plain, arguments(plain), wrt)
    check_linearization(plain, wrt)
    if text in SCANS:
        check_gradients(plain, arguments(plain), wrt, order=2)


def check_linearization(plain: Function, wrt: list[int]) -> None:
    """Check that both parts of a linearization compute what `jvp` computes."""
    args, rng = arguments(plain), np.random.default_rng(2)
    directions = [random_like(rng, plain.body.params[i].type) for i in wrt]
    parts = linearize_forward(plain, wrt)
    verify(Module((), (parts.forward, parts.pushforward)))
    made = evaluate(parts.forward, args)
    count = len(plain.body.returns)
    tangents = evaluate(parts.pushforward, [*made[count:], *directions])
    expected = evaluate(jvp(plain, wrt), [*args, *directions])
    for ours, theirs in zip([*made[:count], *tangents], expected, strict=True):
        np.testing.assert_array_equal(ours, theirs)
