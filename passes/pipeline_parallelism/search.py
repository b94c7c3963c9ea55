"""Search a pipeline schedule with separate weight gradients under a memory limit.

The search extends the heuristic of Qi et al. (2024, arXiv 2401.10241, section 3.1). A greedy policy
simulates all ranks; its parameters are improved one at a time. The result is at most as long as the
published schedules that fit into the memory.
"""

import heapq
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from shardir.passes.pipeline_parallelism.actions import Action, ActionKind, PipelineScheduleError
from shardir.passes.pipeline_parallelism.named_schedules import check_sizes, make_schedule
from shardir.passes.pipeline_parallelism.schedule import PipelineSchedule, schedule_of_rows
from shardir.passes.pipeline_parallelism.simulation import (
    EQUAL_MEMORY,
    EQUAL_TIMES,
    Number,
    PassMemory,
    PassTimes,
    PipelineSimulation,
    for_each_stage,
    simulate_schedule,
)

F = ActionKind.FORWARD
I, W = ActionKind.INPUT_GRADIENT, ActionKind.WEIGHT_GRADIENT  # noqa: E741

PUBLISHED_CANDIDATES = ("1f1b", "zb-h1", "zb-h2")
SWEEP_COUNT = 2
"""The number of times that each parameter of the policy is varied."""
TOLERANCE = 1e-9
"""Times and memory that differ by less are equal."""


@dataclass(frozen=True)
class GreedyPolicy:
    """The choices of a rank that is free; ranks compute forward and backward passes in turn."""

    in_flight_per_rank: float = 2.05
    """The number of microbatches that a rank holds before their backward passes, for each rank that
    follows."""
    delay: float = 1.2
    """The number of weight gradients that may be due, relative to the ratio of one hop forward and
    back to a weight gradient, for each rank that precedes. A rank with more of them computes one
    first."""
    min_gap: float = 0
    """A weight gradient fills the time before a pass whose input arrives after at least this
    multiple of its own time."""
    max_wait: float = 0.9
    """Before its first backward pass, a rank waits for it rather than computing a forward pass, if
    its input arrives within this multiple of the time of a forward pass."""


INITIAL_POLICIES = (
    GreedyPolicy(),
    GreedyPolicy(in_flight_per_rank=2, delay=1, min_gap=1, max_wait=0),
)
"""The policies from which the search starts."""
PARAMETER_VALUES: dict[str, Sequence[float]] = {
    "in_flight_per_rank": (1, 1.25, 1.5, 1.75, 1.9, 2, 2.05, 2.1, 2.25),
    "delay": (0.25, 0.5, 0.75, 0.9, 1, 1.1, 1.2, 1.35),
    "min_gap": (0, 0.5, 1),
    "max_wait": (0, 0.25, 0.5, 0.9, 1),
}
"""The values that the search tries."""


def search_schedule(
    *,
    ranks: int,
    microbatches: int,
    times: PassTimes | Sequence[PassTimes] = EQUAL_TIMES,
    transfer: Number = 0,
    memory: PassMemory | Sequence[PassMemory] = EQUAL_MEMORY,
    memory_limit: Number,
) -> PipelineSimulation:
    """Return the simulation of the shortest schedule found; its ranks hold `memory_limit` at most.

    Args:
        ranks: The number of ranks; each has one stage.
        microbatches: The number of microbatches.
        times: The times of the passes, for all stages or for each stage.
        transfer: The time between a pass and one on another rank that needs its result.
        memory: The activations of a microbatch, for all stages or for each stage.
        memory_limit: The most activations that a rank may hold, in the unit of `memory`.

    Raises:
        PipelineScheduleError: the limit is below the activations of one microbatch, or the sizes
            are not those of a schedule.
    """
    check_sizes(ranks, microbatches)
    all_times = for_each_stage(times, PassTimes, "times", ranks)
    all_memory = for_each_stage(memory, PassMemory, "memory", ranks)
    needed = max(each.peak for each in all_memory)
    if memory_limit < needed:
        raise PipelineScheduleError(
            f"memory_limit is {float(memory_limit):g}, and one microbatch needs {float(needed):g}; "
            "use a larger limit"
        )

    def simulate(schedule: PipelineSchedule) -> PipelineSimulation:
        return simulate_schedule(schedule, all_times, transfer=transfer, memory=all_memory)

    published = (
        simulate(make_schedule(name, ranks=ranks, microbatches=microbatches))
        for name in PUBLISHED_CANDIDATES
    )
    candidates = [each for each in published if max(each.peaks) <= memory_limit]
    machine = _Machine(ranks, microbatches, all_times, transfer, all_memory, memory_limit)
    candidates.append(simulate(schedule_of_rows(_search_policy(machine))))
    return min(candidates, key=lambda each: each.cost)


@dataclass(frozen=True)
class _Machine:
    """The sizes, times and memory of a pipeline."""

    ranks: int
    microbatches: int
    times: Sequence[PassTimes]
    transfer: Number
    memory: Sequence[PassMemory]
    limit: Number


def _search_policy(machine: _Machine) -> list[list[Action]]:
    """Return the rows of the best policy."""
    results: dict[GreedyPolicy, tuple[float, list[list[Action]]]] = {}

    def cost(policy: GreedyPolicy) -> float:
        if policy not in results:
            results[policy] = _GreedySimulation(machine, policy).run()
        return results[policy][0]

    for best in INITIAL_POLICIES:
        for _ in range(SWEEP_COUNT):
            for parameter, values in PARAMETER_VALUES.items():
                changed = [replace(best, **{parameter: value}) for value in values]
                best = min([best, *changed], key=cost)
    _, rows = min(results.values(), key=lambda result: result[0])
    return rows


