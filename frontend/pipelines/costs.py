"""The costs of a pipeline: arithmetic, communication, memory of each row, and predicted time.

A program with a pipeline has the costs of the program around it, in which a call stands for the
pipeline, and those of the stages, which are different on each row of devices.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from shardir.cost.communication import (
    PIPELINE_SEND,
    Collective,
    list_collectives,
    sum_collectives,
)
from shardir.cost.memory import estimate_memory
from shardir.cost.op_cost import Cost, cost_of_block
from shardir.errors import count_noun
from shardir.frontend.dispatch.stages.step_simulation import (
    MachineLike,
    resolve_machine,
    simulate_step,
)
from shardir.frontend.pipelines.inspection import (
    InspectedPipeline,
    describe_pipelines,
    find_pipeline_calls,
)
from shardir.frontend.pipelines.row_actions import row_with_lifetimes
from shardir.frontend.pipelines.wiring import is_auxiliary, is_summed
from shardir.ir.location import SourceLocations
from shardir.ir.module import Loc, Module, Op
from shardir.ir.types import TensorType
from shardir.passes.pipeline_parallelism.actions import COMPUTATIONS, Action, ActionKind
from shardir.passes.pipeline_parallelism.lanes import lanes_of
from shardir.passes.pipeline_parallelism.program import FragmentKey
from shardir.passes.pipeline_parallelism.progress import RECEIVE_OF, SEND_OF, matching_transfer
from shardir.passes.pipeline_parallelism.simulation import TransferTimes, simulate_schedule
from shardir.passes.simulation import Simulation
from shardir.passes.simulation.argument_kinds import MemoryKind
from shardir.passes.simulation.breakdown import Breakdown
from shardir.passes.simulation.host_calls import HostCallCost
from shardir.passes.simulation.machine_model import Flops
from shardir.passes.simulation.utilization import (
    add_flops,
    executed_flops,
    flops_of_block,
)
from shardir.passes.simulation.work import PICOSECONDS
from shardir.text.literals import format_name

PASS_NAMES = {
    ActionKind.FORWARD: "forward pass",
    ActionKind.BACKWARD: "backward pass",
    ActionKind.INPUT_GRADIENT: "input gradient",
    ActionKind.WEIGHT_GRADIENT: "weight gradient",
}


@dataclass(frozen=True)
class PipelineCosts:
    """The costs of one pipeline."""

    pipeline: InspectedPipeline
    """The pipeline."""
    call: Op
    """The operation that stands for it in the compiled program."""

    @property
    def _ranks(self) -> range:
        return range(len(self.pipeline.schedule.rows))

    @property
    def _axis(self) -> str:
        axis: str = self.pipeline.staged.op.attrs["axis"]
        return axis

    def _runs_of(self, rank: int) -> Counter[FragmentKey]:
        """Return how often a row runs each of its fragments.

        A schedule may compute the gradients of some microbatches in one pass, of others in two.
        """
        return Counter(
            (part.stage, part.kind)
            for action in self.pipeline.schedule.actions(rank)
            for part in action.parts
            if part.kind in COMPUTATIONS
        )

    def _summed_terms(self, key: FragmentKey) -> list[tuple[str, TensorType]]:
        """Return the terms of sums that a fragment gives, with their types on each device of a
        row."""
        fragment = self.pipeline.staged.fragments[key]
        returns = self.pipeline.fragments[key].module.main.body.returns
        pairs = zip(fragment.gives, returns, strict=True)
        return [(name, value.type) for name, value in pairs if is_summed(name)]

    def cost_of(self, rank: int) -> Cost:
        """Return the cost of one run on each device of a row."""
        spent = sum_collectives(self.collectives_of(rank))
        total = Cost(sent=spent.sent, transfers=spent.executions)
        added: set[tuple[int, str]] = set()
        for key, count in self._runs_of(rank).items():
            one = cost_of_block(self.pipeline.fragments[key].module.main.body)
            total += Cost(one.memory, one.flops) * count
            for name, type in self._summed_terms(key):
                # The first term of a sum is not added to anything.
                is_first = (key[0], name) not in added
                added.add((key[0], name))
                total += Cost(3 * type.nbytes, type.size) * (count - is_first)
        return total

    @cached_property
    def largest_rank(self) -> int:
        """The row with the most arithmetic operations."""
        costs = {rank: self.cost_of(rank) for rank in self._ranks}
        return max(self._ranks, key=lambda rank: (costs[rank].flops, costs[rank].memory))

    @property
    def largest_cost(self) -> Cost:
        """The cost of the row with the most arithmetic operations."""
        return self.cost_of(self.largest_rank)

    def collectives(self) -> list[Collective]:
        """Return the collectives and the sends of all rows, with the number of their executions in
        one run."""
        rows = [each for rank in self._ranks for each in self._collectives_of_row(rank)]
        return [*rows, *self._shared_results()]

    def collectives_of(self, rank: int) -> list[Collective]:
        """Return those that the devices of a row execute."""
        return [*self._collectives_of_row(rank), *self._shared_results()]

    def _collectives_of_row(self, rank: int) -> Iterator[Collective]:
        for key, count in self._runs_of(rank).items():
            stage, kind = key
            for each in list_collectives(self.pipeline.fragments[key].module):
                times = None if each.executions is None else each.executions * count
                why = f"{each.why}, in the {PASS_NAMES[kind]} of stage {stage}"
                yield replace(each, executions=times, why=why)
        sends = Counter(
            (action.stage, action.kind)
            for action in self.pipeline.schedule.actions(rank)
            if action.kind in RECEIVE_OF
        )
        for (stage, kind), times in sends.items():
            send = Action(stage, kind, 0)
            target = matching_transfer(send).stage
            is_forward = kind is ActionKind.SEND_FORWARD
            staged = self.pipeline.staged
            names = staged.forward[stage] if is_forward else staged.backward[target]
            if not names:
                continue
            nbytes = self.pipeline.sent_bytes(send)
            what = ", ".join(f"%{format_name(name)}" for name in names)
            if not is_forward:
                what = f"the cotangent{'s'[: len(names) > 1]} of {what}"
            why = f"stage {stage} sends {what} to stage {target}"
            yield Collective(
                PIPELINE_SEND, (self._axis,), 2, nbytes, nbytes, times, names[0], self._loc, why
            )

    def _shared_results(self) -> list[Collective]:
        """Return the collectives with which all rows receive the loss, and the gradients of the
        operands that all rows hold."""
        ranks = len(self._ranks)
        if ranks == 1:
            return []
        staged, blocks = self.pipeline.staged, self.pipeline.placement.block_dims
        loss = self.call.results[0]
        count = len(self.call.results) - len(staged.wrt)
        pairs = zip(staged.wrt, self.call.results[count:], strict=True)
        gradients = [value for number, value in pairs if number not in blocks]
        auxiliary = list(self.call.results[1:count])
        shared = [("all-reduce", [loss], "all rows of devices receive the loss of the pipeline")]
        if gradients:
            why = "all rows of devices receive the gradients of the pipeline"
            shared.append(("all-gather", gradients, why))
        if auxiliary:
            why = "all rows of devices receive the auxiliary results of the pipeline"
            shared.append(("all-gather", auxiliary, why))
        return [
            Collective(
                kind, (self._axis,), ranks, nbytes, nbytes * (ranks - 1) // ranks * factor, 1,
                values[0].name, self._loc, why,
            )
            for kind, values, why in shared
            for nbytes in (sum(value.type.nbytes for value in values),)
            for factor in (2 if kind == "all-reduce" else 1,)
        ]  # fmt: skip

    @property
    def _loc(self) -> Loc | None:
        return self.pipeline.staged.op.loc

    @cached_property
    def largest_memory(self) -> dict[MemoryKind, int]:
        """The bytes at the peak on each device of the row that needs most, without the operands and
        results of the pipeline."""
        return max(map(self.memory_of, self._ranks), key=lambda memory: sum(memory.values()))

    @property
    def host_bytes(self) -> int:
        """The bytes at the peaks of all rows for all of their devices together."""
        devices = self.pipeline.mesh.size // len(self._ranks)
        return devices * sum(sum(self.memory_of(rank).values()) for rank in self._ranks)

    def memory_of(self, rank: int) -> dict[MemoryKind, int]:
        """Return the bytes at the peak on each device of a row, without the operands and results of
        the pipeline.

        Activations live as long as in a run. Temporaries are values inside of one pass, and terms
        of gradients that wait for those of earlier microbatches; others are added to the results.
        """
        return _RowMemory(self.pipeline, rank).peak()

    @property
    def executed_flops(self) -> Flops:
        """The flops of a device in one run, on average over the rows."""
        runs = [run for rank in self._ranks for run in self._runs_of(rank).items()]
        executed = add_flops(
            *(
                _multiply(executed_flops(self.pipeline.fragments[key].module), count)
                for key, count in runs
            )
        )
        return {dtype: flops // len(self._ranks) for dtype, flops in executed.items()}

    def predict(self, machine: MachineLike, *, target: str | None = None) -> HostCallCost:
        """Return the predicted time and memory of one run on a machine.

        The time is that from the first action of a row to the last action of any row, and of the
        collective that shares the results. The parts of the time are those of the busiest row.
        """
        pipeline = self.pipeline
        found = resolve_machine(machine, dict(pipeline.mesh.axes), None, "simulate")
        fragments = pipeline.simulate_fragments(found, target=target)
        durations = {key: each.breakdown.duration for key, each in fragments.items()}
        seconds = pipeline.transfer_times(found)
        simulation = simulate_schedule(
            pipeline.schedule,
            pipeline.pass_times(durations),
            transfer=TransferTimes(
                [round(time * PICOSECONDS) for time in seconds.forward],
                [round(time * PICOSECONDS) for time in seconds.backward],
            ),
        )
        busiest = max(self._ranks, key=lambda rank: simulation.busy[rank])
        total = Breakdown()
        for key, count in self._runs_of(busiest).items():
            total += fragments[key].breakdown * count
        makespan = int(simulation.makespan)
        idle = makespan - total.duration
        total = replace(total, duration=makespan, bubbles=total.bubbles + idle)
        for shared in self._shared_results():
            time = found.collective_seconds(shared.kind, shared.nbytes, shared.axes)
            total += _exposed_time(shared, round(time * PICOSECONDS))
        runs = [run for rank in self._ranks for run in self._runs_of(rank).items()]
        blocks = {key: each.block for key, each in pipeline.staged.fragments.items()}
        needed = add_flops(
            *(
                _multiply(flops_of_block(blocks[key], recomputed=False), count)
                for key, count in runs
            )
        )
        ranks = len(self._ranks)
        rate = float(simulation.bubble_rate)
        return HostCallCost(
            total,
            self.largest_memory,
            needed,
            self.executed_flops,
            lanes_of(simulation),
            (
                f"the pipeline along {self._axis} has {count_noun(ranks, 'row')} of devices; the "
                f"parts of its time are those of row {busiest}, and its bubble rate is {rate:.1%}",
            ),
        )


def costs_of_pipelines(module: Module) -> list[PipelineCosts]:
    """Return the costs of the pipelines that a program calls."""
    calls = find_pipeline_calls(module)
    return [PipelineCosts(call.inspected, op) for op, call in calls.items()]


def simulate_with_pipelines(
    module: Module,
    traced: Module | None,
    machine: MachineLike,
    *,
    links: Mapping[str, str] | None = None,
    target: str | None = None,
    memory: int | str | None = None,
    donated: Sequence[int] = (),
    places: SourceLocations | None = None,
    offloaded: Mapping[int, int] | None = None,
) -> Simulation:
    """Return the simulation of a per-device program with the pipelines that it calls; see
    `Compiled.simulate`."""
    calls = find_pipeline_calls(module)
    if calls:
        axes = {name: size for mesh in module.meshes for name, size in mesh.axes}
        machine, links = resolve_machine(machine, axes, links, "simulate"), None
    return simulate_step(
        module,
        machine,
        traced=None if traced is None else describe_pipelines(traced),
        links=links,
        target=target,
        memory=memory,
        donated=donated,
        places=places,
        calls={
            call: PipelineCosts(call.inspected, op).predict(machine, target=target)
            for op, call in calls.items()
        },
        offloaded=offloaded,
    )


def _multiply(flops: Flops, times: int) -> Flops:
    return {dtype: count * times for dtype, count in flops.items()}


def _exposed_time(collective: Collective, duration: int) -> Breakdown:
    """Return the parts of the time of a collective during which nothing else runs."""
    axes = ", ".join(collective.axes)
    return Breakdown(
        duration,
        exposed={axes: duration},
        hidden={axes: 0},
        collectives={collective.kind: duration},
        exposed_total=duration,
    )


@dataclass
class _WaitingTerms:
    """The terms of a sum that wait for those of earlier microbatches."""

    nbytes: int
    next: int = 0
    waiting: set[int | None] = field(default_factory=set)

    @property
    def waiting_bytes(self) -> int:
        return self.nbytes * len(self.waiting)

    def add(self, microbatch: int | None) -> None:
        self.waiting.add(microbatch)
        while self.next in self.waiting:
            self.waiting.remove(self.next)
            self.next += 1


class _RowMemory:
    """The values that a device of a row holds during a run."""

    def __init__(self, pipeline: InspectedPipeline, rank: int) -> None:
        self.pipeline, self.rank = pipeline, rank
        self.held: dict[tuple[tuple[int, int | None], str], object] = {}
        """The memory of each value, by stage, microbatch and name; stages of a rank share it."""
        self.nbytes: dict[object, int] = {}
        self.terms: dict[tuple[int, str], _WaitingTerms] = {}
        self.largest: dict[MemoryKind, int] = {}
        self._inside = {
            key: (estimate.peak - estimate.arguments)
            for key, fragment in pipeline.fragments.items()
            if pipeline.schedule.rank_of_stage[key[0]] == rank
            for estimate in (estimate_memory(fragment.module),)
        }

    def peak(self) -> dict[MemoryKind, int]:
        for scheduled in row_with_lifetimes(self.pipeline.wiring, self.rank):
            for part in scheduled.action.parts:
                self._run(part)
            for key, name in scheduled.last_uses:
                self.held.pop((key, name), None)
        return {kind: nbytes for kind, nbytes in self.largest.items() if nbytes}

    def _run(self, part: Action) -> None:
        wiring, own = self.pipeline.wiring, (part.stage, part.microbatch)
        if part.kind in SEND_OF:
            for name in wiring.find_received_names(part):
                self._hold(own, name, part.stage)
            self._record(0)
        if part.kind not in COMPUTATIONS:
            return
        key = part.stage, part.kind
        self._record(self._inside[key])
        fragment = self.pipeline.staged.fragments[key]
        for name in fragment.gives:
            if is_summed(name):
                nbytes = self.pipeline.device_bytes[part.stage, name]
                terms = self.terms.setdefault((part.stage, name), _WaitingTerms(nbytes))
                terms.add(part.microbatch)
            elif not is_auxiliary(name):  # It is a part of a result.
                self._hold(own, name, part.stage)
        send = wiring.send_within_rank(part)
        if send is not None:
            receive = matching_transfer(send)
            names = zip(wiring.find_received_names(receive), wiring.sent(send), strict=True)
            for name, sent in names:
                there = receive.stage, receive.microbatch
                self.held[there, name] = self.held[own, sent]

    def _hold(self, own: tuple[int, int | None], name: str, stage: int) -> None:
        self.held[own, name] = memory = object()
        self.nbytes[memory] = self.pipeline.device_bytes[stage, name]

    def _record(self, inside: int) -> None:
        """Compare the bytes that are held now with the peak."""
        activations = sum(self.nbytes[memory] for memory in {*self.held.values()})
        temporaries = inside + sum(terms.waiting_bytes for terms in self.terms.values())
        if activations + temporaries > sum(self.largest.values()):
            self.largest = {
                MemoryKind.ACTIVATIONS: activations,
                MemoryKind.TEMPORARIES: temporaries,
            }
