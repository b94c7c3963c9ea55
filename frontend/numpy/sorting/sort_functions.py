"""Sorts, and the indices that sort. NaN is larger than every number."""

import numpy as np

from shardir.errors import OperationTypeError
from shardir.frontend.arrays.array_types import ArrayLike, DTypeLike
from shardir.frontend.arrays.operators import Operators
from shardir.frontend.dispatch.eager import public
from shardir.frontend.numpy import dtypes
from shardir.frontend.numpy.tracer_helpers.array_annotations import ArraySequence
from shardir.frontend.numpy.tracer_helpers.axes import canonicalize_axis
from shardir.frontend.quoting import brief
from shardir.frontend.source_locations import with_location
from shardir.frontend.tracing.operands import (
    as_indices,
    as_tracer,
    convert,
    index_dtype,
    reshape,
)
from shardir.frontend.tracing.trace import emit, emit_results
from shardir.frontend.tracing.tracer import Tracer
from shardir.frontend.tracing.weak_types import strip_weak_types
from shardir.ir.types import REAL_OF, TensorType


def _flatten_or_axis(a: ArrayLike, axis: int | None, what: str) -> tuple[Tracer, int]:
    x = as_tracer(a)
    if axis is None:
        return reshape(x, (x.size,)), 0
    if not x.ndim:
        raise OperationTypeError(
            with_location(f"{what} takes at least one dimension, got a scalar")
        )
    return x, canonicalize_axis(axis, x.ndim)


def _emit_sort(x: Tracer, dim: int) -> Tracer:
    result: Tracer = emit("sort", x, dim=dim, keys=1, stable=True, weak=x.weak_type)
    return result


def _emit_reverse(x: Tracer, dim: int) -> Tracer:
    result: Tracer = emit("reverse", x, dims=(dim,), weak=x.weak_type)
    return result


def _emit_iota(shape: tuple[int, ...], dim: int) -> Tracer:
    result: Tracer = emit("iota", dim=dim, result=TensorType(shape, "i32"))
    return result


def _check_no_order(name: str, order: object) -> None:
    if order is not None:
        raise OperationTypeError(
            with_location(
                f"{name} has order={order!r}, and arrays have no fields; leave order out, or sort "
                "the positions of several arrays with lexsort"
            )
        )


@public(static=("axis", "kind", "order", "stable", "descending"))
def sort(
    a: ArrayLike,
    axis: int | None = -1,
    *,
    kind: object = None,
    order: object = None,
    stable: bool = True,
    descending: bool = False,
) -> Tracer:
    """Sort along `axis` (without it, the flattened array).

    `kind` is accepted for compatibility: every sort is stable.
    """
    _check_no_order("sort", order)
    x, dim = _flatten_or_axis(a, axis, "sort")
    result = _emit_sort(x, dim)
    return _emit_reverse(result, dim) if descending else result


@public(static=("axis", "kind", "order", "stable", "descending", "dtype"))
def argsort(
    a: ArrayLike,
    axis: int | None = -1,
    *,
    kind: object = None,
    order: object = None,
    stable: bool = True,
    descending: bool = False,
    dtype: DTypeLike | None = None,
) -> Tracer:
    """Return the indices that sort along `axis`; equal elements keep their order.

    The indices have the default integer type unless `dtype` is given.
    """
    _check_no_order("argsort", order)
    x, dim = _flatten_or_axis(a, axis, "argsort")
    positions = _emit_iota(x.shape, dim)
    if descending:
        x, positions = _emit_reverse(x, dim), _emit_reverse(positions, dim)
    found = emit_results("sort", x, positions, dim=dim, keys=1, stable=True)[1]
    if descending:
        found = _emit_reverse(found, dim)
    return (
        as_indices(found)
        if dtype is None
        else convert(found, index_dtype("argsort", dtype, x.shape[dim]))
    )


@public(static=("axis",))
def lexsort(keys: ArraySequence, axis: int = -1) -> Tracer:
    """Return the indices that sort by several keys, of which the last one is the primary key."""
    if isinstance(keys, (Operators, np.ndarray)) and keys.ndim:
        count = keys.shape[0]
    elif isinstance(keys, (list, tuple)):
        count = len(keys)
    else:
        raise OperationTypeError(
            with_location(
                f"lexsort takes a list of keys, or keys along an array, got {brief(keys)}"
            )
        )
    tracers = [as_tracer(keys[i]) for i in range(count)]
    if not tracers or any(key.shape != tracers[0].shape for key in tracers):
        shapes = ", ".join(str(key.shape) for key in tracers) or "none"
        raise OperationTypeError(with_location(f"lexsort takes keys of one shape, got {shapes}"))
    x, dim = _flatten_or_axis(tracers[0], axis, "lexsort")
    order = [*tracers[::-1], _emit_iota(x.shape, dim)]
    return as_indices(emit_results("sort", *order, dim=dim, keys=len(tracers), stable=True)[-1])


@public(static=("kth", "axis"))
def partition(a: ArrayLike, kth: int, axis: int = -1) -> Tracer:
    """Return elements with that of sorted rank `kth` at index `kth`, and no larger one before it.

    The implementation sorts all elements.
    """
    x, dim = _flatten_or_axis(a, axis, "partition")
    canonicalize_axis(kth, x.shape[dim])
    return _emit_sort(x, dim)


@public(static=("kth", "axis"))
def argpartition(a: ArrayLike, kth: int, axis: int = -1) -> Tracer:
    """Return the i32 indices that correspond to `partition`."""
    x, dim = _flatten_or_axis(a, axis, "argpartition")
    canonicalize_axis(kth, x.shape[dim])
    return convert(argsort(x, dim), "i32", x.weak_type)


@public()
@strip_weak_types
def sort_complex(a: ArrayLike) -> Tracer:
    """Sort along the last dimension as complex numbers: by real, then by imaginary part."""
    x, dim = _flatten_or_axis(a, -1, "sort_complex")
    dtype = x.value.type.dtype
    if dtype in REAL_OF:
        return _emit_sort(x, dim)

    wide = "c128" if dtype in ("f64", "i64", "u64") else "c64"
    return dtypes.astype(_emit_sort(x, dim), TensorType((), wide).numpy)
