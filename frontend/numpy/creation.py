"""Arrays made of numbers, shapes and Python lists.

`device`, a device or a sharding, says where the array goes; otherwise it is uncommitted. An array
made like another one goes where that one is.
"""

import sys
from collections.abc import Sequence
from math import ceil, isfinite, prod
from typing import Any

import numpy as np

from shardir.frontend import promotion, tree
from shardir.frontend.abstract_mesh import is_abstract
from shardir.frontend.amounts import MOST_DIMENSIONS, flag_of, is_one_of, whole_of
from shardir.frontend.array import Array, from_numpy
from shardir.frontend.composing import composed
from shardir.frontend.eager import public
from shardir.frontend.errors import ArgumentError
from shardir.frontend.locations import point
from shardir.frontend.numpy.axes import shape_of
from shardir.frontend.operands import (
    abstract_of,
    as_tracer,
    broadcast,
    check_fits,
    convert,
    is_memory,
    is_number,
    kind_of,
    narrowed,
    reshape,
    splat,
)
from shardir.frontend.placing import device_put
from shardir.frontend.promotion import Abstract, dtype_of
from shardir.frontend.quoting import brief
from shardir.frontend.scalars import NUMBERS
from shardir.frontend.shardings import Sharding
from shardir.frontend.signature import ShapeDtypeStruct
from shardir.frontend.trace import current, emit
from shardir.frontend.tracer import Tracer
from shardir.frontend.tree_checks import check_ends
from shardir.frontend.unwritten import FEWEST, unwritten_zeros
from shardir.frontend.wishes import granted
from shardir.types import INTEGERS, NUMPY_DTYPES, TensorType


def _on(device: Any, made: Any, uneven: str | None = None) -> Any:
    return made if device is None else device_put(made, device, uneven=uneven)


def _place(device: Any, out_sharding: Any) -> Any:
    """Return the device or sharding of a new array, which one of the two arguments states."""
    if out_sharding is None:
        return device
    if device is not None:
        raise ArgumentError(point("both device and out_sharding are given; leave one of them out"))
    return granted(out_sharding, "out_sharding")


def asarray(
    a: Any, dtype: Any = None, order: Any = None, *, copy: bool | None = None,
    device: Any = None, out_sharding: Any = None,
) -> Any:  # fmt: skip
    """Numbers, NumPy arrays, nested lists of anything, and memory, as an array.

    Memory is what has `__array_interface__`, or is a buffer to Python, as `array.array` and
    `memoryview` are. Element types of 64 bits are narrowed unless enabled. `copy` makes no
    difference: arrays never change. Raises `NotAnArrayError` for what is no array, such as lists
    of different lengths.
    """
    device = _place(device, out_sharding)
    if dtype is order is device is None and current() is None:
        if type(a) is Array:
            return a
        if type(a) is np.ndarray:
            return from_numpy(a)
    if order is not None and not is_one_of(order, ("K", "A", "C")):
        told = brief(order)
        raise ArgumentError(point(f"arrays are stored in row-major order, there is no {told}"))
    if dtype is not None and type(a) in (int, float) and dtype_of(dtype) in INTEGERS:
        check_fits(int(a) if isfinite(a) else a, dtype_of(dtype))
    if is_memory(a):
        a = np.asarray(a if hasattr(a, "__array_interface__") else memoryview(a))
    if isinstance(a, (list, tuple)) and (kinds := _plain_kinds(a)) is not None:
        a = _numbers(a, kinds, dtype)
    elif isinstance(a, (np.ndarray, np.generic)):
        a = _of_type(a, dtype)
    if current() is not None:
        return _on(device, _asarray(a, dtype))
    if isinstance(a, (np.ndarray, np.generic)):
        a = from_numpy(a)
    if not isinstance(a, Array) or (dtype is not None and dtype_of(dtype) != a.type.dtype):
        a = _asarray(a, dtype)
    return _on(device, a)


