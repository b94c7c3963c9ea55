"""Reading of operations of Shardy's dialect."""

import re
from dataclasses import replace
from typing import Any

from lark import Token

from shardir import (
    ops as ops,  # declares the operations
    ops as specs,
)
from shardir.errors import count_noun
from shardir.ir.mesh import Mesh
from shardir.ir.module import Value
from shardir.ir.operation import Symbol
from shardir.ir.sharding import Axes, Axis, Sharding
from shardir.ir.types import TensorType
from shardir.stablehlo.reading import records
from shardir.stablehlo.reading.call import OperationReader, UnsupportedOperation, register_reader
from shardir.stablehlo.reading.collective_axes import (
    check_collective,
    merge_sorted,
    read_axis_lists,
    read_reduction,
)

Values = tuple[Value, ...]


@register_reader("sdy.sharding_constraint", "sdy.reshard")
def _read_reshard(call: OperationReader) -> Values:
    return call.emit(call.name.removeprefix("sdy."), *call.take_operands(1))


@register_reader(
    "sdy.all_gather", "sdy.all_slice", "sdy.all_to_all", "sdy.collective_permute",
    "sdy.replicated_to_unreduced", "sdy.sharded_to_unreduced",
)  # fmt: skip
def _collective(call: OperationReader) -> Values:
    """Read a Shardy collective as a reshard."""
    (value,) = call.take_operands(1)
    check_collective(call, value, _target(call, value))
    return _emit_reshard(call, value)


@register_reader("sdy.all_reduce", "sdy.reduce_scatter")
def _read_reduction(call: OperationReader) -> Values:
    """Read a Shardy reduction as a reshard of an unreduced operand."""
    (value,) = call.take_operands(1)
    target = _target(call, value)
    lists = read_axis_lists(call, call.reader.shardings.meshes[target.mesh])
    axes = [axis for each in lists for axis in each.axes]
    reduction = read_reduction(call)
    reader = call.reader
    check_collective(call, value, target)
    pending: Value | None = value
    while pending is not None:
        before = reader.restated_params.get(pending, pending).sharding
        sharding = before or Sharding.fully_replicated(target.mesh, value.type.rank)
        unstated = [axis for axis in axes if axis not in sharding.unreduced]
        used = tuple(sharding.used_axes())
        # A reshard from a sharded value makes the partial values.
        if not unstated or any(axis.overlaps(other) for axis in unstated for other in used):
            break
        unreduced = merge_sorted(
            (*sharding.unreduced, *unstated), reader.shardings.meshes[sharding.mesh]
        )
        sharding = replace(sharding, unreduced=unreduced, reduction=reduction)
        reader.restated_params[pending] = replace(pending, sharding=sharding)
        # An unreduced result of a reshard was unreduced before it.
        maker = reader.makers.get(pending)
        pending = maker.operands[0] if maker is not None and maker.spec is specs.reshard else None
    return _emit_reshard(call, value)


def _emit_reshard(call: OperationReader, value: Value) -> Values:
    call.stated_shardings = [_target(call, value)]
    return call.emit("reshard", value)


def _target(call: OperationReader, value: Value) -> Sharding:
    stated = call.attrs.get("out_sharding")
    if not isinstance(stated, Token):
        raise call.fail(f"{call.name} lacks its attribute 'out_sharding'")
    return call.reader.shardings.sharding(stated, value.type)


@register_reader("sdy.sharding_group")
def _group(call: OperationReader) -> Values:
    return call.emit("sharding_group", *call.take_operands(1), group=call.integer("group_id"))


@register_reader("sdy.propagation_barrier")
def _barrier(call: OperationReader) -> Values:
    direction = call.attr("allowed_direction")
    number = direction.value if isinstance(direction, records.TypedRecord) else direction
    word = {"0": "NONE", "1": "FORWARD", "2": "BACKWARD"}.get(str(number), str(number))
    if word not in ("NONE", "FORWARD", "BACKWARD"):
        raise call.fail(f"a barrier allows NONE, FORWARD or BACKWARD, not {word!r}")
    return call.emit("propagation_barrier", *call.take_operands(1), direction=Symbol(word.lower()))


