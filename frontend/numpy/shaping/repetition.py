"""Repetition, insertion and deletion of elements along an axis."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from shardir.errors import OperationTypeError
from shardir.frontend.argument_checks import check_flag
from shardir.frontend.argument_errors import with_argument_errors
from shardir.frontend.arrays.array_types import ArrayLike, AxisLike
from shardir.frontend.dispatch.composed import composed_function
from shardir.frontend.dispatch.eager import public
from shardir.frontend.errors import ArgumentError, IndexingError
from shardir.frontend.numpy.creation import array_conversion, ranges
from shardir.frontend.numpy.elementwise import selection
from shardir.frontend.numpy.indexing.index_vectors import wrap_negative_indices
from shardir.frontend.numpy.indexing.take import require_index_array, take
from shardir.frontend.numpy.shaping.reshaping import moveaxis
from shardir.frontend.numpy.sorting import searching, sort_functions
from shardir.frontend.numpy.tracer_helpers.axes import canonicalize_axes, canonicalize_axis
from shardir.frontend.numpy.tracer_helpers.axis_slices import (
    concatenate_parts,
    prefix_sums,
    repeat_slice,
    replace_dim_size,
    slice_dim,
)
from shardir.frontend.numpy.tracer_helpers.concrete_values import (
    is_concrete,
    require_concrete,
    to_hashable,
)
from shardir.frontend.quoting import brief
from shardir.frontend.shardings.requested_sharding import ShardingRequest
from shardir.frontend.shardings.resharding import call_with_out_sharding
from shardir.frontend.source_locations import with_location
from shardir.frontend.tracing.operands import as_tracer, broadcast, convert, promote_to, reshape
from shardir.frontend.tracing.trace import require_trace
from shardir.frontend.tracing.tracer import Tracer
from shardir.frontend.tracing.typeof import typeof
from shardir.ir.types import NumpyArray

GATHER_MIN_RUNS = 4
"""The number of contiguous runs from which on elements are gathered instead of concatenated."""


@composed_function()
def repeat(
    a: ArrayLike, repeats: ArrayLike, axis: AxisLike = None, *,
    total_repeat_length: int | None = None, out_sharding: ShardingRequest = None,
) -> Tracer:  # fmt: skip
    """Repeat each element `repeats` times along `axis` (without it, in the flattened array).

    Counts per element may be traced if `total_repeat_length` states the size of the result, which
    is truncated or padded with its last element.
    """
    if is_concrete(repeats):
        return call_with_out_sharding(
            out_sharding, _repeat_static, a, to_hashable(repeats), axis, total_repeat_length
        )
    if total_repeat_length is None:
        raise OperationTypeError(
            with_location(
                "repeat with traced counts needs total_repeat_length=, the size of the result"
            )
        )
    return call_with_out_sharding(
        out_sharding, _repeat_traced, a, repeats, axis, total_repeat_length
    )


def _check_unsharded(x: Tracer, dim: int) -> None:
    """Raise `ShardingTypeError` if an Explicit axis shards the dimension, as JAX does."""
    types = require_trace("repeat").program.sharding_types
    sharding = None if types is None else types.sharding_of(x.value)
    if types is not None and sharding is not None and sharding.spec.axes(dim):
        types.refuse(
            f"repeat takes {typeof(x)}, and dimension {dim}, along which it repeats, is sharded; "
            "state the sharding of the result with out_sharding=PartitionSpec(...), or reshard the "
            "operand (sharding.reshard)"
        )


@public(static=("axis", "total"), name="repeat")
def _repeat_traced(a: ArrayLike, repeats: object, axis: AxisLike, total: int) -> Tracer:

    x, dim = _flatten_without_axis(a, axis)
    size = x.shape[dim]
    ends = prefix_sums(broadcast(as_tracer(repeats), (size,)))
    index = searching.searchsorted(ends, ranges.arange(total), side="right")
    return take(x, index, axis=dim, mode="promise_in_bounds")


@public(static=("repeats", "axis", "total"), name="repeat")
def _repeat_static(a: ArrayLike, repeats: object, axis: AxisLike, total: int | None) -> Tracer:
    x, dim = _flatten_without_axis(a, axis)
    size = x.shape[dim]
    counts = np.asarray(repeats)
    if not counts.size:
        counts = counts.astype(int)
    if counts.dtype.kind not in "iub" or counts.ndim > 1 or (counts < 0).any():
        raise OperationTypeError(
            with_location(f"repeat takes integers of at least 0 as counts, got {repeats}")
        )
    _check_unsharded(x, dim)
    if counts.size == 1:
        count = int(counts.reshape(()))
        unit_shape, repeated_shape = (*x.shape[: dim + 1], 1), (*x.shape[: dim + 1], count)
        grown = broadcast(
            reshape(x, unit_shape + x.shape[dim + 1 :]), repeated_shape + x.shape[dim + 1 :]
        )
        result = reshape(grown, replace_dim_size(x.shape, dim, size * count))
    else:
        if counts.shape != (size,):
            raise OperationTypeError(
                with_location(f"repeat takes {size} counts for this axis, got {counts.size}")
            )
        result = select_along_dim([x], dim, np.repeat(np.arange(size), counts))
    if total is None or total == result.shape[dim]:
        return result
    length = result.shape[dim]
    if length > total:
        return slice_dim(result, dim, 0, total)
    return concatenate_parts([result, repeat_slice(result, dim, length - 1, total - length)], dim)


def _flatten_without_axis(a: ArrayLike, axis: AxisLike) -> tuple[Tracer, int]:
    """Return the array and its dimension; without an axis, the flattened array."""
    x = as_tracer(a)
    if axis is None:
        return reshape(x, (x.size,)), 0
    return x, canonicalize_axis(axis, x.ndim)


def select_along_dim(xs: Sequence[Tracer], dim: int, index: NumpyArray) -> Tracer:
    """Return the elements at concrete indices along one dimension of concatenated arrays."""
    ends = np.cumsum([x.shape[dim] for x in xs])
    breaks = np.flatnonzero((np.diff(index) != 1) | np.isin(index[1:], ends)) + 1
    if index.size and len(breaks) < GATHER_MIN_RUNS:
        pieces = []
        for run in np.split(index, breaks):
            number = int(np.searchsorted(ends, run[0], "right"))
            x = xs[number]
            first = int(run[0] - ends[number]) + x.shape[dim]
            pieces.append(slice_dim(x, dim, first, first + len(run)))
        return concatenate_parts(pieces, dim)
    result: Tracer = take(concatenate_parts(xs, dim), index, axis=dim, mode="promise_in_bounds")
    return result


@with_argument_errors
def delete(
    arr: ArrayLike, obj: ArrayLike, axis: AxisLike = None, *, assume_unique_indices: bool = False
) -> Tracer:
    """Remove the elements at `obj` along `axis` (without it, from the flattened array).

    `obj` is a concrete index, several indices, a slice or a mask. One index may be traced, and
    several with `assume_unique_indices`, which states that they are distinct and in range.
    """
    unique = check_flag("assume_unique_indices", assume_unique_indices)
    if is_concrete(obj):
        return _delete_static(arr, to_hashable(obj), axis)
    return _delete_traced(arr, obj, axis, unique)


@public(static=("obj", "axis"), name="delete")
def _delete_static(arr: ArrayLike, obj: ArrayLike, axis: AxisLike) -> Tracer:
    x, dim = _flatten_without_axis(arr, axis)
    positions = np.arange(x.shape[dim])
    try:
        rest = np.delete(positions, _as_numpy_index(obj))
    except IndexError as error:
        raise IndexingError(with_location(f"delete: {error}")) from None
    return select_along_dim([x], dim, rest)


@public(static=("axis", "assume_unique_indices"), name="delete")
def _delete_traced(
    arr: ArrayLike, obj: ArrayLike, axis: AxisLike, assume_unique_indices: bool
) -> Tracer:
    x, dim = _flatten_without_axis(arr, axis)
    at = require_index_array(obj, "delete")
    if at.ndim and not assume_unique_indices:
        raise OperationTypeError(
            with_location(
                f"delete takes one traced index, got {at.value.type}; the size of the result is "
                "unknown unless assume_unique_indices=True states that the indices are distinct"
            )
        )
    size = x.shape[dim]
    if at.size > size:
        raise IndexingError(
            with_location(f"delete cannot remove {at.size} distinct elements of {size}")
        )
    (at,) = wrap_negative_indices([reshape(at, (at.size,))], [size])
    # The n-th index in ascending order removes one element of those that remain after n others.
    at = sort_functions.sort(at) - ranges.arange(at.size)
    rest = ranges.arange(size - at.size)
    passed = searching.searchsorted(at, rest, side="right")
    return take(x, rest + passed, axis=dim, mode="promise_in_bounds")


def _as_numpy_index(obj: Any) -> Any:
    if isinstance(obj, tuple):
        index = np.asarray(obj)
        return index if index.size else index.astype(np.int64)
    return obj


@with_argument_errors
def insert(
    arr: ArrayLike, obj: ArrayLike | slice, values: ArrayLike, axis: AxisLike = None
) -> Tracer:
    """Insert `values` before the elements at `obj` along `axis` (without it, in the flattened
    array).

    The values are converted to the element type of `arr`. `obj` is an index, several indices, or a
    slice; indices may be traced.
    """
    if isinstance(obj, slice) or is_concrete(obj):
        return _insert_static(arr, values, to_hashable(obj), axis)
    return _insert_traced(arr, obj, values, axis)


@public(static=("obj", "axis"), name="insert")
def _insert_static(arr: ArrayLike, values: ArrayLike, obj: Any, axis: AxisLike) -> Tracer:
    x, dim = _flatten_without_axis(as_tracer(arr), axis)
    new = _inserted_values(x, dim, values, is_one=not isinstance(obj, (tuple, slice)))
    size = x.shape[dim]
    index = np.asarray(_as_numpy_index(obj))
    if isinstance(obj, slice):
        index = np.arange(size)[obj]
    elif index.dtype.kind not in ("iub" if index.ndim else "iu") and index.size:
        raise IndexingError(
            with_location(f"insert takes an index, several indices or a slice, got {brief(obj)}")
        )
    count = new.shape[dim] if index.size == 1 else index.size
    new = broadcast(new, replace_dim_size(x.shape, dim, count))
    try:
        order = np.insert(np.arange(size), _as_numpy_index(obj), size + np.arange(count))
    except (IndexError, ValueError) as error:
        raise IndexingError(with_location(f"insert: {error}")) from None
    return select_along_dim([x, new], dim, order)


@public(static=("axis",), name="insert")
def _insert_traced(arr: ArrayLike, obj: ArrayLike, values: ArrayLike, axis: AxisLike) -> Tracer:
    x, dim = _flatten_without_axis(arr, axis)
    at = require_index_array(obj, "insert")
    if at.ndim > 1:
        raise IndexingError(
            with_location(f"insert takes an index or a vector of indices, got shape {at.shape}")
        )
    new = _inserted_values(x, dim, values, is_one=not at.ndim)
    size, count = x.shape[dim], new.shape[dim] if at.size == 1 else at.size
    new = broadcast(new, replace_dim_size(x.shape, dim, count))
    (at,) = wrap_negative_indices([reshape(at, (at.size,))], [size])
    at = selection.clip(broadcast(at, (count,)), 0, size)
    # A stable sort places the new elements before the old ones of the same position.
    positions = concatenate_parts([at, convert(ranges.arange(size), at.value.type.dtype)], 0)
    order = sort_functions.argsort(positions)
    return take(concatenate_parts([new, x], dim), order, axis=dim, mode="promise_in_bounds")


def _inserted_values(x: Tracer, dim: int, values: ArrayLike, *, is_one: bool) -> Tracer:
    """Return the values that are inserted into `x`, with the rank and the element type of `x`.

    With one index, the first dimension of the values is the number of inserted elements.
    """
    (new,) = promote_to((x.value.type.dtype, x.weak_type), values)
    new = reshape(new, (1,) * (x.ndim - new.ndim) + new.shape)
    return moveaxis(new, 0, dim) if is_one else new


@with_argument_errors
def trim_zeros(filt: ArrayLike, trim: str = "fb", axis: AxisLike = None) -> Tracer:
    """Remove slices of zeros at the front ("f" in `trim`) and the back ("b") along `axis`.

    Without an axis, they are removed along all axes. The array must be concrete.
    """
    numbers = require_concrete(
        filt,
        "argument filt of trim_zeros",
        "the size of trim_zeros depends on the values",
        "call it outside of jit",
    )
    if not isinstance(trim, str) or set(trim.lower()) - set("fb"):
        raise ArgumentError(with_location(f"trim {brief(trim)} is unknown; it is 'f', 'b' or 'fb'"))
    kept = [slice(None)] * numbers.ndim
    nonzero_indices = np.nonzero(np.atleast_1d(numbers))
    for dim in canonicalize_axes(axis, numbers.ndim):
        found = nonzero_indices[dim]
        kept[dim] = slice(
            int(found.min()) if "f" in trim.lower() and found.size else 0,
            int(found.max()) + 1 if "b" in trim.lower() and found.size else None,
        )
        if not found.size:
            kept[dim] = slice(0)
    return array_conversion.asarray(filt)[tuple(kept)]
