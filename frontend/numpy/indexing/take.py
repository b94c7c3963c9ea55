"""Gathers at index arrays along one dimension: `take` and `take_along_axis`."""

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from shardir.errors import OperationTypeError
from shardir.frontend.argument_checks import check_flag, is_one_of
from shardir.frontend.arrays.array_types import ArrayLike
from shardir.frontend.dispatch.composed import composed_function
from shardir.frontend.dispatch.eager import public
from shardir.frontend.errors import ArgumentError, IndexingError
from shardir.frontend.numpy.elementwise import arithmetic
from shardir.frontend.numpy.indexing.getitem import emit_read, fill_out_of_bounds, fill_value_of
from shardir.frontend.numpy.indexing.index_vectors import wrap_negative_indices
from shardir.frontend.numpy.indexing.subscripts import Span, Subscript
from shardir.frontend.numpy.indexing.unclamped_indices import emit_index_check
from shardir.frontend.numpy.tracer_helpers.axes import canonicalize_axis
from shardir.frontend.numpy.tracer_helpers.axis_slices import broadcast_in_dim, transpose_dims
from shardir.frontend.numpy.tracer_helpers.concrete_values import is_concrete
from shardir.frontend.numpy.tracer_helpers.elementwise_emission import (
    check_no_out,
    constant_like,
    emit_elementwise,
)
from shardir.frontend.quoting import brief
from shardir.frontend.source_locations import with_location
from shardir.frontend.tracing.operands import (
    as_tracer,
    broadcast,
    broadcast_shapes,
    reshape,
    splat,
    widen_indices,
)
from shardir.frontend.tracing.trace import current_trace, emit
from shardir.frontend.tracing.tracer import Tracer
from shardir.ir.types import INTEGERS, TensorType

INDEX_MODES = ("fill", "clip", "wrap", "promise_in_bounds")


@composed_function(blind=True)
def take(
    a: ArrayLike,
    indices: ArrayLike,
    axis: int | None = None,
    out: None = None,
    mode: str | None = None,
    unique_indices: bool = False,
    indices_are_sorted: bool = False,
    fill_value: ArrayLike | None = None,
) -> Tracer:
    """Return the elements of `a` at `indices` along `axis` (without it, of the flattened array).

    The dimensions of `indices` replace the axis. For indices out of range, mode "fill" (the
    default) gives `fill_value` (NaN for floats, the lowest integer for signed integers unless
    given), "clip" the nearest element (negative indices are out of range), and "wrap" the index
    modulo the size.
    """
    check_no_out("take", out)
    _check_mode("take", mode)
    if (
        is_concrete(indices)
        and not hasattr(indices, "abstract")
        and not _is_program_argument(indices)
    ):
        indices = np.asarray(indices)
        if not indices.size:
            indices = indices.astype(np.int32)
        elif indices.dtype.kind in "iu" and mode in (None, "fill"):
            size = _size_along(a, axis)
            if ((indices >= -size) & (indices < size)).all():
                mode, indices = "promise_in_bounds", np.where(indices < 0, indices + size, indices)
    return _take(a, indices, axis, mode or "fill", fill_value)


def _is_program_argument(indices: ArrayLike) -> bool:
    """Return whether indices are passed as an argument of a program, which wraps negative ones."""
    if type(indices) is not np.ndarray or current_trace() is not None:
        return False
    return indices.dtype.kind in "iu" and indices.size > 0


def _size_along(a: Any, axis: int | None) -> int:
    shape = np.shape(a)
    return prod(shape) if axis is None else shape[canonicalize_axis(axis, len(shape))]


def _check_mode(what: str, mode: str | None, modes: Sequence[str] = INDEX_MODES) -> None:
    if mode is not None and not is_one_of(mode, modes):
        raise ArgumentError(
            with_location(f"{what} has no mode {brief(mode)}; its modes are {', '.join(modes)}")
        )


def require_index_array(indices: ArrayLike, what: str) -> Tracer:
    """Return index array `indices` as a tracer; raise `IndexingError` unless it has integers."""
    tracer = as_tracer(indices)
    if tracer.value.type.dtype not in INTEGERS:
        raise IndexingError(
            with_location(f"{what} takes integers as indices, got {tracer.value.type.dtype}")
        )
    return tracer


def _empty_axis_error(name: str, axis: int) -> IndexingError:
    return IndexingError(
        with_location(
            f"{name} has indices, and axis {axis} has no elements; pass an empty array of indices, "
            "or mode='fill'"
        )
    )


@public(static=("axis", "mode", "fill_value"))
def _take(
    a: ArrayLike, indices: ArrayLike, axis: int | None, mode: str, fill_value: ArrayLike | None
) -> Tracer:
    x = as_tracer(a)
    if axis is None:
        x, axis = reshape(x, (x.size,)), 0
    dim = canonicalize_axis(axis, x.ndim)
    index = require_index_array(indices, "take")
    if not x.shape[dim] and index.size and mode != "fill":
        raise _empty_axis_error("take", axis)
    spans = tuple(Span(0, n) if d != dim else None for d, n in enumerate(x.shape))
    subscript = Subscript(x.shape, spans, index.shape, dim, is_concrete=True)
    index = widen_indices(index, x.shape[dim])
    if mode == "clip":
        emit_index_check(x.shape, reshape(index, (*index.shape, 1)), (dim,))
    index = _normalize_indices(index, x.shape[dim], mode)
    vectors = reshape(index, (*index.shape, 1))
    fill = fill_value_of(x.value.type.dtype, fill_value) if mode == "fill" else None
    return emit_read(x, subscript, [vectors], fill)


