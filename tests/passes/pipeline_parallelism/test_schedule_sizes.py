"""Sizes of pipeline schedules and of their text, and actions of whole stages."""

import pytest

from shardir.passes.pipeline_parallelism import named_schedules
from shardir.passes.pipeline_parallelism.actions import Action, ActionKind, PipelineScheduleError
from shardir.passes.pipeline_parallelism.lanes import MAX_COLUMNS, lanes_of
from shardir.passes.pipeline_parallelism.named_schedules import make_schedule
from shardir.passes.pipeline_parallelism.progress import verify_schedule
from shardir.passes.pipeline_parallelism.schedule import PipelineSchedule, schedule_of_rows
from shardir.passes.pipeline_parallelism.simulation import simulate_schedule
from shardir.passes.pipeline_parallelism.transfers import add_transfers


def test_weights_may_be_gathered_again() -> None:
    verify_schedule(PipelineSchedule.parse("0UNSHARD,0F0,0RESHARD,0UNSHARD,0B0,0RESHARD\n"))


def test_results_need_no_transfer_within_a_rank() -> None:
    """The second rank computes the two stages in the middle."""
    schedule = add_transfers(make_schedule("zbv", ranks=2, microbatches=3))
    verify_schedule(schedule)
    assert "1SEND_F" not in str(schedule.to_csv()).splitlines()[1]


def test_a_rank_without_cells_is_a_line() -> None:
    schedule = schedule_of_rows([[Action(0, ActionKind.FORWARD, 0)], []])
    assert schedule.to_csv() == "0F0\n,\n"
    with pytest.raises(PipelineScheduleError, match="the text has no action"):
        PipelineSchedule.parse("")


def test_the_number_of_forward_passes_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(named_schedules, "MAX_FORWARD_PASSES", 4)
    make_schedule("gpipe", ranks=2, microbatches=2)
    with pytest.raises(PipelineScheduleError) as caught:
        make_schedule("gpipe", ranks=2, microbatches=3)
    assert str(caught.value) == (
        "the schedule has 6 forward passes, and the maximum is 4; use fewer microbatches or stages"
    )


def test_looped_schedules_without_rounds_have_any_number_of_microbatches() -> None:
    verify_schedule(make_schedule("looped-bfs", ranks=4, microbatches=9))


def test_lanes_of_long_schedules_have_the_maximum_length() -> None:
    schedule = make_schedule("1f1b", ranks=2, microbatches=40)
    lane, _ = lanes_of(simulate_schedule(schedule)).splitlines()
    assert len(lane) == len("rank 0:  ") + MAX_COLUMNS
