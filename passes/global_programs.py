"""Programs over global tensors: their one mesh, and values on single devices of it.

A program runs on all devices of one mesh. A value on a single device (a sharding on a mesh without
axes) is a value that every device has, because every device computes it. An opaque operation may
have an effect, which must not be repeated: it becomes a conditional that only this device executes,
and the others receive its results. A callback is called once for all devices of a program.

before: `%y = opaque(%x, ...) : f32[4@-] on @one`
after:  `%y = manual_computation(%x, axes=[x], ...) : f32[4@-]` with the body
        `%here = eq(%device, %number) : bool[]`
        `%mine = case(%branch) : f32[4] { yield %identity } { %r = opaque(%p, ...) yield %r }`
        `%all = all-reduce(%mine, axes=[x], op=add) : f32[4]`
"""

from collections.abc import Callable, Mapping
from dataclasses import replace

from shardir import ops as specs
from shardir.errors import PartitionError
from shardir.ir.builder import Builder, UniqueNames, as_values, copy_op, substitute
from shardir.ir.dtypes import DTYPE_INFO, KEYS, TOKEN
from shardir.ir.mesh import Mesh
from shardir.ir.module import Block, Function, Module, Op, Value
from shardir.ir.operation import Symbol
from shardir.ir.sharding import Axis, Sharding
from shardir.ir.types import TensorType
from shardir.op_rules.partitioning import identity_element
from shardir.ops.opaque import opaque
from shardir.passes.rewriting import (
    all_values,
    rebuild_functions,
    shardings_of,
    used_names,
)


def mesh_of_function(function: Function, module: Module) -> Mesh | None:
    """Return the one mesh of a function's values, `None` for a module without meshes.

    Raises `PartitionError` if there are several.
    """
    used = dict.fromkeys(s.mesh for s in shardings_of(function))
    meshes = [module.mesh(name) for name in used] or list(module.meshes[:1])
    if len(meshes) > 1:
        raise PartitionError(
            f"@{function.name} has values on the meshes "
            f"{' and '.join(f'@{mesh.name}' for mesh in meshes)}; a program runs on one mesh"
        )
    if meshes and meshes[0].is_maximal:
        raise PartitionError(
            f"@{function.name} has values on the single device of @{meshes[0].name}; "
            "a program that is partitioned runs on a mesh with axes"
        )
    return meshes[0] if meshes else None


def place_single_devices(function: Function, module: Module) -> Function:
    """Return the function with values on single devices of its mesh replicated over the mesh.

    An opaque operation on a single device runs only there. The function does not change, and
    `mesh_of_function` refuses it, if the mesh does not have such a device, if the value is in a
    manual computation, where devices have different values, or if such an operation has a token or
    a random key as a result, which no collective sends.
    """
    used = [module.mesh(name) for name in dict.fromkeys(s.mesh for s in shardings_of(function))]
    meshes = [mesh for mesh in used if not mesh.is_maximal]
    devices = {m.name: device for m in used if m.is_maximal for device in m.device_ids or ()}
    if len(meshes) != 1 or not devices or max(devices.values()) >= meshes[0].size:
        return function
    (mesh,) = meshes
    placed = {
        op: devices[place]
        for op in function.body.walk()
        if (place := _device_mesh(op, devices)) and _has_opaque_operation(op)
    }
    if any(value.type.dtype in (*KEYS, TOKEN) for op in placed for value in op.results):
        return function
    manual = (op for op in function.body.walk() if op.spec is specs.manual_computation)
    inside = {v.sharding.mesh for op in manual for v in all_values(op.blocks[0]) if v.sharding}
    if not inside.isdisjoint(devices):
        return function

    def replicate(sharding: Sharding | None) -> Sharding | None:
        if sharding is None or sharding.mesh not in devices:
            return sharding
        return Sharding.fully_replicated(mesh.name, len(sharding.dims))

    new = {
        value: replace(value, sharding=sharding)
        for value in all_values(function.body)
        if (sharding := replicate(value.sharding)) is not value.sharding
    }
    body = _run_on_devices(function.body, placed, mesh, used_names(function)) if placed else None
    results = tuple(map(replicate, function.result_shardings))
    return replace(function, body=substitute(body or function.body, new), result_shardings=results)


