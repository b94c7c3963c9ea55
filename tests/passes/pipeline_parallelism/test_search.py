"""Schedules that are searched under a memory limit."""

import pytest

from shardir.passes.pipeline_parallelism.actions import PipelineScheduleError
from shardir.passes.pipeline_parallelism.progress import verify_schedule
from shardir.passes.pipeline_parallelism.search import search_schedule
from shardir.passes.pipeline_parallelism.simulation import PassMemory, PassTimes


def test_the_search_respects_any_limit() -> None:
    for limit in (1, 2, 3.5, 100):
        found = search_schedule(ranks=3, microbatches=5, memory_limit=limit)
        verify_schedule(found.schedule)
        assert max(found.peaks) <= limit
    with pytest.raises(PipelineScheduleError) as caught:
        search_schedule(ranks=3, microbatches=5, memory_limit=0.5)
    assert str(caught.value) == (
        "memory_limit is 0.5, and one microbatch needs 1; use a larger limit"
    )


@pytest.mark.parametrize(
    ("times", "transfer", "microbatches", "memory", "limit", "cost"),
    [
        ([(1, 3, 1), (5, 5, 5)], 2, 5, (1, 1), 4, 75),
        ([(5, 2, 3), (3, 5, 5), (1, 5, 2)], 2, 5, (2, 1), 4, 96),
        ([(2, 1, 8), (8, 2, 3), (1, 8, 1), (8, 1, 8)], 0, 6, (2, 1), 4, 138),
        ([(2, 3, 2), (8, 8, 8), (3, 2, 8), (2, 2, 5)], 2, 5, (1, 1), 2, 137),
        ([(3, 6, 1), (3, 3, 3), (2, 1, 2)], 2, 6, (1, 1), 4, 68),
        ([(2, 1, 3), (1, 1, 6), (2, 6, 1)], 2, 8, (1, 0), 3, 85),
        ([(2, 4, 3), (6, 4, 6), (6, 2, 6), (2, 2, 4)], 2, 5, (1, 1), 4, 89),
        ([(6, 4, 1), (3, 2, 3), (6, 6, 6), (4, 1, 4)], 1, 8, (1, 0), 3, 147),
        ([(1, 1, 0)], 0, 2, (1, 1), 1, 4),
    ],
)
def test_searched_schedules_of_different_stages(
    times: list[tuple[int, int, int]],
    transfer: int,
    microbatches: int,
    memory: tuple[int, int],
    limit: int,
    cost: int,
) -> None:
    found = search_schedule(
        ranks=len(times),
        microbatches=microbatches,
        times=[PassTimes(*each) for each in times],
        transfer=transfer,
        memory=PassMemory(*memory),
        memory_limit=limit,
    )
    verify_schedule(found.schedule)
    assert found.schedule.microbatch_count == microbatches
    assert max(found.peaks) <= limit
    assert found.cost == cost


@pytest.mark.parametrize("memory", [PassMemory(1, 2), PassMemory(1e10 / 3, 1e10 / 7)])
def test_the_limit_of_one_microbatch_suffices(memory: PassMemory) -> None:
    """The gradient of an input may add more than it frees; sums of memory may not be exact."""
    found = search_schedule(ranks=2, microbatches=3, memory=memory, memory_limit=memory.peak)
    verify_schedule(found.schedule)
    assert found.schedule.microbatch_count == 3
    assert max(found.peaks) == memory.peak
    with pytest.raises(PipelineScheduleError, match="use a larger limit"):
        search_schedule(ranks=2, microbatches=3, memory=memory, memory_limit=memory.peak * 0.99)
