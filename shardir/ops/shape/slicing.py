"""Slices, updates and padding.

Where a dimension changes its size, shards of it must be exchanged (static start) or gathered
(dynamic start).
"""

import numpy as np

from shardir.ir.builder import Builder
from shardir.ir.operation import Cotangents, Partitioning, Value, define_op
from shardir.ir.types import NumpyArray, TensorType
from shardir.op_rules.batching import ShiftDims
from shardir.op_rules.factors import FactorKind, FactorRule, RuleBuilder
from shardir.op_rules.linearity import select_from_first
from shardir.op_rules.tangents import linear_tangent
from shardir.ops.shape.dynamic_slice_partitioning import (
    dynamic_slice_factors,
    dynamic_slice_shardable,
    partition_dynamic_slice,
    partition_update,
    update_shardable,
)
from shardir.ops.shape.slicing_batching import (
    dynamic_slice_batch,
    dynamic_update_slice_batch,
    pad_batch,
)
from shardir.ops.shape.slicing_partitioning import (
    PadAttributes,
    SliceAttributes,
    movable_shardable,
    partition_pad,
    partition_slice,
    slice_factors,
)
from shardir.ops.type_checks import (
    INTEGER,
    Ints,
    check_per_dim,
    common_dtype,
    format_list,
    require_result_type,
)


def _slice_type(
    x: TensorType, *, attributes: SliceAttributes, result: TensorType | None
) -> TensorType:
    starts, strides = attributes.starts, attributes.strides
    to = require_result_type(result, x)
    check_per_dim(x, starts=starts, strides=strides)
    if to.rank != x.rank:
        raise TypeError(f"keeps the rank, but {x} would become {to}; reshape it")
    for d, (start, stride, size) in enumerate(zip(starts, strides, to.shape, strict=True)):
        if start < 0 or stride < 1:
            raise TypeError(
                f"starts={format_list(starts)} must be at least 0, "
                f"strides={format_list(strides)} at least 1"
            )
        if start + (size - 1) * stride >= max(x.shape[d], 1) or start > x.shape[d]:
            raise TypeError(
                f"{to} from starts={format_list(starts)} in strides={format_list(strides)} "
                f"leaves {x} in dimension {d}"
            )
    return to


def _size_change_factors(
    x: TensorType, *others: TensorType, result: TensorType, **_: object
) -> FactorRule:
    """Return the factors; shards of dimensions that change their size are exchanged."""
    builder = RuleBuilder([x.shape, *(y.shape for y in others)], [result.shape])
    rest = [None] * len(others)
    for d, size in enumerate(x.shape):
        kind = FactorKind.PASS if size == result.shape[d] else FactorKind.PERMUTE
        builder.add([d, *rest], [d], size, kind)
    return builder.build()


def _slice_reference(
    x: NumpyArray, *, attributes: SliceAttributes, result: TensorType
) -> NumpyArray:
    starts, strides = attributes.starts, attributes.strides
    return x[
        tuple(
            slice(start, start + size * stride, stride)
            for start, stride, size in zip(starts, strides, result.shape, strict=True)
        )
    ]


def _slice_vjp(
    b: Builder, g: Value, x: Value, y: Value, *, attributes: SliceAttributes
) -> Cotangents:
    starts, strides = attributes.starts, attributes.strides
    walked = [
        (size - 1) * stride + 1 if size else 0
        for size, stride in zip(y.type.shape, strides, strict=True)
    ]
    high = tuple(n - s - w for n, s, w in zip(x.type.shape, starts, walked, strict=True))
    interior = tuple(stride - 1 for stride in strides)
    zero = b.full(0, g.type.with_shape(()))
    return (b.pad(g, zero, low=tuple(starts), high=high, interior=interior),)


slice_ = define_op(
    "slice",
    attributes=SliceAttributes,
    type=_slice_type,
    factors=_size_change_factors,
    partition=Partitioning(
        partition_slice,
        movable_shardable,
        lambda **_: "add",
        uneven=movable_shardable,
        masked=(),
        factors=slice_factors,
    ),
    reference=_slice_reference,
    batch=ShiftDims(starts=0, strides=1),
    vjp=_slice_vjp,
    jvp=linear_tangent,
    selection=select_from_first,
    arithmetic=None,
)
"""Every `strides`-th element from `starts` on, as many as the result has."""


