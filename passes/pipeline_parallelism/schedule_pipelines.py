"""State the schedule of each staged pipeline as rows of actions with transfers.

before: `%loss, %v.grad, %w.grad = pipeline(%v, %w, %x, ... schedule="1f1b", ...`
after:  `%loss, %v.grad, %w.grad = staged-pipeline(%v, %w, %x, ... schedule="0F0,0SEND_F0,...`

Fragments that the schedule does not use are removed.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import lru_cache

from shardir.cost.op_cost import cost_of_block
from shardir.display.byte_sizes import show_bytes
from shardir.errors import count_noun
from shardir.ir.module import Function, Module, Op
from shardir.ops.control_flow.pipelines import pipeline_attributes, staged_pipeline
from shardir.passes.pipeline import Pass
from shardir.passes.pipeline_parallelism.actions import (
    COMPUTATIONS,
    Action,
    ActionKind,
    PipelineScheduleError,
)
from shardir.passes.pipeline_parallelism.named_schedules import NAMED_SCHEDULES, make_schedule
from shardir.passes.pipeline_parallelism.program import StagedPipeline, rewrite_pipelines
from shardir.passes.pipeline_parallelism.progress import Dependencies, verify_schedule
from shardir.passes.pipeline_parallelism.schedule import PipelineSchedule, schedule_of_rows
from shardir.passes.pipeline_parallelism.search import search_schedule
from shardir.passes.pipeline_parallelism.simulation import PassMemory, PassTimes
from shardir.passes.pipeline_parallelism.stage_assignment import stage_error
from shardir.passes.pipeline_parallelism.stage_memory import memory_of_stages
from shardir.passes.pipeline_parallelism.transfers import add_transfers

SEARCH = "search"
"""The name of the schedule that is searched under a memory limit."""
WEIGHT = ActionKind.WEIGHT_GRADIENT


@dataclass(frozen=True)
class SchedulePipelines(Pass, name="schedule-pipelines"):
    """Replace the name of the schedule of each `staged-pipeline` by its rows, and verify them."""

    def __call__(self, module: Module) -> Module:
        def rewritten(op: Op, function: Function) -> Op:
            try:
                return _schedule(StagedPipeline.of(op), module).to_op()
            except PipelineScheduleError as error:
                file = pipeline_attributes(op).schedule_file
                raise stage_error(f"{file}: {error}" if file else str(error), op) from None

        return rewrite_pipelines(module, staged_pipeline, rewritten)


def _schedule(pipeline: StagedPipeline, module: Module) -> StagedPipeline:
    ranks = _rank_count(pipeline, module)
    rows = _rows_of(pipeline, ranks)
    _check_sizes(rows, pipeline, ranks)
    has_gradients = any(
        part.kind.is_backward
        for rank in range(ranks)
        for a in rows.actions(rank)
        for part in a.parts
    )
    if not pipeline.wrt:
        rows = _forward_only(rows)
    elif not has_gradients:
        raise PipelineScheduleError(
            "the schedule has forward passes only, and the gradient of the pipeline is needed; add "
            "backward passes B, or I and W"
        )
    verify_schedule(rows)
    if not Dependencies(rows).has_transfers:
        rows = add_transfers(rows)
    used = {
        (part.stage, part.kind)
        for rank in range(ranks)
        for action in rows.actions(rank)
        for part in action.parts
        if part.kind in COMPUTATIONS
    }
    fragments = {key: fragment for key, fragment in pipeline.fragments.items() if key in used}
    return replace(pipeline, schedule=rows.to_csv(), fragments=fragments)


def _rank_count(pipeline: StagedPipeline, module: Module) -> int:
    axis: str = pipeline.op.attrs["axis"]
    for mesh in module.meshes:
        if axis in mesh.sizes:
            return mesh.sizes[axis]
    axes = ", ".join(f"{name}={size}" for mesh in module.meshes for name, size in mesh.axes)
    raise stage_error(
        f"the pipeline runs along the mesh axis {axis!r}, and "
        + (
            f"the mesh has the axes {axes}"
            if axes
            else "no value of the program is on a mesh of several devices"
        )
        + f"; place the arguments on a mesh with an axis {axis!r}, one index for each row of "
        "devices, or call the pipeline inside `with mesh:` of such a mesh",
        pipeline.op,
    )


def _rows_of(pipeline: StagedPipeline, ranks: int) -> PipelineSchedule:
    text = pipeline.schedule
    if text == SEARCH:
        return _search(pipeline, ranks)
    if text not in NAMED_SCHEDULES:
        return PipelineSchedule.parse(text)
    per_rank = pipeline.attributes.stages_per_rank or None
    if per_rank is None and NAMED_SCHEDULES[text].stages_per_rank is None:
        per_rank = max(1, pipeline.stage_count // ranks)
    return make_schedule(
        text, ranks=ranks, microbatches=pipeline.microbatches, stages_per_rank=per_rank
    )


def _search(pipeline: StagedPipeline, ranks: int) -> PipelineSchedule:
    """Return the shortest schedule that is found under the memory limit.

    The time of a pass is its number of operations and bytes, as for `stages=`.
    """
    if pipeline.stage_count != ranks:
        raise PipelineScheduleError(
            f"the search is for one stage on each row of devices, and the pipeline has "
            f"{count_noun(pipeline.stage_count, 'stage')} and {count_noun(ranks, 'row')}; use a "
            "named schedule"
        )
    if not pipeline.wrt:
        return make_schedule("gpipe", ranks=ranks, microbatches=pipeline.microbatches)
    if any((stage, WEIGHT) not in pipeline.fragments for stage in range(ranks)):
        raise PipelineScheduleError(
            "the search needs weight gradients that are separate from input gradients; run "
            "split-backward without form=whole"
        )
    halves = {
        key: each for key, each in pipeline.fragments.items() if key[1] is not ActionKind.BACKWARD
    }
    memory = memory_of_stages(replace(pipeline, fragments=halves))
    limit = pipeline.attributes.memory
    for stage, each in enumerate(memory):
        if each.peak > limit:
            raise PipelineScheduleError(
                f"the schedule is searched for {show_bytes(limit)} of activations, and one "
                f"microbatch in stage {stage} keeps {show_bytes(int(each.peak))}; raise "
                "memory, or divide the batch into more microbatches"
            )
    costs = {key: cost_of_block(each.block) for key, each in halves.items()}
    seconds = {key: float(cost.flops + cost.memory) for key, cost in costs.items()}
    times = tuple(
        PassTimes(
            *(
                seconds[stage, kind]
                for kind in (ActionKind.FORWARD, ActionKind.INPUT_GRADIENT, WEIGHT)
            )
        )
        for stage in range(ranks)
    )
    return _search_once(ranks, pipeline.microbatches, times, memory, limit)


@lru_cache(maxsize=64)
def _search_once(
    ranks: int,
    microbatches: int,
    times: tuple[PassTimes, ...],
    memory: tuple[PassMemory, ...],
    limit: int,
) -> PipelineSchedule:
    return search_schedule(
        ranks=ranks, microbatches=microbatches, times=times, memory=memory, memory_limit=limit
    ).schedule


def _check_sizes(rows: PipelineSchedule, pipeline: StagedPipeline, ranks: int) -> None:
    axis = pipeline.op.attrs["axis"]
    if len(rows.rows) != ranks:
        raise PipelineScheduleError(
            f"the schedule has {count_noun(len(rows.rows), 'row')}, and the mesh axis {axis!r} has "
            f"{count_noun(ranks, 'row')} of devices"
        )
    if rows.stage_count != pipeline.stage_count:
        stages = count_noun(rows.stage_count, "stage")
        if pipeline.attributes.stages:
            raise PipelineScheduleError(
                f"the schedule has {stages}, and stages={pipeline.stage_count} divides the program "
                f"into {pipeline.stage_count}; state stages={rows.stage_count}, or another schedule"
            )
        raise PipelineScheduleError(
            f"the schedule has {stages}, and the program marks {pipeline.stage_count}; mark as "
            "many stages as the schedule has"
        )
    if rows.microbatch_count != pipeline.microbatches:
        raise PipelineScheduleError(
            f"the schedule has {rows.microbatch_count} microbatch"
            f"{'es'[: 2 * (rows.microbatch_count > 1)]}, and the pipeline divides the batch into "
            f"{pipeline.microbatches}"
        )


def _forward_only(rows: PipelineSchedule) -> PipelineSchedule:
    """Return the forward passes and their transfers."""
    kinds = (ActionKind.FORWARD, ActionKind.SEND_FORWARD, ActionKind.RECEIVE_FORWARD)

    def chosen(actions: Iterable[Action]) -> list[Action]:
        return [part for action in actions for part in action.parts if part.kind in kinds]

    return schedule_of_rows([chosen(rows.actions(rank)) for rank in range(len(rows.rows))])
