"""`simulate`: the time and memory of a per-device program on a machine."""

from collections.abc import Mapping, Sequence

from shardir import ops
from shardir.errors import MachineError, MergeError
from shardir.ir.location import SourceLocations
from shardir.ir.module import Module
from shardir.passes.pipeline import Pipeline
from shardir.passes.simulation.block_simulation import BlockSimulator
from shardir.passes.simulation.breakdown import Breakdown
from shardir.passes.simulation.host_calls import CallCosts
from shardir.passes.simulation.host_transfers import offload_states
from shardir.passes.simulation.machine_model import Flops, MachineModel, OperationTimes
from shardir.passes.simulation.memory_use import memory_use
from shardir.passes.simulation.simulation import Simulation
from shardir.passes.simulation.utilization import (
    add_flops,
    executed_flops,
    model_flops,
    utilization,
)
from shardir.passes.simulation.work import COMPUTE_STREAM, PICOSECONDS, WorkModel

FUSION_PIPELINE = "inline,fuse"
"""The passes from the program of each device to the kernels of a target without passes of its
own."""
CALL = "call of the program"
"""The kind of the time of a call without its kernels."""


def simulate(
    module: Module,
    machine: MachineModel,
    *,
    traced: Module | None = None,
    fusion: str = FUSION_PIPELINE,
    merging: str | None = None,
    donated: Sequence[int] = (),
    memory_bytes: int | None = None,
    places: SourceLocations | None = None,
    calls: CallCosts | None = None,
    offloaded: Mapping[int, int] | None = None,
) -> Simulation:
    """Return the time and memory of one run of a partitioned program on a machine.

    `traced` is the program before it was partitioned, whose flops MFU counts; without it, those of
    all devices count. `fusion` are the passes that form kernels. With `merging`, the passes with
    which a backend makes one program for all devices, the time is that of this program. Results may
    reuse the memory of the arguments with the numbers `donated`. `memory_bytes` is a capacity to
    compare the peak with. `places` are the lines of values without a line of their own. `calls` are
    the costs of host functions that run programs on the devices. `offloaded` are states in the
    memory of the host: the number of the parameter, and that of the result which is its next value.
    """
    main = module.main
    if main.spmd is None and any(mesh.size > 1 for mesh in module.meshes):
        raise MachineError(
            f"@{main.name} has not been partitioned, and a simulation needs the program of each "
            "device; run the default passes first"
        )
    devices = max((mesh.size for mesh in module.meshes), default=1)
    kernels = Pipeline.parse(fusion)(module) if fusion else module
    params = kernels.main.body.params
    kernels = offload_states(kernels, offloaded)
    reused = {params[number] for number in donated}
    donated = [i for i, value in enumerate(kernels.main.body.params) if value in reused]
    unmerged: tuple[str, ...] = ()
    timed, processor = (kernels, machine)
    if merging is not None:
        try:
            timed, processor = _merge(module, machine, merging)
            timed = offload_states(timed, offloaded)
        except MergeError as error:
            unmerged = (
                f"the time is that of the program of each device, because the backend cannot run "
                f"all devices as one program: {error}",
            )
    simulator = BlockSimulator(timed, processor, calls)
    schedule = simulator.simulate(timed.main.body)
    breakdown = schedule.breakdown + _time_of_call(timed, machine)
    memory = memory_use(kernels, donated, places, calls)
    called = tuple(schedule.calls.values())
    executed = add_flops(executed_flops(module), *(cost.executed_flops for cost in called))
    if traced is None:
        needed: Flops = {dtype: n * devices for dtype, n in model_flops(module).items()}
    else:
        needed = model_flops(traced)
    needed = add_flops(needed, *(cost.needed_flops for cost in called))
    seconds = breakdown.duration / PICOSECONDS
    notes = [
        f"%{name} is a while whose trip count is not a constant; its body counts once"
        + (f" ({loc})" if loc else "")
        for name, loc in simulator.unknown
    ]
    return Simulation(
        main.name,
        machine.name,
        devices,
        breakdown,
        utilization(needed, machine, seconds * devices) if executed else None,
        utilization(executed, machine, seconds) if executed else None,
        memory,
        memory_bytes,
        schedule,
        (*unmerged, *notes, *(note for cost in called for note in cost.notes)),
        tuple(cost.lanes for cost in called if cost.lanes),
    )


def _merge(module: Module, machine: MachineModel, merging: str) -> tuple[Module, MachineModel]:
    """Return the program that runs for all devices, and the machine on which one program runs."""
    merged = Pipeline.parse(merging)(module)
    devices = max((mesh.size for mesh in module.meshes), default=1)
    if isinstance(machine, OperationTimes):
        return merged, machine.merge_devices(devices)
    return merged, machine


def _time_of_call(module: Module, machine: MachineModel) -> Breakdown:
    """Return the time of the call of a program without its kernels."""
    if not isinstance(machine, OperationTimes):
        return Breakdown()
    body = module.main.body
    duration = round(machine.call_seconds(len(body.params) + len(body.returns)) * PICOSECONDS)
    return Breakdown(duration, {CALL: duration} if duration else {})


def least_seconds(module: Module, machine: MachineModel) -> float:
    """Return a lower bound of the time of a run of a partitioned program, before its kernels are
    formed: the time of products and collectives outside of blocks. A device runs one of them at a
    time, except collectives that were started before."""
    model = WorkModel(machine, module.meshes)
    works = [
        model.work_of(op)
        for op in module.main.body.ops
        if op.spec.collective or op.spec in (ops.dot, ops.convolution)
    ]
    return sum(each.duration for each in works if COMPUTE_STREAM in each.streams) / PICOSECONDS
