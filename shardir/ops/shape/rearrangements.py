"""Operations that rearrange elements without computing.

Their result shape is a parameter, which they read from the result type: no attribute repeats a
shape, so a program over local shapes has the same attributes as the one over global shapes.

The partitioning rules of reverse, concatenate and roll come first. Programs express a roll as two
concatenated slices; the pass `merge-shifts` replaces these, since a roll moves a few rows between
neighbouring devices where the slices would be resharded.
"""

from itertools import accumulate
from math import gcd

import numpy as np

from shardir.errors import count_noun
from shardir.ir.builder import Builder
from shardir.ir.operation import Cotangents, Partitioning, Value, define_op
from shardir.ir.types import NumpyArray, TensorType
from shardir.op_rules.batching import ShiftDims
from shardir.op_rules.exchange_plan import RowRun, block_runs
from shardir.op_rules.factors import FactorKind, FactorRule, RuleBuilder
from shardir.op_rules.linearity import select_from_all, select_from_first
from shardir.op_rules.partitioning import LocalOp
from shardir.op_rules.row_exchange import block_extents, exchange_rows, fetch_rows
from shardir.op_rules.tangents import linear_tangent
from shardir.ops.shape.slicing_partitioning import movable_shardable
from shardir.ops.type_checks import (
    Ints,
    check_dim,
    check_dims,
    common_dtype,
    format_list,
    require_result_type,
)


def partition_reverse(b: Builder, local: LocalOp, x: Value, *, dims: Ints) -> Value:
    """Fetch the rows at the mirrored position and reverse them locally."""
    source = local.op.operands[0]
    for d in dims:
        if not local.sharding_axes(source, d):
            continue
        size, block = source.type.shape[d], x.type.shape[d]
        # After reversal, the missing rows of a short shard come first.
        needed_rows = [
            [RowRun(block - rows, size - at - rows, rows)]
            for at, rows in block_extents(size, block, local.num_shards(source, d))
        ]
        x = fetch_rows(b, local, x, source, d, needed_rows, block)
    return b.reverse(x, dims=dims)


def partition_concatenate(b: Builder, local: LocalOp, *xs: Value, dim: int) -> Value:
    """Concatenate the local shards of all operands, and exchange rows from there."""
    result = local.op.result
    axes = local.sharding_axes(result, dim)
    if not axes:
        return b.concatenate(*xs, dim=dim)
    count, block = local.num_shards(result, dim), local.result.shape[dim]
    sizes = [value.type.shape[dim] for value in local.op.operands]
    rows = [x.type.shape[dim] for x in xs]
    offsets = list(accumulate(rows, initial=0))
    begins = list(accumulate(sizes, initial=0))
    owned_rows: list[list[RowRun]] = [[] for _ in range(count)]
    for offset, begin, size, own in zip(offsets, begins, sizes, rows, strict=False):
        for runs, own_runs in zip(owned_rows, block_runs(size, own, count), strict=True):
            runs += [RowRun(offset, begin + run.start, run.length) for run in own_runs]
    needed_rows = [
        [RowRun(0, at, n)] for at, n in block_extents(result.type.shape[dim], block, count)
    ]
    both = b.concatenate(*xs, dim=dim) if len(xs) > 1 else xs[0]
    return exchange_rows(b, both, dim, axes, owned_rows, needed_rows, block)


def partition_roll(b: Builder, local: LocalOp, x: Value, *, dim: int, shift: int) -> Value:
    """Fetch the rows of the shifted position, wrapping around the end."""
    source = local.op.operands[0]
    if not local.sharding_axes(source, dim):
        return b.roll(x, dim=dim, shift=shift)
    size, block = source.type.shape[dim], x.type.shape[dim]
    needed_rows: list[list[RowRun]] = []
    for at, rows in block_extents(size, block, local.num_shards(source, dim)):
        start = (at - shift) % size
        before = min(rows, size - start)
        needed_rows.append([RowRun(0, start, before), RowRun(before, 0, rows - before)])
    return fetch_rows(b, local, x, source, dim, needed_rows, block)


def _broadcast_type(x: TensorType, *, dims: Ints, result: TensorType | None) -> TensorType:
    to = require_result_type(result, x)
    check_dims(to, dims)
    if len(dims) != x.rank or list(dims) != sorted(dims):
        raise TypeError(
            f"dims={format_list(dims)} must name a dimension of {to} for each of {x}, ascending"
        )
    for size, dim in zip(x.shape, dims, strict=True):
        if size not in (1, to.shape[dim]):
            raise TypeError(
                f"{x} cannot be broadcast to {to}: {size} is neither 1 nor {to.shape[dim]}"
            )
    return to


def _broadcast_factors(x: TensorType, *, dims: Ints, result: TensorType) -> FactorRule:
    builder = RuleBuilder([x.shape], [result.shape])
    for dim, size in enumerate(result.shape):
        source = dims.index(dim) if dim in dims else None
        if source is not None and x.shape[source] != size:
            builder.add([source], [None], 1)
            source = None
        builder.add([source], [dim], size)
    return builder.build()


