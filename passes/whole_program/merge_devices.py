"""Transform the per-device program to one program over the arrays of all devices.

before: `spmd func @gradient( %x: f32[4, 8] of f32[16@data, 8@-], ...`
        `%g = all-reduce(%g.partial, axes=[data], op=add) : f32[8, 3]`
after:  `func @gradient( %x: f32[16, 8], ...`
        `%x.shards = reshape(%x) : f32[4, 4, 8]`
        `%g = sum(%g.partial, dims=[0]) : f32[8, 3]`

This is for devices that share memory. The devices of each of several processes become one program
per process: `across` states the number of blocks of devices as in `hierarchical-collectives`, and
communication between the blocks remains a collective.

Each value gets a leading dimension for each sub-axis of the mesh along which devices differ, and
none for axes along which it is replicated, so replicated values are computed once. Collectives
become sums, transposes and slices (`shardir.passes.whole_program`). Parameters and results are the
global arrays at the size that the devices store: dimensions that are not divided evenly include
padding of undefined content.
"""

from dataclasses import dataclass
from functools import partial
from math import prod

from shardir.errors import MergeError
from shardir.ir.builder import Builder
from shardir.ir.mesh import Mesh
from shardir.ir.module import Block, Function, GlobalTensor, Module, SpmdInterface, Value
from shardir.ir.process_levels import ProcessLevels
from shardir.ir.sharding import Axes, Sharding
from shardir.op_rules.partitioning import identity_element
from shardir.passes.pipeline import Pass
from shardir.passes.rewriting import used_names
from shardir.passes.whole_program import (
    between_processes,
    callbacks,
    collective_rules,
    device_positions,
    halo_convolutions,
    merged_control_flow,
    permutes,
)
from shardir.passes.whole_program.collective_rules import reduce_sub_axes
from shardir.passes.whole_program.dim_arrangement import (
    arrange_dims,
    number_parts,
    reshape_if_needed,
    slice_rows,
)
from shardir.passes.whole_program.merger import BatchedValue, DeviceMerger, MergeRule
from shardir.passes.whole_program.mesh_sub_axes import SubAxes, axis_sizes, named_axes

RULES: dict[str, MergeRule] = {
    **collective_rules.COLLECTIVE_RULES,
    **permutes.PERMUTE_RULES,
    **device_positions.POSITION_RULES,
    **device_positions.DYNAMIC_UPDATE_RULES,
    **halo_convolutions.HALO_RULES,
    **merged_control_flow.CONTROL_FLOW_RULES,
    **callbacks.CALLBACK_RULES,
}


@dataclass(frozen=True)
class MergeDevices(Pass, name="merge-devices"):
    """Build one program over the arrays of all devices, or of all devices of a process.

    `across` and `at` are as in `hierarchical-collectives`. Raises `MergeError` for operations that
    are defined only per device, such as callbacks with side effects.
    """

    across: str = ""
    at: str = ""

    def __call__(self, module: Module) -> Module:
        meshes = list(module.meshes)
        functions = []
        for function in module.functions:
            if function.spmd:
                mesh = mesh_of_devices(function, module)
                levels = ProcessLevels.parse(mesh, self.across, self.at)
                function = _merge_function(function, levels)
                meshes[meshes.index(mesh)] = levels.processes
            functions.append(function)
        if not self.across and all(function.spmd for function in module.functions):
            meshes = []
        return Module(tuple(meshes), tuple(functions))


def _merge_function(function: Function, levels: ProcessLevels) -> Function:
    assert function.spmd is not None
    sub_axes = SubAxes(levels.mesh, named_axes(function), levels)
    rules = between_processes.add_process_rules(RULES) if levels.block_counts else RULES
    merger = DeviceMerger(Builder(used_names(function)), sub_axes, rules)
    body, interface = function.body, function.spmd
    _check_interface(interface, levels)
    params = [
        _bind_parameter(merger, value, outer)
        for value, outer in zip(body.params, interface.params, strict=True)
    ]
    merger.run(body.ops)
    returns = [
        _global_result(merger, value, outer)
        for value, outer in zip(body.returns, interface.results, strict=True)
    ]
    new_body: Block = merger.b.block(params, returns)
    outside = None
    if levels.block_counts:
        outside = SpmdInterface(
            tuple(map(partial(_process_interface, levels), params, interface.params)),
            tuple(map(partial(_process_interface, levels), returns, interface.results)),
        )
    return Function(function.name, new_body, (None,) * len(returns), outside)


def _check_interface(interface: SpmdInterface, levels: ProcessLevels) -> None:
    for outer in (*interface.params, *interface.results):
        if levels.far_parts(outer.sharding.unreduced):
            raise MergeError("a parameter or a result is unreduced between processes")


