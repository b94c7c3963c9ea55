"""Sorting along a dimension, and top-k."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from shardir.errors import count_noun
from shardir.ir.attributes import Attributes
from shardir.ir.builder import Builder
from shardir.ir.dtypes import KEYS, NARROW_FLOATS
from shardir.ir.module import Op
from shardir.ir.operation import OPS, Cotangents, Partitioning, Result, Tangents, Value, define_op
from shardir.ir.types import NumpyArray, TensorType, dtype_name
from shardir.op_rules.batching import ShiftDims
from shardir.op_rules.factors import FactorKind, FactorRule, RuleBuilder
from shardir.op_rules.partitioning import factors_without_replicated
from shardir.ops.elementwise.numerics import total_order_key
from shardir.ops.reductions.extremum_partitioning import partition_top_k, top_k_factors
from shardir.ops.type_checks import REAL, Ints, check_dim, join_with_and


@dataclass(frozen=True, slots=True)
class SortAttributes(Attributes):
    """The attributes of a sort."""

    dim: int
    keys: int = 1
    """The number of operands that are compared."""
    stable: bool = True
    positions: Ints = ()
    """The positions along `dim` whose results are used; empty: all."""
    order: int | None = None
    """The operand that holds the positions along `dim`, if only its result is used."""


def _sort_type(
    *xs: TensorType,
    result: Result,
    attributes: SortAttributes,
) -> tuple[TensorType, ...]:
    dim, keys, order = attributes.dim, attributes.keys, attributes.order
    positions = attributes.positions
    if not xs:
        raise TypeError("takes at least one operand")
    check_dim(xs[0], dim)
    if any(x.shape != xs[0].shape for x in xs):
        raise TypeError(f"operands must have one shape, got {join_with_and(xs)}")
    if not 1 <= keys <= len(xs):
        raise TypeError(
            f"keys={keys} of {count_noun(len(xs), 'operand')} cannot be compared; name 1 to "
            f"{len(xs)}"
        )
    if any(not 0 <= position < xs[0].shape[dim] for position in positions):
        raise TypeError(
            f"positions={list(positions)} has positions that dimension {dim} of {xs[0]} lacks"
        )
    if order is not None and not (keys <= order < len(xs) and xs[order].dtype == "i32"):
        raise TypeError(f"order={order} must name an i32 operand of positions after the keys")
    if any(x.dtype in KEYS for x in xs[:keys]):
        raise TypeError("random keys have no order; sort by another operand")
    return xs


def _sort_factors(
    *xs: TensorType,
    result: Result,
    attributes: SortAttributes,
) -> FactorRule:
    count, shape = len(xs), xs[0].shape
    alone = all(size == 1 for d, size in enumerate(shape) if d != attributes.dim)
    builder = RuleBuilder([x.shape for x in xs], [x.shape for x in xs])
    for d, size in enumerate(shape):
        if d == attributes.dim:
            builder.add([d] * count, [d] * count, size, FactorKind.REPLICATE, blocked=alone)
        else:
            builder.add([d] * count, [d] * count, size)
    return builder.build()


def _to_comparable(x: NumpyArray) -> NumpyArray:
    return x.astype(np.float32) if dtype_name(x.dtype) in NARROW_FLOATS else x


def _sort_reference(
    *xs: NumpyArray,
    result: Result,
    attributes: SortAttributes,
) -> tuple[NumpyArray, ...] | NumpyArray:
    dim, keys = attributes.dim, xs[: attributes.keys]
    sorting = np.lexsort([_to_comparable(x) for x in reversed(keys)], axis=dim)
    results = tuple(np.take_along_axis(x, sorting, dim) for x in xs)
    return results if len(xs) > 1 else results[0]


def _sort_vjp(
    b: Builder,
    g: Value,
    *values: Value,
    attributes: SortAttributes,
) -> Cotangents:
    """Return the cotangents, sorted back by the sorted positions."""
    dim, keys = attributes.dim, attributes.keys
    xs = values[: len(values) // 2]
    gs = g if isinstance(g, tuple) else (g,)
    cotangents = [cotangent for cotangent in gs if cotangent is not None]
    positions = b.iota(dim=dim, result=xs[0].type.with_dtype("i32"))
    *_, places = b.emit(OPS["sort"], *xs[:keys], positions, dim=dim, keys=keys, stable=True)
    _, *back = b.emit(OPS["sort"], places, *cotangents, dim=dim, keys=1, stable=True)
    returned = iter(back)
    return tuple(None if cotangent is None else next(returned) for cotangent in gs)


def _sort_jvp(b: Builder, op: Op, tangents: Tangents) -> Tangents:
    """Return the tangents, sorted with the keys."""
    xs = op.operands
    operand_tangents = [tangent for tangent in tangents if tangent is not None]
    attributes = SortAttributes.of(op)
    dim, keys = attributes.dim, attributes.keys
    _, *moved = b.emit(OPS["sort"], *xs[:keys], *operand_tangents, dim=dim, keys=keys, stable=True)
    returned = iter(moved[keys - 1 :])
    return [None if tangent is None else next(returned) for tangent in tangents]


sort = define_op(
    "sort",
    attributes=SortAttributes,
    type=_sort_type,
    factors=_sort_factors,
    reference=_sort_reference,
    batch=ShiftDims("dim"),
    vjp=_sort_vjp,
    jvp=_sort_jvp,
)
"""The operands in the order that sorts the first `keys` of them along `dim`, major key first.

