"""Lowering rules of collectives: GCL, or rings of `CrossReplicaCopy`.

Gathered, scattered and exchanged tensors have one row per group member as first dimension; moving a
dimension to the front and back is a view.
"""

from collections.abc import Sequence

from shardir.backends.ipu.codegen.device_types import (
    NARROW_INTEGERS,
    UNSLICEABLE_TYPES,
    element_of,
    initializer_text,
    physical_type,
)
from shardir.backends.ipu.codegen.emitter import (
    ProgramEmitter,
    broadcast_view,
    reshape_view,
    shuffle_view,
)
from shardir.backends.ipu.codegen.expressions import (
    ApplyNode,
    Node,
    TensorNode,
    expression_text,
    number,
)
from shardir.backends.ipu.lowering.indexing import dynamic_slice_text
from shardir.backends.ipu.lowering.lowering_table import lowers
from shardir.backends.ipu.lowering.reductions import SIGN_BIT_CONSTANT, from_single, to_single
from shardir.backends.ipu.lowering.replica_groups import (
    comm_group,
    is_supported_by_gcl,
    plan_copies,
    position_name,
    replica_index_name,
    ring_groups,
    split_into_collectives,
)
from shardir.ir.device_groups import permute_senders
from shardir.ir.module import Op, Value
from shardir.ir.sharding import Axes
from shardir.ir.types import FLOATS, TensorType

GCL_OPERATORS = {"add": "ADD", "mul": "MUL", "max": "MAX", "min": "MIN"}
LOGICAL_OPERATORS = {"add": "OR", "max": "OR", "or": "OR", "mul": "AND", "min": "AND", "and": "AND"}
COMBINE_EXPRESSIONS = {
    "add": "pe::_1 + pe::_2",
    "mul": "pe::_1 * pe::_2",
    "max": "pe::Max(pe::_1, pe::_2)",
    "min": "pe::Min(pe::_1, pe::_2)",
    "and": "pe::_1 & pe::_2",
    "or": "pe::_1 | pe::_2",
}


def _gcl_operator(dtype: str, op: str) -> str:
    """Return GCL's reduction operator, or "" if it has none."""
    if dtype == "bool":
        return f"LOGICAL_{LOGICAL_OPERATORS[op]}"
    return GCL_OPERATORS.get(op, "")


def _combine_text(dtype: str, op: str) -> str:
    if dtype == "bool":
        return "pe::_1 || pe::_2" if LOGICAL_OPERATORS[op] == "OR" else "pe::_1 && pe::_2"
    return COMBINE_EXPRESSIONS[op]


def _to_reducible(
    e: ProgramEmitter, text: str, type: TensorType, op: str, label: str
) -> tuple[str, str]:
    """Return a tensor that the collective can reduce instead of this one, and its element type."""
    if type.dtype in NARROW_INTEGERS:
        return f"popops::cast(graph, {text}, poplar::INT, {e.sequence}, {label})", "i32"
    if type.dtype == "u32" and op in GCL_OPERATORS:
        bits = f"{text}.reinterpret(poplar::INT)"
        if op in ("max", "min"):
            bits = e.map_text(f"pe::_1 ^ {SIGN_BIT_CONSTANT}", [bits], label)
        return bits, "i32"
    if _propagates_nan(e, type, op):
        wide = to_single(e, text, type, label)
        last = "true" if op == "max" else "false"
        return f"{e.use_helper('ordered')}(graph, {wide}, {last}, {e.sequence}, {label})", "i32"
    return text, type.dtype


def _propagates_nan(e: ProgramEmitter, type: TensorType, op: str) -> bool:
    return e.keeps_nan and type.dtype in FLOATS and op in ("max", "min")


def _from_reducible(e: ProgramEmitter, text: str, type: TensorType, op: str, label: str) -> str:
    """Convert the result of `_to_reducible`'s reduction back to the tensor's type."""
    if type.dtype in NARROW_INTEGERS:
        return f"popops::cast(graph, {text}, {element_of(type).poplar}, {e.sequence}, {label})"
    if type.dtype == "u32" and op in GCL_OPERATORS:
        if op in ("max", "min"):
            text = e.map_text(f"pe::_1 ^ {SIGN_BIT_CONSTANT}", [text], label)
        return f"{text}.reinterpret(poplar::UNSIGNED_INT)"
    if _propagates_nan(e, type, op):
        made = f"{e.use_helper('unordered')}(graph, {text}, {e.sequence}, {label})"
        return from_single(e, made, type, label)
    return text


def _ring_call(
    e: ProgramEmitter, helper: str, text: str, dtype: str, axes: Axes, label: str, combine: str = ""
) -> str:
    """Return the call of a helper that communicates around the rings of the axes."""
    if dtype in UNSLICEABLE_TYPES:
        wide = e.cast_text(text, "i32", label)
        return e.cast_text(_ring_call(e, helper, wide, "i32", axes, label, combine), dtype, label)
    more = f", {combine}" if combine else ""
    arguments = f"graph, {text}, {ring_groups(e, axes)}, {position_name(e, axes)}{more}"
    return f"{e.use_helper(helper)}({arguments}, {e.sequence}, {label})"


