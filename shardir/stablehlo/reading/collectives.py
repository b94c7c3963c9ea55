"""Reading of collectives inside manual computations.

StableHLO names groups of devices, the IR names mesh axes: a collective is read if its groups are
those along some of the manual axes.
"""

import re
from itertools import permutations

import numpy as np

from shardir import ops as ops  # declares the operations
from shardir.ir.device_groups import device_groups
from shardir.ir.mesh import Mesh
from shardir.ir.module import Value
from shardir.ir.operation import Dense, Symbol
from shardir.ir.sharding import Axes, Axis, count_positions
from shardir.ir.types import TensorType
from shardir.stablehlo.reading.call import (
    OperationReader,
    UnsupportedOperation,
    register_reader,
    rename_results,
)
from shardir.stablehlo.reading.formulas import combination_of, region_formulas
from shardir.stablehlo.reading.records import TypedRecord

Values = tuple[Value, ...]


@register_reader("all_reduce")
def _all_reduce(call: OperationReader) -> Values:
    axes, op = _axes(call), _reduction(call)
    return call.emit("all-reduce", *call.take_operands(1), axes=axes, op=op)


@register_reader("all_gather")
def _all_gather(call: OperationReader) -> Values:
    axes, dim = _axes(call), call.integer("all_gather_dim")
    return call.emit("all-gather", *call.take_operands(1), dim=dim, axes=axes)


@register_reader("reduce_scatter")
def _reduce_scatter(call: OperationReader) -> Values:
    axes, op = _axes(call), _reduction(call)
    dim = call.integer("scatter_dimension")
    return call.emit("reduce-scatter", *call.take_operands(1), dim=dim, axes=axes, op=op)


@register_reader("all_to_all")
def _all_to_all(call: OperationReader) -> Values:
    axes = _axes(call)
    split, concat = call.integer("split_dimension"), call.integer("concat_dimension")
    if len(call.operands) == 1 and split != concat:
        x = call.operands[0]
        return call.emit("all-to-all", x, split=split, concat=concat, axes=axes)
    exchanged = [
        _exchange_in_place(call, x, split, axes)
        if split == concat
        else call.emit_step("all-to-all", x, split=split, concat=concat, axes=axes)
        for x in call.operands
    ]
    return rename_results(call, exchanged)