NaN follows all numbers, -0 and +0 are equal, and complex numbers are compared by their real parts
first. Equal elements keep their order (with stable=false a target may change it). If `positions`
is not empty, the results are unspecified at all other positions along `dim`. If `order` names an
operand, that operand holds the positions along `dim`, and all other results are unspecified.
"""


def _top_k_type(x: TensorType, *, result: Result) -> tuple[TensorType, TensorType]:
    REAL.check(x)
    if not isinstance(result, tuple) or len(result) != 2:
        raise TypeError("its result types are not determined; state both with result=")
    values, indices = result
    if x.rank == 0:
        raise TypeError(f"takes the largest along the last dimension, but {x} has none")
    if values.dtype != x.dtype or indices != values.with_dtype("i32"):
        raise TypeError(
            f"gives values in {x.dtype} and as many positions in i32, not {values} and {indices}"
        )
    if values.shape[:-1] != x.shape[:-1] or not values.rank or values.shape[-1] > x.shape[-1]:
        raise TypeError(f"{values} is not a selection along the last dimension of {x}")
    return values, indices


def _top_k_factors(x: TensorType, *, result: Result) -> FactorRule:
    values, indices = result
    last = x.rank - 1
    builder = RuleBuilder([x.shape], [values.shape, indices.shape])
    for d, size in enumerate(x.shape):
        if d < last:
            builder.add([d], [d, d], size)
        else:
            some = values.shape[-1] != size
            builder.add([d], [d, d], size, FactorKind.REPLICATE, blocked=some)
    return builder.build()


def _top_k_reference(x: NumpyArray, *, result: Result) -> tuple[NumpyArray, NumpyArray]:
    """Sort the reversed operand stably and read it backwards, so that the first of equals comes
    first.
    """
    count, size = result[0].shape[-1], x.shape[-1]
    order = np.argsort(np.flip(total_order_key(x), -1), axis=-1, kind="stable")
    chosen = size - 1 - np.flip(order, -1)[..., :count]
    return np.take_along_axis(x, chosen, -1), chosen.astype(np.int32)


def _top_k_vjp(b: Builder, g: Any, x: Value, values: Value, indices: Value) -> Cotangents:
    last = x.type.rank - 1
    if g[0] is None:
        return (None,)
    pointers = b.reshape(indices, result=indices.type.with_shape((*indices.type.shape, 1)))
    batch = tuple(range(last))
    return (
        b.scatter(
            b.full(0, x.type),
            pointers,
            g[0],
            update_window_dims=(),
            inserted_window_dims=(last,),
            scatter_dims=(last,),
            operand_batching_dims=batch,
            indices_batching_dims=batch,
            op="add",
        ),
    )


def _top_k_jvp(b: Builder, op: Op, tangents: Tangents) -> Tangents:
    """Return the tangents of the selected elements."""
    (x,), (values, indices), (tangent,) = op.operands, op.results, tangents
    last = x.type.rank - 1
    pointers = b.reshape(indices, result=indices.type.with_shape((*indices.type.shape, 1)))
    batch = tuple(range(last))
    result = b.gather(
        tangent,
        pointers,
        offset_dims=(),
        collapsed_dims=(last,),
        start_index_map=(last,),
        operand_batching_dims=batch,
        indices_batching_dims=batch,
        result=values.type,
    )
    return result, None


top_k = define_op(
    "top_k",
    type=_top_k_type,
    factors=_top_k_factors,
    partition=Partitioning(
        partition_top_k,
        factors_without_replicated,
        uneven=factors_without_replicated,
        factors=top_k_factors,
    ),
    reference=_top_k_reference,
    batch=ShiftDims(),
    vjp=_top_k_vjp,
    jvp=_top_k_jvp,
)
"""The largest elements along the last dimension in descending order, and their positions (i32).

The result types state their number. The first of equal elements comes first. Floats are in total
order (NaN, infinity, ..., +0, -0, ..., -infinity, -NaN), as in XLA.
"""
