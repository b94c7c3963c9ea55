"""Writing of collectives, with replica groups instead of mesh axes.

In a per-device program they connect replicas: replica i is the device at position i of the mesh.
Inside a manual computation, whose devices are partitions of one program, they connect partitions,
and each has its own channel.
"""

from collections.abc import Iterable

import numpy as np

from shardir import ops as ops  # declares the operations
from shardir.ir.device_groups import device_groups, device_positions, permute_senders
from shardir.ir.mesh import Mesh
from shardir.ir.module import Op
from shardir.ir.operation import OPS, Dense
from shardir.ir.sharding import Axes, count_positions
from shardir.ir.types import COMPLEX, FLOATS, REAL_OF, TensorType
from shardir.ops.communication.async_collectives import START_OPS
from shardir.stablehlo.writing.attributes import (
    format_array,
    format_integer,
    format_literal,
    format_matrix,
)
from shardir.stablehlo.writing.ordered_integers import integer_type, to_bits, to_integers
from shardir.stablehlo.writing.regions import combination_region
from shardir.stablehlo.writing.writer import (
    WRITERS,
    Attrs,
    ExportError,
    MlirWriter,
    TypedName,
    WritingRule,
)

SCALAR_I32 = TensorType((), "i32")
EMPTY_ARRAY = Dense(np.zeros(0))
MAX_LISTED_DEVICES = 65_536
"""The maximum number of mesh devices in a written program; collectives list all devices."""


def _mesh(w: MlirWriter) -> Mesh:
    if w.mesh is None:
        raise ExportError(
            "a collective is valid only in a per-device program; partition the program first"
        )
    if w.mesh.size > MAX_LISTED_DEVICES:
        raise ExportError(
            f"StableHLO lists the devices of every collective, and mesh @{w.mesh.name} has "
            f"{w.mesh.size}; export programs for at most {MAX_LISTED_DEVICES}"
        )
    return w.mesh


def _ids(w: MlirWriter) -> list[int]:
    """Return the ids of the devices in replica groups, by position in the mesh."""
    mesh = _mesh(w)
    return list(range(mesh.size) if w.replicas else mesh.device_ids or range(mesh.size))


def _groups(w: MlirWriter, axes: Axes) -> str:
    ids = _ids(w)
    return format_matrix(
        [[ids[position] for position in group] for group in device_groups(_mesh(w), axes)]
    )


def _channel(w: MlirWriter, *, numbered: bool = True) -> Attrs:
    """Return the channel attributes of a collective between partitions; replicas need none."""
    if w.replicas:
        return {}
    handle = f"#stablehlo.channel_handle<handle = {w.next_channel()}, type = 1>"
    return {"channel_handle": handle, **({"use_global_device_ids": "unit"} if numbered else {})}


def _register_collective(name: str, rule: WritingRule) -> None:
    """Register the rule of a collective and of its start operation."""

    def write(w: MlirWriter, op: Op) -> None:
        if op.result.type.size:
            rule(w, op)
        else:  # An empty tensor needs no communication, and StableHLO cannot express it.
            w.write_op(
                op,
                "stablehlo.constant",
                {"value": format_literal(EMPTY_ARRAY, op.result.type)},
                operands=[],
            )

    WRITERS.rule(OPS[name], START_OPS[OPS[name]])(write)


def _all_reduce(w: MlirWriter, op: Op) -> None:
    attrs = {"replica_groups": _groups(w, op.attrs["axes"]), **_channel(w)}
    combine, type = str(op.attrs["op"]), op.result.type
    if w.for_xla and combine == "add" and type.dtype in COMPLEX:
        _add_parts(w, op, attrs)
    else:
        _reduce(w, op, "stablehlo.all_reduce", attrs)


def _reduce(w: MlirWriter, op: Op, name: str, attrs: Attrs) -> None:
    """Write a collective that combines elements; for XLA, NaN is their maximum or minimum."""
    combine, type = str(op.attrs["op"]), op.result.type
    if not (w.for_xla and combine in ("max", "min") and type.dtype in FLOATS):
        w.write_op(op, name, attrs, regions=[combination_region(w, combine, type.dtype)])
        return
    key = to_integers(w, w.typed_name(op.operands[0]), combine)
    kind = integer_type(type)
    region = combination_region(w, combine, kind.dtype)
    result = w.write_step(name, [key], kind, attrs, [region])
    w.write_op(op, "stablehlo.bitcast_convert", operands=[to_bits(w, result)])


