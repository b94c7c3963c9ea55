"""Partitioning of argmax, argmin and top-k along a sharded dimension.

Each device processes its shard. For argmax and argmin, the devices first agree on the extremum and
then on its first position; for top-k, all candidates are gathered and compared again.
"""

from collections.abc import Callable

import numpy as np

from shardir.ir.builder import Builder, as_values
from shardir.ir.operation import OPS, Dense, Partitioning, Result, Value
from shardir.ir.types import FLOATS, TensorType
from shardir.op_rules.factors import FactorKind, FactorRule, RuleBuilder
from shardir.op_rules.partitioning import LocalOp, all_factors, identity_element
from shardir.op_rules.row_exchange import slice_rows
from shardir.ops.type_checks import Ints


def partition_arg_extremum(name: str, reduction: str) -> Partitioning:
    """Return the partitioning of `argmax` and `argmin`; `reduction` finds the extremum."""

    def lower(b: Builder, local: LocalOp, x: Value, *, dim: int) -> Value:
        (value,) = local.op.operands
        axes = local.sharding_axes(value, dim)
        find: Callable[..., Value] = getattr(b, name)
        if not axes:
            return find(x, dim=dim, result=local.result)
        x = local.mask_padding(b, x, value, [dim], identity_element(reduction, x.type.dtype))
        own = getattr(b, reduction)(x, dims=(dim,))
        best = b.all_reduce(own, axes=axes, op=reduction, name=f"{value.name}.extremum")
        # Positions in a shard use i32 or wider, because a padded shard ends after the last
        # position.
        wide = local.result if local.result.numpy.itemsize >= 4 else local.result.with_dtype("i32")
        start = local.shard_start(b, value, dim, wide.dtype)
        position = b.add(find(x, dim=dim, result=wide), b.broadcast(start, dims=(), result=wide))
        has_it = b.eq(own, best)
        if x.type.dtype in FLOATS:
            has_it = b.or_(has_it, b.ne(own, own))
        nowhere = b.full(identity_element("min", wide.dtype), wide)
        first = b.all_reduce(b.select(has_it, position, nowhere), axes=axes, op="min")
        return first if wide == local.result else b.convert(first, result=local.result)

    return Partitioning(lower, all_factors, uneven=all_factors)


def top_k_factors(x: TensorType, *, result: Result) -> FactorRule:
    """Return the factors: the searched dimension is reduced, the k results are replicated."""
    last = x.rank - 1
    builder = RuleBuilder([x.shape], [type.shape for type in result])
    for d in range(last):
        builder.add([d], [d, d], x.shape[d])
    builder.add([last], [None, None], x.shape[last], FactorKind.REDUCE)
    builder.add([None], [last, last], result[0].shape[last], FactorKind.REPLICATE)
    return builder.build(None)


def partition_top_k(b: Builder, local: LocalOp, x: Value) -> tuple[Value, ...]:
    """Gather the candidates of each shard, or the shards themselves if they are hardly larger."""
    (value,) = local.op.operands
    last = x.type.rank - 1
    axes = local.sharding_axes(value, last)
    if not axes:
        return as_values(b.emit(OPS["top_k"], x, result=local.results))
    size, count = x.type.shape[last], local.results[0].shape[last]
    width = x.type.numpy.itemsize
    few = min(count, size)
    if few * (width + 4) >= size * width:
        x = b.all_gather(x, dim=last, axes=axes)
        full_rows = slice_rows(b, x, last, 0, value.type.shape[last])
        return as_values(b.emit(OPS["top_k"], full_rows, result=local.results))
    if local.is_uneven(value, last):
        x = _mask_padding_last(b, local, x, value, last)
    shape = (*x.type.shape[:last], few)
    types = x.type.with_shape(shape), x.type.with_shape(shape).with_dtype("i32")
    values, places = b.emit(OPS["top_k"], x, result=types)
    start = local.shard_start(b, value, last)
    places = b.add(places, b.broadcast(start, dims=(), result=places.type))
    values = b.all_gather(values, dim=last, axes=axes, name=f"{value.name}.extremum")
    places = b.all_gather(places, dim=last, axes=axes, name=f"{value.name}.indices")
    best, chosen = b.emit(OPS["top_k"], values, result=local.results)
    return best, _take_along(b, places, chosen)


def _take_along(b: Builder, x: Value, chosen: Value) -> Value:
    """Return the elements of `x` at the positions `chosen` along the last dimension."""
    last = x.type.rank - 1
    batch: Ints = tuple(range(last))
    return b.gather(
        x,
        b.reshape(chosen, result=chosen.type.with_shape((*chosen.type.shape, 1))),
        offset_dims=(),
        collapsed_dims=(last,),
        start_index_map=(last,),
        operand_batching_dims=batch,
        indices_batching_dims=batch,
        result=chosen.type.with_dtype(x.type.dtype),
    )


def _mask_padding_last(b: Builder, local: LocalOp, x: Value, value: Value, dim: int) -> Value:
    """Return `x` with its padding replaced by the last value in the total order, -NaN."""
    inside = b.broadcast(
        local.valid_mask(b, value, dim), dims=(dim,), result=x.type.with_dtype("bool")
    )
    if x.type.dtype not in FLOATS:
        return b.select(inside, x, b.full(identity_element("max", x.type.dtype), x.type))
    scalar = x.type.with_shape(())
    number = np.asarray(np.copysign(np.nan, -1.0)).astype(scalar.numpy)
    lowest = b.constant(value=Dense(number), result=scalar)
    return b.select(inside, x, b.broadcast(lowest, dims=(), result=x.type))
