"""Conversion of scalars, nested lists and buffers to arrays: `asarray` and `array`."""

from collections.abc import Sequence
from math import isfinite

import numpy as np

from shardir.frontend.argument_checks import MAX_RANK, check_flag, check_integer, is_one_of
from shardir.frontend.arrays.array import Array, from_numpy
from shardir.frontend.arrays.array_types import ArrayLike, DTypeLike
from shardir.frontend.arrays.float0 import FLOAT0, is_float0
from shardir.frontend.arrays.numpy_conversion import is_number, narrow_array
from shardir.frontend.dispatch.eager import public
from shardir.frontend.dispatch.scalar_arguments import NUMBER_TYPES
from shardir.frontend.errors import ArgumentError
from shardir.frontend.numpy.creation.placement import choose_placement, put_on_device
from shardir.frontend.numpy.tracer_helpers.array_annotations import as_result
from shardir.frontend.pytree import tree
from shardir.frontend.pytree.tree_checks import check_acyclic
from shardir.frontend.pytree_types import PyTree
from shardir.frontend.quoting import brief
from shardir.frontend.shardings.requested_sharding import ShardingRequest
from shardir.frontend.source_locations import with_location
from shardir.frontend.tracebacks import traceback_boundary
from shardir.frontend.tracing import promotion
from shardir.frontend.tracing.operands import (
    as_tracer,
    check_integer_range,
    check_not_complex,
    convert,
    is_raw_buffer,
    operand_dtype,
    reshape,
    splat,
)
from shardir.frontend.tracing.promotion import dtype_of
from shardir.frontend.tracing.trace import current_trace
from shardir.frontend.tracing.tracer import Tracer
from shardir.frontend.tracing.weak_types import strip_weak_type
from shardir.ir.dtypes import KEYS
from shardir.ir.types import INTEGERS, NUMPY_DTYPES, NumpyArray, TensorType


@traceback_boundary
def asarray(
    a: ArrayLike, dtype: DTypeLike | None = None, order: str | None = None, *,
    copy: bool | None = None,
    device: ShardingRequest = None, out_sharding: ShardingRequest = None,
) -> Tracer:  # fmt: skip
    """Return an array from a scalar, a NumPy array, a nested list, or an object with a memory
    buffer.

    Objects with `__array_interface__` and objects that support Python's buffer protocol, such as
    `array.array` and `memoryview`, are read. 64-bit element types are narrowed unless 64-bit types
    are enabled. `copy` has no effect, because arrays are immutable. Raise `NotAnArrayError` for an
    object that is not an array, such as lists of different lengths.
    """
    if isinstance(dtype, np.dtype) and dtype == FLOAT0:
        return np.zeros(np.shape(a), FLOAT0)  # type: ignore[return-value,arg-type]  # has no data
    device = choose_placement(device, out_sharding)
    if dtype is None and order is None and device is None and current_trace() is None:
        if type(a) is Array:
            return a  # type: ignore[return-value]  # like `as_result`, without the time of a call
        if type(a) is np.ndarray:
            return as_result(from_numpy(a))
    if order is not None and not is_one_of(order, ("K", "A", "C")):
        described = brief(order)
        raise ArgumentError(
            with_location(f"arrays are stored in row-major order, there is no {described}")
        )
    if dtype is not None and (type(a) is int or type(a) is float) and dtype_of(dtype) in INTEGERS:
        check_integer_range(int(a) if isfinite(a) else a, dtype_of(dtype))
    if dtype is not None and type(a) is complex:
        check_not_complex(a, dtype_of(dtype))
    if is_raw_buffer(a):
        a = np.asarray(a if hasattr(a, "__array_interface__") else memoryview(a))
    if isinstance(a, (list, tuple)) and (kinds := _numeric_leaf_types(a)) is not None:
        if dtype is not None and complex in kinds:
            number = next(x for x in tree.leaves(a) if type(x) is complex)
            check_not_complex(number, dtype_of(dtype))
        a = _to_numpy_array(a, kinds, dtype)
    elif isinstance(a, (np.ndarray, np.generic)):
        a = _convert_wide_integers(a, dtype)
    if current_trace() is not None:
        return put_on_device(device, _asarray(a, dtype))
    if isinstance(a, (np.ndarray, np.generic)):
        a = from_numpy(a)
    if not isinstance(a, Array) or (dtype is not None and dtype_of(dtype) != a.type.dtype):
        a = _asarray(a, dtype)
    return put_on_device(device, a)