def _add_parts(w: MlirWriter, op: Op, attrs: Attrs) -> None:
    """Write a sum of complex numbers as one sum of their parts.

    XLA multiplies a value that is equal on all devices by their number instead, and ends the
    process if the value is complex.
    """
    (x,), part = op.operands, op.result.type.with_dtype(REAL_OF[op.result.type.dtype])
    row, rows = part.with_shape((1, *part.shape)), part.with_shape((2, *part.shape))
    parts = []
    for name in ("real", "imag"):
        value = w.write_step(f"stablehlo.{name}", [w.typed_name(x)], part)
        parts.append(w.write_step("stablehlo.reshape", [value], row))
    first = {"dimension": format_integer(0)}
    joined = w.write_step("stablehlo.concatenate", parts, rows, first)
    region = combination_region(w, "add", part.dtype)
    total = w.write_step("stablehlo.all_reduce", [joined], rows, attrs, [region])
    parts = []
    for number in range(2):
        window = {
            "start_indices": format_array([number, *[0] * part.rank]),
            "limit_indices": format_array([number + 1, *part.shape]),
            "strides": format_array([1] * rows.rank),
        }
        value = w.write_step("stablehlo.slice", [total], row, window)
        parts.append(w.write_step("stablehlo.reshape", [value], part))
    w.write_op(op, "stablehlo.complex", operands=parts)


def _all_gather(w: MlirWriter, op: Op) -> None:
    attrs = {
        "all_gather_dim": format_integer(op.attrs["dim"]),
        "replica_groups": _groups(w, op.attrs["axes"]),
        **_channel(w),
    }
    w.write_op(op, "stablehlo.all_gather", attrs)


def _reduce_scatter(w: MlirWriter, op: Op) -> None:
    attrs = {
        "scatter_dimension": format_integer(op.attrs["dim"]),
        "replica_groups": _groups(w, op.attrs["axes"]),
        **_channel(w),
    }
    _reduce(w, op, "stablehlo.reduce_scatter", attrs)


def _all_to_all(w: MlirWriter, op: Op) -> None:
    axes = op.attrs["axes"]
    attrs = {
        "split_dimension": format_integer(op.attrs["split"]),
        "concat_dimension": format_integer(op.attrs["concat"]),
        "split_count": format_integer(count_positions(axes)),
        "replica_groups": _groups(w, axes),
        **_channel(w, numbered=False),
    }
    w.write_op(op, "stablehlo.all_to_all", attrs)


def _collective_permute(w: MlirWriter, op: Op) -> None:
    mesh, ids = _mesh(w), _ids(w)
    pairs: Iterable[tuple[int, int]]
    if axes := op.attrs.get("axes", ()):
        pairs = [
            (group[source], group[target])
            for group in device_groups(mesh, axes)
            for source, target in op.attrs["pairs"]
        ]
    else:
        senders = permute_senders(mesh, op.attrs["source"], op.attrs["target"]).tolist()
        pairs = [(sender, receiver) for receiver, sender in enumerate(senders)]
    attrs = {
        "source_target_pairs": format_matrix(
            (ids[source], ids[target]) for source, target in pairs
        ),
        **_channel(w, numbered=False),
    }
    w.write_op(op, "stablehlo.collective_permute", attrs)


_register_collective("all-reduce", _all_reduce)
_register_collective("all-gather", _all_gather)
_register_collective("reduce-scatter", _reduce_scatter)
_register_collective("all-to-all", _all_to_all)
_register_collective("collective-permute", _collective_permute)


def _position(w: MlirWriter, axes: Axes, by: int = 1) -> TypedName:
    """Return the device's position along `axes` times a factor, from a table: i32[1]."""
    mesh = _mesh(w)
    numbers = np.zeros(mesh.size, np.int32)
    numbers[_ids(w)] = device_positions(mesh, axes) * by
    kind = TensorType((mesh.size,), "i32")
    positions = w.write_step(
        "stablehlo.constant", [], kind, {"value": format_literal(Dense(numbers), kind)}
    )
    name = "replica_id" if w.replicas else "partition_id"
    number = w.write_step(f"stablehlo.{name}", [], TensorType((), "u32"))
    index = w.write_step("stablehlo.convert", [number], SCALAR_I32)
    one = {"slice_sizes": format_array([1])}
    return w.write_step("stablehlo.dynamic_slice", [positions, index], TensorType((1,), "i32"), one)


@WRITERS.rule(OPS["axis-index"])
def _axis_index(w: MlirWriter, op: Op) -> None:
    position = _position(w, op.attrs["axes"])
    w.write_op(op, "stablehlo.reshape", operands=[position])


@WRITERS.rule(OPS["all-slice"])
def _all_slice(w: MlirWriter, op: Op) -> None:
    """Write a dynamic slice from the start of the device's shard."""
    (x,), dim = op.operands, op.attrs["dim"]
    position = _position(w, op.attrs["axes"], op.result.type.shape[dim])
    start = w.write_step("stablehlo.reshape", [position], SCALAR_I32)
    zero = w.constant(0, SCALAR_I32)
    starts = [start if d == dim else zero for d in range(x.type.rank)]
    w.write_op(
        op,
        "stablehlo.dynamic_slice",
        {"slice_sizes": format_array(op.result.type.shape)},
        operands=[w.typed_name(x), *starts],
    )