def _process_interface(levels: ProcessLevels, value: Value, outer: GlobalTensor) -> GlobalTensor:
    """Return the global array of which the value of a process is a shard, in the order of the
    processes."""
    dim_axes = [levels.far_parts(dim.axes) for dim in outer.sharding.dims]
    shape = (
        n * prod(axis.size for axis in axes)
        for n, axes in zip(value.type.shape, dim_axes, strict=True)
    )
    return GlobalTensor(
        value.type.with_shape(tuple(shape)), Sharding.of(outer.sharding.mesh, dim_axes)
    )


def mesh_of_devices(function: Function, module: Module) -> Mesh:
    """Return the mesh whose devices run a per-device function."""
    assert function.spmd is not None
    for outer in (*function.spmd.params, *function.spmd.results):
        return module.mesh(outer.sharding.mesh)
    return module.meshes[0]


def _sub_axes_of_dims(merger: DeviceMerger, outer: GlobalTensor) -> list[Axes]:
    """Return the sub-axes that shard each dimension."""
    return [merger.sub_axes.of(dim.axes) for dim in outer.sharding.dims]


def _bind_parameter(merger: DeviceMerger, old: Value, outer: GlobalTensor) -> Value:
    """Return the parameter for the global array, and bind its shards to the device's parameter."""
    b = merger.b
    dim_axes = _sub_axes_of_dims(merger, outer)
    pieces = zip(old.type.shape, dim_axes, strict=True)
    full_type = old.type.with_shape([n * prod(axis_sizes(axes)) for n, axes in pieces])
    param = Value(full_type, old.name)
    own = merger.sub_axes.union(*dim_axes) if dim_axes else ()
    split = [(*axis_sizes(axes), n) for axes, n in zip(dim_axes, old.type.shape, strict=True)]
    parts = number_parts(split)
    position_of = {
        sub_axis: i
        for axes, part in zip(dim_axes, parts, strict=True)
        for sub_axis, i in zip(axes, part, strict=False)
    }
    order = [*((position_of[sub_axis],) for sub_axis in own), *(part[-1:] for part in parts)]
    b.why = f"the shards of %{old.name}" if own else ""
    start = len(b.ops)
    shards = merger.rename_last(arrange_dims(b, param, split, order), f"{old.name}.shards", start)
    pending = merger.sub_axes.of(outer.sharding.unreduced)
    if pending:
        shards, own = _begin_unreduced(
            merger, BatchedValue(shards, own), pending, outer.sharding.reduction
        )
    b.why = ""
    merger.bind(old, BatchedValue(shards, own))
    return param


def _begin_unreduced(
    merger: DeviceMerger, batched: BatchedValue, pending: Axes, reduction: str
) -> BatchedValue:
    """Return an unreduced value whose first position holds the operand and whose others the
    identity."""
    b = merger.b
    value, own = batched
    all_sub_axes = merger.sub_axes.union(own, pending)
    shape = tuple(1 if sub_axis in pending else sub_axis.size for sub_axis in all_sub_axes)
    lone = reshape_if_needed(b, value, (*shape, *value.type.shape[len(own) :]))
    nothing = b.full(identity_element(reduction, value.type.dtype), value.type.with_shape(()))
    none = (0,) * lone.type.rank
    high = tuple(
        all_sub_axes[i].size - 1 if i < len(all_sub_axes) and all_sub_axes[i] in pending else 0
        for i in range(lone.type.rank)
    )
    return BatchedValue(b.pad(lone, nothing, low=none, high=high, interior=none), all_sub_axes)


def _global_result(merger: DeviceMerger, old: Value, outer: GlobalTensor) -> Value:
    """Return the global array of the shards that the devices return."""
    b = merger.b
    dim_axes = _sub_axes_of_dims(merger, outer)
    result_sub_axes = merger.sub_axes.union(*dim_axes) if dim_axes else ()
    batched = merger.get(old)
    b.why = f"the global array of %{old.name}" if result_sub_axes else ""
    pending = merger.sub_axes.of(outer.sharding.unreduced)
    if pending:
        batched = reduce_sub_axes(merger, batched, pending, outer.sharding.reduction)
    value, own = batched
    extra = [i for i, sub_axis in enumerate(own) if sub_axis not in result_sub_axes]
    if extra:
        # Replicas are equal, so the first device of each group represents all.
        for i in extra:
            value = slice_rows(b, value, i, 0, 1)
        shape = [n for i, n in enumerate(value.type.shape) if i not in extra]
        value = b.reshape(value, result=value.type.with_shape(shape))
        own = tuple(sub_axis for sub_axis in own if sub_axis in result_sub_axes)
    value = merger.widen(BatchedValue(value, own), result_sub_axes)
    order = [
        (*map(result_sub_axes.index, axes), len(result_sub_axes) + d)
        for d, axes in enumerate(dim_axes)
    ]
    start = len(b.ops)
    result = arrange_dims(b, value, [(n,) for n in value.type.shape], order)
    return merger.rename_last(result, f"{old.name}.unsharded", start)
