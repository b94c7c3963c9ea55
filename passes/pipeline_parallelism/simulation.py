"""Simulate a pipeline schedule with the time and the memory of each pass.

The rules are those under which Qi et al. (2024, arXiv 2401.10241) compute their tables: a pass
starts when its rank is free and its inputs are there; a transfer between two ranks delays the
receiver by a constant and occupies neither rank.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from math import inf
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from shardir.errors import count_noun
from shardir.passes.pipeline_parallelism.actions import (
    COMPUTATIONS,
    Action,
    ActionKind,
    PipelineScheduleError,
)
from shardir.passes.pipeline_parallelism.progress import results_of, run_in_order
from shardir.passes.pipeline_parallelism.schedule import PipelineSchedule

if TYPE_CHECKING:
    from fractions import Fraction

    Number: TypeAlias = float | Fraction
else:
    Number = float  # The import of fractions takes a twentieth of the time of that of shardir.
T = TypeVar("T")

F, B = ActionKind.FORWARD, ActionKind.BACKWARD
I, W = ActionKind.INPUT_GRADIENT, ActionKind.WEIGHT_GRADIENT  # noqa: E741


def _check_numbers(given: "PassTimes | PassMemory") -> None:
    """Raise `PipelineScheduleError` for a time or memory that is negative, infinite or NaN."""
    for field in fields(given):
        value = getattr(given, field.name)
        if value is not None and not 0 <= value < inf:
            raise PipelineScheduleError(
                f"{field.name} of {type(given).__name__} is {value!r}; it must be a number of at "
                "least 0"
            )


@dataclass(frozen=True)
class PassTimes:
    """The times of the passes of one microbatch in one stage, in any common unit."""

    forward: Number = 1
    """The time of the forward pass."""
    input_gradient: Number = 1
    """The time of the gradient of the input."""
    weight_gradient: Number = 1
    """The time of the gradient of the weights."""
    overlapped: Number | None = None
    """The time of a forward and a backward pass that run together; `None` for the sum."""
    backward: Number | None = None
    """The time of both gradients in one pass; `None` for the sum."""

    def __post_init__(self) -> None:
        _check_numbers(self)

    def of(self, action: Action) -> Number:
        """Return the time of a single action; actions that do not compute take no time."""
        times: dict[ActionKind, Number] = {
            F: self.forward,
            I: self.input_gradient,
            W: self.weight_gradient,
            B: self.input_gradient + self.weight_gradient
            if self.backward is None
            else self.backward,
        }
        return times.get(action.kind, 0)

    @property
    def total(self) -> Number:
        """The time of all passes of one microbatch."""
        return self.forward + self.input_gradient + self.weight_gradient


@dataclass(frozen=True)
class PassMemory:
    """The activations of one microbatch in one stage, in any common unit."""

    input_gradient: Number = 1
    """The memory that is held from the forward pass to the gradient of the input (M_B)."""
    weight_gradient: Number = 1
    """The memory that is held from there to the gradient of the weights (M_W)."""

    def __post_init__(self) -> None:
        _check_numbers(self)

    @property
    def peak(self) -> Number:
        """The most memory that one microbatch holds."""
        return max(self.input_gradient, self.weight_gradient)


@dataclass(frozen=True)
class TransferTimes:
    """The times of the transfers of one microbatch between the ranks of two following stages."""

    forward: Sequence[Number]
    """The time from each stage but the last to the next one."""
    backward: Sequence[Number]
    """The time from each stage but the first to the one before it."""

    def after(self, result: Action) -> Number:
        """Return the time of the transfer of a result of a single pass."""
        is_forward = result.kind is F
        return self.forward[result.stage] if is_forward else self.backward[result.stage - 1]


EQUAL_TIMES = PassTimes()
"""Every pass takes one unit of time."""
EQUAL_MEMORY = PassMemory()
"""A microbatch holds one unit of memory until the gradient of the weights."""


@dataclass(frozen=True)
class PipelineSimulation:
    """The times of all actions of a schedule."""

    schedule: PipelineSchedule
    """The simulated schedule."""
    starts: dict[Action, Number]
    """The start of each action."""
    ends: dict[Action, Number]
    """The end of each action."""
    busy: tuple[Number, ...]
    """The time in which each rank computes."""
    peaks: tuple[Number, ...]
    """The peak of the activations of each rank."""

    @property
    def makespan(self) -> Number:
        """The time from the first start to the last end."""
        return max(self.ends.values()) - min(self.starts.values())

    @property
    def cost(self) -> Number:
        """The longest time of a rank from its first start to its last end.

        In a sequence of training steps, a rank begins the next step while others end this one.
        """
        return max(self.span(rank) for rank in range(len(self.schedule.rows)))

    def span(self, rank: int) -> Number:
        """Return the time of a rank from its first start to its last end."""
        actions = [a for a in self.schedule.actions(rank) if a in self.starts]
        if not actions:
            return 0
        return max(self.ends[a] for a in actions) - min(self.starts[a] for a in actions)

    @property
    def bubble_rate(self) -> Number:
        """The share of the cost in which the busiest rank does not compute."""
        return (self.cost - max(self.busy)) / self.cost if self.cost else 0

    def to_text(self) -> str:
        """Return cost, bubble rate, and the time and memory of each rank as a table."""
        lines = [
            f"cost         {float(self.cost):g}",
            f"bubble rate  {float(self.bubble_rate):.2%}",
            "",
            f"{'rank':<6}{'computes':>12}{'idle':>12}{'peak memory':>14}",
        ]
        for rank, (busy, peak) in enumerate(zip(self.busy, self.peaks, strict=True)):
            idle = self.span(rank) - busy
            lines.append(f"{rank:<6}{float(busy):>12g}{float(idle):>12g}{float(peak):>14g}")
        return "\n".join(lines) + "\n"


def simulate_schedule(
    schedule: PipelineSchedule,
    times: PassTimes | Sequence[PassTimes] = EQUAL_TIMES,
    *,
    transfer: Number | TransferTimes = 0,
    memory: PassMemory | Sequence[PassMemory] = EQUAL_MEMORY,
) -> PipelineSimulation:
    """Return the times of all actions of a schedule and the peak memory of each rank.

    Args:
        schedule: The schedule; its transfers are ignored.
        times: The times of the passes, for all stages or for each stage.
        transfer: The time between the end of a pass and the start of one on another rank that needs
            its result, for all stages or for each stage.
        memory: The activations, for all stages or for each stage.

    Raises:
        PipelineScheduleError: ranks wait for each other, or the number of times or memories is not
            that of the stages.
    """
    schedule = without_transfers(schedule)
    ranks = schedule.rank_of_stage
    stage_times = for_each_stage(times, PassTimes, "times", schedule.stage_count)
    stage_memory = for_each_stage(memory, PassMemory, "memory", schedule.stage_count)
    starts: dict[Action, Number] = {}
    ends: dict[Action, Number] = {}
    result_ends: dict[Action, Number] = {}
    free: list[Number] = [0] * len(schedule.rows)
    busy: list[Number] = [0] * len(schedule.rows)

    def visit(rank: int, action: Action, needed: Iterable[Action]) -> None:
        start = free[rank]
        for result in needed:
            end = result_ends[result]
            if ranks[result.stage] != rank:
                end += transfer.after(result) if isinstance(transfer, TransferTimes) else transfer
            start = max(start, end)
        parts = action.parts
        overlapped = stage_times[action.stage].overlapped
        if len(parts) == 2 and overlapped is not None:
            time = overlapped
        else:
            time = sum((stage_times[part.stage].of(part) for part in parts), start=0)
        starts[action], ends[action] = start, start + time
        free[rank] = start + time
        busy[rank] += time
        for result in results_of(action):
            result_ends[result] = start + time

    run_in_order(schedule, visit)
    peaks = tuple(_peak(schedule, rank, stage_memory) for rank in range(len(schedule.rows)))
    return PipelineSimulation(schedule, starts, ends, tuple(busy), peaks)


def without_transfers(schedule: PipelineSchedule) -> PipelineSchedule:
    """Return the schedule with its computations only."""
    return PipelineSchedule(
        tuple(
            tuple(a for a in schedule.actions(rank) if a.kind in COMPUTATIONS)
            for rank in range(len(schedule.rows))
        )
    )


def for_each_stage(given: T | Sequence[T], kind: type[T], what: str, count: int) -> Sequence[T]:
    """Return the times or memories of all stages; raise `PipelineScheduleError` for another number
    of them, or for other objects."""
    if isinstance(given, kind):
        return [given] * count
    if not isinstance(given, Sequence) or not all(isinstance(each, kind) for each in given):
        raise PipelineScheduleError(
            f"{what} is {given!r}; use a {kind.__name__}, or one for each of "
            f"{count_noun(count, 'stage')}"
        )
    if len(given) != count:
        raise PipelineScheduleError(
            f"{what} has {count_noun(len(given), 'entry', 'entries')}, and the schedule has "
            f"{count_noun(count, 'stage')}"
        )
    return given


def _peak(schedule: PipelineSchedule, rank: int, memory: Sequence[PassMemory]) -> Number:
    """Return the most memory that the activations of a rank hold between two of its passes."""
    held: Number = 0
    peak: Number = 0
    for action in schedule.actions(rank):
        for part in action.parts:
            unit = memory[part.stage]
            if part.kind is F:
                held += unit.input_gradient
                peak = max(peak, held)
            elif part.kind is I:
                held += unit.weight_gradient - unit.input_gradient
            else:
                held -= unit.weight_gradient if part.kind is W else unit.input_gradient
    return peak
