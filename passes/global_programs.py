"""Programs over global tensors: their one mesh, and values on single devices of it.

A program runs on all devices of one mesh. A value on a single device (a sharding on a mesh without
axes) is a value that every device has, because every device computes it. An opaque operation may
have an effect, which must not be repeated: it becomes a conditional that only this device executes,
and the others receive its results. Random keys are sent as their words, and a token, which has no
data, stays as it is on the other devices. A callback is called once for all devices of a program.

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
from shardir.ir.dtypes import DTYPE_INFO, FLOATS, KEY_WORDS, KEYS, TOKEN
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

    It is the first mesh with axes if no value has a sharding.

    Raises `PartitionError` if there are several.
    """
    used = dict.fromkeys(s.mesh for s in shardings_of(function))
    meshes = [module.mesh(name) for name in used] or [
        *(mesh for mesh in module.meshes if not mesh.is_maximal),
        *module.meshes,
    ][:1]
    if len(meshes) > 1:
        first, other = [*(m for m in meshes if not m.is_maximal), *meshes][:2]
        raise PartitionError(
            f"@{function.name} has values on the meshes "
            f"{' and '.join(f'@{mesh.name}' for mesh in meshes)}; a program runs on one mesh: "
            f"state the sharding of {_describe_value_on(function, other.name)} on @{first.name}"
        )
    if meshes and meshes[0].is_maximal:
        name = meshes[0].name
        where = (
            f"has values on the single device of @{name}, such as "
            f"{_describe_value_on(function, name)}"
            if used
            else f"has no mesh but the single device @{name}"
        )
        raise PartitionError(
            f"@{function.name} {where}; a program that is partitioned runs on a mesh with axes: "
            "shard an argument, or leave the sharding out"
        )
    return meshes[0] if meshes else None


def _describe_value_on(function: Function, mesh: str) -> str:
    """Return the name, and the location if it is known, of the first value on a mesh."""
    for param in function.body.params:
        if param.sharding and param.sharding.mesh == mesh:
            return f"the argument %{param.name}"
    # The program of the user has no reshards, which passes add.
    for op in sorted(function.body.walk(), key=lambda op: op.spec is specs.reshard):
        values = (*op.results, *(value for block in op.blocks for value in block.params))
        for value in values:
            if value.sharding and value.sharding.mesh == mesh:
                return _describe_result(value, op)
    numbers = enumerate(function.result_shardings)
    number = next(number for number, each in numbers if each is not None and each.mesh == mesh)
    return f"result {number}"


def _describe_result(value: Value, op: Op) -> str:
    return f"%{value.name} ({op.loc})" if op.loc else f"%{value.name}"


def place_single_devices(function: Function, module: Module) -> Function:
    """Return the function with values on single devices of its mesh replicated over the mesh.

    An opaque operation on a single device runs only there. The function does not change, and
    `mesh_of_function` refuses it, if it has no mesh with axes, or several. Raises `PartitionError`
    if the mesh does not have such a device, if the value is in a manual computation, where devices
    have different values, or if such an operation creates a token, which no collective sends.
    """
    used = [module.mesh(name) for name in dict.fromkeys(s.mesh for s in shardings_of(function))]
    meshes = [mesh for mesh in used if not mesh.is_maximal]
    devices = {m.name: device for m in used if m.is_maximal for device in m.device_ids or ()}
    if len(meshes) != 1 or not devices:
        return function
    (mesh,) = meshes
    placed = {
        op: devices[place]
        for op in function.body.walk()
        if (place := _device_mesh(op, devices)) and _has_opaque_operation(op)
    }
    _check_single_devices(function, mesh, devices, placed)

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


def _check_single_devices(
    function: Function, mesh: Mesh, devices: Mapping[str, int], placed: Mapping[Op, int]
) -> None:
    """Raise `PartitionError` if values on single devices cannot be replicated over the mesh."""
    for name, device in devices.items():
        if device >= mesh.size:
            raise PartitionError(
                f"{_describe_value_on(function, name)} is on device {device}, and the mesh "
                f"@{mesh.name} of @{function.name} has the devices 0 to {mesh.size - 1}; place it "
                "on one of them"
            )
    for op in placed:
        tokens = [value for value in op.results if value.type.dtype == TOKEN]
        if tokens and not any(value.type.dtype == TOKEN for value in op.uses()):
            raise PartitionError(
                f"{_describe_result(tokens[0], op)} is a token that {op.name} on device "
                f"{placed[op]} creates, and the other devices cannot receive tokens; pass a token "
                "to the operation, or leave its sharding out, so that all devices run it"
            )
    for op in function.body.walk():
        if op.spec is not specs.manual_computation:
            continue
        inner = (each for each in op.blocks[0].walk() if each.spec is not specs.reshard)
        values = (*op.blocks[0].params, *(value for each in inner for value in each.results))
        for value in values:
            if value.sharding and value.sharding.mesh in devices:
                raise PartitionError(
                    f"%{value.name} in the manual computation {_describe_result(op.results[0], op)}"
                    f" is on device {devices[value.sharding.mesh]}, but devices have different "
                    "values there; leave its sharding out, or place the value outside of the "
                    "manual computation"
                )


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
    done = [
        _as_words(there, local[value]) if value.type.dtype in KEYS else local[value]
        for value in there.ops[0].results
    ]
    elsewhere = b.inner()
    token = next((param for param in params if param.type.dtype == TOKEN), None)
    reductions = [_sending_reduction(value.type.dtype) for value in done]
    identities = [
        token
        if token is not None and value.type.dtype == TOKEN
        else elsewhere.full(identity_element(reduction, value.type.dtype), value.type)
        for reduction, value in zip(reductions, done, strict=True)
    ]
    number = b.axis_index(axes=axes)
    place = b.constant(value=ids.index(device), result=number.type)
    branch = b.convert(b.eq(number, place), result=TensorType((), "i32"))
    blocks = (elsewhere.block((), identities), substitute(there.block((), done), local))
    partial = as_values(b.emit(specs.case, branch, blocks=blocks))
    sent = [
        value if value.type.dtype == TOKEN else b.all_reduce(value, axes=axes, op=Symbol(reduction))
        for reduction, value in zip(reductions, partial, strict=True)
    ]
    received = [
        b.bitcast(value, result=result.type) if result.type.dtype in KEYS else value
        for value, result in zip(sent, op.results, strict=True)
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


def _as_words(b: Builder, key: Value) -> Value:
    """Return random keys as their words, which collectives send."""
    words = KEY_WORDS[key.type.dtype]
    made: Value = b.bitcast(key, result=TensorType((*key.type.shape, words), "u32"))
    return made


def _sending_reduction(dtype: str) -> str:
    """Return a reduction of one tensor and identity elements that keeps all elements.

    A sum keeps NaN on all backends; MPI defines no maximum of NaN.
    """
    if dtype == "bool":
        return "or"
    return "max" if dtype in FLOATS and not DTYPE_INFO[dtype].has_zero else "add"


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
