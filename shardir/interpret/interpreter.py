"""Reference interpreter in NumPy, slow and simple: tests compare passes and backends with it.

`run` takes global arrays. A per-device program runs on a simulated mesh: every device is a
coroutine that yields at each operation that involves other devices, and resumes when all devices
have reached it. The body of a manual computation runs in the same way, once per position along its
axes. There, a collective executes as soon as all positions of one of its groups have reached it.
"""

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from shardir.errors import InterpretError, TimeLimitError, count_noun
from shardir.interpret.expansions import EXPANSIONS
from shardir.interpret.shards import assemble_shards, slice_shard
from shardir.interpret.widened_arrays import (
    narrow_results,
    run_reference,
    widen_array,
    widened_result_types,
)
from shardir.ir.device_groups import group_array
from shardir.ir.mesh import Mesh
from shardir.ir.module import Block, Function, Module, Op, Value, spmd_mesh_of
from shardir.ir.operation import Attr
from shardir.ir.sharding import Axes, Axis, Sharding
from shardir.ir.types import NumpyArray, TensorType
from shardir.op_rules.widening import computes_small
from shardir.ops.control_flow.custom_partitioning import body_of
from shardir.ops.opaque import check_no_opaque_operations
from shardir.text.printer import AXIS_ATTRIBUTES

Array = NumpyArray
Environment = dict[Value, Array]


class Rendezvous(NamedTuple):
    """An operation that involves several devices (a rendezvous).

    `parts` are its operands for each position along `axes` (row-major). `axes` are those of the
    manual computations inside the current one, whose devices have already reached the operation.
    """

    op: Op
    parts: list[tuple[Array, ...]]
    axes: Axes = ()


DeviceSteps = Generator[Rendezvous, Any, None]
"""The coroutine of one device; it receives the results for each entry of `parts`."""

OpSteps = Generator[Rendezvous, Any, tuple[Array, ...] | Array]
"""The coroutine of one operation with blocks, which returns its results."""


@dataclass(frozen=True)
class TimeLimit:
    """The seconds that a run may take, and its deadline on the monotonic clock."""

    seconds: float
    end: float

    @classmethod
    def of(cls, seconds: float | None) -> "TimeLimit | None":
        """Return a limit that starts now, or `None` for no limit."""
        return None if seconds is None else cls(seconds, monotonic() + seconds)

    def check(self, op: Op) -> None:
        """Raise `TimeLimitError` after the deadline."""
        if monotonic() > self.end:
            where = f" ({op.loc})" if op.loc is not None else ""
            names = ", ".join(f"%{value.name}" for value in op.results)
            raise TimeLimitError(
                f"the program has not ended after {self.seconds:g} seconds, and is at "
                f"{op.name} {names}{where}"
            )


def run(
    module: Module, args: Sequence[npt.ArrayLike], *, seconds: float | None = None
) -> list[Array]:
    """Run the module's first function on global arrays and return global arrays.

    A per-device function (`spmd func`) runs on a simulation of all devices of its mesh. Raises
    `InterpretError` if the arguments do not match the parameters or the devices diverge,
    `TimeLimitError` if the program runs longer than `seconds`, checked before every operation, and
    `OpaqueOperationError` if the module has operations of which only the text is available.
    """
    check_no_opaque_operations(module)
    function = module.main
    limit = TimeLimit.of(seconds)
    if function.spmd is None:
        return evaluate(function, args, limit)
    mesh = spmd_mesh_of(module)
    arrays = _check_arguments(function, [g.type for g in function.spmd.params], args)
    shards = [
        [
            slice_shard(array, g.sharding, mesh, device)
            for array, g in zip(arrays, function.spmd.params, strict=True)
        ]
        for device in range(mesh.size)
    ]
    per_device = run_devices(function, mesh, shards, limit)
    return [
        assemble_shards([results[i] for results in per_device], outer.type, outer.sharding, mesh)
        for i, outer in enumerate(function.spmd.results)
    ]


def evaluate(
    function: Function, args: Sequence[npt.ArrayLike], limit: TimeLimit | None = None
) -> list[Array]:
    """Run a function on one device."""
    arrays = _check_arguments(function, [p.type for p in function.body.params], args)
    env: Environment = dict(zip(function.body.params, arrays, strict=True))
    for meeting in run_block(function.body, env, limit):
        raise InterpretError(
            f"{meeting.op.name} needs the devices of a mesh, but @{function.name} is run on one "
            "device; partition the module first"
        )
    return [env[value] for value in function.body.returns]


