"""Gather and scatter: reading and writing windows at computed positions.

The dimensions are named as in StableHLO, and the index vector is always the last dimension of the
indices. A gather clamps windows that would be out of bounds; a scatter drops elements that are out
of bounds. Indexing with arrays and `.at[]` updates use these operations.
"""

from math import prod

import numpy as np

from shardir.ir.arithmetic import Arithmetic, arithmetic_of_reduction
from shardir.ir.builder import Builder
from shardir.ir.module import Op, Value
from shardir.ir.operation import Partitioning, Tangents, define_op
from shardir.ir.types import TensorType
from shardir.op_rules.batching import BatchedOp, broadcast_over_batch, increment_dims
from shardir.op_rules.factors import FactorKind, FactorRule, RuleBuilder
from shardir.op_rules.tangents import linear_tangent
from shardir.ops.elementwise.numerics import is_float, is_narrow_float
from shardir.ops.indexing.gradients import gather_vjp, scatter_vjp
from shardir.ops.indexing.layout import (
    GATHER,
    SCATTER,
    Array,
    GatherAttributes,
    IndexingDims,
    IndexingLayout,
    ScatterAttributes,
    add_factors,
    check_layout,
    resolve_positions,
)
from shardir.ops.indexing.partitioning import (
    gather_shardable,
    partition_gather,
    partition_scatter,
    scatter_shardable,
)
from shardir.ops.type_checks import ARITHMETIC, NUMERIC, ORDERED, require_result_type


def gather_batch(
    b: Builder, many: BatchedOp, x: Value, indices: Value, *, attributes: GatherAttributes
) -> Value:
    """Make the new dimension a full window, a dimension of the indices, or a batching dimension of
    both.
    """
    source, places = many.batched
    read = _add_batch_dim(attributes.dims, source, places)
    result: Value = b.gather(x, indices, result=many.emit_result, **GATHER.to_attrs(read))
    return result


def scatter_batch(
    b: Builder,
    many: BatchedOp,
    x: Value,
    indices: Value,
    updates: Value,
    *,
    attributes: ScatterAttributes,
) -> Value:
    """Make the new dimension part of both operand and updates."""
    own, places, has_batched_updates = many.batched
    x = x if own else broadcast_over_batch(b, x, many.size)
    updates = updates if has_batched_updates else broadcast_over_batch(b, updates, many.size)
    read = _add_batch_dim(attributes.dims, True, places)
    result: Value = b.scatter(x, indices, updates, op=attributes.op, **SCATTER.to_attrs(read))
    return result


def _add_batch_dim(dims: IndexingDims, operand: bool, indices: bool) -> IndexingDims:
    """Return the dimensions after adding a leading dimension to the slices and to operand or
    indices.
    """
    lead = (0,) if operand and indices else ()
    window = increment_dims(dims.window)
    if not operand:
        return IndexingDims(window, *dims[1:4], increment_dims(dims.indices_batching))
    return IndexingDims(
        window if indices else (0, *window),
        increment_dims(dims.dropped),
        increment_dims(dims.index_map),
        (*lead, *increment_dims(dims.operand_batching)),
        (*lead, *(increment_dims(dims.indices_batching) if indices else dims.indices_batching)),
    )


def _gather_type(
    x: TensorType,
    indices: TensorType,
    *,
    result: TensorType | None,
    attributes: GatherAttributes,
) -> TensorType:
    result_type = require_result_type(result, x)
    check_layout(x, indices, result_type, GATHER, attributes.dims)
    return result_type


def _gather_factors(
    x: TensorType, indices: TensorType, *, result: TensorType, attributes: GatherAttributes
) -> FactorRule:
    """Return the factors; an indexed dimension can be sharded, since each device reads its own
    part.

    The other elements are then masked; adding partial results alone does not express that.
    """
    builder = RuleBuilder([x.shape, indices.shape], [result.shape])
    layout = IndexingLayout.for_shapes(x.shape, result.rank, attributes.dims)
    add_factors(builder, layout, indices, result, lambda d, i, s: ((d, i), (s,)), None)
    return builder.build(None)


def _gather_reference(
    x: Array, indices: Array, *, result: TensorType, attributes: GatherAttributes
) -> Array:
    if result.size == 0:
        return np.empty(result.shape, x.dtype)
    layout = IndexingLayout.for_shapes(x.shape, result.rank, attributes.dims)
    at = resolve_positions(layout, indices, result.shape, clamp=True)
    rows = x.transpose(*at.lead, *at.whole)
    rest = tuple(x.shape[d] for d in at.whole)
    gathered = rows[at.index] if at.index else rows.reshape((1,) * len(at.shape) + rest)
    gathered = np.broadcast_to(gathered, at.shape + rest)
    return gathered.transpose(np.argsort(at.slices))


gather = define_op(
    "gather",
    attributes=GatherAttributes,
    type=_gather_type,
    factors=_gather_factors,
    reference=_gather_reference,
    batch=gather_batch,
    vjp=gather_vjp,
    jvp=linear_tangent,
    linear=((0,),),
    partition=Partitioning(partition_gather, gather_shardable, lambda **_: "add", masked=()),
    arithmetic=None,
)

