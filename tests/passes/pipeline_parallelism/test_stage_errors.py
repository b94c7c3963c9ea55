"""Programs that cannot be divided into stages: errors that name the remedy."""

import pytest

from shardir.passes.pipeline import Pipeline
from shardir.passes.pipeline_parallelism.stage_assignment import PipelineStageError
from shardir.text.parser import parse

START = """
    %x.1 = pipeline-stage(%x, stage=0) : f32[4, 8]
    %a = dot(%x.1, %w, dims="bi,ij->bj") : f32[4, 8]"""
END = """
    %k = pipeline-stage(%h, stage=1) : f32[4, 8]
    %y = dot(%k, %w, dims="bi,ij->bj") : f32[4, 8]
    %e = sum(%y, dims=[0, 1]) : f32[]"""
LOOP = """
    %h = scan(%a, carries=1, length=2) : f32[4, 8] { (%c: f32[4, 8]) =>
      %d = BODY : f32[4, 8]
      yield %d
    }"""
MANUAL = """
    %h = manual_computation(%a, axes=[AXES], in_axes=[[[], []]], out_axes=[[[], []]]) : f32[4, 8] {
      (%c: f32[4, 8]) =>
      %d = BODY : f32[4, 8]
      yield %d
    }"""


def split(body: str, stages: int = 0, loss: str = "%e") -> None:
    attribute = f", stages={stages}" if stages else ""
    Pipeline.parse("split-stages")(
        parse(f"""
mesh @m = [pipe=2, data=2]

func @f(%weight: f32[8, 8], %batch: f32[8, 8]) -> (f32[]) {{
  %loss = pipeline(%weight, %batch, microbatches=2, schedule="gpipe", axis="pipe",
      batched=[1], wrt=[]{attribute}) : f32[] {{
    (%w: f32[8, 8], %x: f32[4, 8]) =>{body}
    yield {loss}
  }}
  return %loss
}}
""")
    )


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (
            START + LOOP.replace("BODY", "pipeline-stage(%c, stage=0)") + END,
            "stage 0 is marked inside of scan; mark stages outside of loops and branches",
        ),
        (
            START + "\n    %h = tanh(%a) : f32[4, 8]" + END.replace("sum(%y", "sum(%z").replace(
                "    %e", "    %z = pipeline-stage(%y, stage=0) : f32[4, 8]\n    %e"
            ),
            "stage 0 uses %y, which stage 1 computes; a stage uses values of earlier stages only",
        ),
        (
            "\n    %e = sum(%x, dims=[0, 1]) : f32[]",
            "the pipeline has no stages; mark them with sd.stage(0)(f), sd.stage(1)(g), ...",
        ),
        (
            START + "\n    %h = tanh(%a) : f32[4, 8@pipe]" + END,
            "%h is sharded over 'pipe', along which the stages of the pipeline run; shard it over "
            "other axes of the mesh",
        ),
        (
            START + MANUAL.replace("AXES", "pipe, data").replace(
                "BODY", "all-reduce(%c, axes=[pipe], op=add)"
            ) + END,
            "a shard_map in a stage uses 'pipe', along which the stages of the pipeline run; use "
            "other axes of the mesh",
        ),
    ],
)  # fmt: skip
def test_programs_without_stages_are_refused(body: str, message: str) -> None:
    with pytest.raises(PipelineStageError) as caught:
        split(body)
    assert str(caught.value) == message


@pytest.mark.parametrize("sharding", ["", "@data"])
@pytest.mark.parametrize("axes", ["data", "pipe, data"])
def test_other_axes_of_the_mesh_shard_values_of_a_stage(sharding: str, axes: str) -> None:
    manual = MANUAL.replace("AXES", axes).replace("BODY", "all-reduce(%c, axes=[data], op=max)")
    split(START + manual.replace(") : f32[4, 8] {", f") : f32[4, 8{sharding}] {{") + END)


def test_a_loss_with_too_few_operations_is_refused() -> None:
    with pytest.raises(PipelineStageError) as caught:
        split("\n    %e = sum(%x, dims=[0, 1]) : f32[]\n    %f = exp(%e) : f32[]", 3, "%f")
    assert str(caught.value) == "the loss has too few operations for 3 stages; state at most 2"


def test_marks_and_a_number_of_stages_exclude_each_other() -> None:
    with pytest.raises(PipelineStageError) as caught:
        split(START + "\n    %h = tanh(%a) : f32[4, 8]" + END, 2)
    assert str(caught.value) == (
        "stage 0 is marked, and stages=2 divides the loss without marks; leave one of them out"
    )
