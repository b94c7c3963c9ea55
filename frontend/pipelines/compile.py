"""Compile pipelines: each becomes a call of a runtime that has its fragments and its schedule.

before: `%loss, %w.grad = staged-pipeline(%w, %x, ...)`
after:  `%loss, %w.grad = pure-callback(%w, %x, function="pipeline")`
"""

from collections.abc import Sequence
from dataclasses import replace

from shardir.frontend.distributed.processes import process_index
from shardir.frontend.pipelines.fragments import (
    FragmentCompiler,
    PartitionedFragment,
    partition_fragment,
    row_mesh,
    row_sharding,
)
from shardir.frontend.pipelines.runtime import PipelineRuntime
from shardir.frontend.shardings.devices import Device
from shardir.ir.host_function import HostFunction
from shardir.ir.mesh import Mesh
from shardir.ir.module import Function, Module, Op, Value
from shardir.ir.sharding import Sharding
from shardir.ops.control_flow.host_callbacks import pure_callback
from shardir.ops.control_flow.pipelines import staged_pipeline
from shardir.passes.pipeline import STAGING_PIPELINE, Pipeline
from shardir.passes.pipeline_parallelism.actions import ActionKind
from shardir.passes.pipeline_parallelism.program import (
    FragmentKey,
    StagedPipeline,
    given_cotangent,
    received_cotangent,
    rewrite_pipelines,
    slot_number,
)
from shardir.passes.pipeline_parallelism.schedule import PipelineSchedule
from shardir.passes.pipeline_parallelism.stage_assignment import stage_error


def stage_pipelines(module: Module) -> Module:
    """Return the module with each pipeline split into stages and scheduled."""
    return Pipeline.parse(STAGING_PIPELINE)(module)


def compile_pipelines(module: Module, devices: Sequence[Device]) -> Module:
    """Return the module with each pipeline compiled and replaced by a call of its runtime."""

    def rewritten(op: Op, function: Function) -> Op:
        runtime = _compile(StagedPipeline.of(op), mesh_of_pipeline(op, module), devices)
        attrs = {"function": HostFunction("pipeline", runtime), "method": "none"}
        return replace(op, spec=pure_callback, attrs=attrs, blocks=())

    return rewrite_pipelines(stage_pipelines(module), staged_pipeline, rewritten)


def mesh_of_pipeline(op: Op, module: Module) -> Mesh:
    """Return the mesh with the axis of a pipeline."""
    return next(mesh for mesh in module.meshes if op.attrs["axis"] in mesh.sizes)


def devices_of_row(mesh: Mesh, axis: str, row: int, devices: Sequence[Device]) -> list[Device]:
    """Return the devices with the index `row` along `axis`, in row-major order of the others."""
    return [
        device
        for point, device in zip(mesh.coordinates(), devices, strict=True)
        if point[axis] == row
    ]


def partition_pipeline(
    pipeline: StagedPipeline, mesh: Mesh
) -> dict[FragmentKey, PartitionedFragment]:
    """Return the fragments of a pipeline as programs of the devices of a row."""
    axis = pipeline.op.attrs["axis"]
    shardings = _ValueShardings(pipeline, row_mesh(mesh, axis), axis)
    stages = range(pipeline.stage_count)
    backward = (ActionKind.BACKWARD, ActionKind.INPUT_GRADIENT, ActionKind.WEIGHT_GRADIENT)
    order = [(stage, ActionKind.FORWARD) for stage in stages]
    order += [(stage, kind) for stage in reversed(stages) for kind in backward]
    return {key: shardings.partition(key) for key in order if key in pipeline.fragments}


def _compile(pipeline: StagedPipeline, mesh: Mesh, devices: Sequence[Device]) -> PipelineRuntime:
    axis = pipeline.op.attrs["axis"]
    schedule = PipelineSchedule.parse(pipeline.schedule)
    rows = [devices_of_row(mesh, axis, row, devices) for row in range(len(schedule.rows))]
    processes = [_process_of(pipeline.op, row, owned) for row, owned in enumerate(rows)]
    # The rows of one process share their compiled fragments.
    local = [row for row, process in enumerate(processes) if process == process_index()]
    compiler = FragmentCompiler(rows[local[0]] if local else ())
    compiled = {
        key: compiler(fragment)
        for key, fragment in partition_pipeline(pipeline, mesh).items()
        if schedule.rank_of_stage[key[0]] in local
    }
    return PipelineRuntime(pipeline, schedule, compiled, processes)


def _process_of(op: Op, row: int, devices: Sequence[Device]) -> int:
    """Return the process that owns the devices of a row."""
    owners = sorted({device.process_index for device in devices})
    if len(owners) > 1:
        raise stage_error(
            f"row {row} of the pipeline has devices of the processes "
            f"{', '.join(map(str, owners))}; make {op.attrs['axis']!r} the first axis of the mesh, "
            "with at most one process for each row",
            op,
        )
    return owners[0]


class _ValueShardings:
    """The shardings of the values of a pipeline on the mesh of a row, by stage and name.

    Fragments are partitioned in the order in which a microbatch passes them, so that each receives
    values with the sharding with which they are sent.
    """

    def __init__(self, pipeline: StagedPipeline, mesh: Mesh | None, axis: str) -> None:
        self.pipeline, self.mesh, self.axis = pipeline, mesh, axis
        self._known: dict[tuple[int, str], Sharding | None] = {}

    def partition(self, key: FragmentKey) -> PartitionedFragment:
        """Return the partitioned fragment, and record the shardings of its results."""
        stage, _ = key
        fragment = self.pipeline.fragments[key]
        given = [
            self._of(stage, slot, param)
            for slot, param in zip(fragment.takes, fragment.block.params, strict=True)
        ]
        made = partition_fragment(fragment, given, self.mesh)
        for slot, sharding in zip(fragment.gives, made.results, strict=True):
            self._known[stage, slot] = sharding
            if stage + 1 < self.pipeline.stage_count and slot in self.pipeline.forward[stage]:
                self._known[stage + 1, slot] = sharding
        for name in self.pipeline.backward[stage - 1] if stage and self.pipeline.backward else ():
            if given_cotangent(name) in fragment.gives:
                sent = self._known[stage, given_cotangent(name)]
                self._known[stage - 1, received_cotangent(name)] = sent
        return made

    def _of(self, stage: int, slot: str, param: Value) -> Sharding | None:
        number = slot_number(slot, "argument")
        if number is None:
            return self._known.get((stage, slot))
        operand = self.pipeline.op.operands[number]
        return row_sharding(operand.sharding, param.type, self.axis, self.mesh)
