"""Insert the sends and receives of a pipeline schedule."""

from collections.abc import Iterable

from shardir.passes.pipeline_parallelism.actions import Action, ActionKind, PipelineScheduleError
from shardir.passes.pipeline_parallelism.progress import (
    Dependencies,
    matching_transfer,
    run_in_order,
)
from shardir.passes.pipeline_parallelism.schedule import PipelineSchedule, schedule_of_rows


def add_transfers(schedule: PipelineSchedule) -> PipelineSchedule:
    """Return the schedule with a send after each result that another rank needs, and its receive.

    All ranks have the transfers in one common order, in which each rank starts its send and its
    receive; therefore the result does not deadlock, even if sends are synchronous.

    Raises:
        PipelineScheduleError: the schedule has transfers already, or ranks wait for each other.
    """
    if Dependencies(schedule).has_transfers:
        raise PipelineScheduleError("the schedule has sends and receives already")
    ranks, last = schedule.rank_of_stage, schedule.stage_count - 1
    rows: list[list[Action]] = [[] for _ in schedule.rows]

    def visit(rank: int, action: Action, _: Iterable[Action]) -> None:
        rows[rank].append(action)
        for part in action.parts:
            is_forward = part.kind is ActionKind.FORWARD
            following = part.stage + 1 if is_forward else part.stage - 1
            if not (is_forward or part.kind.is_backward) or not 0 <= following <= last:
                continue
            if ranks[following] != rank:
                kind = ActionKind.SEND_FORWARD if is_forward else ActionKind.SEND_BACKWARD
                send = Action(part.stage, kind, part.microbatch)
                rows[rank].append(send)
                rows[ranks[following]].append(matching_transfer(send))

    run_in_order(schedule, visit)
    return schedule_of_rows(rows)