@lowers("all-reduce", "all-reduce-start")
def _all_reduce(e: ProgramEmitter, op: Op) -> None:
    e.comment(op)
    x, y, how = op.operands[0], op.result, op.attrs["op"]
    label = e.label(y)
    exchanges = split_into_collectives(e, op.attrs["axes"], ordered=False)
    if not exchanges:
        e.alias(y, e.text(x), x)
        return
    text, dtype = _to_reducible(e, e.text(x), x.type, how, label)
    for axes in exchanges:
        operator = _gcl_operator(dtype, how)
        if operator and is_supported_by_gcl(e, axes):
            arguments = f"{text}, gcl::CollectiveOperator::{operator}, {e.sequence}"
            group = comm_group(e, axes)
            text = f"gcl::allReduceCrossReplica(graph, {arguments}, {group}, {label})"
        else:
            combine = _combine_text(dtype, how)
            text = _ring_call(e, "ring_all_reduce", text, dtype, axes, label, combine)
    e.define(y, _from_reducible(e, text, x.type, how, label))


def _row_permutation(dim: int, rank: int) -> list[int]:
    """Return the permutation that moves the first dimension in front of dimension `dim` of the
    rest.
    """
    return [*range(1, dim + 1), 0, *range(dim + 1, rank + 1)]


def _gather_rows(e: ProgramEmitter, text: str, dtype: str, axes: Axes, label: str) -> str:
    """Return a tensor with one row per member of the group."""
    if is_supported_by_gcl(e, axes):
        group = comm_group(e, axes)
        return f"gcl::allGatherCrossReplica(graph, {text}, {e.sequence}, {group}, {label})"
    return _ring_call(e, "ring_gather", text, dtype, axes, label)


@lowers("all-gather", "all-gather-start")
def _all_gather(e: ProgramEmitter, op: Op) -> None:
    e.comment(op)
    x, y, dim = op.operands[0], op.result, op.attrs["dim"]
    text, shape = e.text(x), list(physical_type(x.type).shape)
    exchanges = split_into_collectives(e, op.attrs["axes"], ordered=True)
    for axes in reversed(exchanges):
        size = len(e.groups(axes)[0])
        rows = _gather_rows(e, text, x.type.dtype, axes, e.label(y))
        view = shuffle_view(rows, _row_permutation(dim, len(shape)))
        shape[dim] *= size
        text = f"{view}.reshape({initializer_text(shape)})"
    e.define(y, text, None if exchanges else x)


