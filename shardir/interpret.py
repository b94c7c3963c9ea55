"""What a program means, in NumPy. Slow and obvious: passes and backends are tested against it.

`run` takes global arrays. A per-device program is run on a simulated mesh: every device is a
coroutine that stops where it needs the others, and goes on when all of them have arrived there.
"""

from collections.abc import Callable, Generator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from shardir.errors import InterpretError
from shardir.groups import positions
from shardir.ir import Block, Function, Module, Op, Value
from shardir.mesh import Mesh
from shardir.opset import OPS
from shardir.partitioning import identity
from shardir.placement import Sharding
from shardir.types import TensorType, dtype_name

Array = npt.NDArray[Any]
Environment = dict[Value, Array]
Meeting = tuple[Op, tuple[Array, ...]]
"""An operation that a device cannot do alone, and its operands there."""
Steps = Generator[Meeting, Any, None]


def run(module: Module, args: Sequence[npt.ArrayLike]) -> list[Array]:
    """Run the module's first function on global arrays; returns global arrays.

    A per-device function (`spmd func`) runs on a simulation of all devices of its mesh. Raises
    `InterpretError` when the arguments do not fit or the devices disagree.
    """
    function = module.main
    if function.spmd is None:
        return evaluate(function, args)
    mesh = mesh_of(module)
    arrays = _checked(function, [g.type for g in function.spmd.params], args)
    shards = [
        [cut(array, g.sharding, mesh, device) for array, g in zip(arrays, function.spmd.params,
                                                                  strict=True)]
        for device in range(mesh.size)
    ]  # fmt: skip
    per_device = run_devices(function, mesh, shards)
    return [
        join([results[i] for results in per_device], outer.type, outer.sharding, mesh)
        for i, outer in enumerate(function.spmd.results)
    ]


def evaluate(function: Function, args: Sequence[npt.ArrayLike]) -> list[Array]:
    """Run a function on one device."""
    arrays = _checked(function, [p.type for p in function.body.params], args)
    env: Environment = dict(zip(function.body.params, arrays, strict=True))
    for op, _ in _steps(function.body, env):
        raise InterpretError(
            f"{op.name} needs the devices of a mesh, but @{function.name} is run on one device; "
            "partition the module first"
        )
    return [env[value] for value in function.body.returns]


def run_devices(function: Function, mesh: Mesh, shards: Sequence[Sequence[Array]]) -> list[Any]:
    """Run a per-device function on every device of the mesh at once.

    `shards` holds the arguments of each device, in row-major order of the mesh; so does the
    result hold the results.
    """
    envs = [dict(zip(function.body.params, args, strict=True)) for args in shards]
    devices = [_steps(function.body, env) for env in envs]
    answers: list[Any] = [None] * len(devices)
    while True:
        meetings = [_advance(device, answer) for device, answer in zip(devices, answers,
                                                                       strict=True)]  # fmt: skip
        if all(meeting is None for meeting in meetings):
            return [[env[value] for value in function.body.returns] for env in envs]
        answers = _meet(meetings, mesh)


def mesh_of(module: Module) -> Mesh:
    """The mesh whose devices run the module's per-device function."""
    spmd = module.main.spmd
    if spmd is None:
        raise InterpretError(f"@{module.main.name} is not a per-device function; partition it")
    for outer in (*spmd.params, *spmd.results):
        return module.mesh(outer.sharding.mesh)
    return module.meshes[0]


def _advance(device: Steps, answer: Any) -> Meeting | None:
    try:
        return device.send(answer)
    except StopIteration:
        return None


def _meet(meetings: Sequence[Meeting | None], mesh: Mesh) -> list[Any]:
    """Do one operation for all devices; they must all have come to the same one."""
    first = meetings[0]
    for device, meeting in enumerate(meetings):
        if first is None or meeting is None or meeting[0] is not first[0]:
            raise InterpretError(
                f"devices disagree: device 0 is at {_where(first)}, "
                f"device {device} is at {_where(meeting)}"
            )
    assert first is not None
    op = first[0]
    assert op.spec.exchange is not None
    parts = [meeting[1] for meeting in meetings if meeting]
    return list(op.spec.exchange(mesh, parts, result=_stated(op), **op.attrs))


def _where(meeting: Meeting | None) -> str:
    if meeting is None:
        return "the end"
    op = meeting[0]
    return f"{op.name} {', '.join(f'%{v.name}' for v in op.results)}".strip()


def _steps(block: Block, env: Environment) -> Steps:
    """Run a block on one device, yielding where it has to meet the others."""
    for op in block.ops:
        operands = tuple(env[v] for v in op.operands)
        if op.spec.exchange is not None:
            results = yield op, operands
        elif op.name in CONTROL:
            results = yield from CONTROL[op.name](op, env)
        else:
            results = apply(op, operands)
        _bind(op, results, env)


def apply(op: Op, operands: Sequence[Array]) -> Any:
    """The result of one operation without blocks, or a tuple of its results."""
    if op.spec.reference is None:
        raise InterpretError(f"{op.name} has no reference semantics")
    with np.errstate(all="ignore"):
        return op.spec.reference(*operands, **op.attrs, result=_stated(op))


def _stated(op: Op) -> TensorType | tuple[TensorType, ...]:
    types = tuple(v.type for v in op.results)
    return types[0] if len(types) == 1 else types


