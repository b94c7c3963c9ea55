"""The order of events in a pipeline schedule: what an action needs, and whether all ranks end."""

from collections import deque
from collections.abc import Callable, Iterable
from enum import StrEnum

from shardir.passes.pipeline_parallelism.actions import Action, ActionKind, PipelineScheduleError
from shardir.passes.pipeline_parallelism.schedule import PipelineSchedule

F, B = ActionKind.FORWARD, ActionKind.BACKWARD
I, W = ActionKind.INPUT_GRADIENT, ActionKind.WEIGHT_GRADIENT  # noqa: E741

SEND_OF = {
    ActionKind.RECEIVE_FORWARD: ActionKind.SEND_FORWARD,
    ActionKind.RECEIVE_BACKWARD: ActionKind.SEND_BACKWARD,
}
"""The kind of the send that a receive matches."""
RECEIVE_OF = {send: receive for receive, send in SEND_OF.items()}
"""The kind of the receive that a send matches."""


class SendMode(StrEnum):
    """When a send ends (MPI standard 4.1, section 3.4)."""

    BUFFERED = "buffered"
    """The send ends at once; the message waits for its receive."""
    RENDEZVOUS = "rendezvous"
    """The send ends when its receive has started, as synchronous sends of MPI."""


def results_of(action: Action) -> tuple[Action, ...]:
    """Return the single results of an action; a backward pass B has those of I and W."""
    parts: list[Action] = []
    for part in action.parts:
        if part.kind is B:
            parts += (
                Action(part.stage, I, part.microbatch),
                Action(part.stage, W, part.microbatch),
            )
        else:
            parts.append(part)
    return tuple(parts)


def matching_transfer(action: Action) -> Action:
    """Return the receive of a send, or the send of a receive."""
    is_send = action.kind in RECEIVE_OF
    is_forward = action.kind in (ActionKind.SEND_FORWARD, ActionKind.RECEIVE_FORWARD)
    step = 1 if is_send == is_forward else -1
    kind = RECEIVE_OF[action.kind] if is_send else SEND_OF[action.kind]
    return Action(action.stage + step, kind, action.microbatch)


class Dependencies:
    """The results that each action of a schedule needs.

    A schedule with transfers states how results reach other ranks; in one without, they are there
    when they are computed.
    """

    def __init__(self, schedule: PipelineSchedule) -> None:
        self.rank_of = schedule.rank_of_stage
        self.last_stage = schedule.stage_count - 1
        self.has_transfers = any(
            action.kind in SEND_OF
            for rank in range(len(schedule.rows))
            for action in schedule.actions(rank)
        )

    def of(self, action: Action) -> tuple[Action, ...]:
        """Return the results that an action needs, excluding the start of a matching transfer."""
        parts = action.parts
        return (
            parts_needed(parts[0], self)
            if len(parts) == 1
            else tuple(needed for part in parts for needed in parts_needed(part, self))
        )

    def input_of(self, stage: int, microbatch: int | None, is_forward: bool) -> Action:
        """Return the result that brings the input of a pass from the stage next to it."""
        source = stage - 1 if is_forward else stage + 1
        if self.has_transfers and self.rank_of[source] != self.rank_of[stage]:
            kind = ActionKind.RECEIVE_FORWARD if is_forward else ActionKind.RECEIVE_BACKWARD
            return Action(stage, kind, microbatch)
        return Action(source, F if is_forward else I, microbatch)


def parts_needed(part: Action, graph: Dependencies) -> tuple[Action, ...]:
    """Return the results that a single action needs."""
    stage, kind, number = part.stage, part.kind, part.microbatch
    if kind is F:
        return (graph.input_of(stage, number, True),) if stage > 0 else ()
    if kind.is_backward:
        own = Action(stage, F, number)
        return (own, graph.input_of(stage, number, False)) if stage < graph.last_stage else (own,)
    if kind is W:
        return (Action(stage, I, number),)
    if kind is ActionKind.SEND_FORWARD:
        return (Action(stage, F, number),)
    if kind is ActionKind.SEND_BACKWARD:
        return (Action(stage, I, number),)
    return ()


def run_in_order(
    schedule: PipelineSchedule,
    visit: Callable[[int, Action, Iterable[Action]], None],
    sends: SendMode = SendMode.BUFFERED,
) -> None:
    """Call `visit(rank, action, needed)` for each action after the results that it needs.

    The order within a rank is that of its row. The time is linear in the number of actions.

    Raises:
        PipelineScheduleError: ranks wait for each other, or for a result that no rank computes. The
            error names the cycle.
    """
    graph = Dependencies(schedule)
    rows = [tuple(schedule.actions(rank)) for rank in range(len(schedule.rows))]
    positions = [0] * len(rows)
    done: set[Action] = set()
    started: set[Action] = set()
    waiting: dict[Action, list[int]] = {}
    ready = deque(range(len(rows)))
    blockers: dict[int, Action] = {}

    def missing(action: Action) -> Action | None:
        for needed in graph.of(action):
            if needed not in done:
                return needed
        if action.kind in SEND_OF or action.kind in RECEIVE_OF:
            other = matching_transfer(action)
            is_receive = action.kind in SEND_OF
            if sends is SendMode.RENDEZVOUS:
                return None if other in started else other
            return other if is_receive and other not in done else None
        return None

    while ready:
        rank = ready.popleft()
        blockers.pop(rank, None)
        row = rows[rank]
        while positions[rank] < len(row):
            action = row[positions[rank]]
            if action not in started:
                started.add(action)
                ready.extend(waiting.pop(action, ()))
            blocker = missing(action)
            if blocker is not None:
                waiting.setdefault(blocker, []).append(rank)
                blockers[rank] = blocker
                break
            visit(rank, action, graph.of(action))
            positions[rank] += 1
            for result in results_of(action):
                done.add(result)
                ready.extend(waiting.pop(result, ()))
    if blockers:
        raise PipelineScheduleError(_cycle_text(rows, positions, blockers))


