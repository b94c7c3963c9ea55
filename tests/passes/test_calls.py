"""Programs with calls: every pipeline keeps their results, and calls keep their functions."""

import pytest

from shardir.frontend.random_programs.programs import assert_pass_equivalent, random_program
from shardir.passes import Pipeline
from shardir.passes.pipeline import DEFAULT_PIPELINE, SHARDY_PIPELINE
from shardir.text.parser import parse

OPERATIONS = (
    "call", "add", "sin", "dot", "sum", "transpose", "concatenate", "while", "scan", "case",
    "manual_computation",
)  # fmt: skip
KEEPING = DEFAULT_PIPELINE.replace("inline-calls,", "")
"""The default pipeline without inlining."""
PIPELINES = (
    "inline-calls",
    "propagate,inline-calls,reshard,partition",
    DEFAULT_PIPELINE,
    KEEPING,
    SHARDY_PIPELINE,
    "cse,dce,simplify",
    f"{KEEPING},merge-devices,simplify,fold-views,cse,dce,fuse",
)


@pytest.mark.parametrize("pipeline", PIPELINES)
def test_pipelines_keep_the_results_of_calls(pipeline: str) -> None:
    assert_pass_equivalent(pipeline, operations=OPERATIONS, seeds=range(8), size=5)


@pytest.mark.parametrize("pipeline", [KEEPING, SHARDY_PIPELINE])
def test_calls_stay_through_partitioning(pipeline: str) -> None:
    kept = 0
    for seed in range(8):
        module = random_program(seed, operations=["call", "add", "sin"], size=4)
        done = Pipeline.parse(pipeline)(module)
        kept += sum(op.name == "call" for op in done.main.body.walk())
    assert kept


def test_common_subexpressions_do_not_cross_the_boundary_of_a_call() -> None:
    """The operation inside of the call uses constants of its own, which a function must have."""
    text = """\
func @f(
  %x: f32[4],
) -> (f32[4], f32[4], f32[4]) {
  %c = constant(value=2.0) : f32[4]
  %h = add(%x, %c) : f32[4]
  %y = call(%x, callee="g") : f32[4] {
    (%a: f32[4]) =>
    %d = constant(value=2.0) : f32[4]
    %r = add(%a, %d) : f32[4]
    yield %r
  }
  %z = sin(%c) : f32[4]
  return %h, %y, %z
}
"""
    module = parse(text)
    assert Pipeline.parse("cse")(module).main is module.main