@register_reader("sdy.data_flow_edge", "sdy.func_data_flow_edge")
def _edge(call: OperationReader) -> Values:
    """Read a data flow edge as the sharding of its operand, whose operation has the edge.

    If the operand is the target of no edge, the edge is one of its own: a barrier, which propagates
    in the same way.
    """
    (value,) = call.take_operands(1)
    stated = call.attrs.get("sharding")
    sharding = (
        call.reader.shardings.sharding(stated, value.type) if isinstance(stated, Token) else None
    )
    if call.name == "sdy.data_flow_edge" and not _is_edge_target(call, value):
        call.stated_shardings = [sharding]
        return call.emit("optimization_barrier", value)
    if sharding is None:
        return (value,)
    return (call.reader.restate_sharding(value, sharding),)


def _is_edge_target(call: OperationReader, value: Value) -> bool:
    """Return whether a value is a result of an operation with edges, or a block parameter."""
    maker = call.reader.makers.get(value)
    if maker is None:
        return value.name not in call.reader.function_params
    return maker.spec.edges is not None or maker.spec is specs.manual_computation


@register_reader("sdy.named_computation")
def _named_computation(call: OperationReader) -> Values:
    """Read a named computation as a call."""
    if len(call.blocks) != 1:
        raise call.fail("a named computation has one body")
    (block,) = call.blocks
    written = [*block.params, *(param for group in call.params for param in group)]
    if len(written) != len(call.operands):
        raise call.fail("a named computation takes as many parameters as operands")
    reader = call.reader
    ins = read_shardings(call, "in_shardings", [value.type for value in call.operands])
    params = []
    for param, value, sharding in zip(written, call.operands, ins, strict=True):
        type = reader.types.type(param.type)
        if type != value.type:
            raise call.fail(f"this parameter is given {value.type}", param.type)
        params.append((param.name, type, sharding))
    results = call.define(call.results, read_shardings(call, "out_shardings", call.results))
    body = reader.read_isolated_block(block, params, call.operands)
    if [value.type for value in body.returns] != call.results:
        raise call.fail("a named computation does not return what it states")
    return reader.append_call(
        _computation_name(call), call.operands, body, results, call.written.loc
    )


def _computation_name(call: OperationReader) -> str:
    """Return the name of a named computation, `<"name">` or its attribute."""
    angle = next((str(part) for part in call.literals if getattr(part, "type", "") == "ANGLE"), "")
    if "name" in call.attrs:
        return call.types.string(call.attrs["name"])
    match = re.search(r'"(?:[^"\\]|\\.)*"', angle)
    if match is None:
        raise call.fail(f"{call.name} lacks its name")
    return call.types.string(Token("STRING", match[0]))


@register_reader("sdy.manual_computation")
def _manual_computation(call: OperationReader) -> Values:
    """Read a manual computation, whose manual axes become attributes instead of shardings."""
    if len(call.blocks) != 1:
        raise call.fail("a manual computation has one body")
    (block,) = call.blocks
    reader = call.reader
    params = [*block.params, *(param for group in call.params for param in group)]
    ins = _required_shardings(call, "in_shardings", [value.type for value in call.operands])
    outs = _required_shardings(call, "out_shardings", call.results)
    if len(params) != len(ins):
        raise call.fail("a manual computation takes as many parameters as operands")
    axes = _manual_axes(call, [*ins, *outs])
    ins, outs = (_on_common_mesh(call, each, [*ins, *outs]) for each in (ins, outs))
    inside = [
        (param.name, reader.types.type(param.type), _none_if_open(_free_sharding(sharding, axes)))
        for param, sharding in zip(params, ins, strict=True)
    ]
    call.stated_shardings = [
        _without_manual_replicated(sharding, axes)
        if _none_if_open(_free_sharding(sharding, axes))
        else None
        for sharding in outs
    ]
    outer = reader.manual
    around = outer[1] if outer is not None else ()
    reader.manual = _manual_context(call, [*ins, *outs], (*around, *axes))
    body = reader.read_block(block, inside)
    reader.manual = outer
    try:
        return call.emit(
            "manual_computation",
            *call.operands,
            blocks=(body,),
            axes=axes,
            in_axes=tuple(_manual_dim_axes(call, sharding, axes) for sharding in ins),
            out_axes=tuple(_manual_dim_axes(call, sharding, axes) for sharding in outs),
        )
    except UnsupportedOperation as error:  # As an opaque operation, its body would be lost.
        raise call.fail(str(error)) from None


def _on_common_mesh(
    call: OperationReader, shardings: list[Sharding], stated: list[Sharding]
) -> list[Sharding]:
    """Return the shardings with the mesh of the others in place of a mesh without axes."""
    meshes = call.reader.shardings.meshes
    common = next((each.mesh for each in stated if meshes[each.mesh].axes), None)
    return [
        each
        if common is None or meshes[each.mesh].axes or meshes[each.mesh].is_maximal
        else replace(each, mesh=common)
        for each in shardings
    ]


