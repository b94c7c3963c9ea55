"""Manual computations become per-device code; the partitioner handles their free axes."""

from dataclasses import replace

import numpy as np
import pytest

from shardir.errors import InterpretError
from shardir.interpret.interpreter import run
from shardir.interpret.numeric_comparison import are_close, tolerance_of
from shardir.interpret.random_arguments import random_arguments
from shardir.ir.module import Module
from shardir.passes import Pipeline
from shardir.passes.autodiff.jvp import jvp
from shardir.passes.autodiff.vjp import vjp
from shardir.passes.batching.vectorize import vectorize
from shardir.passes.pipeline import DEFAULT_PIPELINE
from shardir.text.parser import parse
from shardir.verify.verifier import verify
from tests.backends.numpy.executor_results import executor_results

HEAD = "mesh @m = [x=2, y=4]\n\n"

MATMUL = f"""{HEAD}func @f(
  %a: f32[8, 16@x],
  %b: f32[16@x, 8@y],
) -> (f32[8, 8]) {{
  %c = manual_computation(%a, %b, HOW) : f32[8, 8] {{
    (%p: f32[8, 8], %q: f32[8, 8@y]) =>
    %part = dot(%p, %q, dims="mk,kn->mn") : f32[8, 8@y]
    %sum = all-reduce(%part, axes=[x], op=add) : f32[8, 8@y]
    yield %sum
  }}
  return %c
}}
""".replace("HOW", "axes=[x], in_axes=[[[], [x]], [[x], []]], out_axes=[[[], []]]")

COLLECTIVES = f"""{HEAD}func @f(
  %a: f32[8@x, 8@y],
) -> (f32[16, 8], f32[4, 8], f32[2, 16], f32[8, 8]) {{
  %g, %s, %t, %p = manual_computation(%a, HOW {{
    (%v: f32[4, 8@y]) =>
    %g.in = all-gather(%v, dim=0, axes=[x]) : f32[8, 8@y]
    %s.in = reduce-scatter(%v, dim=0, axes=[x], op=add) : f32[2, 8@y]
    %t.in = all-to-all(%v, split=0, concat=1, axes=[x]) : f32[2, 16@y]
    %p.in = collective-permute(%v, axes=[x], pairs=[[0, 1]]) : f32[4, 8@y]
    yield %g.in, %s.in, %t.in, %p.in
  }}
  %half = slice(%t, starts=[0, 0], strides=[1, 1]) : f32[2, 16]
  return %g, %s, %half, %p
}}
""".replace(
    "HOW",
    "axes=[x], in_axes=[[[x], []]], out_axes=[[[x], []], [[x], []], [[x], []], [[x], []]]) : "
    "f32[16, 8], f32[4, 8], f32[4, 16], f32[8, 8]",
)

NESTED = f"""{HEAD}func @f(
  %a: f32[8],
) -> (f32[8], i32[]) {{
  %r, %n = manual_computation(%a, axes=[x], CUT(x)) : f32[8], i32[] {{
    (%p: f32[4]) =>
    %s, %m = manual_computation(%p, axes=[y], CUT(y)) : f32[4], i32[] {{
      (%q: f32[1]) =>
      %t = all-reduce(%q, axes=[y, x], op=add) : f32[1]
      %i = axis-index(axes=[x, y]) : i32[]
      %k = all-reduce(%i, axes=[x, y], op=max) : i32[]
      %u = add(%t, %q) : f32[1]
      yield %u, %k
    }}
    yield %s, %m
  }}
  return %r, %n
}}
"""
for axis in "xy":
    NESTED = NESTED.replace(f"CUT({axis})", f"in_axes=[[[{axis}]]], out_axes=[[[{axis}]], []]")

LOOP = f"""{HEAD}func @f(
  %a: f32[8@(x, y), 3],
) -> (f32[8, 3]) {{
  %r = manual_computation(%a, axes=[x], in_axes=[[[x], []]], out_axes=[[[x], []]]) : f32[8, 3] {{
    (%p: f32[4@y, 3]) =>
    %e = scan(%p, carries=1, length=3) : f32[4, 3] {{
      (%c: f32[4, 3]) =>
      %d = collective-permute(%c, axes=[x], pairs=[[0, 1], [1, 0]]) : f32[4, 3]
      %w = add(%c, %d) : f32[4, 3]
      yield %w
    }}
    yield %e
  }}
  return %r
}}
"""

ALL = {"matmul": MATMUL, "collectives": COLLECTIVES, "nested": NESTED, "loop": LOOP}


@pytest.mark.parametrize("pipeline", [DEFAULT_PIPELINE, "reshard,partition"])
@pytest.mark.parametrize("text", ALL.values(), ids=ALL)
def test_per_device_programs_compute_the_global_result(text: str, pipeline: str) -> None:
    module = parse(text)
    verify(module)
    arguments = random_arguments(module, 0)
    partitioned = Pipeline.parse(pipeline)(module)
    verify(partitioned)
    expected = run(module, arguments)
    assert are_close(expected, run(partitioned, arguments), tolerance_of(module))
    assert are_close(expected, executor_results(partitioned, arguments), tolerance_of(module))


def body_of(module: Module) -> str:
    """Return the operations of a partitioned module without its signature."""
    return str(module).split("{\n", 1)[1]