def _pad_type(
    x: TensorType,
    value: TensorType,
    *,
    attributes: PadAttributes,
    result: TensorType | None,
) -> TensorType:
    low, high, interior = attributes.low, attributes.high, attributes.interior
    if value != x.with_shape(()):
        raise TypeError(f"its padding value must be {x.with_shape(())}, got {value}")
    check_per_dim(x, low=low, high=high, interior=interior)
    if any(between < 0 for between in interior):
        raise TypeError(
            f"interior={format_list(interior)} must be at least 0; slice with strides instead"
        )
    shape = [
        before + after + size + max(size - 1, 0) * between
        for size, before, after, between in zip(x.shape, low, high, interior, strict=True)
    ]
    if any(size < 0 for size in shape):
        raise TypeError(
            f"low={format_list(low)} and high={format_list(high)} take more than {x} has"
        )
    return x.with_shape(shape)


def _pad_reference(
    x: NumpyArray, value: NumpyArray, *, attributes: PadAttributes, result: TensorType
) -> NumpyArray:
    low, high, interior = attributes.low, attributes.high, attributes.interior
    spaced = np.full(
        [n + max(n - 1, 0) * between for n, between in zip(x.shape, interior, strict=True)],
        value,
        x.dtype,
    )
    spaced[tuple(slice(None, None, between + 1) for between in interior)] = x
    inner = spaced[
        tuple(
            slice(max(-before, 0), max(n + min(after, 0), 0))
            for n, before, after in zip(spaced.shape, low, high, strict=True)
        )
    ]
    padded = np.full(result.shape, value, x.dtype)
    padded[
        tuple(slice(max(before, 0), max(before, 0) + n) for n, before in zip(inner.shape, low,
                                                                            strict=True))
    ] = inner  # fmt: skip
    return padded


def _pad_vjp(
    b: Builder, g: Value, x: Value, value: Value, y: Value, *, attributes: PadAttributes
) -> Cotangents:
    low, high, interior = attributes.low, attributes.high, attributes.interior
    zero = b.full(0, value.type)
    none = (0,) * x.type.rank
    spaced = b.pad(g, zero, low=tuple(-n for n in low), high=tuple(-n for n in high), interior=none)
    own = b.slice(spaced, starts=none, strides=tuple(n + 1 for n in interior), result=x.type)
    dims = tuple(range(x.type.rank))
    return own, b.sub(b.sum(g, dims=dims), b.sum(own, dims=dims))


pad = define_op(
    "pad",
    attributes=PadAttributes,
    type=_pad_type,
    factors=_size_change_factors,
    partition=Partitioning(partition_pad, movable_shardable, uneven=movable_shardable),
    reference=_pad_reference,
    batch=pad_batch,
    vjp=_pad_vjp,
    jvp=linear_tangent,
    arithmetic=None,
)
"""`x` with `low` copies of the value before it, `high` after it, and `interior` between elements.

A negative `low` or `high` removes that many elements instead, after the interior is inserted.
"""


def _check_starts(x: TensorType, starts: tuple[TensorType, ...]) -> None:
    if len(starts) != x.rank:
        raise TypeError(f"takes a start for each dimension of {x}, got {len(starts)}")
    INTEGER.check(*starts)
    common_dtype(*starts) if starts else None
    for start in starts:
        if start.shape:
            raise TypeError(f"takes starts without dimensions, got {start}")


def _dynamic_slice_type(
    x: TensorType, *starts: TensorType, result: TensorType | None
) -> TensorType:
    to = require_result_type(result, x)
    _check_starts(x, starts)
    if to.rank != x.rank or any(n > m for n, m in zip(to.shape, x.shape, strict=True)):
        raise TypeError(f"{to} does not fit into {x}")
    return to


