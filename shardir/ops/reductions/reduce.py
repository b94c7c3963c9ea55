"""Reductions over dimensions."""

from collections.abc import Callable
from math import prod as product

import numpy as np

from shardir.ir.arithmetic import arithmetic_of_reduction
from shardir.ir.builder import Builder
from shardir.ir.dtypes import DTYPE_INFO, NARROW_FLOATS
from shardir.ir.operation import Cotangents, OpSpec, SelectionRule, TangentRule, Value, define_op
from shardir.ir.rules import CotangentRule
from shardir.ir.types import INTEGERS, NumpyArray, NumpyDType, TensorType, dtype_name
from shardir.op_rules.batching import ShiftDims
from shardir.op_rules.factors import FactorKind, FactorRule, RuleBuilder
from shardir.op_rules.linearity import reduce_to_extremum
from shardir.op_rules.tangents import linear_tangent
from shardir.ops.elementwise.elementwise import zero_vjp
from shardir.ops.elementwise.numerics import (
    accumulation_dtype,
    is_float,
    round_to,
)
from shardir.ops.reductions.extremum_partitioning import partition_arg_extremum
from shardir.ops.type_checks import (
    BOOL,
    NUMERIC,
    ORDERED,
    DtypeDomain,
    Ints,
    check_dim,
    check_dims,
    require_result_type,
)


def _drop_dims(x: TensorType, dims: Ints) -> TensorType:
    return x.with_shape([n for d, n in enumerate(x.shape) if d not in dims])


def _reduction_factors(x: TensorType, dims: Ints, reduction: str | None) -> FactorRule:
    builder = RuleBuilder([x.shape], [_drop_dims(x, dims).shape])
    remaining_dims = [d for d in range(x.rank) if d not in dims]
    for d, size in enumerate(x.shape):
        if d in dims:
            builder.add([d], [None], size, FactorKind.REDUCE)
        else:
            builder.add([d], [remaining_dims.index(d)], size)
    return builder.build(reduction)


def _define_reduction(
    name: str,
    takes: DtypeDomain,
    combine: str,
    numpy: Callable[[NumpyArray, Ints], object],
    vjp: CotangentRule[Value],
    jvp: TangentRule | None = None,
    selection: SelectionRule | None = None,
) -> OpSpec:
    """Declare a reduction whose partial results are combined by `combine`."""

    def type(x: TensorType, *, dims: Ints, result: TensorType | None) -> TensorType:
        takes.check(x)
        return _drop_dims(x, check_dims(x, dims))

    def factors(x: TensorType, *, dims: Ints, result: TensorType) -> FactorRule:
        return _reduction_factors(x, dims, combine)

    def reference(x: NumpyArray, *, dims: Ints, result: TensorType) -> NumpyArray:
        wide = x.astype(np.float32) if dtype_name(x.dtype) in NARROW_FLOATS else x
        with np.errstate(all="ignore"):
            return round_to(np.asarray(numpy(wide, tuple(dims))), result.numpy)

    return define_op(
        name,
        type=type,
        factors=factors,
        reference=reference,
        batch=ShiftDims("dims"),
        vjp=vjp,
        jvp=jvp,
        selection=selection,
        arithmetic=arithmetic_of_reduction(combine),
    )


def broadcast_reduced(b: Builder, y: Value, x: Value, dims: Ints) -> Value:
    """Return a reduced value broadcast along the dimensions that were reduced from `x`."""
    remaining_dims = tuple(d for d in range(x.type.rank) if d not in dims)
    return b.broadcast(y, dims=remaining_dims, result=x.type.with_dtype(y.type.dtype))


def _sum_vjp(b: Builder, g: Value, x: Value, y: Value, *, dims: Ints) -> Cotangents:
    return (broadcast_reduced(b, g, x, dims),)


def _extremum_vjp(b: Builder, g: Value, x: Value, y: Value, *, dims: Ints) -> Cotangents:
    """Return the cotangent, shared equally by elements that equal the extremum."""
    best = b.eq(x, broadcast_reduced(b, y, x, dims))
    ones = b.convert(best, result=x.type)
    share = b.div(g, b.sum(ones, dims=dims))
    return (b.mul(ones, broadcast_reduced(b, share, x, dims)),)