def _has_opaque_operation(op: Op) -> bool:
    """Return whether an operation, or one in its blocks, is opaque."""
    return op.spec is opaque or any(
        inner.spec is opaque for block in op.blocks for inner in block.walk()
    )


def _device_mesh(op: Op, devices: Mapping[str, int]) -> str | None:
    """Return the mesh of the single device on which a result of an operation is."""
    meshes = (value.sharding.mesh for value in op.results if value.sharding)
    return next((mesh for mesh in meshes if mesh in devices), None)


def _run_on_devices(
    block: Block, placed: Mapping[Op, int], mesh: Mesh, names: UniqueNames
) -> Block:
    """Return the block with the placed operations replaced by conditionals."""
    ops = []
    for op in block.ops:
        if op in placed:
            ops.append(_run_on_device(op, placed[op], mesh, names))
            continue
        blocks = tuple(_run_on_devices(each, placed, mesh, names) for each in op.blocks)
        ops.append(replace(op, blocks=blocks) if blocks else op)
    return replace(block, ops=tuple(ops))


def _run_on_device(op: Op, device: int, mesh: Mesh, names: UniqueNames) -> Op:
    """Return a manual computation in which only one device executes an operation."""
    axes = tuple(Axis.full(name, mesh) for name in mesh.sizes)
    ids = mesh.device_ids or tuple(range(mesh.size))
    captured = tuple(dict.fromkeys(op.uses()))
    b = Builder(names, op.loc)
    b.why = f"%{op.results[0].name} = {op.name} runs on device {device} alone"
    params = tuple(Value(value.type, names.fresh(value.name)) for value in captured)
    there = b.inner()
    there.append(copy_op(op, dict(zip(captured, params, strict=True)), names))
    local = {v: replace(v, sharding=None) for v in all_values(there.block((), ()))}
    done = [local[value] for value in there.ops[0].results]
    elsewhere = b.inner()
    reductions = [_sending_reduction(value.type.dtype) for value in op.results]
    identities = [
        elsewhere.full(identity_element(reduction, value.type.dtype), value.type)
        for reduction, value in zip(reductions, op.results, strict=True)
    ]
    number = b.axis_index(axes=axes)
    place = b.constant(value=ids.index(device), result=number.type)
    branch = b.convert(b.eq(number, place), result=TensorType((), "i32"))
    blocks = (elsewhere.block((), identities), substitute(there.block((), done), local))
    partial = as_values(b.emit(specs.case, branch, blocks=blocks))
    received = [
        b.all_reduce(value, axes=axes, op=Symbol(reduction))
        for reduction, value in zip(reductions, partial, strict=True)
    ]
    return Op(
        specs.manual_computation,
        captured,
        op.results,
        {
            "axes": axes,
            "in_axes": tuple(((),) * value.type.rank for value in captured),
            "out_axes": tuple(((),) * value.type.rank for value in op.results),
        },
        (b.block(params, received),),
        op.loc,
        b.why,
    )


def _sending_reduction(dtype: str) -> str:
    """Return a reduction of one tensor and identity elements that keeps all elements.

    A sum keeps NaN on all backends; MPI defines no maximum of NaN.
    """
    if dtype == "bool":
        return "or"
    return "add" if DTYPE_INFO[dtype].has_zero else "max"


def rebuild_global_programs(
    module: Module, rebuilt: Callable[[Function, Mesh], Function]
) -> Module:
    """Return the module with its programs over global tensors rebuilt, each with its mesh.

    Functions without a mesh do not change; the same module is returned if nothing changes.
    """

    def function(old: Function) -> Function:
        if old.spmd:
            return old
        on_one_mesh = place_single_devices(old, module)
        mesh = mesh_of_function(on_one_mesh, module)
        return old if mesh is None else rebuilt(on_one_mesh, mesh)

    return rebuild_functions(module, function)