class _GreedySimulation:
    """All ranks under one policy. A rank is examined when it is free and when an input arrives."""

    def __init__(self, machine: _Machine, policy: GreedyPolicy) -> None:
        ranks, count = machine.ranks, machine.microbatches
        times, memory = machine.times, machine.memory
        self.machine, self.policy = machine, policy
        self.durations = {
            F: [float(each.forward) for each in times],
            I: [float(each.input_gradient) for each in times],
            W: [float(each.weight_gradient) for each in times],
        }
        self.transfer = float(machine.transfer)
        self.peaks = [float(each.peak) for each in memory]
        self.due_memory = [float(each.weight_gradient) for each in memory]
        self.limit = float(machine.limit) + TOLERANCE
        hop = max(self.durations[F]) + max(self.durations[I]) + 2 * self.transfer
        due_per_rank = policy.delay * hop / (max(self.durations[W]) or 1)
        self.max_due = [rank * due_per_rank for rank in range(ranks)]
        self.max_in_flight = [
            1 + math.ceil(policy.in_flight_per_rank * (ranks - 1 - rank) - TOLERANCE)
            for rank in range(ranks)
        ]
        self.inputs = {F: [[math.inf] * count for _ in range(ranks)]}
        self.inputs[F][0] = [0.0] * count
        self.inputs[I] = [[math.inf] * count for _ in range(ranks)]
        self.done = {kind: [0] * ranks for kind in (F, I, W)}
        self.free = [0.0] * ranks
        self.starts = [math.inf] * ranks
        self.last_pass = [F] * ranks
        self.rows: list[list[Action]] = [[] for _ in range(ranks)]
        self.events: list[tuple[float, int]] = [(0.0, 0)]
        self.wake = [0.0, *([math.inf] * (ranks - 1))]

    def run(self) -> tuple[float, list[list[Action]]]:
        """Return the longest time of a rank and the rows.

        The ranks never wait for each other: the limit allows each rank one microbatch, and the
        last rank that holds one has the inputs of its backward pass.
        """
        while self.events:
            now, rank = heapq.heappop(self.events)
            if now != self.wake[rank]:
                continue
            self.wake[rank] = math.inf
            kind = self._choose(rank, now)
            if kind is not None:
                self._start(rank, kind, now)
        cost = max(end - start for end, start in zip(self.free, self.starts, strict=True))
        return cost, self.rows

    def _wake_at(self, rank: int, time: float) -> None:
        if time < self.wake[rank]:
            self.wake[rank] = time
            heapq.heappush(self.events, (time, rank))

    def _next_inputs(self, rank: int) -> Iterator[tuple[ActionKind, float]]:
        """Yield the passes that the memory and the policy allow, with the arrival of the input."""
        count = self.machine.microbatches
        forward, backward = self.done[F][rank], self.done[I][rank]
        if backward < forward:
            yield I, self.inputs[I][rank][backward]
        if (
            forward < count
            and forward - backward < self.max_in_flight[rank]
            and self._held_after_forward(rank) <= self.limit
        ):
            yield F, self.inputs[F][rank][forward]

    def _held_after_forward(self, rank: int) -> float:
        """Return the memory that a rank holds after one more forward pass; a later gradient of an
        input does not increase it."""
        in_flight = self.done[F][rank] - self.done[I][rank] + 1
        due = self.done[I][rank] - self.done[W][rank]
        return in_flight * self.peaks[rank] + due * self.due_memory[rank]

    def _choose(self, rank: int, now: float) -> ActionKind | None:
        """Return the kind of the next action, or `None` to wait for an input."""
        due = self.done[I][rank] - self.done[W][rank]
        if due > self.max_due[rank]:
            return W
        arrivals = dict(self._next_inputs(rank))
        ready = [kind for kind, arrival in arrivals.items() if arrival <= now + TOLERANCE]
        following = min((t for t in arrivals.values() if t > now + TOLERANCE), default=math.inf)
        first_backward = arrivals.get(I, math.inf) - now
        if (
            ready == [F]
            and self.done[I][rank] == 0
            and first_backward < self.policy.max_wait * self.durations[F][rank]
        ):
            ready = []
        if ready:
            return I if I in ready and (F not in ready or self.last_pass[rank] is F) else F
        gap = following - now
        if due and (gap >= self.policy.min_gap * self.durations[W][rank]):
            return W
        if math.isfinite(following):
            self._wake_at(rank, following)
        return None

    def _start(self, rank: int, kind: ActionKind, now: float) -> None:
        number = self.done[kind][rank]
        end = now + self.durations[kind][rank]
        self.rows[rank].append(Action(rank, kind, number))
        self.starts[rank] = min(self.starts[rank], now)
        self.free[rank] = end
        self.done[kind][rank] += 1
        if kind is not W:
            self.last_pass[rank] = kind
            receiver = rank + 1 if kind is F else rank - 1
            if receiver == self.machine.ranks:
                self.inputs[I][rank][number] = end
            elif receiver >= 0:
                self.inputs[kind][receiver][number] = end + self.transfer
                self._wake_at(receiver, max(end + self.transfer, self.free[receiver]))
        self._wake_at(rank, end)