def _broadcast_reference(x: NumpyArray, *, dims: Ints, result: TensorType) -> NumpyArray:
    aligned = [1] * result.rank
    for size, dim in zip(x.shape, dims, strict=True):
        aligned[dim] = size
    return np.broadcast_to(x.reshape(aligned), result.shape)


def _broadcast_vjp(b: Builder, g: Value, x: Value, y: Value, *, dims: Ints) -> Cotangents:
    source = dict(zip(dims, x.type.shape, strict=True))
    summed = tuple(d for d, n in enumerate(y.type.shape) if source.get(d) != n)
    if summed:
        g = b.sum(g, dims=summed)
    return (g if g.type == x.type else b.reshape(g, result=x.type),)


broadcast = define_op(
    "broadcast",
    type=_broadcast_type,
    factors=_broadcast_factors,
    reference=_broadcast_reference,
    batch=ShiftDims("dims", dims=0),
    vjp=_broadcast_vjp,
    jvp=linear_tangent,
    selection=select_from_first,
    arithmetic=None,
)
"""Dimension i of `x` becomes dimension dims[i]; `x` is repeated along the other dimensions."""


def _reshape_type(x: TensorType, *, result: TensorType | None) -> TensorType:
    to = require_result_type(result, x)
    if to.size != x.size:
        raise TypeError(
            f"cannot make {to} ({count_noun(to.size, 'element')}) of {x} "
            f"({count_noun(x.size, 'element')})"
        )
    return to


def _reshape_factors(x: TensorType, *, result: TensorType) -> FactorRule | None:
    if x.size == 0:
        return None
    builder = RuleBuilder([x.shape], [result.shape])
    for source, target, size in _reshape_dim_factors(x.shape, result.shape):
        builder.add([source], [target], size)
    return builder.build()


def _reshape_dim_factors(source: Ints, target: Ints) -> list[tuple[int | None, int | None, int]]:
    """Return (source dimension, target dimension, size) of each factor, from left to right.

    While both sides have consumed equally many elements, their current dimensions share a factor of
    the size of their greatest common divisor. If it is 1, the rest of both dimensions becomes
    private factors, and then the side that is behind takes private factors until both are equal
    again. The algorithm yields the same factors as Shardy's.
    """
    factors: list[tuple[int | None, int | None, int]] = []
    shapes, at, walked = (list(source), list(target)), [0, 0], [1, 1]

    def take(side: int, size: int) -> int:
        dim = at[side]
        walked[side] *= size
        shapes[side][dim] //= size
        at[side] += shapes[side][dim] == 1
        return dim

    def private(side: int, size: int) -> None:
        dim = take(side, size)
        factors.append((dim, None, size) if side == 0 else (None, dim, size))

    while True:
        left = [
            shape[dim] if dim < len(shape) else 0 for shape, dim in zip(shapes, at, strict=True)
        ]
        if 1 in left:
            private(left.index(1), 1)
        elif walked[0] != walked[1]:
            behind = int(walked[1] < walked[0])
            private(
                behind,
                _private_factor_size(left[behind], left[1 - behind], walked[behind], max(walked)),
            )
        elif left == [0, 0]:
            return factors
        elif (size := gcd(*left)) > 1:
            factors.append((take(0, size), take(1, size), size))
        else:
            private(0, left[0])
            private(1, left[1])


