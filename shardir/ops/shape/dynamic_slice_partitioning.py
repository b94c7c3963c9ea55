"""Partitioning of dynamic slices and updates, whose positions are known only at run time.

Every device reads or writes the part that is in its shard. The slice that is read is the sum over
the devices, since each element is on exactly one of them.
"""

from shardir.ir.builder import Builder
from shardir.ir.dtypes import KEYS
from shardir.ir.operation import Value
from shardir.ir.types import TensorType
from shardir.op_rules.factors import FactorKind, FactorRule, RuleBuilder
from shardir.op_rules.partitioning import LocalOp, default_shardable_factors, identity_element


def dynamic_slice_factors(x: TensorType, *starts: TensorType, result: TensorType) -> FactorRule:
    """Return the factors: a partially read dimension is reduced, the slice is replicated."""
    builder = RuleBuilder([x.shape, *(s.shape for s in starts)], [result.shape])
    rest = [None] * len(starts)
    for d, (size, read) in enumerate(zip(x.shape, result.shape, strict=True)):
        if size == read:
            builder.add([d, *rest], [d], size)
        else:
            builder.add([d, *rest], [None], size, FactorKind.REDUCE)
            builder.add([None, *rest], [d], read, FactorKind.REPLICATE)
    return builder.build("add")


def dynamic_slice_shardable(
    rule: FactorRule, x: TensorType, *_: TensorType, result: TensorType
) -> list[int]:
    """Return the shardable factors: partial sums of slices, unless gathering costs about the same.

    For slices of at least half of a dimension both send equally much, and a gathered dimension
    serves all of its readers.
    """
    small = {
        i
        for d, (size, read) in enumerate(zip(x.shape, result.shape, strict=True))
        if x.dtype not in KEYS and 2 * read < size
        for i in rule.operands[0][d]
    }
    return [
        i for i, factor in enumerate(rule.factors) if factor.kind is FactorKind.PASS or i in small
    ]


def partition_dynamic_slice(b: Builder, local: LocalOp, x: Value, *starts: Value) -> Value:
    """Return the device's part of the slice, with zeros for the rest."""
    source, result = local.op.operands[0], local.op.result
    at = list(starts)
    for d, (size, read) in enumerate(zip(source.type.shape, result.type.shape, strict=True)):
        own = local.shard_start(b, source, d) if size != read else None
        if own is None:
            continue
        start = _clamp_start(b, starts[d], size - read)
        nothing = identity_element("add", x.type.dtype)
        x = _slice_with_fill(b, x, d, read, b.sub(start, own), nothing)
        at[d] = b.full(0, starts[d].type)
    return b.dynamic_slice(x, *at, result=local.result)


def update_shardable(
    rule: FactorRule, x: TensorType, update: TensorType, *_: TensorType, **__: object
) -> list[int]:
    """Return the shardable factors; keys cannot be sharded along partially written dimensions."""
    sizes = zip(x.shape, update.shape, strict=True)
    partly = {i for d, (n, part) in enumerate(sizes) if n != part for i in rule.results[0][d]}
    return [i for i in default_shardable_factors(rule) if x.dtype not in KEYS or i not in partly]


def partition_update(b: Builder, local: LocalOp, x: Value, update: Value, *starts: Value) -> Value:
    """Write the part of the update that is in the device's shard.

    Along a sharded dimension the update is placed relative to the shard: it is padded on both sides
    by the size of the shard and sliced at the shard's position. Other elements keep their values.
    """
    full_shape, written = (value.type.shape for value in local.op.operands[:2])
    at, inside = list(starts), None
    for d, (size, part) in enumerate(zip(full_shape, written, strict=True)):
        own = local.shard_start(b, local.op.operands[0], d) if size != part else None
        if own is None:
            continue
        start = _clamp_start(b, starts[d], size - part)
        update = _slice_with_fill(b, update, d, x.type.shape[d], b.sub(own, start), 0)
        index = b.iota(dim=d, result=x.type.with_dtype("i32"))
        index = b.add(index, b.broadcast(b.sub(own, start), dims=(), result=index.type))
        low, high = b.full(0, index.type), b.full(part, index.type)
        here = b.and_(b.ge(index, low), b.lt(index, high))
        inside = here if inside is None else b.and_(inside, here)
        at[d] = b.full(0, starts[d].type)
    new = b.dynamic_update_slice(x, update, *at)
    return new if inside is None else b.select(inside, new, x)


def _clamp_start(b: Builder, start: Value, high: int) -> Value:
    """Return a start index as i32, clamped so that the update is in bounds."""
    if start.type.numpy.itemsize < 4:
        start = b.convert(start, result=start.type.with_dtype("i32"))
    start = b.clamp(b.full(0, start.type), start, b.full(high, start.type))
    return (
        start
        if start.type.dtype == "i32"
        else b.convert(start, result=start.type.with_dtype("i32"))
    )


def _slice_with_fill(
    b: Builder, x: Value, d: int, size: int, seen: Value, nothing: complex
) -> Value:
    """Return `size` elements of `x` from `seen` on, with `nothing` outside of `x`."""
    rank = x.type.rank
    around = tuple(size if i == d else 0 for i in range(rank))
    filler = b.full(nothing, x.type.with_shape(()))
    padded = b.pad(x, filler, low=around, high=around, interior=(0,) * rank)
    shape = tuple(size if i == d else n for i, n in enumerate(x.type.shape))
    at, zero = b.add(seen, b.full(size, seen.type)), b.full(0, seen.type)
    starts = (at if i == d else zero for i in range(rank))
    return b.dynamic_slice(padded, *starts, result=x.type.with_shape(shape))
