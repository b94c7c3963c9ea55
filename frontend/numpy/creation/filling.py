"""Creation of arrays from scalars, shapes and nested lists.

`device`, a device or a sharding, states where the array is placed; without it, the array is
uncommitted. An array that is made like another one gets the sharding of that one.
"""

import sys
from collections.abc import Sequence
from math import ceil, isfinite, prod
from typing import Any

import numpy as np

from shardir.frontend.argument_checks import (
    MAX_RANK,
    canonicalize_shape,
    check_flag,
    check_integer,
    is_one_of,
)
from shardir.frontend.arrays.abstract_value import AbstractValue
from shardir.frontend.arrays.array import Array, from_numpy
from shardir.frontend.arrays.array_types import ArrayLike, DTypeLike, ShapeLike
from shardir.frontend.arrays.device_transfer import device_put
from shardir.frontend.arrays.numpy_conversion import abstract_of, is_number, narrow_array
from shardir.frontend.arrays.signature import ShapeDtypeStruct
from shardir.frontend.arrays.zero_pages import MIN_ZERO_PAGE_ELEMENTS, allocate_zeros
from shardir.frontend.dispatch.composed import composed_function
from shardir.frontend.dispatch.eager import public
from shardir.frontend.dispatch.scalar_arguments import NUMBER_TYPES
from shardir.frontend.errors import ArgumentError
from shardir.frontend.pytree import tree
from shardir.frontend.pytree.tree_checks import check_acyclic
from shardir.frontend.quoting import brief
from shardir.frontend.shardings.devices import is_abstract_assignment
from shardir.frontend.shardings.requested_sharding import ShardingRequest, resolve_sharding
from shardir.frontend.shardings.sharding import Sharding
from shardir.frontend.source_locations import with_location
from shardir.frontend.tracebacks import traceback_boundary
from shardir.frontend.tracing import promotion
from shardir.frontend.tracing.operands import (
    as_tracer,
    broadcast,
    check_integer_range,
    convert,
    is_raw_buffer,
    operand_dtype,
    reshape,
    splat,
)
from shardir.frontend.tracing.promotion import dtype_of
from shardir.frontend.tracing.trace import current_trace, emit
from shardir.frontend.tracing.tracer import Tracer
from shardir.ir.types import INTEGERS, NUMPY_DTYPES, TensorType


def _put_on_device(device: Any, made: Tracer, uneven: str | None = None) -> Tracer:
    if device is None:
        return made
    placed: Tracer = device_put(made, device, uneven=uneven)
    return placed


def _choose_placement(device: Any, out_sharding: ShardingRequest) -> Any:
    """Return the device or sharding of a new array, which one of the two arguments states."""
    if out_sharding is None:
        return device
    if device is not None:
        raise ArgumentError(
            with_location("both device and out_sharding are given; leave one of them out")
        )
    return resolve_sharding(out_sharding, "out_sharding")


@traceback_boundary
def asarray(
    a: Any, dtype: Any = None, order: Any = None, *, copy: bool | None = None,
    device: Any = None, out_sharding: ShardingRequest = None,
) -> Any:  # fmt: skip
    """Return an array from a scalar, a NumPy array, a nested list, or an object with a memory
    buffer.

    Objects with `__array_interface__` and objects that support Python's buffer protocol, such as
    `array.array` and `memoryview`, are read. 64-bit element types are narrowed unless 64-bit types
    are enabled. `copy` has no effect, because arrays are immutable. Raise `NotAnArrayError` for an
    object that is not an array, such as lists of different lengths.
    """
    device = _choose_placement(device, out_sharding)
    if dtype is order is device is None and current_trace() is None:
        if type(a) is Array:
            return a
        if type(a) is np.ndarray:
            return from_numpy(a)
    if order is not None and not is_one_of(order, ("K", "A", "C")):
        described = brief(order)
        raise ArgumentError(
            with_location(f"arrays are stored in row-major order, there is no {described}")
        )
    if dtype is not None and type(a) in (int, float) and dtype_of(dtype) in INTEGERS:
        check_integer_range(int(a) if isfinite(a) else a, dtype_of(dtype))
    if is_raw_buffer(a):
        a = np.asarray(a if hasattr(a, "__array_interface__") else memoryview(a))
    if isinstance(a, (list, tuple)) and (kinds := _numeric_leaf_types(a)) is not None:
        a = _to_numpy_array(a, kinds, dtype)
    elif isinstance(a, (np.ndarray, np.generic)):
        a = _convert_wide_integers(a, dtype)
    if current_trace() is not None:
        return _put_on_device(device, _asarray(a, dtype))
    if isinstance(a, (np.ndarray, np.generic)):
        a = from_numpy(a)
    if not isinstance(a, Array) or (dtype is not None and dtype_of(dtype) != a.type.dtype):
        a = _asarray(a, dtype)
    return _put_on_device(device, a)