def _exchange_in_place(call: OperationReader, x: Value, dim: int, axes: Axes) -> Value:
    """Read an exchange that splits and concatenates along one dimension.

    Its shards become a separate leading dimension.
    """
    count, shape = count_positions(axes), x.type.shape
    if not 0 <= dim < len(shape) or shape[dim] % count:
        raise call.fail(f"dimension {dim} of {x.type} has no {count} equal pieces")
    divided = x.type.with_shape((*shape[:dim], count, shape[dim] // count, *shape[dim + 1 :]))
    pieces = call.emit_step("reshape", x, result=divided)
    moved = call.emit_step("all-to-all", pieces, split=dim, concat=dim + 1, axes=axes)
    return call.emit_step("reshape", moved, result=x.type)


@register_reader("cross-replica-sum")
def _cross_replica_sum(call: OperationReader) -> Values:
    return call.emit("all-reduce", *call.take_operands(1), axes=_axes(call), op=Symbol("add"))


@register_reader("collective_broadcast")
def _collective_broadcast(call: OperationReader) -> Values:
    """Read a broadcast of the first device's value as the first shard of an all-gather."""
    (x,) = call.take_operands(1)
    axes, shape = _axes(call), x.type.shape
    piece = call.emit_step("reshape", x, result=x.type.with_shape((1, *shape)))
    gathered = call.emit_step("all-gather", piece, dim=0, axes=axes)
    starts, strides = (0,) * (len(shape) + 1), (1,) * (len(shape) + 1)
    first = call.emit_step("slice", gathered, starts=starts, strides=strides, result=piece.type)
    return call.emit("reshape", first)


@register_reader("partition_id")
def _partition_id(call: OperationReader) -> Values:
    """Read the device's position, or its id if the mesh has another device order."""
    mesh, axes = _manual(call)
    if {axis.name for axis in axes} != set(mesh.sizes):
        raise UnsupportedOperation("not all axes of its mesh are manual")
    all_axes = tuple(Axis.full(name, mesh) for name in mesh.sizes)
    position = call.emit_step("axis-index", axes=all_axes)
    if mesh.device_ids is not None:
        kind = TensorType((mesh.size,), "i32")
        ids = Dense(np.array(mesh.device_ids, np.int32))
        table = call.emit_step("constant", value=ids, result=kind)
        element = call.emit_step("dynamic_slice", table, position, result=kind.with_shape((1,)))
        position = call.emit_step("reshape", element, result=position.type)
    return call.emit("convert", position)


@register_reader("collective_permute")
def _collective_permute(call: OperationReader) -> Values:
    """Read the device pairs, which are positions along all axes if all axes are manual."""
    mesh, axes = _manual(call)
    if len(axes) != len(mesh.axes):
        raise UnsupportedOperation("not all axes of its mesh are manual")
    ids = mesh.device_ids or tuple(range(mesh.size))
    position_of = {device: position for position, device in enumerate(device_groups(mesh, axes)[0])}
    pairs = [
        [position_of[ids.index(device)] for device in pair] for pair in _lists(call, "pairs", ids)
    ]
    return call.emit("collective-permute", *call.take_operands(1), axes=axes,
                     pairs=tuple((source, target) for source, target in pairs))  # fmt: skip


def _manual(call: OperationReader) -> tuple[Mesh, Axes]:
    if call.reader.manual is None:
        raise UnsupportedOperation("it is in no manual computation")
    return call.reader.manual


def _lists(call: OperationReader, what: str, ids: tuple[int, ...]) -> list[list[int]]:
    """Return the lists of `dense<[[0, 1], [2, 3]]> : tensor<2x2xi64>`."""
    node = call.attr("replica_groups" if what == "groups" else "source_target_pairs")
    if not isinstance(node, TypedRecord):
        raise UnsupportedOperation(f"its {what} are not written as dense<[[0, 1], [2, 3]]>")
    rows = call.types.array(node)
    if rows.ndim != 2 or (what == "pairs" and rows.size and rows.shape[1] != 2):
        raise call.types.make_expected_error("a list of lists of devices", node)
    result = [list(map(int, row)) for row in rows]
    if any(number not in ids for part in result for number in part):
        raise UnsupportedOperation(f"its {what} name devices that are not of the mesh")
    return result


def _axes(call: OperationReader) -> Axes:
    """Return the manual axes along which the groups of a collective are."""
    mesh, manual = _manual(call)
    text = str(call.attr("replica_groups"))
    if text.startswith("#stablehlo.replica_group_mesh_axes"):
        return _stated_axes(call, text, mesh, manual)
    ids = mesh.device_ids or tuple(range(mesh.size))
    expected = sorted(_lists(call, "groups", ids))
    for count in range(1, len(manual) + 1):
        for axes in permutations(manual, count):
            if (
                sorted([ids[position] for position in group] for group in device_groups(mesh, axes))
                == expected
            ):
                return axes
    raise UnsupportedOperation("its groups are not those along manual axes")


_AXIS_REFERENCE = re.compile(
    r'#stablehlo\.axis_ref<name="([^"]+)"'
    r"(?:,sub_axis_info=(?:#stablehlo\.sub_axis_info<)?\(([0-9]{1,9})\)([0-9]{1,9}))?"
)


def _stated_axes(call: OperationReader, text: str, mesh: Mesh, manual: Axes) -> Axes:
    """Return the axes of `#stablehlo.replica_group_mesh_axes<mesh = ..., axes = [...]>`."""
    listed = "".join(text.split()).rpartition("axes=[")[2]
    axes = []
    for name, pre, size in _AXIS_REFERENCE.findall(listed):
        if name not in {axis.name for axis in manual}:
            raise UnsupportedOperation(f"its groups are along {name!r}, which is not a manual axis")
        axes.append(Axis(name, int(pre), int(size)) if pre else Axis.full(name, mesh))
    if not axes:
        raise UnsupportedOperation("its groups are not those along manual axes")
    return tuple(axes)


def _reduction(call: OperationReader) -> Symbol:
    (block,) = call.blocks
    (formula,) = region_formulas(call, block, [param.name for param in block.params])
    op = combination_of(formula, 0)
    if op not in ("add", "mul", "min", "max", "and", "or"):
        raise UnsupportedOperation("its combination has no counterpart")
    return Symbol(op)
