"""The published pipeline schedules, by name.

Sources: GPipe (Huang et al. 2019, arXiv 1811.06965); 1F1B and interleaved 1F1B (Narayanan et al.
2021, arXiv 2104.04473); looped breadth-first (Lamy-Poirier 2023, arXiv 2211.05953); ZB-H1 and ZB-H2
(Qi et al. 2024, arXiv 2401.10241); ZBV (Qi et al. 2024, arXiv 2405.15362); DualPipeV
(deepseek-ai/DualPipe). Orders of actions equal those of `torch.distributed.pipelining` where it has
the schedule; torch 2.13 numbers the forward passes of the last rank of 1F1B from 1 instead of 0.
"""

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from math import prod

from shardir.passes.pipeline_parallelism.actions import Action, ActionKind, PipelineScheduleError
from shardir.passes.pipeline_parallelism.schedule import PipelineSchedule, schedule_of_rows

Row = list[Action]

MAX_FORWARD_PASSES = 1_000_000
"""The maximum number of forward passes of a schedule, of all stages and microbatches together; its
verification and its simulation then take minutes."""


@dataclass(frozen=True)
class NamedSchedule:
    """One published schedule."""

    description: str
    """One line for readers."""
    row: Callable[["PipelineShape", int], Row]
    """The function that returns the actions of a rank."""
    stages_per_rank: int | None = 1
    """The number of stages of each rank; `None` if it is free."""
    min_microbatches_per_rank: int = 0
    """The number of microbatches is at least this multiple of the number of ranks."""


@dataclass(frozen=True)
class PipelineShape:
    """The sizes of a pipeline."""

    ranks: int
    """The number of ranks p."""
    microbatches: int
    """The number of microbatches m."""
    stages_per_rank: int = 1
    """The number of stages of each rank."""


