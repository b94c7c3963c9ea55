"""The pipelines of a lowered program: their text, and their predicted time and memory."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from shardir.frontend.dispatch.stages.step_simulation import MachineLike, simulate_step
from shardir.frontend.pipelines.compile import (
    mesh_of_pipeline,
    partition_pipeline,
    stage_pipelines,
)
from shardir.frontend.pipelines.fragments import PartitionedFragment
from shardir.ir.mesh import Mesh
from shardir.ir.module import Module
from shardir.passes.pipeline_parallelism.actions import ActionKind
from shardir.passes.pipeline_parallelism.lanes import lanes_of
from shardir.passes.pipeline_parallelism.program import (
    Fragment,
    FragmentKey,
    StagedPipeline,
    has_pipelines,
    slot_number,
    staged_pipelines,
)
from shardir.passes.pipeline_parallelism.schedule import PipelineSchedule
from shardir.passes.pipeline_parallelism.simulation import (
    PassMemory,
    PassTimes,
    PipelineSimulation,
    simulate_schedule,
)

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

    @cached_property
    def fragments(self) -> dict[FragmentKey, PartitionedFragment]:
        """The program of each device of a row for each pass of each stage."""
        return partition_pipeline(self.staged, self.mesh)

    @cached_property
    def memory(self) -> tuple[PassMemory, ...]:
        """The bytes of all devices of a row that one microbatch holds between the passes of each
        stage."""
        return tuple(self._memory_of(stage) for stage in range(self.staged.stage_count))

    def _memory_of(self, stage: int) -> PassMemory:
        needed = [self._find_needed(stage, kind) for kind in (B, I, W)]
        produced = self._find_given(stage, F) | self._find_received(stage)
        until_input = needed[0] | needed[1] | needed[2]
        whole = sum(size for name, size in produced.items() if name in until_input)
        available = produced | self._find_given(stage, I)
        weights = sum(available[name] for name in needed[2] if name in available)
        return PassMemory(whole, weights)

    def _find_needed(self, stage: int, kind: ActionKind) -> set[str]:
        fragment = self.staged.fragments.get((stage, kind))
        taken = () if fragment is None else fragment.takes
        return {name for name in taken if slot_number(name, "argument") is None}

    def _find_given(self, stage: int, kind: ActionKind) -> dict[str, int]:
        fragment = self.staged.fragments.get((stage, kind))
        return {} if fragment is None else _sizes(fragment)

    def _find_received(self, stage: int) -> dict[str, int]:
        fragment = self.staged.fragments[stage, F]
        pairs = zip(fragment.takes, fragment.block.params, strict=True)
        return {
            name: value.type.nbytes
            for name, value in pairs
            if slot_number(name, "argument") is None
        }

    def times(self, machine: MachineLike) -> tuple[PassTimes, ...]:
        """Return the seconds of the passes of each stage on a machine; see `Compiled.simulate`."""
        return tuple(self._times_of(stage, machine) for stage in range(self.staged.stage_count))

    def _times_of(self, stage: int, machine: MachineLike) -> PassTimes:
        seconds = {
            kind: simulate_step(fragment.module, machine).step_seconds
            for (owner, kind), fragment in self.fragments.items()
            if owner == stage
        }
        if I in seconds:
            return PassTimes(seconds[F], seconds[I], seconds[W])
        # The schedule computes both gradients in one.
        return PassTimes(seconds[F], seconds.get(B, 0), 0)

    def simulate(
        self,
        machine: MachineLike | None = None,
        *,
        times: PassTimes | Sequence[PassTimes] | None = None,
        transfer: float = 0.0,
    ) -> PipelineSimulation:
        """Return the predicted times of all actions, and the peak memory of each row in bytes.

        Args:
            machine: A machine; see `Compiled.simulate`.
            times: The times of the passes instead, such as `PipelineRecord.pass_times()`.
            transfer: The time of one transfer between two rows.
        """
        known = times
        if known is None:
            known = PassTimes() if machine is None else self.times(machine)
        return simulate_schedule(self.schedule, known, transfer=transfer, memory=self.memory)

    def to_text(self) -> str:
        """Return the lanes of the schedule with equal times, and what each row sends and keeps."""
        simulation = self.simulate()
        lines = [
            f"pipeline of {self.staged.stage_count} stages and {self.staged.microbatches} "
            f"microbatches along {self.staged.op.attrs['axis']}",
            f"bubble rate with equal times {float(simulation.bubble_rate):.2%}",
            "",
            lanes_of(simulation),
        ]
        for rank, peak in enumerate(simulation.peaks):
            lines.append(f"rank {rank} keeps at most {peak} bytes of activations")
        for stage, names in enumerate(self.staged.forward):
            lines.append(f"stage {stage} sends {', '.join(names)}")
        return "\n".join(lines) + "\n"


def _sizes(fragment: Fragment) -> dict[str, int]:
    pairs = zip(fragment.gives, fragment.block.returns, strict=True)
    return {name: value.type.nbytes for name, value in pairs}


def inspect_pipelines(module: Module) -> list[InspectedPipeline]:
    """Return the pipelines of a traced program."""
    if not has_pipelines(module):
        return []
    staged = stage_pipelines(module)
    return [
        InspectedPipeline(each, mesh_of_pipeline(each.op, staged))
        for each in staged_pipelines(staged)
    ]
