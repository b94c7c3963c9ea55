"""Programs with one pipeline, as text, and the stages that passes make of them."""

from collections.abc import Sequence

from shardir.ir.module import Module
from shardir.passes.pipeline import Pipeline
from shardir.passes.pipeline_parallelism.actions import ActionKind
from shardir.passes.pipeline_parallelism.program import StagedPipeline, staged_pipelines
from shardir.text.parser import parse
from shardir.verify.verifier import verify

F, B = ActionKind.FORWARD, ActionKind.BACKWARD
I, W = ActionKind.INPUT_GRADIENT, ActionKind.WEIGHT_GRADIENT  # noqa: E741

START = """
    %x.1 = pipeline-stage(%x, stage=0) : f32[4, 8]
    %a = dot(%x.1, %w, dims="bi,ij->bj") : f32[4, 8]
    %h = pipeline-stage(%a, stage=0) : f32[4, 8]"""
END = """
    %y = dot(%k, %w, dims="bi,ij->bj") : f32[4, 8]
    %z = mul(%y, %y) : f32[4, 8]
    %e = sum(%z, dims=[0, 1]) : f32[]"""
MARKED = f"{START}\n    %k = pipeline-stage(%h, stage=1) : f32[4, 8]{END}"


def program(
    body: str,
    schedule: str = "gpipe",
    *,
    wrt: Sequence[int] = (0,),
    auxiliary: Sequence[str] = (),
    options: str = "",
) -> Module:
    """Return a program whose loss uses the weight %w in f32[8, 8] and the batch %x in f32[4, 8].

    The loss is `%e`; `auxiliary` are values in f32[4, 8].
    """
    results = ["%loss", *(f"%aux.{i}" for i in range(len(auxiliary))), *(["%gradient"] * len(wrt))]
    types = ["f32[]", *(["f32[2, 4, 8]"] * len(auxiliary)), *(["f32[8, 8]"] * len(wrt))]
    module = parse(f"""
mesh @m = [pipe=2, data=2]

func @f(%weight: f32[8, 8], %batch: f32[8, 8]) -> ({", ".join(types)}) {{
  {", ".join(results)} = pipeline(%weight, %batch, microbatches=2, schedule="{schedule}",
      axis="pipe", batched=[1], wrt={list(wrt)}{options}) : {", ".join(types)} {{
    (%w: f32[8, 8], %x: f32[4, 8]) =>
    {body}
    yield {", ".join(["%e", *auxiliary])}
  }}
  return {", ".join(results)}
}}
""")
    verify(module)
    return module


def staged(module: Module, passes: str = "split-stages") -> StagedPipeline:
    """Return the pipeline of a program after passes; its text is read and printed unchanged."""
    made = Pipeline.parse(passes)(module)
    verify(made)
    assert str(parse(str(made))) == str(made)
    (pipeline,) = staged_pipelines(made)
    return pipeline


def names(pipeline: StagedPipeline, stage: int, kind: ActionKind = F) -> list[str]:
    """Return the operations of a pass of a stage."""
    return [op.name for op in pipeline.fragments[stage, kind].block.ops]