def make_schedule(
    name: str, *, ranks: int, microbatches: int, stages_per_rank: int | None = None
) -> PipelineSchedule:
    """Return a published schedule.

    Args:
        name: A key of `NAMED_SCHEDULES`.
        ranks: The number of ranks, at least 1.
        microbatches: The number of microbatches, at least 1.
        stages_per_rank: The number of stages of each rank, for schedules in which it is free; 2 by
            default.

    Raises:
        PipelineScheduleError: the name is unknown, or the schedule is not defined for these sizes.
    """
    kind = NAMED_SCHEDULES.get(name)
    if kind is None:
        raise PipelineScheduleError(
            f"{name!r} is not a pipeline schedule; use one of {', '.join(NAMED_SCHEDULES)}"
        )
    count = kind.stages_per_rank or (2 if stages_per_rank is None else stages_per_rank)
    check_sizes(ranks, microbatches, count)
    if stages_per_rank not in (None, count):
        raise PipelineScheduleError(
            f"{name} has {count} stage{'s'[: count > 1]} on each rank; stages_per_rank is "
            f"{stages_per_rank}"
        )
    least = kind.min_microbatches_per_rank * ranks
    if microbatches < least:
        raise PipelineScheduleError(
            f"{name} needs at least {kind.min_microbatches_per_rank} microbatches for each rank, "
            f"{least} for {ranks} ranks; microbatches is {microbatches}"
        )
    if kind.stages_per_rank is None and kind.row is not _looped_breadth_first:
        rounds = max(1, microbatches // ranks)
        if microbatches % rounds:
            raise PipelineScheduleError(
                f"{name} divides the microbatches into rounds of about {ranks}, one microbatch for "
                f"each rank; {microbatches} microbatches do not divide into {rounds} equal rounds"
            )
    shape = PipelineShape(ranks, microbatches, count)
    return schedule_of_rows([kind.row(shape, rank) for rank in range(ranks)])


def check_sizes(ranks: int, microbatches: int, stages_per_rank: int = 1) -> None:
    """Raise `PipelineScheduleError` unless a schedule of these sizes exists and is small enough."""
    sizes = {
        "ranks": ranks,
        "microbatches": microbatches,
        "stages_per_rank": stages_per_rank,
    }
    for what, number in sizes.items():
        if number < 1:
            raise PipelineScheduleError(f"{what} is {number}; it must be at least 1")
    count = prod(sizes.values())
    if count > MAX_FORWARD_PASSES:
        raise PipelineScheduleError(
            f"the schedule has {count:,} forward passes, and the maximum is "
            f"{MAX_FORWARD_PASSES:,}; use fewer microbatches or stages"
        )


def _action(stage: int, kind: ActionKind, microbatch: int) -> Action:
    return Action(stage, kind, microbatch)


F, B = ActionKind.FORWARD, ActionKind.BACKWARD
I, W = ActionKind.INPUT_GRADIENT, ActionKind.WEIGHT_GRADIENT  # noqa: E741


def _gpipe(shape: PipelineShape, rank: int) -> Row:
    return [_action(rank, kind, k) for kind in (F, B) for k in range(shape.microbatches)]


def _looped_breadth_first(shape: PipelineShape, rank: int) -> Row:
    stages = [rank + chunk * shape.ranks for chunk in range(shape.stages_per_rank)]
    numbers = range(shape.microbatches)
    return [
        *(_action(stage, F, k) for stage in stages for k in numbers),
        *(_action(stage, B, k) for stage in reversed(stages) for k in reversed(numbers)),
    ]


def _one_forward_one_backward(shape: PipelineShape, rank: int) -> Row:
    return _alternate(shape, rank, 1, None)


def _interleaved_1f1b(shape: PipelineShape, rank: int) -> Row:
    return _alternate(shape, rank, 2, None)


def _interleaved_zero_bubble(shape: PipelineShape, rank: int) -> Row:
    return _alternate(shape, rank, 1, rank)


def _zb_h1(shape: PipelineShape, rank: int) -> Row:
    return _alternate(shape, rank, 1, rank)


def _zb_h2(shape: PipelineShape, rank: int) -> Row:
    return _alternate(shape, rank, 2, 2 * rank)


def _alternate(shape: PipelineShape, rank: int, warmup_per_rank: int, delay: int | None) -> Row:
    """Return forward passes for the warm-up, then forward and backward passes in turn.

    The warm-up has `warmup_per_rank` passes for each rank that follows, and those of all chunks but
    the last. With `delay`, weight gradients are separate; one follows each input gradient as soon
    as more than `delay` of them are due.
    """
    ranks, chunks = shape.ranks, shape.stages_per_rank
    total = shape.microbatches * chunks
    round_size = shape.microbatches // max(1, shape.microbatches // ranks) if chunks > 1 else 1
    warmup = min(total, warmup_per_rank * (ranks - 1 - rank) + (chunks - 1) * round_size)

    def passes(is_backward: bool) -> Iterator[tuple[int, int]]:
        """Yield stage and microbatch; a round computes each chunk for its microbatches."""
        for number in range(total):
            round_number, rest = divmod(number, round_size * chunks)
            chunk, offset = divmod(rest, round_size)
            chunk = chunks - 1 - chunk if is_backward else chunk
            yield rank + chunk * ranks, round_number * round_size + offset

    forward, backward = passes(False), passes(True)
    row = [_action(stage, F, k) for stage, k in (next(forward) for _ in range(warmup))]
    due: deque[tuple[int, int]] = deque()
    for stage, k in backward:
        following = next(forward, None)
        if following is not None:
            row.append(_action(following[0], F, following[1]))
        row.append(_action(stage, B if delay is None else I, k))
        if delay is not None:
            due.append((stage, k))
            if len(due) > delay:
                row.append(_action(due[0][0], W, due.popleft()[1]))
    return [*row, *(_action(stage, W, k) for stage, k in due)]


class _RowOfTwoStages:
    """Collects the actions of a rank with two stages; each kind counts its microbatches."""

    def __init__(self, shape: PipelineShape, rank: int) -> None:
        self.row: Row = []
        self.stages = (rank, 2 * shape.ranks - 1 - rank)
        self.counts = {(chunk, kind): 0 for chunk in (0, 1) for kind in (F, I, W)}
        self.due: deque[Action] = deque()

    def next(self, chunk: int, kind: ActionKind) -> Action:
        """Return the next action of a kind."""
        key = chunk, I if kind is B else kind
        self.counts[key] += 1
        return _action(self.stages[chunk], kind, self.counts[key] - 1)

    def add(self, chunk: int, *kinds: ActionKind) -> None:
        """Append the next actions of these kinds."""
        for kind in kinds:
            self.row.append(self.next(chunk, kind))
            if kind is I:
                self.due.append(replace(self.row[-1], kind=W))

    def add_due_weight_gradient(self) -> None:
        """Append the weight gradient of the earliest input gradient that lacks it."""
        if self.due:
            self.row.append(self.due.popleft())

    def add_overlapped(self, forward_chunk: int) -> None:
        """Append a forward pass with the backward pass of the other chunk."""
        forward, backward = self.next(forward_chunk, F), self.next(1 - forward_chunk, B)
        self.row.append(replace(forward, overlapped=backward))


def _zbv(shape: PipelineShape, rank: int) -> Row:
    # The order is defined for at least 2p - 1 microbatches; with fewer, the others are left out.
    count = max(2 * shape.ranks - 1, shape.microbatches)
    b, ranks = _RowOfTwoStages(replace(shape, microbatches=count), rank), shape.ranks
    for _ in range(2 * (ranks - rank) - 1):
        b.add(0, F)
    for _ in range(rank):
        b.add(1, F)
        b.add(0, F)
    for _ in range(ranks - rank):
        b.add(1, F, I, W)
    while b.counts[1, F] < count:
        b.add(0, F, I, W)
        b.add(1, F, I, W)
    for _ in range(rank):
        b.add(0, I)
        b.add(1, I)
    for _ in range(ranks - rank):
        b.add(0, I, W)
    for chunk in (1, 0):
        while b.counts[chunk, W] < b.counts[chunk, I]:
            b.add(chunk, W)
    return [a for a in b.row if a.microbatch is not None and a.microbatch < shape.microbatches]


def _dualpipev(shape: PipelineShape, rank: int) -> Row:
    b, following = _RowOfTwoStages(shape, rank), shape.ranks - 1 - rank
    for _ in range(2 * following):
        b.add(0, F)
    for _ in range(rank + 1):
        b.add(0, F)
        b.add(1, F)
    for _ in range(following):
        b.add(1, I)
        b.add_due_weight_gradient()
        b.add(1, F)
    for number in range(shape.microbatches - 2 * shape.ranks + rank + 1):
        if number == 0 and following == 0:
            # The last rank computes both chunks in a row; nothing can overlap the first pass.
            b.add(0, F)
            b.add(1, B)
        else:
            b.add_overlapped(0)
        b.add_overlapped(1)
    for _ in range(following):
        b.add(1, B)
        b.add_overlapped(1)
    # In the second half of the last backward passes, weight gradients are separate.
    position = 2 * ((rank + 1) // 2) + (rank + 1) % 2
    for number in range(2 * (rank + 1)):
        b.add(1 - number % 2, I if number >= position else B)
    for _ in range(following):
        b.add_due_weight_gradient()
        b.add(0, I)
    while b.due:
        b.add_due_weight_gradient()
    return b.row


NAMED_SCHEDULES = {
    "gpipe": NamedSchedule("all forward passes, then all backward passes", _gpipe),
    "1f1b": NamedSchedule("one forward, one backward pass in turn", _one_forward_one_backward),
    "interleaved-1f1b": NamedSchedule(
        "1F1B over several stages on each rank", _interleaved_1f1b, stages_per_rank=None
    ),
    "looped-bfs": NamedSchedule(
        "GPipe over several stages on each rank", _looped_breadth_first, stages_per_rank=None
    ),
    "interleaved-zero-bubble": NamedSchedule(
        "interleaved 1F1B with separate weight gradients",
        _interleaved_zero_bubble,
        stages_per_rank=None,
    ),
    "zb-h1": NamedSchedule("1F1B with separate weight gradients and its memory", _zb_h1),
    "zb-h2": NamedSchedule("zero bubble, with about twice the memory of 1F1B", _zb_h2),
    "zbv": NamedSchedule(
        "zero bubble on a V of two stages on each rank, with the memory of 1F1B",
        _zbv,
        stages_per_rank=2,
    ),
    "dualpipev": NamedSchedule(
        "a V of two stages on each rank; forward passes overlap backward passes",
        _dualpipev,
        stages_per_rank=2,
        min_microbatches_per_rank=2,
    ),
}
"""The published schedules by name."""
