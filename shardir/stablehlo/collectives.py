"""Writing of collectives, with replica groups instead of mesh axes.

In a per-device program they connect replicas: replica i is the device at position i of the mesh.
Inside a manual computation, whose devices are partitions of one program, they connect partitions,
and each has its own channel.
"""

from collections.abc import Iterable

import numpy as np

from shardir import ops as ops  # declares the operations
from shardir.groups import groups, positions, senders
from shardir.ir import Op
from shardir.mesh import Mesh
from shardir.ops.overlap import STARTED
from shardir.opset import OPS, Dense
from shardir.placement import Axes, size_of
from shardir.stablehlo.attributes import array, integer, literal, table
from shardir.stablehlo.regions import combiner
from shardir.stablehlo.writer import RULES, Attrs, ExportError, Rule, Typed, Writer
from shardir.types import TensorType

NUMBER = TensorType((), "i32")
EMPTY = Dense(np.zeros(0))
MOST_DEVICES = 65_536
"""The maximum number of mesh devices in a written program; collectives list all devices."""


def _mesh(w: Writer) -> Mesh:
    if w.mesh is None:
        raise ExportError("a collective outside of programs of each device has no devices")
    if w.mesh.size > MOST_DEVICES:
        raise ExportError(
            f"StableHLO lists the devices of every collective, and mesh @{w.mesh.name} has "
            f"{w.mesh.size}; export programs for at most {MOST_DEVICES}"
        )
    return w.mesh


def _ids(w: Writer) -> list[int]:
    """Return the ids of the devices in replica groups, by position in the mesh."""
    mesh = _mesh(w)
    return list(range(mesh.size) if w.replicas else mesh.device_ids or range(mesh.size))


def _groups(w: Writer, axes: Axes) -> str:
    ids = _ids(w)
    return table([[ids[place] for place in group] for group in groups(_mesh(w), axes)])


def _channel(w: Writer, *, numbered: bool = True) -> Attrs:
    """Return the channel attributes of a collective between partitions; replicas need none."""
    if w.replicas:
        return {}
    handle = f"#stablehlo.channel_handle<handle = {w.next_channel()}, type = 1>"
    return {"channel_handle": handle, **({"use_global_device_ids": "unit"} if numbered else {})}


def _collective(name: str, rule: Rule) -> None:
    """Register the rule of a collective and of its start operation."""

    def write(w: Writer, op: Op) -> None:
        if op.result.type.size:
            rule(w, op)
        else:  # An empty tensor needs no communication, and StableHLO cannot express it.
            w.op(op, "stablehlo.constant", {"value": literal(EMPTY, op.result.type)}, operands=[])

    RULES.rule(OPS[name], STARTED[OPS[name]])(write)


def _all_reduce(w: Writer, op: Op) -> None:
    attrs = {"replica_groups": _groups(w, op.attrs["axes"]), **_channel(w)}
    region = combiner(w, str(op.attrs["op"]), op.result.type.dtype)
    w.op(op, "stablehlo.all_reduce", attrs, regions=[region])


def _all_gather(w: Writer, op: Op) -> None:
    attrs = {
        "all_gather_dim": integer(op.attrs["dim"]),
        "replica_groups": _groups(w, op.attrs["axes"]),
        **_channel(w),
    }
    w.op(op, "stablehlo.all_gather", attrs)


def _reduce_scatter(w: Writer, op: Op) -> None:
    attrs = {
        "scatter_dimension": integer(op.attrs["dim"]),
        "replica_groups": _groups(w, op.attrs["axes"]),
        **_channel(w),
    }
    region = combiner(w, str(op.attrs["op"]), op.result.type.dtype)
    w.op(op, "stablehlo.reduce_scatter", attrs, regions=[region])


def _all_to_all(w: Writer, op: Op) -> None:
    axes = op.attrs["axes"]
    attrs = {
        "split_dimension": integer(op.attrs["split"]),
        "concat_dimension": integer(op.attrs["concat"]),
        "split_count": integer(size_of(axes)),
        "replica_groups": _groups(w, axes),
        **_channel(w, numbered=False),
    }
    w.op(op, "stablehlo.all_to_all", attrs)


def _collective_permute(w: Writer, op: Op) -> None:
    mesh, ids = _mesh(w), _ids(w)
    pairs: Iterable[tuple[int, int]]
    if axes := op.attrs.get("axes", ()):
        pairs = [
            (group[source], group[target])
            for group in groups(mesh, axes)
            for source, target in op.attrs["pairs"]
        ]
    else:
        found = senders(mesh, op.attrs["source"], op.attrs["target"]).tolist()
        pairs = [(sender, receiver) for receiver, sender in enumerate(found)]
    attrs = {
        "source_target_pairs": table((ids[source], ids[target]) for source, target in pairs),
        **_channel(w, numbered=False),
    }
    w.op(op, "stablehlo.collective_permute", attrs)


_collective("all-reduce", _all_reduce)
_collective("all-gather", _all_gather)
_collective("reduce-scatter", _reduce_scatter)
_collective("all-to-all", _all_to_all)
_collective("collective-permute", _collective_permute)


def _position(w: Writer, axes: Axes, by: int = 1) -> Typed:
    """Return the device's position along `axes` times a factor, from a table: i32[1]."""
    mesh = _mesh(w)
    numbers = np.zeros(mesh.size, np.int32)
    numbers[_ids(w)] = positions(mesh, axes) * by
    kind = TensorType((mesh.size,), "i32")
    known = w.step("stablehlo.constant", [], kind, {"value": literal(Dense(numbers), kind)})
    name = "replica_id" if w.replicas else "partition_id"
    number = w.step(f"stablehlo.{name}", [], TensorType((), "u32"))
    whole = w.step("stablehlo.convert", [number], NUMBER)
    one = {"slice_sizes": array([1])}
    return w.step("stablehlo.dynamic_slice", [known, whole], TensorType((1,), "i32"), one)


@RULES.rule(OPS["axis-index"])
def _axis_index(w: Writer, op: Op) -> None:
    found = _position(w, op.attrs["axes"])
    w.op(op, "stablehlo.reshape", operands=[found])


@RULES.rule(OPS["all-slice"])
def _all_slice(w: Writer, op: Op) -> None:
    """Write a dynamic slice from the start of the device's shard."""
    (x,), dim = op.operands, op.attrs["dim"]
    found = _position(w, op.attrs["axes"], op.result.type.shape[dim])
    start = w.step("stablehlo.reshape", [found], NUMBER)
    zero = w.constant(0, NUMBER)
    starts = [start if d == dim else zero for d in range(x.type.rank)]
    w.op(
        op,
        "stablehlo.dynamic_slice",
        {"slice_sizes": array(op.result.type.shape)},
        operands=[w.typed(x), *starts],
    )
