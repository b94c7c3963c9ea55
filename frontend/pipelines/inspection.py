"""The pipelines of a lowered program: their text, and their predicted time and memory."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import final

from shardir.errors import count_noun
from shardir.frontend.dispatch.stages.step_simulation import (
    MachineLike,
    resolve_machine,
    simulate_step,
)
from shardir.frontend.pipelines.fragments import PartitionedFragment
from shardir.frontend.pipelines.partitioning import (
    mesh_of_pipeline,
    partition_pipeline,
    stage_pipelines,
)
from shardir.frontend.pipelines.placement import PipelinePlacement
from shardir.frontend.pipelines.wiring import Wiring
from shardir.ir.builder import Builder
from shardir.ir.host_function import HostFunction, host_function_of
from shardir.ir.mesh import Mesh
from shardir.ir.module import Function, Module, Op
from shardir.ir.types import NumpyArray
from shardir.ops.control_flow.pipelines import has_pipelines, staged_pipeline
from shardir.passes.pipeline_parallelism.actions import Action, ActionKind
from shardir.passes.pipeline_parallelism.lanes import lanes_of
from shardir.passes.pipeline_parallelism.program import (
    FragmentKey,
    StagedPipeline,
    staged_pipelines,
)
from shardir.passes.pipeline_parallelism.schedule import PipelineSchedule
from shardir.passes.pipeline_parallelism.simulation import (
    Number,
    PassMemory,
    PassTimes,
    PipelineSimulation,
    TransferTimes,
    simulate_schedule,
)
from shardir.passes.pipeline_parallelism.stage_memory import memory_of_stages
from shardir.passes.rewriting import used_names
from shardir.passes.simulation import MachineModel, Simulation

F, B = ActionKind.FORWARD, ActionKind.BACKWARD
I, W = ActionKind.INPUT_GRADIENT, ActionKind.WEIGHT_GRADIENT  # noqa: E741


@dataclass(frozen=True)
class InspectedPipeline:
    """A pipeline of a program, split into stages and scheduled."""

    staged: StagedPipeline
    """The fragments of its stages."""
    mesh: Mesh
    """The mesh whose rows run the stages."""

    @cached_property
    def schedule(self) -> PipelineSchedule:
        """The actions of each row of devices."""
        return PipelineSchedule.parse(self.staged.schedule)

    @property
    def wiring(self) -> Wiring:
        """The values that the actions take, give and send."""
        return Wiring(self.staged, self.schedule)

    @cached_property
    def placement(self) -> PipelinePlacement:
        """The axes that shard the operands and the results."""
        return PipelinePlacement(self.staged, self.schedule, self.mesh)

    @cached_property
    def fragments(self) -> dict[FragmentKey, PartitionedFragment]:
        """The program of each device of a row for each pass of each stage."""
        return partition_pipeline(self.staged, self.mesh)

    @cached_property
    def memory(self) -> tuple[PassMemory, ...]:
        """The bytes of all devices of a row that one microbatch holds between the passes of each
        stage."""
        return memory_of_stages(self.staged)

    def simulate_fragments(
        self, machine: MachineLike, *, target: str | None = None
    ) -> dict[FragmentKey, Simulation]:
        """Return the simulations of the programs of a row, for one microbatch; see
        `Compiled.simulate`."""
        found = self._resolve(machine)
        made: dict[int, Simulation] = {}
        for fragment in self.fragments.values():
            made[id(fragment)] = simulate_step(fragment.module, found, target=target)
        return {key: made[id(fragment)] for key, fragment in self.fragments.items()}

    def times(self, machine: MachineLike) -> tuple[PassTimes, ...]:
        """Return the seconds of the passes of each stage on a machine; see `Compiled.simulate`."""
        simulations = self.simulate_fragments(machine)
        return self.pass_times({key: each.step_seconds for key, each in simulations.items()})

    def pass_times(self, durations: Mapping[FragmentKey, Number]) -> tuple[PassTimes, ...]:
        """Return the times of the passes of each stage from those of its fragments."""

        def of_stage(stage: int) -> PassTimes:
            if (stage, I) in durations:
                return PassTimes(
                    durations[stage, F],
                    durations[stage, I],
                    durations[stage, W],
                    backward=durations.get((stage, B)),
                )
            # The schedule computes both gradients in one.
            return PassTimes(durations[stage, F], durations.get((stage, B), 0), 0)

        return tuple(of_stage(stage) for stage in range(self.staged.stage_count))

    @cached_property
    def device_bytes(self) -> dict[tuple[int, str], int]:
        """The bytes on each device of a row of the values that a stage takes, gives and sends, for
        one microbatch."""
        found: dict[tuple[int, str], int] = {}
        for key, fragment in self.staged.fragments.items():
            body = self.fragments[key].module.main.body
            for names, values in (
                (fragment.takes, body.params),
                (fragment.gives, body.returns),
            ):
                for name, value in zip(names, values, strict=True):
                    found[key[0], name] = value.type.nbytes
        return found

    def sent_bytes(self, send: Action) -> int:
        """Return the bytes that each device of a row sends in a send."""
        return sum(self.device_bytes[send.stage, name] for name in self.wiring.sent(send))

    def transfer_times(self, machine: MachineLike) -> TransferTimes:
        """Return the seconds of the transfers between stages on a machine."""
        found = self._resolve(machine)
        axis: str = self.staged.op.attrs["axis"]

        def seconds(stage: int, kind: ActionKind) -> float:
            nbytes = self.sent_bytes(Action(stage, kind, 0))
            return found.collective_seconds("collective-permute", nbytes, (axis,)) if nbytes else 0

        last = self.staged.stage_count - 1
        return TransferTimes(
            [seconds(stage, ActionKind.SEND_FORWARD) for stage in range(last)],
            [
                seconds(stage, ActionKind.SEND_BACKWARD) if self.staged.backward else 0
                for stage in range(1, last + 1)
            ],
        )

    def _resolve(self, machine: MachineLike) -> MachineModel:
        # The links of a row depend on all axes of the mesh.
        return resolve_machine(machine, dict(self.mesh.axes), None, "simulate")

    def simulate(
        self,
        machine: MachineLike | None = None,
        *,
        times: PassTimes | Sequence[PassTimes] | None = None,
        transfer: float | None = None,
    ) -> PipelineSimulation:
        """Return the predicted times of all actions, and the peak memory of each row in bytes.

        Args:
            machine: A machine; see `Compiled.simulate`.
            times: The times of the passes instead, such as `PipelineRecord.pass_times()`.
            transfer: The time of each transfer between two rows; by default that of the machine, or
                0 without a machine.
        """
        known = times
        if known is None:
            known = PassTimes() if machine is None else self.times(machine)
        sent: float | TransferTimes = transfer or 0.0
        if transfer is None and machine is not None:
            sent = self.transfer_times(machine)
        return simulate_schedule(self.schedule, known, transfer=sent, memory=self.memory)

    def to_text(self) -> str:
        """Return the lanes of the schedule with equal times, and what each row sends and keeps."""
        simulation = self.simulate()
        lines = [
            f"pipeline of {count_noun(self.staged.stage_count, 'stage')} and "
            f"{self.staged.microbatches} microbatches along {self.staged.op.attrs['axis']}",
            f"bubble rate with equal times {float(simulation.bubble_rate):.2%}",
            "",
            lanes_of(simulation),
        ]
        for rank, peak in enumerate(simulation.peaks):
            lines.append(f"rank {rank} keeps at most {peak} bytes of activations")
        for stage, names in enumerate(self.staged.forward):
            lines.append(f"stage {stage} sends {', '.join(names)}")
        return "\n".join(lines) + "\n"


class PipelineCall(ABC):
    """The function of the callback that stands for a pipeline in a compiled program."""

    keeps_operands = False
    """A backend need not copy the operands: no call reads them after it has returned."""

    def __init__(self, inspected: InspectedPipeline) -> None:
        self.inspected = inspected

    @abstractmethod
    def __call__(self, *arrays: NumpyArray) -> list[NumpyArray]:
        """Return the loss and the gradients of the pipeline for its operands.

        Batches have a dimension of microbatches first. Of operands and gradients in blocks, a
        process has those of its rows, or all.
        """


@final
class DescribedPipeline(PipelineCall):
    """Stands for a pipeline in a program that is simulated or that has abstract devices."""

    def __call__(self, *arrays: NumpyArray) -> list[NumpyArray]:
        raise AssertionError("a program with abstract devices does not run")


def replace_pipelines(
    module: Module, call_of: Callable[[InspectedPipeline], PipelineCall]
) -> Module:
    """Return the module with each pipeline replaced by a call of `call_of(pipeline)`."""

    def rewritten(function: Function) -> Function:
        b = Builder(used_names(function))
        for op in function.body.ops:
            if op.spec is staged_pipeline:
                inspected = InspectedPipeline(StagedPipeline.of(op), mesh_of_pipeline(op, module))
                called = HostFunction("pipeline", call_of(inspected))
                inspected.placement.append_call(b, called, inspected.fragments)
            else:
                b.append(op)
        return replace(function, body=replace(function.body, ops=tuple(b.ops)))

    staged = stage_pipelines(module)
    return replace(staged, functions=tuple(map(rewritten, staged.functions)))


def describe_pipelines(module: Module) -> Module:
    """Return a traced program in which calls stand for pipelines, as in the compiled program."""
    return replace_pipelines(module, DescribedPipeline) if has_pipelines(module) else module


def find_pipeline_calls(module: Module) -> dict[Op, PipelineCall]:
    """Return the calls that stand for pipelines in a program."""
    functions = {op: host_function_of(op.attrs.get("function", "")) for op in module.main.body.ops}
    return {op: each for op, each in functions.items() if isinstance(each, PipelineCall)}


def inspect_pipelines(module: Module) -> list[InspectedPipeline]:
    """Return the pipelines of a traced program."""
    if not has_pipelines(module):
        return []
    staged = stage_pipelines(module)
    return [
        InspectedPipeline(each, mesh_of_pipeline(each.op, staged))
        for each in staged_pipelines(staged)
    ]
