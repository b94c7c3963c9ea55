"""The rows of the schedules of staged pipelines, and errors of schedules that do not fit them."""

import pytest

from shardir.passes.pipeline_parallelism.schedule import PipelineSchedule
from shardir.passes.pipeline_parallelism.stage_assignment import PipelineStageError
from tests.passes.pipeline_parallelism.staged_programs import (
    END,
    MARKED,
    START,
    program,
    staged,
)

SCHEDULED = "split-stages,split-backward,schedule-pipelines"
FOUR_STAGES = f"""{START}
    %b = pipeline-stage(%h, stage=1) : f32[4, 8]
    %c = tanh(%b) : f32[4, 8]
    %d = pipeline-stage(%c, stage=2) : f32[4, 8]
    %f = sin(%d) : f32[4, 8]
    %k = pipeline-stage(%f, stage=3) : f32[4, 8]{END}"""
"""Twice as many stages as the mesh has rows of devices."""


@pytest.mark.parametrize("options", ["", ", stages_per_rank=0", ", stages_per_rank=2"])
def test_the_rows_divide_the_stages_evenly(options: str) -> None:
    module = program(FOUR_STAGES, "interleaved-1f1b", options=options)
    rows = PipelineSchedule.parse(staged(module, SCHEDULED).schedule)
    assert rows.rank_of_stage == {0: 0, 1: 1, 2: 0, 3: 1}


@pytest.mark.parametrize(
    ("schedule", "options"), [("interleaved-1f1b", ", stages_per_rank=1"), ("1f1b", "")]
)
def test_stages_that_the_schedule_lacks_are_refused(schedule: str, options: str) -> None:
    with pytest.raises(PipelineStageError) as caught:
        staged(program(FOUR_STAGES, schedule, options=options), SCHEDULED)
    assert str(caught.value) == (
        "the schedule has 2 stages, and the program marks 4; mark as many stages as the schedule "
        "has"
    )


@pytest.mark.parametrize("form", ["both", "halves"])
def test_a_search_needs_separate_weight_gradients(form: str) -> None:
    module = program(MARKED, "search", options=f", memory={1 << 20}")
    passes = "split-stages,split-backward{form=FORM},schedule-pipelines"
    assert staged(module, passes.replace("FORM", form)).schedule.startswith("0F0,")
    with pytest.raises(PipelineStageError) as caught:
        staged(module, passes.replace("FORM", "whole"))
    assert str(caught.value) == (
        "the search needs weight gradients that are separate from input gradients; run "
        "split-backward without form=whole"
    )
