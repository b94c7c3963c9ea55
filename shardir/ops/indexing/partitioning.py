"""Partitioning of gather and scatter.

Indices refer to the global tensor. A device subtracts the start of its shard and ignores indices
outside of it: a scatter drops such elements, and a gather yields the identity of the sum over the
devices, of which exactly one has the element.
"""

from collections.abc import Callable, Sequence

from shardir.ir.builder import Builder
from shardir.ir.dtypes import KEYS, UNSIGNED
from shardir.ir.operation import Value
from shardir.ir.sharding import Axes
from shardir.ir.types import TensorType
from shardir.op_rules.factors import FactorKind, FactorRule
from shardir.op_rules.partitioning import LocalOp, default_shardable_factors, identity_element
from shardir.ops.indexing.layout import GatherAttributes, IndexingLayout, ScatterAttributes
from shardir.ops.type_checks import Ints


def gather_shardable(
    rule: FactorRule,
    x: TensorType,
    indices: TensorType,
    *,
    result: TensorType,
    attributes: GatherAttributes,
) -> list[int]:
    """Return the shardable factors, including indexed dimensions unless the elements are keys."""
    looked_up = _indexed_factors(rule, attributes.start_index_map) if x.dtype not in KEYS else set()
    return [*default_shardable_factors(rule), *looked_up]


def scatter_shardable(
    rule: FactorRule,
    x: TensorType,
    indices: TensorType,
    updates: TensorType,
    *,
    result: TensorType,
    attributes: ScatterAttributes,
) -> list[int]:
    """Return the shardable factors, including dimensions that are partially written.

    Updates can also be sharded: each device then has a part of the updates. A window that covers
    its dimension shares the factor of it, so it cannot be sharded if the window can move.
    """
    layout = IndexingLayout.for_shapes(x.shape, updates.rank, attributes.dims)
    moved = [(s, d) for s, d in layout.window.items() if d in layout.index_map]
    moving = {i for s, d in moved if _is_covering(x, updates, d, s) for i in rule.operands[0][d]}
    smaller = [
        i for s, d in moved if not _is_covering(x, updates, d, s) for i in rule.operands[0][d]
    ]
    fixed = {i for d in layout.dropped if d not in layout.index_map for i in rule.operands[0][d]}
    parts = rule.of_kind(FactorKind.REDUCE) if attributes.op != "set" else ()
    shardable = dict.fromkeys((*default_shardable_factors(rule), *smaller, *parts))
    return [i for i in shardable if i not in moving and i not in fixed]


def _is_covering(x: TensorType, updates: TensorType, d: int, s: int) -> bool:
    """Return whether windows are as large as their dimension."""
    return updates.shape[s] == x.shape[d]


def _indexed_factors(rule: FactorRule, index_map: Ints) -> list[int]:
    """Return the reduced factors of operand dimensions that are indexed."""
    return [
        i
        for d in index_map
        for i in rule.operands[0][d]
        if rule.factors[i].kind is FactorKind.REDUCE
    ]


def partition_gather(
    b: Builder, local: LocalOp, x: Value, indices: Value, *, attributes: GatherAttributes
) -> Value:
    """Read the elements of the local shard; other elements are zero."""
    layout = IndexingLayout.for_shapes(x.type.shape, local.result.rank, attributes.dims)
    operand = local.op.operands[0]
    # A window that covers its dimension starts at 0 on every shard.
    sizes = {d: local.op.result.type.shape[s] for s, d in layout.window.items()}
    starts = [
        None if sizes.get(d, 1) == operand.type.shape[d] else local.shard_start(b, operand, d)
        for d in layout.index_map
    ]
    if all(start is None for start in starts):
        return b.gather(x, indices, result=local.result, **local.op.attrs)
    indices = _widen(b, indices)
    limits = [operand.type.shape[d] - sizes.get(d, 1) for d in layout.index_map]
    low, high = b.full(0, indices.type), _broadcast_row(b, limits, indices)
    indices = b.clamp(low, indices, high)
    indices = b.sub(indices, _broadcast_row(b, starts, indices))
    extents = [
        limit + 1 if start is None else x.type.shape[d]
        for d, start, limit in zip(layout.index_map, starts, limits, strict=True)
    ]
    here = b.and_(b.ge(indices, low), b.lt(indices, _broadcast_row(b, extents, indices)))
    here = b.all(here, dims=(indices.type.rank - 1,))
    here = b.broadcast(here, dims=layout.batch, result=local.result.with_dtype("bool"))
    gathered = b.gather(x, indices, result=local.result, **local.op.attrs)
    return b.select(
        here, gathered, b.full(identity_element("add", gathered.type.dtype), gathered.type)
    )