_COMBINATIONS = {
    "add": (ARITHMETIC, np.add),
    "mul": (NUMERIC, np.multiply),
    "min": (ORDERED, np.minimum),
    "max": (ORDERED, np.maximum),
}
"""For each combination of a scatter, the element types and the NumPy function."""


def _scatter_type(
    x: TensorType,
    indices: TensorType,
    updates: TensorType,
    *,
    result: TensorType | None,
    attributes: ScatterAttributes,
) -> TensorType:
    op = attributes.op
    if op != "set":
        if op not in _COMBINATIONS:
            raise TypeError(f"op={op} is not one of {', '.join(_COMBINATIONS)}, set")
        _COMBINATIONS[op][0].check(x)
    check_layout(x, indices, updates, SCATTER, attributes.dims)
    return x


def _scatter_factors(
    x: TensorType,
    indices: TensorType,
    updates: TensorType,
    *,
    result: TensorType,
    attributes: ScatterAttributes,
) -> FactorRule:
    """Return the factors; updates can be sharded along their batch if the operation is commutative.

    Partial results of min and max combine directly. Those of add and mul include the operand once
    per device, which a reduction would count several times.
    """
    op = attributes.op
    builder = RuleBuilder([x.shape, indices.shape, updates.shape], [x.shape])
    layout = IndexingLayout.for_shapes(x.shape, updates.rank, attributes.dims)
    kind = FactorKind.REPLICATE if op == "set" else FactorKind.REDUCE
    add_factors(builder, layout, indices, updates, lambda d, i, s: ((d, i, s), (d,)), kind)
    return builder.build(op if op in ("min", "max") else None)


def _scatter_reference(
    x: Array,
    indices: Array,
    updates: Array,
    *,
    result: TensorType,
    attributes: ScatterAttributes,
) -> Array:
    op = attributes.op
    layout = IndexingLayout.for_shapes(x.shape, updates.ndim, attributes.dims)
    at = resolve_positions(layout, indices, updates.shape, clamp=False)
    order = (*at.lead, *at.whole)
    extents = [x.shape[d] for d in at.lead]
    rest = prod(x.shape[d] for d in at.whole)
    wide = np.float32 if is_narrow_float(x.dtype) and op in ("add", "mul") else x.dtype
    rows = np.array(x.transpose(order), wide, order="C").reshape(prod(extents), rest)
    news = updates.transpose(at.slices).astype(wide, copy=False).reshape(prod(at.shape), rest)

    inside, row = np.ones(at.shape, bool), np.zeros(at.shape, np.int64)
    for extent, index in zip(extents, at.index, strict=True):
        inside &= (index >= 0) & (index < extent)
        row = row * extent + np.clip(index, 0, max(extent - 1, 0))
    inside, row = inside.reshape(-1), row.reshape(-1)
    if not inside.all():
        row, news = row[inside], news[inside]
    if op == "set":
        rows[row] = news
    else:
        _combine(op, rows, row, news)
    output = rows.astype(x.dtype, copy=False).reshape([x.shape[d] for d in order])
    return output.transpose(np.argsort(order))


def _combine(op: str, rows: Array, row: Array, news: Array) -> None:
    """Combine rows with their updates; -0 is less than +0, in contrast to NumPy."""
    if op not in ("min", "max") or not is_float(rows):
        _COMBINATIONS[op][1].at(rows, row, news)
        return
    taken, others = ((x == 0) & (np.signbit(x) == (op == "min")) for x in (rows, news))
    _COMBINATIONS[op][1].at(rows, row, news)
    np.logical_or.at(taken, row, others)
    rows[(rows == 0) & taken] = -0.0 if op == "min" else 0.0


def _scatter_jvp(b: Builder, op: Op, tangents: Tangents) -> Tangents | None:
    """Return the tangents of add and set, which are linear in operand and updates."""
    return linear_tangent(b, op, tangents) if op.attrs["op"] in ("add", "set") else None


def _combination(*, attributes: ScatterAttributes) -> str:
    return attributes.op


def _scatter_arithmetic(*, attributes: ScatterAttributes) -> Arithmetic | None:
    return None if attributes.op == "set" else arithmetic_of_reduction(attributes.op)


scatter = define_op(
    "scatter",
    attributes=ScatterAttributes,
    type=_scatter_type,
    factors=_scatter_factors,
    reference=_scatter_reference,
    batch=scatter_batch,
    vjp=scatter_vjp,
    jvp=_scatter_jvp,
    linear=lambda *, attributes: ((0, 2),) if attributes.op in ("add", "set") else (),
    partition=Partitioning(partition_scatter, scatter_shardable, _combination, masked=(2,)),
    arithmetic=_scatter_arithmetic,
)
"""Updates combined into a copy of `x`; with `op=set`, the last update of an element wins."""