def _normalize_indices(index: Tracer, size: int, mode: str) -> Tracer:
    """Convert indices to indices counted from the front, as `mode` states."""

    index = widen_indices(index, size)
    if mode == "wrap":
        wrapped_around: Tracer = arithmetic.remainder(index, max(size, 1))
        return wrapped_around
    if mode == "clip":
        lowest, highest = (splat(n, index.value.type.with_shape(())) for n in (0, max(size - 1, 0)))
        clamped: Tracer = emit("clamp", lowest, index, highest)
        return clamped
    return index if mode == "promise_in_bounds" else wrap_negative_indices([index], [size])[0]


@composed_function(blind=True)
def take_along_axis(
    arr: ArrayLike,
    indices: ArrayLike,
    axis: int | None = -1,
    mode: str | None = None,
    fill_value: ArrayLike | None = None,
    *,
    wrap_negative_indices: bool | None = None,
) -> Tracer:
    """Return, for each 1-D slice of `arr` along `axis`, the elements at that slice of `indices`.

    The other dimensions broadcast. Without an axis both are flattened. For indices out of range,
    mode "fill" (the default) gives `fill_value`, "clip" the nearest element, and "wrap" the index
    modulo the size. Mode "one_hot" gives 0, and compares the indices with all positions along the
    axis, which needs no communication if the axis is sharded but for a sum. Negative indices count
    from the end; without `wrap_negative_indices` they are out of range (the default of mode
    "promise_in_bounds").
    """
    _check_mode("take_along_axis", mode, (*INDEX_MODES, "one_hot"))
    if wrap_negative_indices is None:
        wraps = mode != "promise_in_bounds"
    else:
        wraps = check_flag("wrap_negative_indices", wrap_negative_indices)
    return _take_along(arr, indices, axis, mode or "fill", fill_value, wraps)


@public(static=("axis", "mode", "fill_value", "wraps"), name="take_along_axis")
def _take_along(
    arr: ArrayLike,
    indices: ArrayLike,
    axis: int | None,
    mode: str,
    fill_value: ArrayLike | None,
    wraps: bool,
) -> Tracer:
    x, index = as_tracer(arr), require_index_array(indices, "take_along_axis")
    x, index, dim = broadcast_except_axis(x, index, axis, "take_along_axis")
    if not index.size:
        return splat(0, x.value.type.with_shape(index.shape), x.weak_type)
    if not x.shape[dim] and mode == "fill":
        fill = fill_value_of(x.value.type.dtype, fill_value)
        return splat(fill, x.value.type.with_shape(index.shape), x.weak_type)
    if not x.shape[dim]:
        raise _empty_axis_error("take_along_axis", dim)
    counted = _normalize_indices(index, x.shape[dim], "fill" if wraps else "promise_in_bounds")
    if mode == "clip":
        emit_index_check(x.shape, reshape(counted, (*counted.shape, 1)), (dim,))
    if mode in ("clip", "wrap"):
        counted = _normalize_indices(counted, x.shape[dim], mode)
    if mode == "one_hot":
        return _sum_selected(x, counted, dim)
    vectors = reshape(counted, (*counted.shape, 1))
    others = tuple(d for d in range(x.ndim) if d != dim)
    result: Tracer = emit(
        "gather",
        x,
        vectors,
        offset_dims=(),
        collapsed_dims=(dim,),
        start_index_map=(dim,),
        operand_batching_dims=others,
        indices_batching_dims=others,
        result=x.value.type.with_shape(index.shape),
        weak=x.weak_type,
    )
    if mode != "fill":
        return result
    return fill_out_of_bounds(
        result,
        vectors,
        [x.shape[dim]],
        fill_value_of(x.value.type.dtype, fill_value),
        range(x.ndim),
    )


def _sum_selected(x: Tracer, index: Tracer, dim: int) -> Tracer:
    """Return the sum of the elements at the positions along `dim` that equal each index."""
    shape = (*index.shape, x.shape[dim])
    kind = TensorType(shape, index.value.type.dtype)
    positions: Tracer = emit("iota", dim=index.ndim, result=kind)
    chosen = emit_elementwise("eq", broadcast_in_dim(index, shape, range(index.ndim)), positions)
    rest = [d for d in range(x.ndim) if d != dim]
    others = broadcast_in_dim(transpose_dims(x, (*rest, dim)), shape, (*rest, x.ndim))
    if x.value.type.dtype == "bool":
        found: Tracer = emit("any", emit("and", chosen, others), dims=(index.ndim,))
        return found
    elements = emit_elementwise("select", chosen, others, constant_like(others, 0))
    summed: Tracer = emit("sum", elements, dims=(index.ndim,), weak=x.weak_type)
    return summed


def broadcast_except_axis(
    x: Tracer, index: Tracer, axis: int | None, what: str
) -> tuple[Tracer, Tracer, int]:
    """Broadcast both arrays to the same sizes in all dimensions except the axis."""
    if axis is None:
        x, axis = reshape(x, (x.size,)), 0
        index = reshape(index, (index.size,))
    if index.ndim != x.ndim:
        raise OperationTypeError(
            with_location(
                f"{what} takes indices with as many dimensions as the array, got shape "
                f"{index.shape} for shape {x.shape}"
            )
        )
    dim = canonicalize_axis(axis, x.ndim)
    around = broadcast_shapes(
        *(tuple(1 if d == dim else n for d, n in enumerate(y.shape)) for y in (x, index))
    )
    x, index = (broadcast(y, (*around[:dim], y.shape[dim], *around[dim + 1 :])) for y in (x, index))
    return x, index, dim