def run_devices(
    function: Function,
    mesh: Mesh,
    shards: Sequence[Sequence[Array]],
    limit: TimeLimit | None = None,
) -> list[Any]:
    """Run a per-device function on every device of the mesh in lockstep.

    `shards` holds the arguments of each device, in row-major order of the mesh; the returned list
    holds the results in the same order.
    """
    envs = [dict(zip(function.body.params, args, strict=True)) for args in shards]
    devices = [run_block(function.body, env, limit) for env in envs]
    answers: list[object] = [None] * len(devices)
    while True:
        meetings = [resume(device, answer) for device, answer in zip(devices, answers,
                                                                       strict=True)]  # fmt: skip
        if all(meeting is None for meeting in meetings):
            return [[env[value] for value in function.body.returns] for env in envs]
        op = _common_rendezvous(meetings).op
        parts = [meeting.parts[0] for meeting in meetings if meeting]
        answers = [[answer] for answer in execute_collective(op, parts, mesh)]


def resume(device: DeviceSteps, answer: object) -> Rendezvous | None:
    """Resume a device with a result until its next rendezvous; return `None` at the end."""
    try:
        return device.send(answer)
    except StopIteration:
        return None


def _common_rendezvous(meetings: Sequence[Rendezvous | None]) -> Rendezvous:
    """Return the first rendezvous; raise `InterpretError` if the devices are at different
    operations.
    """
    first = meetings[0]
    for device, meeting in enumerate(meetings):
        if first is None or meeting is None or meeting.op is not first.op:
            raise InterpretError(
                f"devices disagree: device 0 is at {_describe_position(first)}, "
                f"device {device} is at {_describe_position(meeting)}"
            )
    assert first is not None
    return first


def execute_collective(
    op: Op, parts: list[tuple[Array, ...]], mesh: Mesh, **attrs: Attr
) -> list[object]:
    """Execute one collective operation for all devices."""
    assert op.spec.exchange is not None
    arguments = op.spec.rule_arguments({**op.attrs, **attrs})
    with np.errstate(all="ignore"):
        if not computes_small(op):
            return list(op.spec.exchange(mesh, parts, result=_result_types(op), **arguments))
        wide = [tuple(map(widen_array, part)) for part in parts]
        made = op.spec.exchange(mesh, wide, result=widened_result_types(op), **arguments)
        return [narrow_results(op, each) for each in made]


def _describe_position(meeting: Rendezvous | None) -> str:
    if meeting is None:
        return "the end"
    op = meeting.op
    return f"{op.name} {', '.join(f'%{v.name}' for v in op.results)}".strip()


def run_block(block: Block, env: Environment, limit: TimeLimit | None = None) -> DeviceSteps:
    """Run a block on one device; yield at each operation that involves other devices."""
    for op in block.ops:
        if limit is not None:
            limit.check(op)
        operands = tuple(env[v] for v in op.operands)
        if op.spec.exchange is not None:
            (results,) = yield Rendezvous(op, [operands])
        elif op.name in CONTROL_FLOW:
            results = yield from CONTROL_FLOW[op.name](op, env, limit)
        elif op.name in EXPANSIONS:
            results = yield from _run_expansion(EXPANSIONS[op.name](op), operands, limit)
        else:
            results = apply_op(op, operands)
        _bind_results(op, results, env)


def apply_op(op: Op, operands: Sequence[Array]) -> Any:
    """Return the result of one operation without blocks, or a tuple of its results."""
    if op.spec.reference is None:
        where = f" at {op.loc}" if op.loc else ""
        raise InterpretError(f"{op.name}{where} has no reference semantics")
    with np.errstate(all="ignore"):
        return run_reference(op, operands)


def _result_types(op: Op) -> TensorType | tuple[TensorType, ...]:
    types = tuple(v.type for v in op.results)
    return types[0] if len(types) == 1 else types


def _bind_results(op: Op, results: Any, env: Environment) -> None:
    values = (results,) if len(op.results) == 1 else tuple(results)
    for value, array in zip(op.results, values, strict=True):
        array = np.asarray(array)
        if array.shape != value.type.shape or array.dtype != value.type.numpy:
            raise InterpretError(
                f"{op.name} made {array.dtype}{list(array.shape)} for %{value.name}: {value.type}"
            )
        env[value] = array