@traceback_boundary
def array(
    object: ArrayLike, dtype: DTypeLike | None = None, copy: bool = True, order: str | None = "K",
    ndmin: int = 0, *, device: ShardingRequest = None, out_sharding: ShardingRequest = None,
) -> Tracer:  # fmt: skip
    """Return an array like `asarray`, with at least `ndmin` dimensions, which are added in front.

    With `copy` the result is never `object` itself, so that the result can be donated and `object`
    remains valid.
    """
    device = choose_placement(device, out_sharding)
    rank = check_integer("ndmin of array", ndmin)
    if rank > MAX_RANK:
        raise ArgumentError(
            with_location(f"ndmin of array is {rank}; arrays have at most {MAX_RANK} dimensions")
        )
    result = asarray(object, dtype, order)
    if is_float0(result):
        return np.array(result, ndmin=rank)  # type: ignore[return-value]
    if check_flag("copy of array", copy) and result is object:
        result = _asarray(result)
    if result.ndim < rank:
        result = _reshape_to(result, (1,) * (rank - result.ndim) + result.shape)
    return put_on_device(device, result)


def _numeric_leaf_types(items: PyTree) -> set[type] | None:
    """Return the element types in a nested list of only Python and NumPy numbers, `None` for
    others.

    Such a list becomes one array argument instead of one argument per element.
    """
    try:
        kinds = _leaf_types(items)
    except RecursionError:
        check_acyclic(items)
        raise
    return kinds if all(kind in NUMBER_TYPES or _is_numpy_type(kind) for kind in kinds) else None


def _leaf_types(items: PyTree) -> set[type]:
    """Return the types of the leaves of a nested list."""
    kinds = set(map(type, items))
    nested = {kind for kind in kinds if issubclass(kind, (list, tuple))}
    if nested:
        kinds -= nested
        kinds.update(*(_leaf_types(item) for item in items if type(item) in nested))
    return kinds


def _is_numpy_type(kind: type) -> bool:
    return issubclass(kind, (np.generic, np.ndarray))


def _to_numpy_array(
    items: Sequence[ArrayLike], kinds: set[type], dtype: DTypeLike | None
) -> ArrayLike:
    try:
        values = np.asarray(items)
    except ValueError:
        return items  # The traced path raises an error that shows the user's line.
    if values.dtype.kind not in "biufcV":
        return items
    if dtype is not None and values.dtype.kind in "iu":
        return _convert_wide_integers(values, dtype)
    if not any(map(_is_numpy_type, kinds)):
        return values
    # NumPy promotes Python scalars as int64 and float64; here they are weakly typed and adopt the
    # type of the typed elements.
    typed = {x.dtype: x for x in tree.leaves(items) if _is_numpy_type(type(x))}
    plain = {type(x): x for x in tree.leaves(items) if is_number(x)}
    name, _ = promotion.result_type(*map(operand_dtype, [*typed.values(), *plain.values()]))
    return narrow_array(values, NUMPY_DTYPES[name])


def _convert_wide_integers(
    values: NumpyArray | np.generic, dtype: DTypeLike | None
) -> NumpyArray | np.generic:
    """Convert concrete 64-bit integers to the requested element type.

    The default integer type may be too narrow for them. Raise `NumberRangeError` for an integer
    that does not fit into the requested integer type.
    """
    if dtype is None or values.dtype.kind not in "iu" or values.dtype.itemsize < 8:
        return values
    name = dtype_of(dtype)
    if name in KEYS:
        return values
    if name in INTEGERS:
        return narrow_array(np.asarray(values), NUMPY_DTYPES[name])
    with np.errstate(all="ignore"):
        return np.asarray(values).astype(NUMPY_DTYPES[name])


@public(static=("dtype",))
def _asarray(a: ArrayLike, dtype: DTypeLike | None = None) -> Tracer:
    if dtype is None:
        x = as_tracer(a)
        return strip_weak_type(x) if isinstance(a, (list, tuple)) else x
    name = dtype_of(dtype)
    if is_number(a) and name == "bool":
        return splat(a, TensorType((), name))
    if is_number(a) and promotion.result_type((name, False), operand_dtype(a))[0] == name:
        return splat(a, TensorType((), name))
    return convert(as_tracer(a), name)


@public(static=("shape",))
def _reshape_to(x: Tracer, shape: tuple[int, ...]) -> Tracer:
    return reshape(as_tracer(x), shape)


@public()
def copy(a: ArrayLike, order: object = None) -> Tracer:
    """Return the array itself: arrays are immutable, so that a copy is indistinguishable."""
    return as_tracer(a)
