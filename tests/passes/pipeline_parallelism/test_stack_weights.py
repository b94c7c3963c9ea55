"""Which operands of pipelines are stacked."""

import re
from collections.abc import Sequence

import pytest

from shardir.interpret.interpreter import run
from shardir.interpret.numeric_comparison import are_close, tolerance_of
from shardir.interpret.random_arguments import random_arguments
from shardir.ir.module import Module
from shardir.passes.pipeline import STAGING_PIPELINE, Pipeline
from shardir.text.parser import parse
from shardir.verify.verifier import verify
from tests.passes.pipeline_parallelism.staged_programs import staged

BODY = """
    %x.2 = pipeline-stage(%x.1, stage=0) : f32[4, 6]
    %a = mul(%x.2, %v.1) : f32[4, 6]
    %b = pipeline-stage(%a, stage=0) : f32[4, 6]
    %c = pipeline-stage(%b, stage=1) : f32[4, 6]
    %d = mul(%c, %w.1) : f32[4, 6]
    %f = mul(%d, %y.1) : f32[4, 6]
    %e = sum(%f, dims=[0, 1]) : f32[]"""


def program(
    weight: str = "4@pipe, 6",
    batch: str = "8, 6",
    wrt: Sequence[int] = (0, 1),
    body: str = BODY,
) -> Module:
    """Return a program in two stages: the first one uses %v and %x, the second one %w and %y."""
    shape = re.sub("@[a-z]*", "", weight)
    results = ["%loss", *(f"%gradient.{i}" for i in wrt)]
    types = ", ".join(["f32[]", *(f"f32[{shape}]" for _ in wrt)])
    module = parse(f"""
mesh @m = [pipe=2, data=2]

func @f(%v: f32[{weight}], %w: f32[{weight}], %x: f32[{batch}], %y: f32[{batch}]) -> ({types}) {{
  {", ".join(results)} = pipeline(%v, %w, %x, %y, microbatches=2, schedule="gpipe", axis="pipe",
      batched=[2, 3], wrt={list(wrt)}) : {types} {{
    (%v.1: f32[{shape}], %w.1: f32[{shape}], %x.1: f32[4, 6], %y.1: f32[4, 6]) =>
    {body}
    yield %e
  }}
  %twice = add(%loss, %loss) : f32[]
  return {", ".join(["%twice", *results[1:]])}
}}
""")
    verify(module)
    return module


def assert_same_results(module: Module) -> None:
    """Assert that stacks do not change what a program computes."""
    arguments = random_arguments(module)
    made = run(Pipeline.parse(STAGING_PIPELINE)(module), arguments)
    assert are_close(run(module, arguments), made, tolerance_of(module))


@pytest.mark.parametrize("wrt", [(), (0,), (1,), (0, 1), (1, 0)], ids=str)
def test_weights_of_single_rows_are_stacked_with_and_without_gradients(wrt: tuple[int]) -> None:
    pipeline = staged(program(wrt=wrt), STAGING_PIPELINE)
    # Weights with a gradient and others are in separate stacks.
    is_stacked = len(wrt) != 1
    names = [value.name for value in pipeline.op.operands]
    assert names == (["x", "y", "stack.1"] if is_stacked else ["v", "w", "x", "y"])
    assert_same_results(program(wrt=wrt))


@pytest.mark.parametrize("weight", ["4, 6", "4@data, 6", "4@pipe, 6", "3@pipe, 6"])
def test_weights_that_the_rows_do_not_divide_evenly_are_separate(weight: str) -> None:
    sums = "".join(
        f"""
    %{name}.3 = sum(%{name}.1, dims=[0]) : f32[6]
    %{name}.2 = broadcast(%{name}.3, dims=[1]) : f32[4, 6]"""
        for name in "vw"
    )
    body = BODY.replace("%v.1)", "%v.2)").replace("%w.1)", "%w.2)")
    module = program(weight, body=sums + body)
    is_stacked = weight == "4@pipe, 6"
    names = [value.name for value in staged(module, STAGING_PIPELINE).op.operands]
    assert names == (["x", "y", "stack.1"] if is_stacked else ["v", "w", "x", "y"])


def test_batches_of_single_rows_are_separate() -> None:
    module = program("4, 6", batch="8@pipe, 6")
    names = [value.name for value in staged(module, STAGING_PIPELINE).op.operands]
    assert names == ["v", "w", "x", "y"]


def test_a_weight_of_both_rows_is_separate() -> None:
    body = BODY.replace("mul(%d, %y.1)", "mul(%g, %y.1)").replace(
        "    %f", "    %g = add(%d, %v.1) : f32[4, 6]\n    %f"
    )
    names = [value.name for value in staged(program(body=body), STAGING_PIPELINE).op.operands]
    assert names == ["v", "w", "x", "y"]


def test_a_pipeline_without_rows_remains_the_same() -> None:
    """The rows of weights are those of the schedule."""
    text = "split-stages,split-backward"
    before, after = (str(Pipeline.parse(passes)(program()))
                     for passes in (text, f"{text},stack-weights"))  # fmt: skip
    assert after == before


def test_weights_of_mapped_pipelines_are_separate() -> None:
    """The dimensions of a vmap are the first ones of its operands."""
    module = parse("""
mesh @m = [pipe=2]

func @f(%x: f32[8, 4], %v: f32[2, 4@pipe], %w: f32[2, 4@pipe]) -> (f32[2], f32[2, 4], f32[2, 4]) {
  %loss, %v.grad, %w.grad = pipeline(%x, %v, %w, microbatches=2, schedule="gpipe", axis="pipe",
      batched=[0], wrt=[1, 2], mapped_dims=1, mapped=[1, 2]) : f32[2], f32[2, 4], f32[2, 4] {
    (%x.1: f32[4, 4], %v.1: f32[2, 4], %w.1: f32[2, 4]) =>
    %x.2 = pipeline-stage(%x.1, stage=0) : f32[4, 4]
    %a = dot(%x.2, %v.1, dims="bi,ni->n") : f32[2]
    %b = pipeline-stage(%a, stage=0) : f32[2]
    %c = pipeline-stage(%b, stage=1) : f32[2]
    %d = sum(%w.1, dims=[1]) : f32[2]
    %e = mul(%c, %d) : f32[2]
    yield %e
  }
  return %loss, %v.grad, %w.grad
}
""")
    names = [value.name for value in staged(module, STAGING_PIPELINE).op.operands]
    assert names == ["x", "v", "w"]
    assert_same_results(module)