@traceback_boundary
def array(
    object: Any, dtype: DTypeLike | None = None, copy: bool = True, order: Any = "K",
    ndmin: int = 0, *, device: Any = None, out_sharding: ShardingRequest = None,
) -> Tracer:  # fmt: skip
    """Return an array like `asarray`, with at least `ndmin` dimensions, which are added in front.

    With `copy` the result is never `object` itself, so that the result can be donated and `object`
    remains valid.
    """
    device = _choose_placement(device, out_sharding)
    rank = check_integer("ndmin of array", ndmin)
    if rank > MAX_RANK:
        raise ArgumentError(
            with_location(f"ndmin of array is {rank}; arrays have at most {MAX_RANK} dimensions")
        )
    result = asarray(object, dtype, order)
    if check_flag("copy of array", copy) and result is object:
        result = _asarray(result)
    if result.ndim < rank:
        result = _reshape_to(result, (1,) * (rank - result.ndim) + result.shape)
    return _put_on_device(device, result)


def _numeric_leaf_types(items: Any) -> set[type] | None:
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


def _leaf_types(items: Sequence[Any]) -> set[type]:
    """Return the types of the leaves of a nested list."""
    kinds = set(map(type, items))
    nested = {kind for kind in kinds if issubclass(kind, (list, tuple))}
    if nested:
        kinds -= nested
        kinds.update(*(_leaf_types(item) for item in items if type(item) in nested))
    return kinds


def _is_numpy_type(kind: type) -> bool:
    return issubclass(kind, (np.generic, np.ndarray))


def _to_numpy_array(items: Sequence[Any], kinds: set[type], dtype: DTypeLike | None) -> Any:
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


def _convert_wide_integers(values: Any, dtype: Any) -> Any:
    """Convert concrete 64-bit integers to the requested element type.

    The default integer type may be too narrow for them. Raise `NumberRangeError` for an integer
    that does not fit into the requested integer type.
    """
    if dtype is None or values.dtype.kind not in "iu" or values.dtype.itemsize < 8:
        return values
    name = dtype_of(dtype)
    if name == "key":
        return values
    if name in INTEGERS:
        return narrow_array(np.asarray(values), NUMPY_DTYPES[name])
    with np.errstate(all="ignore"):
        return np.asarray(values).astype(NUMPY_DTYPES[name])


@public(static=("dtype",))
def _asarray(a: Any, dtype: DTypeLike | None = None) -> Tracer:
    if dtype is None:
        return as_tracer(a)
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
def copy(a: ArrayLike, order: Any = None) -> Tracer:
    """Return the array itself: arrays are immutable, so that a copy is indistinguishable."""
    return as_tracer(a)


@composed_function()
def zeros(
    shape: ShapeLike,
    dtype: DTypeLike | None = None,
    *,
    device: Any = None,
    out_sharding: ShardingRequest = None,
) -> Tracer:
    """Return an array of `shape` filled with zeros, of the default floating type unless `dtype` is
    given.
    """
    return _put_on_device(_choose_placement(device, out_sharding), _zeros(shape, dtype))


@composed_function()
def ones(
    shape: ShapeLike,
    dtype: DTypeLike | None = None,
    *,
    device: Any = None,
    out_sharding: ShardingRequest = None,
) -> Tracer:
    """Return an array of `shape` filled with ones, of the default floating type unless `dtype` is
    given.
    """
    return _put_on_device(_choose_placement(device, out_sharding), _splat(shape, 1, dtype))


@composed_function()
def empty(
    shape: ShapeLike,
    dtype: DTypeLike | None = None,
    *,
    device: Any = None,
    out_sharding: ShardingRequest = None,
) -> Tracer:
    """Return an array of `shape` filled with zeros; uninitialized arrays do not exist.

    The element type is the default floating type unless `dtype` is given.
    """
    return _put_on_device(_choose_placement(device, out_sharding), _zeros(shape, dtype))