def _run_while(op: Op, env: Environment, limit: TimeLimit | None) -> OpSteps:
    condition, body = op.blocks
    carried = [env[v] for v in op.operands]
    while True:
        if limit is not None:
            limit.check(op)
        env.update(zip(condition.params, carried, strict=True))
        yield from run_block(condition, env, limit)
        if not env[condition.returns[0]]:
            return _unwrap_single(carried)
        env.update(zip(body.params, carried, strict=True))
        yield from run_block(body, env, limit)
        carried = [env[v] for v in body.returns]


def _run_scan(op: Op, env: Environment, limit: TimeLimit | None) -> OpSteps:
    (body,) = op.blocks
    carries, length = op.attrs["carries"], op.attrs["length"]
    carried = [env[v] for v in op.operands[:carries]]
    stacked = [env[v] for v in op.operands[carries:]]
    outs = [np.empty(v.type.shape, v.type.numpy) for v in op.results[carries:]]
    for i in reversed(range(length)) if op.attrs.get("reverse") else range(length):
        env.update(zip(body.params, [*carried, *(x[i] for x in stacked)], strict=True))
        yield from run_block(body, env, limit)
        carried = [env[v] for v in body.returns[:carries]]
        for out, value in zip(outs, body.returns[carries:], strict=True):
            out[i] = env[value]
    return _unwrap_single([*carried, *outs])


def _run_expansion(block: Block, operands: Sequence[Array], limit: TimeLimit | None) -> OpSteps:
    env: Environment = dict(zip(block.params, operands, strict=True))
    yield from run_block(block, env, limit)
    return _unwrap_single([env[v] for v in block.returns])


def _run_case(op: Op, env: Environment, limit: TimeLimit | None) -> OpSteps:
    index = int(env[op.operands[0]])
    branch = op.blocks[index if 0 <= index < len(op.blocks) else -1]
    yield from run_block(branch, env, limit)
    return _unwrap_single([env[v] for v in branch.returns])


def _run_first_block(op: Op, env: Environment, limit: TimeLimit | None) -> OpSteps:
    """Run the first block; the other blocks define derivatives."""
    body = op.blocks[0]
    env.update(zip(body.params, (env[v] for v in op.operands), strict=True))
    yield from run_block(body, env, limit)
    return _unwrap_single([env[v] for v in body.returns])


def _run_custom_partitioning(op: Op, env: Environment, limit: TimeLimit | None) -> OpSteps:
    """Run the function itself."""
    body = body_of(op)
    env.update(zip(body.params, (env[v] for v in op.operands), strict=True))
    yield from run_block(body, env, limit)
    return _unwrap_single([env[v] for v in body.returns])


def _run_manual(op: Op, env: Environment, limit: TimeLimit | None) -> OpSteps:
    """Run the body at every position along the manual axes.

    A collective along these axes alone executes here, for the groups whose positions have all
    reached it; a collective that also uses axes of enclosing manual computations is yielded to them
    with the operands of all positions.
    """
    (body,) = op.blocks
    axes: Axes = op.attrs["axes"]
    mesh = _virtual_mesh(axes)
    ins = [_sharding_over_virtual(dim_axes, axes) for dim_axes in op.attrs["in_axes"]]
    # A caller may pass a subclass of `dict` that records the values.
    envs: list[Environment] = [
        type(env)(
            (p, slice_shard(env[v], sharding, mesh, device))
            for p, v, sharding in zip(body.params, op.operands, ins, strict=True)
        )
        for device in range(mesh.size)
    ]
    places = [run_block(body, env, limit) for env in envs]
    meetings = [resume(place, None) for place in places]
    while any(meetings):
        ready = _ready_positions(meetings, axes)
        first = meetings[ready[0]]
        assert first is not None
        # The operands of the other positions have no influence on the groups that are ready.
        unused = tuple(np.zeros(v.type.shape, v.type.numpy) for v in first.op.operands)
        parts = [unused] * (mesh.size * len(first.parts))
        count = len(first.parts)
        for i in ready:
            meeting = meetings[i]
            assert meeting is not None
            parts[i * count : (i + 1) * count] = meeting.parts
        all_axes = (*axes, *first.axes)
        attrs = _map_attrs_to_virtual(first.op, all_axes)
        if attrs is None:
            every = yield Rendezvous(first.op, parts, all_axes)
        else:
            every = execute_collective(first.op, parts, _virtual_mesh(all_axes), **attrs)
        for i in ready:
            meetings[i] = resume(places[i], every[i * count : (i + 1) * count])
    results = []
    for i, (value, dim_axes) in enumerate(zip(op.results, op.attrs["out_axes"], strict=True)):
        pieces = [env[body.returns[i]] for env in envs]
        results.append(
            assemble_shards(pieces, value.type, _sharding_over_virtual(dim_axes, axes), mesh)
        )
    return _unwrap_single(results)


