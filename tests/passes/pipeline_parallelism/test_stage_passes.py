"""The stages of operations, and the values that stages give, keep and send."""

import pytest

from shardir.errors import ParseError
from shardir.interpret.interpreter import run
from shardir.interpret.numeric_comparison import are_close, tolerance_of
from shardir.interpret.random_arguments import random_arguments
from shardir.passes.numerics_check import NumericsCheck
from shardir.passes.pipeline import STAGING_PIPELINE, Pipeline
from shardir.passes.pipeline_parallelism.stage_assignment import PipelineStageError
from shardir.text.parser import parse
from shardir.verify.verifier import verify
from tests.passes.pipeline_parallelism.staged_programs import (
    END,
    MARKED,
    START,
    B,
    F,
    I,
    W,
    names,
    program,
    staged,
)


def test_an_operation_without_a_mark_is_computed_early_if_both_places_send_as_much() -> None:
    body = f"""{START}
    %t = tanh(%h) : f32[4, 8]
    %k = pipeline-stage(%t, stage=1) : f32[4, 8]{END}"""
    pipeline = staged(program(body))
    assert pipeline.forward == (("t",),)
    assert names(pipeline, 0) == ["dot", "tanh"]


def test_an_operation_without_a_mark_moves_to_where_its_operand_is_sent_anyway() -> None:
    body = f"""{START}
    %t = tanh(%h) : f32[4, 8]
    %k.1 = pipeline-stage(%h, stage=1) : f32[4, 8]
    %k = add(%k.1, %t) : f32[4, 8]{END}"""
    pipeline = staged(program(body))
    assert pipeline.forward == (("a",),)
    assert names(pipeline, 1)[:2] == ["tanh", "add"]


def test_operations_on_arguments_are_repeated_in_the_stages_that_use_them() -> None:
    body = f"""
    %c = exp(%x) : f32[4, 8]
    %x.1 = pipeline-stage(%c, stage=0) : f32[4, 8]
    %a = dot(%x.1, %w, dims="bi,ij->bj") : f32[4, 8]
    %h = pipeline-stage(%a, stage=1) : f32[4, 8]
    %k = add(%h, %c) : f32[4, 8]{END}"""
    pipeline = staged(program(body))
    assert pipeline.forward == (("a",),)
    assert "exp" in names(pipeline, 0)
    assert "exp" in names(pipeline, 1)


def test_a_weight_of_two_stages_has_a_term_of_its_gradient_in_each() -> None:
    pipeline = staged(program(MARKED), "split-stages,split-backward")
    assert pipeline.fragments[0, B].gives == ("gradient 0",)
    assert pipeline.fragments[1, B].gives == ("gradient 0", "sent cotangent a")
    assert pipeline.backward == (("a",),)


def test_weight_gradients_are_apart_from_input_gradients() -> None:
    pipeline = staged(program(MARKED, "zb-h1"), "split-stages,split-backward,schedule-pipelines")
    assert {kind for _, kind in pipeline.fragments} == {F, I, W}
    # The first stage receives no values, so that its input gradient computes nothing.
    assert pipeline.fragments[0, I].block.ops == ()
    last = pipeline.fragments[1, W]
    assert [op.name for op in last.block.ops] == ["dot"]
    assert last.gives == ("gradient 0",)
    assert last.takes == ("a", "kept y.grad")


def test_dead_operations_belong_to_no_stage() -> None:
    body = f"{MARKED}\n    %unused = pipeline-stage(%k, stage=7) : f32[4, 8]"
    assert staged(program(body)).stage_count == 2


def test_the_loss_depends_on_the_last_stage() -> None:
    body = f"{START}\n    %k = pipeline-stage(%h, stage=0) : f32[4, 8]{END}"
    assert staged(program(body)).stage_count == 1
    with pytest.raises(PipelineStageError, match="has stage 1 and no stage 0"):
        staged(program(body.replace("stage=0", "stage=1")))