def _bind(op: Op, results: Any, env: Environment) -> None:
    values = (results,) if len(op.results) == 1 else tuple(results)
    for value, array in zip(op.results, values, strict=True):
        array = np.asarray(array)
        if array.shape != value.type.shape or array.dtype != value.type.numpy:
            raise InterpretError(
                f"{op.name} made {array.dtype}{list(array.shape)} for %{value.name}: {value.type}"
            )
        env[value] = array


def _while(op: Op, env: Environment) -> Generator[Meeting, Any, tuple[Array, ...] | Array]:
    condition, body = op.blocks
    carried = [env[v] for v in op.operands]
    while True:
        env.update(zip(condition.params, carried, strict=True))
        yield from _steps(condition, env)
        if not env[condition.returns[0]]:
            return _results(carried)
        env.update(zip(body.params, carried, strict=True))
        yield from _steps(body, env)
        carried = [env[v] for v in body.returns]


def _scan(op: Op, env: Environment) -> Generator[Meeting, Any, tuple[Array, ...] | Array]:
    (body,) = op.blocks
    carries, length = op.attrs["carries"], op.attrs["length"]
    carried = [env[v] for v in op.operands[:carries]]
    stacked = [env[v] for v in op.operands[carries:]]
    outs = [np.empty(v.type.shape, v.type.numpy) for v in op.results[carries:]]
    for i in reversed(range(length)) if op.attrs.get("reverse") else range(length):
        env.update(zip(body.params, [*carried, *(x[i] for x in stacked)], strict=True))
        yield from _steps(body, env)
        carried = [env[v] for v in body.returns[:carries]]
        for out, value in zip(outs, body.returns[carries:], strict=True):
            out[i] = env[value]
    return _results([*carried, *outs])


def _case(op: Op, env: Environment) -> Generator[Meeting, Any, tuple[Array, ...] | Array]:
    index = int(env[op.operands[0]])
    branch = op.blocks[index if 0 <= index < len(op.blocks) else -1]
    yield from _steps(branch, env)
    return _results([env[v] for v in branch.returns])


def _results(arrays: Sequence[Array]) -> tuple[Array, ...] | Array:
    return arrays[0] if len(arrays) == 1 else tuple(arrays)


CONTROL: dict[str, Callable[..., Any]] = {"while": _while, "scan": _scan, "case": _case}


def _checked(
    function: Function, types: Sequence[TensorType], args: Sequence[npt.ArrayLike]
) -> list[Array]:
    arrays = [np.asarray(arg) for arg in args]
    if len(arrays) != len(types):
        raise InterpretError(f"@{function.name} takes {len(types)} arguments, got {len(arrays)}")
    for param, type, array in zip(function.body.params, types, arrays, strict=True):
        if array.shape != type.shape or array.dtype != type.numpy:
            raise InterpretError(
                f"%{param.name} of @{function.name} is {type}, got {array.dtype}{list(array.shape)}"
            )
    return arrays


def window(
    sharding: Sharding, shape: tuple[int, ...], mesh: Mesh, device: int
) -> tuple[slice, ...]:
    """Which part of a tensor of `shape` a device holds.

    Raises `InterpretError` when a dimension does not divide.
    """
    slices = []
    for dim, size in zip(sharding.dims, shape, strict=True):
        if size % dim.pieces:
            raise InterpretError(f"a dimension of {size} does not divide into {dim.pieces} pieces")
        index = 0
        for axis in dim.axes:
            index = index * axis.size + device // axis.stride(mesh) % axis.size
        step = size // dim.pieces
        slices.append(slice(index * step, (index + 1) * step))
    return tuple(slices)


def cut(array: Array, sharding: Sharding, mesh: Mesh, device: int) -> Array:
    """The part of a global array that a device holds.

    Of a pending array the first device along the pending axes holds all there is.
    """
    part = array[window(sharding, array.shape, mesh, device)]
    if sharding.unreduced and positions(mesh, sharding.unreduced)[device]:
        nothing = identity(sharding.reduction, dtype_name(array.dtype))
        return np.full(part.shape, nothing, part.dtype)
    return part


def join(shards: Sequence[Array], type: TensorType, sharding: Sharding, mesh: Mesh) -> Array:
    """The global array whose parts the devices hold.

    What is pending is combined. Raises `InterpretError` when two devices hold different values
    for the same part.
    """
    if sharding.unreduced:
        exchange = OPS["all-reduce"].exchange
        assert exchange is not None
        attrs = {"axes": sharding.unreduced, "op": sharding.reduction}
        shards = exchange(mesh, [(shard,) for shard in shards], result=type, **attrs)
    whole = np.empty(type.shape, type.numpy)
    written: dict[tuple[tuple[int, int], ...], int] = {}
    for device, shard in enumerate(shards):
        place = window(sharding, type.shape, mesh, device)
        earlier = written.setdefault(tuple((s.start, s.stop) for s in place), device)
        if earlier == device:
            whole[place] = shard
        elif whole[place].tobytes() != np.ascontiguousarray(shard).tobytes():
            raise InterpretError(
                f"devices {earlier} and {device} hold different values for the same part of "
                f"a tensor {type}"
            )
    return whole