def _ready_positions(meetings: Sequence[Rendezvous | None], axes: Axes) -> Sequence[int]:
    """Return the positions that execute a collective next: all positions if they are at the same
    one, and otherwise those of the groups that are complete at one of the collectives.

    Raises `InterpretError` if no group is complete.
    """
    mesh = _virtual_mesh(axes)
    ops = {id(meeting.op): meeting for meeting in meetings if meeting}
    for op, _, inner_axes in ops.values():
        here = np.array([meeting is not None and meeting.op is op for meeting in meetings])
        if here.all():
            return range(mesh.size)
        attrs = _map_attrs_to_virtual(op, axes)
        if attrs is None or "axes" not in attrs or inner_axes:
            continue  # Positions outside of this computation belong to the groups too.
        groups = group_array(mesh, attrs["axes"])
        ready = groups[here[groups].all(axis=1)]
        if ready.size:
            return [int(i) for i in np.sort(ready, axis=None)]
    _common_rendezvous(meetings)
    raise AssertionError("the devices are at the same operation")


def _virtual_mesh(axes: Axes) -> Mesh:
    """Return a mesh of all positions along manual axes, which may be sub-axes of a mesh."""
    return Mesh("manual", tuple((str(axis), axis.size) for axis in axes))


def _map_to_virtual(axis: Axis, axes: Axes) -> Axis | None:
    """Return an axis as an axis of the virtual mesh of `axes`; `None` if it is not part of them."""
    for manual in axes:
        if manual.contains(axis):
            return Axis(str(manual), axis.pre // manual.pre, axis.size)
    return None


def _sharding_over_virtual(dim_axes: tuple[Axes, ...], axes: Axes) -> Sharding:
    """Return dimension axes along manual axes as a sharding over their virtual mesh."""
    return Sharding.of(
        "manual", (tuple(s for a in dim if (s := _map_to_virtual(a, axes))) for dim in dim_axes)
    )


def _map_attrs_to_virtual(op: Op, axes: Axes) -> dict[str, Any] | None:
    """Return the mesh axes in a collective's attributes as axes of the virtual mesh.

    Returns `None` if the collective also uses other axes.
    """
    axes_of_attr = {key: _axes_of(op.attrs.get(key, ())) for key in AXIS_ATTRIBUTES}
    if any(
        _map_to_virtual(axis, axes) is None for named in axes_of_attr.values() for axis in named
    ):
        return None
    return {
        key: tuple(_map_to_virtual(axis, axes) for axis in named)
        for key, named in axes_of_attr.items()
        if named
    }


def _axes_of(attr: Attr) -> Axes:
    return tuple(axis for axis in attr if isinstance(axis, Axis))


def _unwrap_single(arrays: Sequence[Array]) -> tuple[Array, ...] | Array:
    return arrays[0] if len(arrays) == 1 else tuple(arrays)


CONTROL_FLOW: dict[str, Callable[..., Any]] = {
    "while": _run_while,
    "scan": _run_scan,
    "case": _run_case,
    "call": _run_first_block,
    "fused": _run_first_block,
    "fused_products": _run_first_block,
    "checkpoint": _run_first_block,
    "custom-jvp": _run_first_block,
    "custom-vjp": _run_first_block,
    "custom-partitioning": _run_custom_partitioning,
    "manual_computation": _run_manual,
}


def _check_arguments(
    function: Function, types: Sequence[TensorType], args: Sequence[npt.ArrayLike]
) -> list[Array]:
    arrays = [np.asarray(arg) for arg in args]
    if len(arrays) != len(types):
        raise InterpretError(
            f"@{function.name} takes {count_noun(len(types), 'argument')}, got {len(arrays)}"
        )
    for param, type, array in zip(function.body.params, types, arrays, strict=True):
        if array.shape != type.shape or array.dtype != type.numpy:
            raise InterpretError(
                f"%{param.name} of @{function.name} is {type}, got {array.dtype}{list(array.shape)}"
            )
    return arrays