def _private_factor_size(left: int, other: int, walked: int, goal: int) -> int:
    """Return the size of the private factor that the side which is behind takes.

    It is the exact quotient if that divides the dimension; otherwise the part of the dimension
    without the common divisor, which may still be shared.
    """
    if goal % walked == 0 and left % (goal // walked) == 0:
        return goal // walked
    common = gcd(left, other)
    return left // common if left > common else left


def _reshape_shardable(rule: FactorRule, x: TensorType, *, result: TensorType) -> list[int]:
    """Return the shared factors; factors of one side alone have a different element order."""
    (source,), (target,) = rule.operands, rule.results
    there = {i for dim in target for i in dim}
    return [i for dim in source for i in dim if i in there]


reshape = define_op(
    "reshape",
    type=_reshape_type,
    factors=_reshape_factors,
    partition=Partitioning(shardable=_reshape_shardable),
    reference=lambda x, *, result: x.reshape(result.shape),
    batch=ShiftDims(),
    vjp=lambda b, g, x, y: (b.reshape(g, result=x.type),),
    jvp=linear_tangent,
    selection=select_from_first,
    arithmetic=None,
)
"""The same elements in row-major order with another shape."""


def _transpose_type(x: TensorType, *, perm: Ints, result: TensorType | None) -> TensorType:
    if len(check_dims(x, perm, "perm")) != x.rank:
        raise TypeError(
            f"perm={format_list(perm)} must name all {count_noun(x.rank, 'dimension')} of {x}"
        )
    return x.with_shape([x.shape[d] for d in perm])


def _transpose_factors(x: TensorType, *, perm: Ints, result: TensorType) -> FactorRule:
    builder = RuleBuilder([x.shape], [result.shape])
    for target, source in enumerate(perm):
        builder.add([source], [target], x.shape[source])
    return builder.build()


def _transpose_vjp(b: Builder, g: Value, x: Value, y: Value, *, perm: Ints) -> Cotangents:
    return (b.transpose(g, perm=tuple(perm.index(d) for d in range(len(perm)))),)


transpose = define_op(
    "transpose",
    type=_transpose_type,
    factors=_transpose_factors,
    reference=lambda x, *, perm, result: np.transpose(x, perm),
    batch=ShiftDims("perm", perm=0),
    vjp=_transpose_vjp,
    jvp=linear_tangent,
    selection=select_from_first,
    arithmetic=None,
)
"""Dimension i of the result is dimension perm[i] of `x`."""


def _reverse_type(x: TensorType, *, dims: Ints, result: TensorType | None) -> TensorType:
    check_dims(x, dims)
    return x


def _reverse_factors(x: TensorType, *, dims: Ints, result: TensorType) -> FactorRule:
    builder = RuleBuilder([x.shape], [x.shape])
    for d, size in enumerate(x.shape):
        builder.add([d], [d], size, FactorKind.PERMUTE if d in dims else FactorKind.PASS)
    return builder.build()


reverse = define_op(
    "reverse",
    type=_reverse_type,
    factors=_reverse_factors,
    partition=Partitioning(partition_reverse, movable_shardable, uneven=movable_shardable),
    reference=lambda x, *, dims, result: np.flip(x, dims),
    batch=ShiftDims("dims"),
    vjp=lambda b, g, x, y, *, dims: (b.reverse(g, dims=dims),),
    jvp=linear_tangent,
    selection=select_from_first,
    arithmetic=None,
)
"""`x` with the order of elements along `dims` reversed."""


def _concatenate_type(*xs: TensorType, dim: int, result: TensorType | None) -> TensorType:
    if not xs:
        raise TypeError("takes at least one operand")
    first = xs[0]
    common_dtype(*xs)
    check_dim(first, dim)
    for x in xs[1:]:
        if x.rank != first.rank or any(
            x.shape[d] != n for d, n in enumerate(first.shape) if d != dim
        ):
            raise TypeError(f"{first} and {x} differ in more than dimension {dim}")
    size = sum(x.shape[dim] for x in xs)
    return first.with_shape([size if d == dim else n for d, n in enumerate(first.shape)])


def _concatenate_factors(*xs: TensorType, dim: int, result: TensorType) -> FactorRule:
    builder = RuleBuilder([x.shape for x in xs], [result.shape])
    for d, size in enumerate(result.shape):
        kind = FactorKind.REPLICATE if d == dim else FactorKind.PASS
        builder.add([d] * len(xs), [d], size, kind)
    return builder.build()


def _concatenate_vjp(b: Builder, g: Value, *values: Value, dim: int) -> Cotangents:
    cotangents, start = [], 0
    for x in values[:-1]:
        starts = tuple(start if d == dim else 0 for d in range(x.type.rank))
        cotangents.append(b.slice(g, starts=starts, strides=(1,) * x.type.rank, result=x.type))
        start += x.type.shape[dim]
    return tuple(cotangents)


concatenate = define_op(
    "concatenate",
    type=_concatenate_type,
    factors=_concatenate_factors,
    partition=Partitioning(partition_concatenate, movable_shardable, uneven=movable_shardable),
    reference=lambda *xs, dim, result: np.concatenate(xs, dim),
    batch=ShiftDims("dim"),
    vjp=_concatenate_vjp,
    jvp=linear_tangent,
    selection=select_from_all,
    arithmetic=None,
)
"""The operands concatenated along `dim`."""


def _roll_type(x: TensorType, *, dim: int, shift: int, result: TensorType | None) -> TensorType:
    size = x.shape[check_dim(x, dim)]
    if not 0 <= shift < max(size, 1):
        raise TypeError(f"shift={shift} must be at least 0 and less than the {size} of {x}")
    return x


def _roll_factors(x: TensorType, *, dim: int, shift: int, result: TensorType) -> FactorRule:
    builder = RuleBuilder([x.shape], [x.shape])
    for d, size in enumerate(x.shape):
        builder.add([d], [d], size, FactorKind.PERMUTE if d == dim else FactorKind.PASS)
    return builder.build()


def _roll_vjp(b: Builder, g: Value, x: Value, y: Value, *, dim: int, shift: int) -> Cotangents:
    size = x.type.shape[dim]
    return (b.roll(g, dim=dim, shift=(size - shift) % size if size else 0),)


roll = define_op(
    "roll",
    type=_roll_type,
    factors=_roll_factors,
    partition=Partitioning(partition_roll, movable_shardable, uneven=movable_shardable),
    reference=lambda x, *, dim, shift, result: np.roll(x, shift, dim),
    batch=ShiftDims("dim"),
    vjp=_roll_vjp,
    jvp=linear_tangent,
    arithmetic=None,
)
"""Move element i along `dim` to i + `shift`, wrapping around the end."""