def _prod_vjp(b: Builder, g: Value, x: Value, y: Value, *, dims: Ints) -> Cotangents:
    """Return the cotangent: each element gets the product of all other elements.

    The product of preceding and following elements avoids a division, so zeros have correct
    cotangents.
    """
    remaining_dims = tuple(d for d in range(x.type.rank) if d not in dims)
    perm = (*remaining_dims, *dims)
    moved = b.transpose(x, perm=perm)
    shape = tuple(x.type.shape[d] for d in remaining_dims)
    count = product(x.type.shape[d] for d in dims)
    line = b.reshape(moved, result=x.type.with_shape((*shape, count)))
    last, none = len(remaining_dims), (0,) * (len(remaining_dims) + 1)
    one = b.full(1, x.type.with_shape(()))

    def others(step: int) -> Value:
        low, high = (*none[1:], step), (*none[1:], -step)
        shifted = b.pad(line, one, low=low, high=high, interior=none) if count else line
        return b.cumprod(shifted, dim=last, reverse=step < 0)

    spread_out = b.broadcast(g, dims=tuple(range(last)), result=line.type)
    flat = b.mul(spread_out, b.mul(others(1), others(-1)))
    back = tuple(perm.index(d) for d in range(len(perm)))
    return (b.transpose(b.reshape(flat, result=moved.type), perm=back),)


def _lowest(dtype: NumpyDType) -> float:
    if dtype == np.bool_:
        return False
    info = DTYPE_INFO[dtype_name(dtype)]
    return -np.inf if info.kind == "float" else info.min_integer


def _highest(dtype: NumpyDType) -> float:
    if dtype == np.bool_:
        return True
    info = DTYPE_INFO[dtype_name(dtype)]
    return np.inf if info.kind == "float" else info.max_integer


def _max(x: NumpyArray, dims: Ints) -> NumpyArray:
    best: NumpyArray = np.max(x, dims, initial=_lowest(x.dtype))
    if not is_float(x):
        return best
    positive = np.any((x == 0) & ~np.signbit(x), dims)
    return np.where(best == 0, np.where(positive, 0.0, -0.0).astype(x.dtype), best)


def _min(x: NumpyArray, dims: Ints) -> NumpyArray:
    best: NumpyArray = np.min(x, dims, initial=_highest(x.dtype))
    if not is_float(x):
        return best
    negative = np.any((x == 0) & np.signbit(x), dims)
    return np.where(best == 0, np.where(negative, -0.0, 0.0).astype(x.dtype), best)


def _sum(x: NumpyArray, dims: Ints) -> object:
    return np.sum(x, dims, accumulation_dtype(x.dtype))


def _prod(x: NumpyArray, dims: Ints) -> object:
    return np.prod(x, dims, accumulation_dtype(x.dtype))


_MAXIMUM, _MINIMUM = reduce_to_extremum("max"), reduce_to_extremum("min")
sum_ = _define_reduction("sum", NUMERIC, "add", _sum, _sum_vjp, linear_tangent)
"""The sum; the reference accumulates floats in f64 and rounds once."""
prod = _define_reduction("prod", NUMERIC, "mul", _prod, _prod_vjp)
max_ = _define_reduction("max", ORDERED, "max", _max, _extremum_vjp, None, _MAXIMUM)
"""The maximum: NaN if any element is NaN; the lowest value if there are no elements."""
min_ = _define_reduction("min", ORDERED, "min", _min, _extremum_vjp, None, _MINIMUM)
any_ = _define_reduction("any", BOOL, "or", np.any, zero_vjp, None, _MAXIMUM)
all_ = _define_reduction("all", BOOL, "and", np.all, zero_vjp, None, _MINIMUM)


def _define_index_reduction(name: str, numpy: Callable[..., object], reduction: str) -> OpSpec:
    """Declare an index reduction; the positions alone cannot be combined by a reduction."""

    def type(x: TensorType, *, dim: int, result: TensorType | None) -> TensorType:
        to = require_result_type(result)
        ORDERED.check(x)
        check_dim(x, dim)
        if to.dtype not in INTEGERS or to.shape != _drop_dims(x, (dim,)).shape:
            raise TypeError(
                f"gives positions of type {_drop_dims(x, (dim,)).with_dtype('i32')} "
                f"(or another integer), not {to}"
            )
        size = x.shape[dim]
        if size == 0:
            raise TypeError(f"no element of {x} is an extreme: dimension {dim} is empty")
        if size - 1 > DTYPE_INFO[to.dtype].max_integer:
            raise TypeError(f"positions up to {size - 1} do not fit into {to.dtype}")
        return to

    def factors(x: TensorType, *, dim: int, result: TensorType) -> FactorRule:
        return _reduction_factors(x, (dim,), None)

    def reference(x: NumpyArray, *, dim: int, result: TensorType) -> NumpyArray:
        wide = x.astype(np.float32) if dtype_name(x.dtype) in NARROW_FLOATS else x
        return np.asarray(numpy(wide, dim)).astype(result.numpy)

    return define_op(
        name,
        type=type,
        factors=factors,
        reference=reference,
        batch=ShiftDims("dim"),
        vjp=zero_vjp,
        partition=partition_arg_extremum(name, reduction),
    )


argmax = _define_index_reduction("argmax", np.argmax, "max")
"""The position of the largest element along `dim`: the first NaN, or the first of equal elements.
"""
argmin = _define_index_reduction("argmin", np.argmin, "min")
"""The position of the smallest element along `dim`: the first NaN, or the first of equal elements.
"""