def _dynamic_slice_factors(x: TensorType, *starts: TensorType, result: TensorType) -> FactorRule:
    builder = RuleBuilder([x.shape, *(s.shape for s in starts)], [result.shape])
    rest = [None] * len(starts)
    for d, size in enumerate(x.shape):
        if size == result.shape[d]:
            builder.add([d, *rest], [d], size)
        else:
            builder.add([d, *rest], [d], size, FactorKind.REPLICATE, blocked=True)
    return builder.build()


def _clamped_slices(shape: Ints, starts: tuple[NumpyArray, ...], sizes: Ints) -> tuple[slice, ...]:
    """Return the slices at `starts`, clamped so that they are in bounds."""
    at = [
        min(max(int(start), 0), extent - size)
        for start, extent, size in zip(starts, shape, sizes, strict=True)
    ]
    return tuple(slice(start, start + size) for start, size in zip(at, sizes, strict=True))


def _dynamic_slice_vjp(b: Builder, g: Value, x: Value, *rest: Value) -> Cotangents:
    starts = rest[:-1]
    x_cotangent = b.dynamic_update_slice(b.full(0, x.type), g, *starts)
    return (x_cotangent, *(None for _ in starts))


dynamic_slice = define_op(
    "dynamic_slice",
    type=_dynamic_slice_type,
    factors=_dynamic_slice_factors,
    partition=Partitioning(
        partition_dynamic_slice,
        dynamic_slice_shardable,
        lambda: "add",
        masked=(),
        factors=dynamic_slice_factors,
    ),
    reference=lambda x, *starts, result: x[_clamped_slices(x.shape, starts, result.shape)],
    batch=dynamic_slice_batch,
    vjp=_dynamic_slice_vjp,
    jvp=linear_tangent,
    linear=((0,),),
    arithmetic=None,
)
"""The slice of `x` at the starts with the result's shape, clamped so that it is in bounds."""


def _dynamic_update_slice_type(
    x: TensorType, update: TensorType, *starts: TensorType, result: TensorType | None
) -> TensorType:
    common_dtype(x, update)
    _check_starts(x, starts)
    if update.rank != x.rank or any(n > m for n, m in zip(update.shape, x.shape, strict=True)):
        raise TypeError(f"{update} does not fit into {x}")
    return x


def _dynamic_update_slice_factors(
    x: TensorType, update: TensorType, *starts: TensorType, result: TensorType
) -> FactorRule:
    builder = RuleBuilder([x.shape, update.shape, *(s.shape for s in starts)], [x.shape])
    rest = [None] * len(starts)
    for d, (size, part) in enumerate(zip(x.shape, update.shape, strict=True)):
        if size == part:
            builder.add([d, d, *rest], [d], size)
        else:
            builder.add([d, None, *rest], [d], size)
            builder.add([None, d, *rest], [None], part, FactorKind.REPLICATE)
    return builder.build()


def _dynamic_update_slice_reference(
    x: NumpyArray, update: NumpyArray, *starts: NumpyArray, result: TensorType
) -> NumpyArray:
    updated = np.array(x)
    updated[_clamped_slices(x.shape, starts, update.shape)] = update
    return updated


def _dynamic_update_slice_vjp(
    b: Builder, g: Value, x: Value, update: Value, *rest: Value
) -> Cotangents:
    starts = rest[:-1]
    around = b.dynamic_update_slice(g, b.full(0, update.type), *starts)
    inside = b.dynamic_slice(g, *starts, result=update.type)
    return (around, inside, *(None for _ in starts))


dynamic_update_slice = define_op(
    "dynamic_update_slice",
    type=_dynamic_update_slice_type,
    factors=_dynamic_update_slice_factors,
    partition=Partitioning(partition_update, update_shardable),
    reference=_dynamic_update_slice_reference,
    batch=dynamic_update_slice_batch,
    vjp=_dynamic_update_slice_vjp,
    jvp=linear_tangent,
    linear=((0, 1),),
    arithmetic=None,
)
"""`x` with the slice at the starts replaced by the update; see `dynamic_slice`."""