def test_a_manual_program_equals_the_partitioned_program() -> None:
    automatic = f"""{HEAD}func @f(
  %a: f32[8@-, 16@x],
  %b: f32[16@x, 8@y],
) -> (f32[8@-, 8@y]) {{
  %c = dot(%a, %b, dims="mk,kn->mn") : f32[8@-, 8@y]
  return %c
}}
"""
    manual = MATMUL.replace("(f32[8, 8])", "(f32[8@-, 8@y])")
    one, other = (Pipeline.parse(DEFAULT_PIPELINE)(parse(text)) for text in (automatic, manual))
    assert body_of(one).replace("%c.partial", "%part") == body_of(other)


def test_collectives_are_partitioned_along_free_axes() -> None:
    module = Pipeline.parse("reshard,partition")(parse(COLLECTIVES))
    text = str(module)
    assert "all-gather(%a, dim=0, axes=[x]) : f32[8, 2]" in text
    assert "axes=[y], dim" not in text


def test_a_varying_computation_is_not_replicated() -> None:
    module = parse(NESTED.replace("%i, axes=[x, y], op=max", "%i, axes=[y], op=max"))
    with pytest.raises(InterpretError, match="hold different values for the same shard"):
        run(module, random_arguments(module, 0))


def through(pipeline: str, text: str) -> str:
    module = Pipeline.parse(pipeline)(parse(text))
    verify(module)
    return str(module)


def test_cse_inside_does_not_capture_outer_values() -> None:
    text = f"""{HEAD}func @f(
  %a: f32[8],
) -> (f32[8]) {{
  %two = constant(value=2) : f32[8]
  %b = mul(%a, %two) : f32[8]
  %r = manual_computation(%b, axes=[y], in_axes=[[[]]], out_axes=[[[]]]) : f32[8] {{
    (%p: f32[8]) =>
    %same = constant(value=2) : f32[8]
    %again = constant(value=2) : f32[8]
    %c = mul(%p, %same) : f32[8]
    %d = mul(%c, %again) : f32[8]
    yield %d
  }}
  return %r
}}
"""
    merged = through("cse,simplify", text)
    assert "%same" in merged
    assert "%again" not in merged


def test_unused_results_are_removed() -> None:
    text = f"""{HEAD}func @f(
  %a: f32[8],
  %b: f32[8],
) -> (f32[8]) {{
  %q, %r = manual_computation(%a, %b, axes=[x], HOW) : f32[8], f32[8] {{
    (%p: f32[4], %s: f32[4]) =>
    %t = all-reduce(%p, axes=[x], op=add) : f32[4]
    %u = neg(%s) : f32[4]
    yield %t, %u
  }}
  return %r
}}
""".replace("HOW", "in_axes=[[[x]], [[x]]], out_axes=[[[x]], [[x]]]")
    assert (
        through("dce", text)
        == f"""{HEAD}func @f(
  %a: f32[8],
  %b: f32[8],
) -> (f32[8]) {{
  %r = manual_computation(%b, axes=[x], in_axes=[[[x]]], out_axes=[[[x]]]) : f32[8] {{
    (%s: f32[4]) =>
    %u = neg(%s) : f32[4]
    yield %u
  }}
  return %r
}}
"""
    )


WHOLE = f"""{HEAD}func @f(
  %x: f32[8],
  %w: f32[],
) -> (f32[]) {{
  %y = manual_computation(%x, %w, axes=[x], in_axes=[[[x]], []], out_axes=[[]]) : f32[] {{
    (%p: f32[4], %v: f32[]) =>
    %s = sin(%p) : f32[4]
    %t = sum(%s, dims=[0]) : f32[]
    %u = mul(%t, %v) : f32[]
    %z = all-reduce(%u, axes=[x], op=add) : f32[]
    yield %z
  }}
  return %y
}}
"""


def test_the_backward_pass_is_a_manual_computation() -> None:
    """Residuals stay on the devices, and replicated operands get the sum of the gradients."""
    module = parse(WHOLE)
    both = replace(module, functions=(vjp(module.main, [0, 1]),))
    verify(both)
    x, w, g = np.arange(8, dtype=np.float32), np.float32(3), np.float32(2)
    y, of_x, of_w = run(both, [x, w, g])
    np.testing.assert_allclose(y, np.sin(x).sum() * w, 1e-5)
    np.testing.assert_allclose(of_x, g * w * np.cos(x), 1e-5)
    np.testing.assert_allclose(of_w, g * np.sin(x).sum(), 1e-5)
    partitioned = Pipeline.parse(DEFAULT_PIPELINE)(both)
    verify(partitioned)
    assert are_close([y, of_x, of_w], run(partitioned, [x, w, g]), 1e-5)
    assert "%t.saved" in str(both)


def test_tangents_and_batches_of_manual_computations() -> None:
    module = parse(WHOLE)
    x, w = np.arange(8, dtype=np.float32), np.float32(3)
    ahead = replace(module, functions=(jvp(module.main, [0, 1]),))
    verify(ahead)
    _, step = run(ahead, [x, w, x, w])
    np.testing.assert_allclose(step, (np.cos(x) * x).sum() * w + np.sin(x).sum() * w, 1e-4)
    many = replace(module, functions=(vectorize(module.main, [True, False], 2),))
    verify(many)
    (made,) = run(many, [np.stack([x, 2 * x]), w])
    np.testing.assert_allclose(made, np.sin([x, 2 * x]).sum(1) * w, 1e-5)