def _zeros(shape: Any, dtype: DTypeLike | None) -> Any:
    """Return zeros; large arrays use zero-initialized memory pages of the system, if available."""
    size = shape if type(shape) is int else prod(shape) if _is_concrete_shape(shape) else 0
    if size >= MIN_ZERO_PAGE_ELEMENTS and current_trace() is None:
        zeros = allocate_zeros(
            canonicalize_shape(shape), dtype_of(float if dtype is None else dtype)
        )
        if zeros is not None:
            return zeros
    return _splat(shape, 0, dtype)


def _is_concrete_shape(shape: ShapeLike) -> bool:
    return type(shape) is tuple and all(type(extent) is int for extent in shape)


@public(static=("shape", "number", "dtype"))
def _splat(shape: ShapeLike, number: int, dtype: DTypeLike | None) -> Tracer:
    return splat(
        number, TensorType(canonicalize_shape(shape), dtype_of(float if dtype is None else dtype))
    )


@composed_function()
def full(
    shape: Any,
    fill_value: Any,
    dtype: Any = None,
    *,
    device: Any = None,
    out_sharding: ShardingRequest = None,
) -> Tracer:
    """Return an array of `shape` filled with `fill_value`, which is broadcast to `shape`.

    The element type is that of `fill_value` unless `dtype` is given.
    """
    device = _choose_placement(device, out_sharding)
    integer = _as_small_integer(fill_value)
    if dtype is not None and integer is not None:
        return _put_on_device(device, _splat(shape, integer, dtype))
    return _put_on_device(device, _full(shape, fill_value, dtype))


def _as_small_integer(number: ArrayLike) -> int | None:
    """Return a small Python scalar as an integer if it is one, except a floating zero, which has a
    sign.

    A cache lookup by integers takes half the time of a call.
    """
    if type(number) is float and number and abs(number) < 1 << 24 and number.is_integer():
        return int(number)
    return number if type(number) is int else None


@public(static=("shape", "dtype"))
def _full(shape: ShapeLike, fill_value: ArrayLike, dtype: DTypeLike) -> Tracer:
    sizes = canonicalize_shape(shape)
    value = fill_value if is_number(fill_value) else as_tracer(fill_value)
    name, weak = operand_dtype(value) if dtype is None else (dtype_of(dtype), False)
    return _fill(value, AbstractValue(TensorType(sizes, name), weak))


def _fill(value: Any, abstract: AbstractValue) -> Tracer:
    if is_number(value):
        return splat(value, abstract.type, abstract.weak)
    return broadcast(
        convert(as_tracer(value), abstract.type.dtype, abstract.weak), abstract.type.shape
    )


@composed_function(unused=True)
def zeros_like(
    a: ArrayLike | ShapeDtypeStruct,
    dtype: DTypeLike | None = None,
    shape: ShapeLike | None = None,
    *,
    device: Any = None,
    out_sharding: ShardingRequest = None,
) -> Tracer:
    """Return zeros with the shape and element type of `a`, unless `shape` or `dtype` is given."""
    return full_like(a, 0, dtype, shape, device=_choose_placement(device, out_sharding))


@composed_function(unused=True)
def ones_like(
    a: ArrayLike | ShapeDtypeStruct,
    dtype: DTypeLike | None = None,
    shape: ShapeLike | None = None,
    *,
    device: Any = None,
    out_sharding: ShardingRequest = None,
) -> Tracer:
    """Return ones with the shape and element type of `a`, unless `shape` or `dtype` is given."""
    return full_like(a, 1, dtype, shape, device=_choose_placement(device, out_sharding))


@composed_function(unused=True)
def empty_like(
    prototype: ArrayLike | ShapeDtypeStruct,
    dtype: DTypeLike | None = None,
    shape: ShapeLike | None = None,
    *,
    device: Any = None,
) -> Tracer:
    """Return zeros with the shape and element type of `prototype`, unless others are given."""
    return full_like(prototype, 0, dtype, shape, device=device)


@composed_function(unused=True)
def full_like(
    a: ArrayLike | ShapeDtypeStruct,
    fill_value: ArrayLike,
    dtype: DTypeLike | None = None,
    shape: ShapeLike | None = None,
    *,
    device: Any = None,
    out_sharding: ShardingRequest = None,
) -> Tracer:
    """Return `fill_value`, broadcast, with the shape and element type of `a`, unless others are
    given.
    """
    device = _choose_placement(device, out_sharding)
    abstract = abstract_of(asarray(a) if isinstance(a, (list, tuple)) else a)
    sizes = abstract.type.shape if shape is None else canonicalize_shape(shape)
    name, weak = (abstract.type.dtype, abstract.weak) if dtype is None else (dtype_of(dtype), False)
    integer = None if weak or name == "key" else _as_small_integer(fill_value)
    if integer is not None:
        kind = NUMPY_DTYPES[name].type
        result = _splat(sizes, integer, kind) if integer else _zeros(sizes, kind)
    else:
        result = _full_like(fill_value, TensorType(sizes, name), weak)
    if device is None and sizes == abstract.type.shape:
        # The operand already has this sharding, or will get it, so that its dimensions need not be
        # divisible.
        return _put_on_device(_committed_sharding(a), result, "pad")
    return _put_on_device(device, result)