def array(
    object: Any, dtype: Any = None, copy: bool = True, order: Any = "K", ndmin: int = 0, *,
    device: Any = None, out_sharding: Any = None,
) -> Any:  # fmt: skip
    """Like `asarray`, with at least `ndmin` dimensions; with `copy` never the array itself.

    So the result may be donated and `object` is still there.
    """
    device = _place(device, out_sharding)
    rank = whole_of("ndmin of array", ndmin)
    if rank > MOST_DIMENSIONS:
        raise ArgumentError(
            point(f"ndmin of array is {rank}; arrays have at most {MOST_DIMENSIONS} dimensions")
        )
    made = asarray(object, dtype, order)
    if flag_of("copy of array", copy) and made is object:
        made = _asarray(made)
    if made.ndim < rank:
        made = _reshaped(made, (1,) * (rank - made.ndim) + made.shape)
    return _on(device, made)


def _plain_kinds(items: Any) -> set[type] | None:
    """The types in a nested list of nothing but Python's and NumPy's numbers; `None` for others.

    Such a list is one array from the start, instead of an argument for each number.
    """
    try:
        kinds = _kinds(items)
    except RecursionError:
        check_ends(items)
        raise
    return kinds if all(kind in NUMBERS or _is_typed(kind) for kind in kinds) else None


def _kinds(items: Sequence[Any]) -> set[type]:
    """The types of what is in a nested list, those of lists left out."""
    kinds = set(map(type, items))
    nested = {kind for kind in kinds if issubclass(kind, (list, tuple))}
    if nested:
        kinds -= nested
        kinds.update(*(_kinds(item) for item in items if type(item) in nested))
    return kinds


def _is_typed(kind: type) -> bool:
    return issubclass(kind, (np.generic, np.ndarray))


def _numbers(items: Sequence[Any], kinds: set[type], dtype: Any) -> Any:
    try:
        found = np.asarray(items)
    except ValueError:
        return items  # which is an error that shows the user's line
    if found.dtype.kind not in "biufcV":
        return items
    if dtype is not None and found.dtype.kind in "iu":
        return _of_type(found, dtype)
    if not any(map(_is_typed, kinds)):
        return found
    # NumPy takes Python's numbers for wide ones; here they give way to those with a type.
    typed = {x.dtype: x for x in tree.leaves(items) if _is_typed(type(x))}
    plain = {type(x): x for x in tree.leaves(items) if is_number(x)}
    name, _ = promotion.result_type(*map(kind_of, [*typed.values(), *plain.values()]))
    return narrowed(found, NUMPY_DTYPES[name])


def _of_type(found: Any, dtype: Any) -> Any:
    """Return known integers in the element type asked for, as the default one may hold fewer.

    Raises `NumberError` for an integer that an integer type asked for does not hold.
    """
    if dtype is None or found.dtype.kind not in "iu" or found.dtype.itemsize < 8:
        return found
    name = dtype_of(dtype)
    if name == "key":
        return found
    if name in INTEGERS:
        return narrowed(np.asarray(found), NUMPY_DTYPES[name])
    with np.errstate(all="ignore"):
        return np.asarray(found).astype(NUMPY_DTYPES[name])


@public(static=("dtype",))
def _asarray(a: Any, dtype: Any = None) -> Any:
    if dtype is None:
        return as_tracer(a)
    name = dtype_of(dtype)
    if is_number(a) and name == "bool":
        return splat(a, TensorType((), name))
    if is_number(a) and promotion.result_type((name, False), kind_of(a))[0] == name:
        return splat(a, TensorType((), name))
    return convert(as_tracer(a), name)


@public(static=("shape",))
def _reshaped(x: Any, shape: tuple[int, ...]) -> Any:
    return reshape(as_tracer(x), shape)


@public()
def copy(a: Any, order: Any = None) -> Any:
    """The same array: it never changes, so nobody can tell."""
    return as_tracer(a)


@composed()
def zeros(shape: Any, dtype: Any = None, *, device: Any = None, out_sharding: Any = None) -> Any:
    """An array of `shape` of zeros, float32 unless told."""
    return _on(_place(device, out_sharding), _zeros(shape, dtype))


