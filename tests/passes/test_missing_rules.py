"""Operations without a derivative or a batching rule: errors that name the remedy."""

import pytest

from shardir import parse
from shardir.errors import DifferentiateError, VectorizeError
from shardir.ir.module import Function
from shardir.ir.operation import OPS
from shardir.passes.autodiff.jvp import jvp
from shardir.passes.autodiff.vjp import vjp
from shardir.passes.batching.vectorize import vectorize
from shardir.passes.pipeline import PASSES

OPAQUE = '%y = opaque(%x, operation="x.y", head="x.y %", attributes="", types="") : f32[2]'
FUSED = """\
%y = fused(%x) : f32[2] {
    (%a: f32[2]) =>
    %b = sin(%a) : f32[2]
    yield %b
  }"""
CALL = FUSED.replace("fused(%x)", 'call(%x, callee="g")')


def parse_function(op: str) -> Function:
    return parse(f"func @f(%x: f32[2]) -> (f32[2]) {{\n  {op}\n  return %y\n}}\n").main


@pytest.mark.parametrize(
    ("op", "derivative", "batching"),
    [
        (
            OPAQUE,
            "%y = opaque has no derivative; define the derivative of a function that calls it with "
            "custom_jvp or custom_vjp",
            "%y = opaque has no batching rule; define the batching of a function that calls it "
            "with custom_vmap",
        ),
        (
            FUSED,
            "%y = fused has no derivative; differentiate the program before the pass that adds "
            "fused",
            "%y = fused has no batching rule; vectorize the program before the pass that adds "
            "fused",
        ),
        (
            CALL,
            "%y = call has no derivative; differentiate the program after the pass inline-calls",
            "%y = call has no batching rule; vectorize the program after the pass inline-calls",
        ),
    ],
)
def test_a_missing_rule_of_an_operation(op: str, derivative: str, batching: str) -> None:
    function = parse_function(op)
    for transform in (vjp, jvp):
        with pytest.raises(DifferentiateError) as caught:
            transform(function, [0])
        assert str(caught.value) == derivative
    with pytest.raises(VectorizeError) as refused:
        vectorize(function, [True], 2)
    assert str(refused.value) == batching


def test_passes_that_errors_name_are_registered() -> None:
    named = {spec.inlined_by for spec in OPS.values() if spec.inlined_by}
    assert "inline-calls" in named
    assert named <= set(PASSES)


@pytest.mark.parametrize(
    ("op", "message"),
    [
        (
            "%r = all-reduce(%p, axes=[a], op=mul) : f32[4]",
            "%r = all-reduce with op=mul has no derivative; gather the shards with all-gather and "
            "reduce them on each device",
        ),
        (
            "%q = reduce-scatter(%p, dim=0, axes=[a], op=max) : f32[2]\n"
            "    %r = all-gather(%q, dim=0, axes=[a]) : f32[4]",
            "%q = reduce-scatter with op=max has no derivative; exchange the shards with "
            "all-to-all and reduce them on each device",
        ),
    ],
)
def test_collectives_without_a_derivative(op: str, message: str) -> None:
    text = f"""\
mesh @m = [a=2]

func @f(%x: f32[8]) -> (f32[8]) {{
  %y = manual_computation(%x, axes=[a], in_axes=[[[a]]], out_axes=[[[a]]]) : f32[8] {{
    (%p: f32[4]) =>
    {op}
    yield %r
  }}
  return %y
}}
"""
    with pytest.raises(DifferentiateError) as caught:
        vjp(parse(text).main, [0])
    assert str(caught.value) == message