def _manual_context(
    call: OperationReader, stated: list[Sharding], axes: Axes
) -> tuple[Mesh, Axes] | None:
    meshes = (call.reader.shardings.meshes[sharding.mesh] for sharding in stated)
    return next(((mesh, axes) for mesh in meshes if mesh.axes), None)


def _required_shardings(call: OperationReader, key: str, types: list[TensorType]) -> list[Sharding]:
    stated = read_shardings(call, key, types) if types else []
    if None in stated:
        raise call.fail(f"{call.name} lacks its attribute {key!r}")
    return [sharding for sharding in stated if sharding is not None]


def _manual_axes(call: OperationReader, stated: list[Sharding]) -> Axes:
    """Return the axes of `manual_axes={"a"}`, in the mesh of the shardings."""
    node = call.attr("manual_axes")
    entries = node.entries if isinstance(node, records.DictRecord) else []
    text = " ".join(str(entry.key) for entry in entries) if entries else str(node)
    names = [call.types.string(Token("STRING", name)) for name in re.findall(r'"[^"]*"', text)]
    meshes = [call.reader.shardings.meshes[name] for name in {s.mesh: None for s in stated}]
    used = [mesh for mesh in meshes if mesh.axes]
    if len(used) > 1:
        raise call.fail(
            f"the shardings of a manual computation are on the meshes @{used[0].name} and "
            f"@{used[1].name}; they must be on one"
        )
    for mesh in meshes or call.reader.shardings.meshes.values():
        if all(name in mesh.sizes for name in names):
            return tuple(Axis.full(name, mesh) for name in names)
    raise call.fail(f"none of its meshes has the axes {', '.join(names)}")


def _is_manual(axis: Axis, axes: Axes) -> bool:
    """Return whether an axis is a manual axis or a part of one; an axis of size 1 may be one."""
    return any(manual.name == axis.name for manual in axes)


def _manual_dim_axes(call: OperationReader, sharding: Sharding, axes: Axes) -> tuple[Axes, ...]:
    """Return the manual axes of each dimension, which precede its free axes."""
    manual = tuple(
        tuple(axis for axis in dim.axes if _is_manual(axis, axes)) for dim in sharding.dims
    )
    for number, (dim, its_manual) in enumerate(zip(sharding.dims, manual, strict=True)):
        sharding_axes = tuple(axis for axis in dim.axes if axis.size > 1)
        first = tuple(axis for axis in its_manual if axis.size > 1)
        if sharding_axes[: len(first)] != first:
            free = next(axis for axis in sharding_axes if axis not in first)
            raise call.fail(
                f"the free axis {free.name} of dimension {number} is before a manual axis; "
                "manual axes are the first axes of a dimension"
            )
    return manual


def _without_manual_replicated(sharding: Sharding, axes: Axes) -> Sharding:
    """Return the sharding without manual axes in `replicated`."""
    replicated = tuple(axis for axis in sharding.replicated if not _is_manual(axis, axes))
    return replace(sharding, replicated=replicated)


def _none_if_open(sharding: Sharding) -> Sharding | None:
    """Return the sharding, or `None` if it is open without axes."""
    return None if sharding == Sharding.open(sharding.mesh, len(sharding.dims)) else sharding


def _free_sharding(sharding: Sharding, axes: Axes) -> Sharding:
    """Return the sharding inside the computation, without manual axes."""
    dims = tuple(
        replace(dim, axes=tuple(axis for axis in dim.axes if not _is_manual(axis, axes)))
        for dim in sharding.dims
    )
    return _without_manual_replicated(replace(sharding, dims=dims), axes)


def read_shardings(call: OperationReader, key: str, types: list[Any]) -> list[Sharding | None]:
    """Return the shardings of `in_shardings=[<...>, <...>]`, also in generic form."""
    if key not in call.attrs:
        return [None] * len(types)
    node = call.attr(key)
    if isinstance(node, Token):
        return list(call.reader.shardings.per_value(node, types))
    items = call.types.items(node)
    if len(items) != len(types):
        raise call.fail(
            f"{key} has {count_noun(len(items), 'sharding')} for {count_noun(len(types), 'value')}"
        )
    for item in items:
        if not isinstance(item, Token):
            raise UnsupportedOperation("its shardings are not written as shardings")
    read = call.reader.shardings.sharding
    return [read(item, type) for item, type in zip(items, types, strict=True)]