@pytest.mark.parametrize("schedule", ["1f1b", "zb-h1"])
def test_the_interpreter_runs_pipelines_after_each_pass(schedule: str) -> None:
    module = program(MARKED, schedule)
    arguments = random_arguments(module)
    want = run(module, arguments)
    steps = [*STAGING_PIPELINE.split(","), "propagate", "reshard", "partition"]
    for count in range(1, len(steps) + 1):
        made = Pipeline.parse(",".join(steps[:count]))(module)
        assert any(op.name == "staged-pipeline" for op in made.main.body.ops)
        assert are_close(want, run(made, arguments), tolerance_of(module))
    Pipeline.parse(",".join(steps))(module, NumericsCheck())


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("microbatches=2", "microbatches=3", "divides f32[8, 8] into 3 microbatches; the first "
         "dimension must be a multiple of 3"),
        ("microbatches=2", "microbatches=0", "microbatches=0 must be at least 1"),
        ("wrt=[0]", "wrt=[5]", "wrt contains 5, which is not a floating-point operand"),
        ("stage=0", "stage=-1", "stage=-1 must be at least 0"),
        ("wrt=[0]", "wrt=[0, 0]", "wrt=[0, 0] contains 0 more than once"),
    ],
)  # fmt: skip
def test_malformed_operations(before: str, after: str, message: str) -> None:
    text = str(program(MARKED)).replace(before, after)
    with pytest.raises(Exception) as caught:  # noqa: PT011
        verify(parse(text))
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("microbatches=2", "microbatches=3", "divides f32[8, 8] into 3 microbatches; the first "
         "dimension must be a multiple of 3"),
        ('["saved y"', '["saved z"', 'fragment 1B takes "saved z", which no fragment before it '
         "gives"),
        ('takes=[["argument 0", "argument 1"]', 'takes=[["argument 1", "argument 0"]',
         'fragment 0F takes "argument 1" as f32[8, 8], and it is f32[4, 8]'),
        ('takes=[["argument 0"', 'takes=[["argument 0[a:1]"', 'fragment 0F takes "argument '
         '0[a:1]", which no fragment before it gives'),
        ('takes=[["argument 0"', 'takes=[["argument 7"', 'fragment 0F takes "argument 7", which no '
         "fragment before it gives"),
        ('"1F", "1B"', '"1B", "1F"', 'fragment 1F takes "saved y", which no fragment before it '
         "gives"),
        ('"1F", "1B"', '"1F", "1X"', 'the fragment "1X" is not a stage and its pass, such as 0F, '
         "1B, 1I or 1W"),
        ('forward=[["a"]]', 'forward=[["b"]]', 'stage 0 sends "b", which none of its fragments '
         "gives"),
        ('forward=[["a"]]', 'forward=[["a"], []]', "forward has 2 lists of values; there is one "
         "for each stage but one, which is 1"),
        ('backward=[["a"]]', 'backward=[["b"]]', 'stage 1 sends "sent cotangent b", which none of '
         "its fragments gives"),
    ],
)  # fmt: skip
def test_malformed_stages(before: str, after: str, message: str) -> None:
    text = str(Pipeline.parse("split-stages,split-backward")(program(MARKED)))
    assert before in text
    with pytest.raises(ParseError) as caught:
        parse(text.replace(before, after))
    assert message in str(caught.value)


def test_names_of_kept_and_sent_values_do_not_collide() -> None:
    """Values of a stage are numbered again, so a kept value may have the number of a sent one."""
    body = """
    %x.1 = pipeline-stage(%x, stage=0) : f32[4, 8]
    %5 = dot(%x.1, %w, dims="bi,ij->bj") : f32[4, 8]
    %6 = pipeline-stage(%5, stage=1) : f32[4, 8]
    %7 = tanh(%6) : f32[4, 8]
    %0 = sum(%7, dims=[0]) : f32[8]
    %8 = sin(%0) : f32[8]
    %9 = pipeline-stage(%8, stage=2) : f32[8]
    %10 = mul(%9, %9) : f32[8]
    %e = sum(%10, dims=[0]) : f32[]"""
    pipeline = staged(program(body), "split-stages,split-backward")
    for fragment in pipeline.fragments.values():
        assert len(set(fragment.takes)) == len(fragment.takes)
        assert len(set(fragment.gives)) == len(fragment.gives)