def _committed_sharding(a: object) -> Any:
    """Return the sharding of a committed array or of an abstract one with a sharding, else
    `None`.
    """
    if isinstance(a, Array):
        return a.sharding if a.committed else None
    sharding = a.sharding if isinstance(a, ShapeDtypeStruct) else None
    if isinstance(sharding, Sharding) and not is_abstract_assignment(sharding.device_assignment):
        return sharding
    return None


@public(static=("type", "weak"))
def _full_like(fill_value: ArrayLike, type: TensorType, weak: bool) -> Tracer:
    return _fill(fill_value, AbstractValue(type, weak))


@composed_function()
def arange(
    start: ArrayLike,
    stop: ArrayLike | None = None,
    step: Any = None,
    dtype: DTypeLike | None = None,
    *,
    device: Any = None,
    out_sharding: ShardingRequest = None,
) -> Tracer:
    """Return start, start + step, ... below stop; with one argument, 0, 1, ... below that.

    The result is a vector. `start`, `stop` and `step` must be concrete while tracing; the element
    type is their promoted type unless `dtype` is given. Raise `ArgumentError` for an argument that
    is not a number.
    """
    bounds = [start, stop, step]
    for bound in bounds:
        if isinstance(bound, Tracer):
            bound.__index__()  # raises an error that states why the bounds must be concrete
    bounds = [int(bound) if isinstance(bound, bool) else bound for bound in bounds]
    numbers = [None if b is None else b if is_number(b) else _concrete_scalar(b) for b in bounds]
    if numbers[1] is None:
        numbers[:2] = [0, numbers[0]]
    if numbers[2] is None:
        numbers[2] = 1
    if numbers[2] == 0:
        raise ArgumentError(with_location("arange with step 0 has no end"))
    if dtype is None:
        given = [b for b in bounds if b is not None]
        dtype = promotion.user_dtype(promotion.result_type(*map(operand_dtype, given))[0])
    first, last, gap = numbers
    return _put_on_device(_choose_placement(device, out_sharding), _arange(first, last, gap, dtype))


def _concrete_scalar(bound: ArrayLike) -> Any:
    try:
        number = np.asarray(bound).item()
    except ValueError:
        number = None
    if not is_number(number):
        raise ArgumentError(with_location(f"arange takes numbers, got {bound!r}"))
    return number


def _arange_length(start: Any, stop: Any, step: Any) -> int:
    """Return the number of elements of NumPy's arange without creating them."""
    bounds = (start, stop, step)
    try:
        if all(type(bound) is int for bound in bounds):
            return len(range(start, stop, step))
        if any(isinstance(bound, complex) for bound in bounds):
            return len(np.arange(start, stop, step))
        count: int = max(0, ceil((stop - start) / step))
    except (ValueError, OverflowError):  # The length is infinite, not a number, or too large.
        count = sys.maxsize
    if count >= sys.maxsize:
        raise ArgumentError(
            with_location(f"arange from {start} to {stop} by {step} has no finite length")
        )
    return count


@public(static=("start", "stop", "step", "dtype"))
def _arange(start: Any, stop: Any, step: Any, dtype: DTypeLike) -> Tracer:
    """Emit an iota in a type that can represent all elements, then convert it."""
    name = dtype_of(dtype)
    count = _arange_length(start, stop, step)
    is_integer = isinstance(start, int) and isinstance(step, int)
    if name in INTEGERS or name in ("f64", "c128"):
        iota_dtype = (
            name if is_integer or name not in INTEGERS else promotion.canonical_dtype("f64")
        )
    else:
        iota_dtype = "f32"
    numbers: Tracer = emit("iota", dim=0, result=TensorType((count,), iota_dtype))
    if step != 1:
        numbers = emit("mul", numbers, splat(step, numbers.value.type))
    if start != 0:
        numbers = emit("add", numbers, splat(start, numbers.value.type))
    return convert(numbers, name)