def _cycle_text(
    rows: list[tuple[Action, ...]], positions: list[int], blockers: dict[int, Action]
) -> str:
    owners = {
        result: (rank, action)
        for rank, row in enumerate(rows)
        for action in row
        for result in results_of(action)
    }
    for rank, blocker in sorted(blockers.items()):
        if blocker not in owners:
            return (
                f"rank {rank} stops at {rows[rank][positions[rank]]}, which needs {blocker}; no "
                "rank has this action"
            )
    path = [min(blockers)]
    while (following := owners[blockers[path[-1]]][0]) not in path:
        path.append(following)
    cycle = path[path.index(following) :]
    steps = []
    for rank in cycle:
        owner, action = owners[blockers[rank]]
        place = "later in the same row" if owner == rank else f"of rank {owner}"
        steps.append(
            f"rank {rank} stops at {rows[rank][positions[rank]]}, which needs {action} {place}"
        )
    return "the schedule never ends, because of a cyclic wait: " + "; ".join(steps)


def verify_schedule(schedule: PipelineSchedule, sends: SendMode = SendMode.BUFFERED) -> None:
    """Raise `PipelineScheduleError` unless the schedule computes all microbatches and ends.

    Each stage computes the forward pass of each microbatch once, and either no gradients at all or
    those of the input and of the weights once. Each receive has one send and each send has one
    receive. No ranks wait for each other, if sends end as `sends` states. The gradients of a stage
    are reduced after the last of them.
    """
    ranks = schedule.rank_of_stage
    found: dict[Action, int] = {}
    made_by: dict[Action, Action] = {}
    for rank in range(len(schedule.rows)):
        reduced: set[int] = set()
        for action in schedule.actions(rank):
            if action.stage not in ranks:
                raise PipelineScheduleError(
                    f"rank {rank} has {action}, and no rank computes stage {action.stage}"
                )
            if action.kind is ActionKind.REDUCE_GRADIENTS:
                reduced.add(action.stage)
            for result in results_of(action):
                if result.microbatch is None:
                    continue
                if result in found:
                    raise PipelineScheduleError(
                        _repetition_text((found[result], made_by[result]), (rank, action), result)
                    )
                if result.kind is W and result.stage in reduced:
                    raise PipelineScheduleError(
                        f"rank {rank} has {action} after {result.stage}REDUCE_GRAD, which reduces "
                        "the gradients of all microbatches; move the reduction to the end"
                    )
                found[result], made_by[result] = rank, action
    _check_completeness(schedule, found)
    _check_transfers(ranks, found)
    run_in_order(schedule, lambda rank, action, needed: None, sends)


def _repetition_text(first: tuple[int, Action], second: tuple[int, Action], result: Action) -> str:
    if first[0] != second[0]:
        return f"rank {first[0]} and rank {second[0]} both have {result}; leave one of them out"
    if first == second:
        return f"rank {first[0]} has {first[1]} twice; leave one of them out"
    return (
        f"rank {first[0]} has {first[1]} and {second[1]}, which both compute {result}; leave one "
        "of them out"
    )


def _check_completeness(schedule: PipelineSchedule, found: dict[Action, int]) -> None:
    has_gradients = any(action.kind in (I, W) for action in found)
    for stage, rank in schedule.rank_of_stage.items():
        for number in range(schedule.microbatch_count):
            for kind in (F, I, W) if has_gradients else (F,):
                if Action(stage, kind, number) not in found:
                    text = "B" if kind is I and Action(stage, W, number) not in found else kind
                    raise PipelineScheduleError(
                        f"rank {rank} computes stage {stage} and lacks {stage}{text}{number}"
                    )


def _check_transfers(ranks: dict[int, int], found: dict[Action, int]) -> None:
    for action, rank in found.items():
        if action.kind not in SEND_OF and action.kind not in RECEIVE_OF:
            continue
        if ranks[action.stage] != rank:
            raise PipelineScheduleError(
                f"rank {rank} has {action}, and rank {ranks[action.stage]} computes stage "
                f"{action.stage}"
            )
        other = matching_transfer(action)
        if other not in found:
            what = "receives" if action.kind in SEND_OF else "sends"
            raise PipelineScheduleError(f"rank {rank} {what} by {action}, and no rank has {other}")
        if found[other] == rank:
            raise PipelineScheduleError(
                f"rank {rank} has both {action} and {other}; results need no transfer within a rank"
            )