def partition_scatter(
    b: Builder,
    local: LocalOp,
    x: Value,
    indices: Value,
    updates: Value,
    *,
    attributes: ScatterAttributes,
) -> Value:
    """Write the updates of the local shard; partial results include the operand on one device."""
    operand, _, written = local.op.operands
    layout = IndexingLayout.for_shapes(x.type.shape, updates.type.rank, attributes.dims)
    covering = [
        d for s, d in layout.window.items() if _is_covering(operand.type, written.type, d, s)
    ]
    starts = [
        local.shard_start(b, operand, d) if d not in covering else None for d in layout.index_map
    ]
    if any(start is not None for start in starts):
        indices = _to_signed(
            b, _widen(b, indices), [operand.type.shape[d] for d in layout.index_map]
        )
        indices = b.sub(indices, _broadcast_row(b, starts, indices))
    op, pending = attributes.op, _unreduced_axes(local)
    if pending and op in ("add", "mul"):
        x = b.select(
            local.is_first(b, pending), x, b.full(identity_element(op, x.type.dtype), x.type)
        )
    attrs = {"op": op, **{key: attr for key, attr in local.op.attrs.items() if key != "op"}}
    room = {d: updates.type.shape[s] for s, d in layout.window.items()}
    return _write_padded(b, x, room, lambda x: b.scatter(x, indices, updates, **attrs))


def _write_padded(
    b: Builder, x: Value, room: dict[int, int], write: Callable[[Value], Value]
) -> Value:
    """Write to a shard that is padded for windows larger than the shard."""
    more = tuple(max(room.get(d, 0) - size, 0) for d, size in enumerate(x.type.shape))
    if not any(more):
        return write(x)
    none = (0,) * x.type.rank
    zero = b.full(0, x.type.with_shape(()))
    written = write(b.pad(x, zero, low=none, high=more, interior=none))
    return b.slice(written, starts=none, strides=(1,) * x.type.rank, result=x.type)


def _unreduced_axes(local: LocalOp) -> Axes:
    """Return the axes along which the result is partial."""
    sharding = local.op.result.sharding
    return sharding.unreduced if sharding else ()


def _widen(b: Builder, indices: Value) -> Value:
    """Return indices in an integer type that can represent every position."""
    if indices.type.numpy.itemsize >= 4:
        return indices
    return b.convert(indices, result=indices.type.with_dtype("i32"))


def _to_signed(b: Builder, indices: Value, extents: Sequence[int]) -> Value:
    """Return signed indices for subtraction; out-of-bounds indices stay out of bounds."""
    if indices.type.dtype not in UNSIGNED:
        return indices
    low, high = b.full(0, indices.type), _broadcast_row(b, extents, indices)
    return b.convert(b.clamp(low, indices, high), result=indices.type.with_dtype("i32"))


def _broadcast_row(b: Builder, numbers: Sequence[int | Value | None], indices: Value) -> Value:
    """Return one number per index vector component (`None` is 0), broadcast to `indices`."""
    one = TensorType((1,), indices.type.dtype)
    parts = []
    for number in numbers:
        if number is None or isinstance(number, int):
            parts.append(b.full(number or 0, one))
            continue
        if number.type.dtype != one.dtype:
            number = b.convert(number, result=one.with_shape(()))
        parts.append(b.reshape(number, result=one))
    row = parts[0] if len(parts) == 1 else b.concatenate(*parts, dim=0)
    return b.broadcast(row, dims=(indices.type.rank - 1,), result=indices.type)