@composed()
def ones(shape: Any, dtype: Any = None, *, device: Any = None, out_sharding: Any = None) -> Any:
    """An array of `shape` of ones, float32 unless told."""
    return _on(_place(device, out_sharding), _splat(shape, 1, dtype))


@composed()
def empty(shape: Any, dtype: Any = None, *, device: Any = None, out_sharding: Any = None) -> Any:
    """An array of `shape`; of zeros, as there are no numbers that nobody wrote."""
    return _on(_place(device, out_sharding), _zeros(shape, dtype))


def _zeros(shape: Any, dtype: Any) -> Any:
    """Zeros; many are memory that nobody has written since it was zeros, where there is such."""
    size = shape if type(shape) is int else prod(shape) if _is_known(shape) else 0
    if size >= FEWEST and current() is None:
        made = unwritten_zeros(shape_of(shape), dtype_of(float if dtype is None else dtype))
        if made is not None:
            return made
    return _splat(shape, 0, dtype)


def _is_known(shape: Any) -> bool:
    return type(shape) is tuple and all(type(extent) is int for extent in shape)


@public(static=("shape", "number", "dtype"))
def _splat(shape: Any, number: int, dtype: Any) -> Any:
    return splat(number, TensorType(shape_of(shape), dtype_of(float if dtype is None else dtype)))


@composed()
def full(
    shape: Any,
    fill_value: Any,
    dtype: Any = None,
    *,
    device: Any = None,
    out_sharding: Any = None,
) -> Any:
    """An array of `shape` with `fill_value`, broadcast to it, everywhere."""
    device = _place(device, out_sharding)
    whole = _as_whole(fill_value)
    if dtype is not None and whole is not None:
        return _on(device, _splat(shape, whole, dtype))
    return _on(device, _full(shape, fill_value, dtype))


def _as_whole(number: Any) -> int | None:
    """A small number of Python as an integer, if it is one; not a zero of floats, which has a sign.

    Programs are found by integers in half the time of a call.
    """
    if type(number) is float and number and abs(number) < 1 << 24 and number.is_integer():
        return int(number)
    return number if type(number) is int else None


@public(static=("shape", "dtype"))
def _full(shape: Any, fill_value: Any, dtype: Any) -> Any:
    sizes = shape_of(shape)
    value = fill_value if is_number(fill_value) else as_tracer(fill_value)
    name, weak = kind_of(value) if dtype is None else (dtype_of(dtype), False)
    return _filled(value, Abstract(TensorType(sizes, name), weak))


def _filled(value: Any, wanted: Abstract) -> Tracer:
    if is_number(value):
        return splat(value, wanted.type, wanted.weak)
    return broadcast(convert(as_tracer(value), wanted.type.dtype, wanted.weak), wanted.type.shape)


@composed(unused=True)
def zeros_like(
    a: Any, dtype: Any = None, shape: Any = None, *, device: Any = None, out_sharding: Any = None
) -> Any:
    """Zeros of the shape and element type of `a`, unless others are told."""
    return full_like(a, 0, dtype, shape, device=_place(device, out_sharding))


@composed(unused=True)
def ones_like(
    a: Any, dtype: Any = None, shape: Any = None, *, device: Any = None, out_sharding: Any = None
) -> Any:
    """Ones of the shape and element type of `a`, unless others are told."""
    return full_like(a, 1, dtype, shape, device=_place(device, out_sharding))


@composed(unused=True)
def empty_like(prototype: Any, dtype: Any = None, shape: Any = None, *, device: Any = None) -> Any:
    """Zeros of the shape and element type of `prototype`, unless others are told."""
    return full_like(prototype, 0, dtype, shape, device=device)


