"""Compile pipelines: each becomes a call of a runtime that has its fragments and its schedule.

before: `%loss, %w.grad = staged-pipeline(%w, %x, ...)`
after:  `%loss, %w.grad = manual_computation(%w, %x.microbatches, ...) { ... }`, whose body is a
        `pipeline-call` of the runtime
"""

from collections.abc import Sequence

from shardir.frontend.distributed.processes import process_index
from shardir.frontend.pipelines.fragments import FragmentCompiler
from shardir.frontend.pipelines.inspection import (
    DescribedPipeline,
    InspectedPipeline,
    replace_pipelines,
)
from shardir.frontend.pipelines.runtime import PipelineRuntime
from shardir.frontend.shardings.devices import Device, is_abstract_assignment
from shardir.ir.mesh import Mesh
from shardir.ir.module import Module, Op
from shardir.passes.pipeline_parallelism.stage_assignment import stage_error


def compile_pipelines(module: Module, devices: Sequence[Device]) -> Module:
    """Return the module with each pipeline compiled and replaced by a call of its runtime."""
    if is_abstract_assignment(devices):
        return replace_pipelines(module, DescribedPipeline)
    return replace_pipelines(module, lambda inspected: _compile(inspected, devices))


def devices_of_row(mesh: Mesh, axis: str, row: int, devices: Sequence[Device]) -> list[Device]:
    """Return the devices with the index `row` along `axis`, in row-major order of the others."""
    return [
        device
        for point, device in zip(mesh.coordinates(), devices, strict=True)
        if point[axis] == row
    ]


def _compile(inspected: InspectedPipeline, devices: Sequence[Device]) -> PipelineRuntime:
    op, schedule = inspected.staged.op, inspected.schedule
    rows = [
        devices_of_row(inspected.mesh, op.attrs["axis"], row, devices)
        for row in range(len(schedule.rows))
    ]
    processes = [_process_of(op, row, owned) for row, owned in enumerate(rows)]
    # The rows of one process share their compiled fragments.
    local = [row for row, process in enumerate(processes) if process == process_index()]
    compiler = FragmentCompiler(rows[local[0]] if local else ())
    compiled = {
        key: compiler(fragment)
        for key, fragment in inspected.fragments.items()
        if schedule.rank_of_stage[key[0]] in local
    }
    return PipelineRuntime(inspected, compiled, processes)


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
