"""Insert the sends and receives of a pipeline schedule."""

from shardir.passes.pipeline_parallelism.actions import Action, ActionKind, PipelineScheduleError
from shardir.passes.pipeline_parallelism.progress import Dependencies, matching_transfer
from shardir.passes.pipeline_parallelism.schedule import PipelineSchedule, schedule_of_rows
from shardir.passes.pipeline_parallelism.simulation import simulate_schedule


def add_transfers(schedule: PipelineSchedule) -> PipelineSchedule:
    """Return the schedule with a send after each result that another rank needs, and its receive.

    All ranks have the transfers in one common order, that of the ends of the passes if each takes
    one unit of time. Therefore the ranks do not wait for each other, even if sends are synchronous.

    Raises:
        PipelineScheduleError: the schedule has transfers already, or ranks wait for each other.
    """
    if Dependencies(schedule).has_transfers:
        raise PipelineScheduleError("the schedule has sends and receives already")
    ranks, last = schedule.rank_of_stage, schedule.stage_count - 1
    rows: list[list[Action]] = [[] for _ in schedule.rows]

    simulation = simulate_schedule(schedule)
    computed = [
        (simulation.ends[action], rank, action)
        for rank in range(len(schedule.rows))
        for action in schedule.actions(rank)
        if action in simulation.ends
    ]
    for _, rank, action in sorted(computed, key=lambda each: each[:2]):
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
    return schedule_of_rows(rows)
