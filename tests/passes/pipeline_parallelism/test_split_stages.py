"""The forward fragments of stages: which values they send and return."""

import pytest

from shardir.passes.pipeline_parallelism.stage_assignment import PipelineStageError
from tests.passes.pipeline_parallelism.staged_programs import (
    END,
    MARKED,
    START,
    F,
    names,
    program,
    staged,
)
from tests.passes.pipeline_parallelism.test_split_backward import SPLIT, assert_same_results


def test_an_auxiliary_result_that_only_a_mark_moves_is_sent_to_its_stage() -> None:
    """The stage of the mark uses the value for nothing else."""
    body = f"""{START}
    %r = sum(%h, dims=[0]) : f32[8]
    %s = pipeline-stage(%r, stage=0) : f32[8]
    %t = pipeline-stage(%h, stage=1) : f32[4, 8]
    %k = pipeline-stage(%s, stage=1) : f32[8]
    %z = mul(%k, %k) : f32[8]
    %e = sum(%z, dims=[0]) : f32[]"""
    module = program(body, auxiliary=["%t"])
    pipeline = staged(module, SPLIT)
    assert pipeline.forward == (("a", "r"),)
    assert pipeline.fragments[1, F].gives[:2] == ("loss", "auxiliary 0")
    assert_same_results(module)


def test_a_mark_of_an_auxiliary_result_that_no_stage_computes() -> None:
    body = f"""{MARKED}
    %c = exp(%x) : f32[4, 8]
    %t = pipeline-stage(%c, stage=0) : f32[4, 8]"""
    module = program(body, auxiliary=["%t"])
    pipeline = staged(module)
    assert pipeline.fragments[0, F].gives == ("a", "auxiliary 0")
    assert_same_results(module, "split-stages")


def test_the_loss_depends_on_the_last_stage_that_an_auxiliary_result_uses() -> None:
    body = f"""{START}
    %e = sum(%h, dims=[0, 1]) : f32[]
    %k = pipeline-stage(%h, stage=1) : f32[4, 8]
    %t = tanh(%k) : f32[4, 8]"""
    with pytest.raises(PipelineStageError) as caught:
        staged(program(body, auxiliary=["%t"]))
    assert str(caught.value) == (
        "the loss %e does not depend on stage 1; compute it in the last stage"
    )


def test_a_value_without_a_name_has_that_of_its_mark() -> None:
    """Chains of marks too."""
    body = f"""
    %x.1 = pipeline-stage(%x, stage=0) : f32[4, 8]
    %0 = dot(%x.1, %w, dims="bi,ij->bj") : f32[4, 8]
    %1 = pipeline-stage(%0, stage=0) : f32[4, 8]
    %k = pipeline-stage(%1, stage=1) : f32[4, 8]{END}"""
    assert staged(program(body)).forward == (("k",),)


def test_a_manual_computation_inside_of_another_one_leaves_the_axis_of_the_pipeline() -> None:
    body = f"""{START}
    %m = manual_computation(%h, axes=[data], in_axes=[[[data], []]], out_axes=[[[data], []]])
        : f32[4, 8] {{
      (%b: f32[2, 8]) =>
      %c = manual_computation(%b, axes=[pipe], in_axes=[[[], []]], out_axes=[[[], []]])
          : f32[2, 8] {{
        (%d: f32[2, 8]) =>
        %t = tanh(%d) : f32[2, 8]
        yield %t
      }}
      yield %c
    }}
    %k = pipeline-stage(%m, stage=1) : f32[4, 8]{END}"""
    pipeline = staged(program(body, wrt=()))
    (outer,) = (op for op in pipeline.fragments[0, F].block.ops if op.blocks)
    (inner,) = outer.blocks[0].ops
    assert [axis.name for axis in outer.attrs["axes"]] == ["data"]
    assert inner.attrs["axes"] == ()


def test_a_mark_keeps_its_operand_in_its_stage() -> None:
    """An operation without a mark moves to where its operand is sent anyway."""
    body = f"""{START}
    %t = tanh(%h) : f32[4, 8]
    %m = MARK : f32[4, 8]
    %k = pipeline-stage(%h, stage=1) : f32[4, 8]
    %s = mul(%k, %t) : f32[4, 8]
    %z = add(%s, %m) : f32[4, 8]
    %e = sum(%z, dims=[0, 1]) : f32[]"""
    unmarked = staged(program(body.replace("MARK", "neg(%t)")))
    assert unmarked.forward == (("a",),)
    marked = staged(program(body.replace("MARK", "pipeline-stage(%t, stage=0)")))
    assert marked.forward == (("a", "t"),)
    assert names(marked, 0) == ["dot", "tanh"]
