"""Gradients of pipelines, with custom derivative rules in their stages."""

import numpy as np
import pytest

from shardir import parse
from shardir.errors import DifferentiateError
from shardir.interpret.interpreter import run
from shardir.ir.module import Function, Module
from shardir.passes.autodiff.vjp import vjp
from shardir.verify.verifier import verify

STATED_RULE = """
    %y = custom-jvp(%v, rule="twice_cos") : f32[3] {
      (%a: f32[3]) =>
      %s = sin(%a) : f32[3]
      yield %s
    } {
      (%c: f32[3], %c.tangent: f32[3]) =>
      %d = sin(%c) : f32[3]
      %e = cos(%c) : f32[3]
      %g = mul(%e, %c.tangent) : f32[3]
      %h = add(%g, %g) : f32[3]
      yield %d, %h
    }
    %k = sin(%b) : f32[2, 3]"""
NAMED_RULE_OF_THE_BATCH = """
    %y = sin(%v) : f32[3]
    %k = custom-vjp(%b, rule="other") : f32[2, 3] {
      (%a: f32[2, 3]) =>
      %s = sin(%a) : f32[2, 3]
      yield %s
    }"""


def function(body: str) -> Function:
    """Return the loss sum(y k) of microbatches, for the weight %v and the batch %b."""
    return parse(f"""
mesh @m = [pipe=2]

func @f(%w: f32[3], %x: f32[4, 3]) -> (f32[]) {{
  %loss = pipeline(%w, %x, microbatches=2, schedule="gpipe", axis="pipe", batched=[1]) : f32[] {{
    (%v: f32[3], %b: f32[2, 3]) =>{body}
    %wide = broadcast(%y, dims=[1]) : f32[2, 3]
    %z = mul(%wide, %k) : f32[2, 3]
    %sum = sum(%z, dims=[0, 1]) : f32[]
    yield %sum
  }}
  return %loss
}}
""").main


@pytest.mark.parametrize(("body", "factor"), [(STATED_RULE, 2), (NAMED_RULE_OF_THE_BATCH, 1)])
def test_only_the_rules_that_the_gradient_needs_are_traced(body: str, factor: int) -> None:
    """A rule whose blocks are stated is not traced, nor is that of a function of the batch."""
    module = Module((), (vjp(function(body), [0]),))
    verify(module)
    w, x = np.array([0.3, 1, -2], np.float32), np.arange(12, dtype=np.float32).reshape(4, 3)
    loss, gradient = run(module, [w, x, np.float32(1)])
    np.testing.assert_allclose(loss, (np.sin(w) * np.sin(x)).sum() / 2, rtol=1e-5)
    expected = factor * np.cos(w) * np.sin(x).sum(0) / 2
    np.testing.assert_allclose(gradient, expected, rtol=1e-5, atol=1e-6)


def test_the_rule_that_a_gradient_needs_must_be_known() -> None:
    text = NAMED_RULE_OF_THE_BATCH.replace("%b,", "%q,").replace(
        "    %k", "    %p = broadcast(%y, dims=[1]) : f32[2, 3]\n    %q = mul(%p, %b) : f32[2, 3]\n"
        "    %k", 1,
    )  # fmt: skip
    with pytest.raises(DifferentiateError, match="the text holds only its name"):
        vjp(function(text), [0])


def test_a_pipeline_has_no_second_derivative() -> None:
    first = vjp(function(STATED_RULE), [0])
    with pytest.raises(DifferentiateError) as caught:
        vjp(first, [0])
    assert str(caught.value).splitlines()[0] == (
        "%loss = pipeline has no second derivative; differentiate the loss without sd.pipeline"
    )