def _shards_as_rows(text: str, shape: Sequence[int], dim: int, size: int) -> tuple[str, list[int]]:
    """Return the view with one row per shard of a dimension, and the shape of a row."""
    row = [n // size if d == dim else n for d, n in enumerate(shape)]
    split = [*shape[:dim], size, row[dim], *shape[dim + 1 :]]
    order = [dim, *(d for d in range(len(split)) if d != dim)]
    return shuffle_view(reshape_view(text, shape, split), order), row


@lowers("reduce-scatter", "reduce-scatter-start")
def _reduce_scatter(e: ProgramEmitter, op: Op) -> None:
    e.comment(op)
    x, y, dim, how = op.operands[0], op.result, op.attrs["dim"], op.attrs["op"]
    label, shape = e.label(y), list(x.type.shape)
    exchanges = split_into_collectives(e, op.attrs["axes"], ordered=True)
    if not exchanges:
        e.alias(y, e.text(x), x)
        return
    text, dtype = _to_reducible(e, e.text(x), x.type, how, label)
    for axes in exchanges:
        rows, row = _shards_as_rows(text, shape, dim, len(e.groups(axes)[0]))
        operator = _gcl_operator(dtype, how)
        if operator and is_supported_by_gcl(e, axes):
            arguments = f"{rows}.flatten(), gcl::CollectiveOperator::{operator}, {e.sequence}"
            group = comm_group(e, axes)
            made = f"gcl::reduceScatterCrossReplica(graph, {arguments}, {group}, {label})"
            text = f"{made}.reshape({initializer_text(row)})"
        else:
            combine = _combine_text(dtype, how)
            text = _ring_call(e, "ring_reduce_scatter", rows, dtype, axes, label, combine)
        shape = row
    e.define(y, _from_reducible(e, text, x.type, how, label))


@lowers("all-to-all", "all-to-all-start")
def _all_to_all(e: ProgramEmitter, op: Op) -> None:
    """Exchange along all axes in one ring; the order of positions is that of the axes."""
    e.comment(op)
    x, y = op.operands[0], op.result
    split, concat = op.attrs["split"], op.attrs["concat"]
    axes = tuple(axis for axis in op.attrs["axes"] if axis.size > 1)
    if not axes:
        e.alias(y, e.text(x), x)
        return
    size, label = len(e.groups(axes)[0]), e.label(y)
    rows, row = _shards_as_rows(e.text(x), physical_type(x.type).shape, split, size)
    if is_supported_by_gcl(e, axes):
        group = comm_group(e, axes)
        made = f"gcl::allToAllCrossReplica(graph, {rows}, {e.sequence}, {group}, {label})"
    else:
        made = _ring_call(e, "ring_all_to_all", rows, x.type.dtype, axes, label)
    view = shuffle_view(made, _row_permutation(concat, len(row)))
    e.define(y, f"{view}.reshape({initializer_text(physical_type(y.type).shape)})")


@lowers("all-slice")
def _all_slice(e: ProgramEmitter, op: Op) -> None:
    e.comment(op)
    x, y, dim = op.operands[0], op.result, op.attrs["dim"]
    axes = tuple(axis for axis in op.attrs["axes"] if axis.size > 1)
    if not axes:
        e.alias(y, e.text(x), x)
        return
    size = y.type.shape[dim]
    start = position_name(e, axes)
    if size > 1:
        start = e.map_text(f"pe::_1 * pe::Const({size}u)", [start], e.label(y))
    offset = f"{start}.reshape({{1}})"
    e.define(y, dynamic_slice_text(e, e.text(x), x.type.dtype, offset, [dim], [size], e.label(y)))


@lowers("axis-index")
def _axis_index(e: ProgramEmitter, op: Op) -> None:
    y = op.result
    axes = tuple(axis for axis in op.attrs["axes"] if axis.size > 1)
    if not axes:
        e.scalars[y] = 0
        return
    e.define(y, f"{position_name(e, axes)}.reinterpret(poplar::INT)")


def _permute_targets(e: ProgramEmitter, op: Op) -> tuple[dict[int, int], set[int]]:
    """Return the target of each sending replica, and the set of replicas that receive."""
    attrs = op.attrs
    if not attrs.get("axes"):
        sources = permute_senders(e.mesh, attrs["source"], attrs["target"]).tolist()
        return {source: target for target, source in enumerate(sources)}, set(range(e.mesh.size))
    moves = {
        group[source]: group[target]
        for group in e.groups(attrs["axes"])
        for source, target in attrs["pairs"]
    }
    return moves, set(moves.values())


@lowers("collective-permute", "collective-permute-start")
def _permute(e: ProgramEmitter, op: Op) -> None:
    """Lower a permute: a replica that sends to itself keeps its tensor; non-receivers get zeros."""
    e.comment(op)
    x, y = op.operands[0], op.result
    moves, given = _permute_targets(e, op)
    own = {source for source, target in moves.items() if source == target}
    copies = plan_copies({s: t for s, t in moves.items() if s != t}, e.mesh.size)
    everyone = set(range(e.mesh.size))
    whole = not own and len(given) == e.mesh.size and len(copies) == 1
    text, have = e.text(x), own
    for copy in copies:
        name = y.name if whole else f"{y.name}_moved"
        moved = e.temporary(name, e.variable_text(x.type, e.label(y)))
        pairs = ", ".join(f"{{{a}, {b}}}" for a, b in copy.partner.items())
        e.add(f"{e.sequence}.add(CrossReplicaCopy({e.text(x)}, {moved}, {{{pairs}}}));")
        if copy.keep == everyone or not have:
            text = moved
        else:
            text = _select_by_replica(e, y, sorted(copy.keep), [moved, text])
        have = have | copy.keep
    if not have:
        text = e.temporary(y.name, _zeros_text(e, y))
    elif have != everyone:
        text = _select_by_replica(e, y, sorted(have), [text])
    e.alias(y, text, x if text == e.text(x) else None)


def _zeros_text(e: ProgramEmitter, y: Value) -> str:
    dtype = physical_type(y.type).dtype
    return broadcast_view(e.constant(0, dtype), (), (), physical_type(y.type).shape)


def _select_by_replica(
    e: ProgramEmitter, y: Value, replicas: Sequence[int], tensors: Sequence[str]
) -> str:
    """Return the name of a tensor that is the first one on some replicas, and the second or 0 on
    others.
    """
    table = ", ".join("true" if r in replicas else "false" for r in range(e.mesh.size))
    key = f"replicas {replicas}"
    helper = f"{e.use_helper('for_replica')}(graph, {replica_index_name(e)}, {{{table}}}, step)"
    chosen = e.define_once(key, "takes", helper)
    held = physical_type(y.type)
    nodes: list[Node] = [TensorNode(text, held.dtype) for text in tensors]
    if len(nodes) == 1:
        nodes.append(number(0, held.dtype))
    flag = TensorNode(broadcast_view(chosen, (), (), held.shape), "bool")
    text, listed = expression_text(ApplyNode("Select", (*nodes, flag), held.dtype), held.dtype)
    return e.temporary(y.name, e.map_text(text, listed, e.label(y)))
