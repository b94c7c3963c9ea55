"""Gathers at index arrays along one dimension: `take` and `take_along_axis`."""

from math import prod
from typing import Any

import numpy as np

from shardir.errors import OperationTypeError
from shardir.frontend.composing import composed
from shardir.frontend.eager import public
from shardir.frontend.errors import ArgumentError, IndexingError
from shardir.frontend.locations import point
from shardir.frontend.numpy.axes import axis_of
from shardir.frontend.numpy.indexing import filling, read, select_inside
from shardir.frontend.numpy.known import is_known
from shardir.frontend.numpy.subscripts import Span, Subscript
from shardir.frontend.numpy.vectors import wrapped
from shardir.frontend.operands import (
    as_tracer,
    broadcast,
    broadcast_shapes,
    reshape,
    splat,
)
from shardir.frontend.trace import current, emit
from shardir.frontend.tracer import Tracer
from shardir.types import INTEGERS

MODES = ("fill", "clip", "wrap", "promise_in_bounds")


@composed(blind=True)
def take(
    a: Any,
    indices: Any,
    axis: int | None = None,
    out: None = None,
    mode: str | None = None,
    unique_indices: bool = False,
    indices_are_sorted: bool = False,
    fill_value: Any = None,
) -> Any:
    """Return the elements of `a` at `indices` along `axis` (without it, of the flattened array).

    The dimensions of `indices` replace the axis. For indices out of range, mode "fill" (the
    default) gives `fill_value` (NaN for floats, the lowest integer for signed integers unless
    given), "clip" the nearest element (negative indices are out of range), and "wrap" the index
    modulo the size.
    """
    if out is not None:
        raise ArgumentError(point("take takes no out=; arrays are immutable"))
    _check_mode("take", mode)
    if is_known(indices) and not hasattr(indices, "abstract") and not _goes_as_it_is(indices):
        indices = np.asarray(indices)
        if not indices.size:
            indices = indices.astype(np.int32)
        elif indices.dtype.kind in "iu" and mode in (None, "fill"):
            size = _size_along(a, axis)
            if ((indices >= -size) & (indices < size)).all():
                mode, indices = "promise_in_bounds", np.where(indices < 0, indices + size, indices)
    return _take(a, indices, axis, mode or "fill", fill_value)


def _goes_as_it_is(indices: Any) -> bool:
    """Return whether indices are passed as an argument of a program, which wraps negative ones."""
    if type(indices) is not np.ndarray or current() is not None:
        return False
    return indices.dtype.kind in "iu" and indices.size > 0


def _size_along(a: Any, axis: int | None) -> int:
    shape = np.shape(a)
    return prod(shape) if axis is None else shape[axis_of(axis, len(shape))]


def _check_mode(what: str, mode: str | None) -> None:
    if mode is not None and mode not in MODES:
        raise ArgumentError(point(f"{what} has no mode {mode!r}; its modes are {', '.join(MODES)}"))


def indices_of(indices: Any, what: str) -> Tracer:
    """Return index array `indices` as a tracer; raise `IndexingError` unless it has integers."""
    tracer = as_tracer(indices)
    if tracer.value.type.dtype not in INTEGERS:
        raise IndexingError(
            point(f"{what} takes integers as indices, got {tracer.value.type.dtype}")
        )
    return tracer


@public(static=("axis", "mode", "fill_value"))
def _take(a: Any, indices: Any, axis: int | None, mode: str, fill_value: Any) -> Any:
    x = as_tracer(a)
    if axis is None:
        x, axis = reshape(x, (x.size,)), 0
    dim = axis_of(axis, x.ndim)
    index = indices_of(indices, "take")
    if not x.shape[dim] and index.size and mode != "fill":
        raise IndexingError(point(f"take has nothing to take from: axis {axis} is empty"))
    spans = tuple(Span(0, n) if d != dim else None for d, n in enumerate(x.shape))
    subscript = Subscript(x.shape, spans, index.shape, dim, known=True)
    index = _counted(index, x.shape[dim], mode)
    vectors = reshape(index, (*index.shape, 1))
    fill = filling(x.value.type.dtype, fill_value) if mode == "fill" else None
    return read(x, subscript, [vectors], fill)


def _counted(index: Tracer, size: int, mode: str) -> Tracer:
    """Convert indices to indices counted from the front, as `mode` states."""
    from shardir.frontend import numpy as snp

    if mode == "wrap":
        wrapped_around: Tracer = snp.remainder(index, max(size, 1))
        return wrapped_around
    if mode == "clip":
        lowest, highest = (splat(n, index.value.type.with_shape(())) for n in (0, max(size - 1, 0)))
        clamped: Tracer = emit("clamp", lowest, index, highest)
        return clamped
    return index if mode == "promise_in_bounds" else wrapped([index], [size])[0]


@composed(blind=True)
def take_along_axis(
    arr: Any, indices: Any, axis: int | None = -1, mode: str | None = None, fill_value: Any = None
) -> Any:
    """Return, for each 1-D slice of `arr` along `axis`, the elements at that slice of `indices`.

    The other dimensions broadcast. Without an axis both are flattened. Negative indices count from
    the end. For indices out of range, mode "fill" (the default) gives `fill_value`, "clip" the
    nearest element, and "wrap" the index modulo the size.
    """
    _check_mode("take_along_axis", mode)
    return _take_along(arr, indices, axis, mode or "fill", fill_value)


@public(static=("axis", "mode", "fill_value"), name="take_along_axis")
def _take_along(arr: Any, indices: Any, axis: int | None, mode: str, fill_value: Any) -> Any:
    x, index = as_tracer(arr), indices_of(indices, "take_along_axis")
    x, index, dim = lined_up(x, index, axis, "take_along_axis")
    if not index.size:
        return splat(0, x.value.type.with_shape(index.shape), x.weak_type)
    if not x.shape[dim] and mode == "fill":
        fill = filling(x.value.type.dtype, fill_value)
        return splat(fill, x.value.type.with_shape(index.shape), x.weak_type)
    if not x.shape[dim]:
        raise IndexingError(
            point(f"take_along_axis has nothing to take from: axis {axis} is empty")
        )
    counted = _counted(index, x.shape[dim], "fill" if mode == "clip" else mode)
    if mode == "clip":  # negative indices count from the end in this function
        counted = _counted(counted, x.shape[dim], "clip")
    vectors = reshape(counted, (*counted.shape, 1))
    others = tuple(d for d in range(x.ndim) if d != dim)
    found: Tracer = emit(
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
        return found
    return select_inside(
        found, vectors, [x.shape[dim]], filling(x.value.type.dtype, fill_value), range(x.ndim)
    )


def lined_up(x: Tracer, index: Tracer, axis: int | None, what: str) -> tuple[Tracer, Tracer, int]:
    """Broadcast both arrays to the same sizes in all dimensions except the axis."""
    if axis is None:
        x, axis = reshape(x, (x.size,)), 0
        index = reshape(index, (index.size,))
    if index.ndim != x.ndim:
        raise OperationTypeError(
            point(
                f"{what} takes indices with as many dimensions as the array, got shape "
                f"{index.shape} for shape {x.shape}"
            )
        )
    dim = axis_of(axis, x.ndim)
    around = broadcast_shapes(
        *(tuple(1 if d == dim else n for d, n in enumerate(y.shape)) for y in (x, index))
    )
    x, index = (broadcast(y, (*around[:dim], y.shape[dim], *around[dim + 1 :])) for y in (x, index))
    return x, index, dim