@composed(unused=True)
def full_like(
    a: Any,
    fill_value: Any,
    dtype: Any = None,
    shape: Any = None,
    *,
    device: Any = None,
    out_sharding: Any = None,
) -> Any:
    """`fill_value`, broadcast, in the shape and element type of `a`, unless others are told."""
    device = _place(device, out_sharding)
    known = abstract_of(asarray(a) if isinstance(a, (list, tuple)) else a)
    sizes = known.type.shape if shape is None else shape_of(shape)
    name, weak = (known.type.dtype, known.weak) if dtype is None else (dtype_of(dtype), False)
    whole = None if weak or name == "key" else _as_whole(fill_value)
    if whole is not None:
        kind = NUMPY_DTYPES[name].type
        made = _splat(sizes, whole, kind) if whole else _zeros(sizes, kind)
    else:
        made = _full_like(fill_value, TensorType(sizes, name), weak)
    if device is None and sizes == known.type.shape:
        # The operand has been placed so, or is to be: its dimensions need not divide.
        return _on(_home(a), made, "pad")
    return _on(device, made)


def _home(a: Any) -> Any:
    """Where somebody has placed an array, or would place it on devices that there are."""
    if isinstance(a, Array):
        return a.sharding if a.committed else None
    where = a.sharding if isinstance(a, ShapeDtypeStruct) else None
    if isinstance(where, Sharding) and not is_abstract(where.device_assignment):
        return where
    return None


@public(static=("type", "weak"))
def _full_like(fill_value: Any, type: TensorType, weak: bool) -> Any:
    return _filled(fill_value, Abstract(type, weak))


@composed()
def arange(
    start: Any,
    stop: Any = None,
    step: Any = None,
    dtype: Any = None,
    *,
    device: Any = None,
    out_sharding: Any = None,
) -> Any:
    """start, start + step, ... before stop; with one number, 0, 1, ... before that.

    The numbers must be known while tracing. Raises `ArgumentError` for what is no number.
    """
    bounds = [start, stop, step]
    for bound in bounds:
        if isinstance(bound, Tracer):
            bound.__index__()  # an error that says why the numbers must be known
    bounds = [int(bound) if isinstance(bound, bool) else bound for bound in bounds]
    numbers = [None if b is None else b if is_number(b) else _number(b) for b in bounds]
    if numbers[1] is None:
        numbers[:2] = [0, numbers[0]]
    if numbers[2] is None:
        numbers[2] = 1
    if numbers[2] == 0:
        raise ArgumentError(point("arange with step 0 has no end"))
    if dtype is None:
        given = [b for b in bounds if b is not None]
        dtype = promotion.user_dtype(promotion.result_type(*map(kind_of, given))[0])
    first, last, gap = numbers
    return _on(_place(device, out_sharding), _arange(first, last, gap, dtype))


def _number(bound: Any) -> Any:
    try:
        number = np.asarray(bound).item()
    except ValueError:
        number = None
    if not is_number(number):
        raise ArgumentError(point(f"arange takes numbers, got {bound!r}"))
    return number


def _count(start: Any, stop: Any, step: Any) -> int:
    """How many numbers NumPy's arange has, without making them."""
    bounds = (start, stop, step)
    try:
        if all(type(bound) is int for bound in bounds):
            return len(range(start, stop, step))
        if any(isinstance(bound, complex) for bound in bounds):
            return len(np.arange(start, stop, step))
        count: int = max(0, ceil((stop - start) / step))
    except (ValueError, OverflowError):  # Of what is infinite, or none; or of too many.
        count = sys.maxsize
    if count >= sys.maxsize:
        raise ArgumentError(point(f"arange from {start} to {stop} by {step} has no finite length"))
    return count


@public(static=("start", "stop", "step", "dtype"))
def _arange(start: Any, stop: Any, step: Any, dtype: Any) -> Any:
    """Counted in a type that holds all numbers, then converted."""
    name = dtype_of(dtype)
    count = _count(start, stop, step)
    whole = isinstance(start, int) and isinstance(step, int)
    if name in INTEGERS or name in ("f64", "c128"):
        counting = name if whole or name not in INTEGERS else promotion.canonical("f64")
    else:
        counting = "f32"
    numbers: Tracer = emit("iota", dim=0, result=TensorType((count,), counting))
    if step != 1:
        numbers = emit("mul", numbers, splat(step, numbers.value.type))
    if start != 0:
        numbers = emit("add", numbers, splat(start, numbers.value.type))
    return convert(numbers, name)
