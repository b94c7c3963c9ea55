"""A fused operation whose values have incompatible shardings becomes its operations."""

import numpy as np
import pytest

from shardir.interpret.interpreter import run
from shardir.passes.pipeline import Pipeline
from shardir.text.parser import parse
from shardir.verify.verifier import verify

MESH = "mesh @m = [x=2, y=2]\n\n"
CONFLICT = """\
func @f(
  %x: f32[8@x, 8@-],
  %w: f32[8@-, 8@x],
) -> (f32[8, 8], f32[8]) {
  %h = tanh(%x) : f32[8, 8]
  %y = exp(%w) : f32[8, 8]
  %z = add(%y, %h) : f32[8, 8]
  %s = sum(%z, dims=[1]) : f32[8]
  return %z, %s
}
"""
REPEATED = """\
func @f(
  %x: f32[8@x],
  %w: f32[8@y],
) -> (f32[8], f32[8], f32[8]) {
  %a, %b, %c = fused(%x, %w) : f32[8@x], f32[8@y], f32[8@y] {
    (%p: f32[8@x], %q: f32[8@y]) =>
    %s = add(%p, %q) : f32[8@y]
    yield %p, %s, %s
  }
  return %a, %b, %c
}
"""


@pytest.mark.parametrize("passes", ["propagate,fuse", "fuse,propagate", "fuse"])
@pytest.mark.parametrize("inserted", ["reshard", "insert-explicit-reshards,reshard"])
@pytest.mark.parametrize("text", [CONFLICT, REPEATED])
def test_reshards_in_fused_operations(text: str, inserted: str, passes: str) -> None:
    """The operations are separate, and compute the same on the devices."""
    module = parse(MESH + text)
    resharded = Pipeline.parse(f"{passes},{inserted}")(module)
    verify(resharded)
    names = [op.name for op in resharded.main.body.walk()]
    assert "reshard" in names
    assert "fused" not in names
    generator = np.random.default_rng(0)
    args = [
        generator.standard_normal(param.type.shape, np.float32) for param in module.main.body.params
    ]
    partitioned = Pipeline.parse("partition")(resharded)
    for got, want in zip(run(partitioned, args), run(module, args), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5)


def test_fused_operations_without_reshards_stay() -> None:
    text = CONFLICT.replace("%w: f32[8@-, 8@x]", "%w: f32[8@x, 8@-]")
    resharded = Pipeline.parse("propagate,fuse,reshard")(parse(MESH + text))
    assert [op.name for op in resharded.main.body.ops] == ["fused"]
