"""Arrays made of numbers, shapes and Python lists."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from shardir.frontend import promotion
from shardir.frontend.array import Array, from_numpy
from shardir.frontend.eager import public
from shardir.frontend.errors import ArgumentError
from shardir.frontend.locations import point
from shardir.frontend.numpy.axes import shape_of
from shardir.frontend.operands import (
    abstract_of,
    as_tracer,
    broadcast,
    convert,
    is_number,
    kind_of,
    reshape,
    splat,
)
from shardir.frontend.promotion import Abstract, dtype_of
from shardir.frontend.trace import current, emit
from shardir.frontend.tracer import Tracer
from shardir.types import INTEGERS, TensorType


def asarray(a: Any, dtype: Any = None, order: Any = None, *, copy: bool | None = None) -> Any:
    """Numbers, NumPy arrays and nested lists of anything as an array.

    Element types of 64 bits are narrowed unless enabled. Raises `NotAnArrayError` for what is no
    array, such as lists of different lengths.
    """
    _row_major(order)
    if current() is None:
        if isinstance(a, Array) and (dtype is None or dtype_of(dtype) == a.type.dtype):
            return a
        if dtype is None and isinstance(a, (np.ndarray, np.generic)):
            return from_numpy(a)
        if isinstance(a, (list, tuple)) and _is_plain(a):
            # Not one argument for each number.
            return _asarray(_numbers(a), dtype)
    return _asarray(a, dtype)


def array(
    object: Any, dtype: Any = None, copy: bool = True, order: Any = "K", ndmin: int = 0
) -> Any:
    """Like `asarray`, with at least `ndmin` dimensions."""
    made = asarray(object, dtype, order)
    if made.ndim >= ndmin:
        return made
    return _expanded(made, (1,) * (ndmin - made.ndim) + made.shape)


def _row_major(order: Any) -> None:
    if order not in (None, "K", "A", "C"):
        raise ArgumentError(point(f"arrays are stored in row-major order, there is no {order!r}"))


def _is_plain(items: Any) -> bool:
    """Whether a nested list is made of Python and NumPy numbers only."""
    if isinstance(items, (list, tuple)):
        return all(map(_is_plain, items))
    return is_number(items) or isinstance(items, (np.generic, np.ndarray))


def _numbers(items: Sequence[Any]) -> Any:
    try:
        return np.asarray(items)
    except ValueError:
        return items  # traced, it is an error with the user's line


@public(static=("dtype",))
def _asarray(a: Any, dtype: Any = None) -> Any:
    if dtype is None:
        return as_tracer(a)
    name = dtype_of(dtype)
    if is_number(a) and promotion.result_type((name, False), kind_of(a))[0] == name:
        return splat(a, TensorType((), name))
    return convert(as_tracer(a), name)


@public(static=("shape",))
def _expanded(x: Any, shape: tuple[int, ...]) -> Any:
    return reshape(as_tracer(x), shape)


@public(static=("shape", "dtype"))
def full(shape: Any, fill_value: Any, dtype: Any = None) -> Any:
    """An array of `shape` with `fill_value`, broadcast to it, everywhere."""
    sizes = shape_of(shape)
    if not is_number(fill_value):
        fill_value = as_tracer(fill_value)
    name, weak = kind_of(fill_value) if dtype is None else (dtype_of(dtype), False)
    if is_number(fill_value):
        return splat(fill_value, TensorType(sizes, name), weak)
    return broadcast(convert(fill_value, name, weak), sizes)


@public(static=("shape", "dtype"))
def zeros(shape: Any, dtype: Any = None) -> Any:
    """An array of `shape` of zeros (float32 unless told)."""
    return splat(0, TensorType(shape_of(shape), dtype_of(float if dtype is None else dtype)))


@public(static=("shape", "dtype"))
def ones(shape: Any, dtype: Any = None) -> Any:
    """An array of `shape` of ones (float32 unless told)."""
    return splat(1, TensorType(shape_of(shape), dtype_of(float if dtype is None else dtype)))


@public(static=("shape", "dtype"))
def empty(shape: Any, dtype: Any = None) -> Any:
    """An array of `shape`; of zeros, as there are no numbers that nobody wrote."""
    return splat(0, TensorType(shape_of(shape), dtype_of(float if dtype is None else dtype)))


def _like(a: Any, dtype: Any, shape: Any) -> Abstract:
    known = abstract_of(as_tracer(a) if isinstance(a, (list, tuple)) else a)
    sizes = known.type.shape if shape is None else shape_of(shape)
    if dtype is None:
        return Abstract(known.type.with_shape(sizes), known.weak)
    return Abstract(TensorType(sizes, dtype_of(dtype)))


@public(static=("dtype", "shape"))
def zeros_like(a: Any, dtype: Any = None, shape: Any = None) -> Any:
    """Zeros of the shape and element type of `a`, unless others are told."""
    wanted = _like(a, dtype, shape)
    return splat(0, wanted.type, wanted.weak)


@public(static=("dtype", "shape"))
def ones_like(a: Any, dtype: Any = None, shape: Any = None) -> Any:
    """Ones of the shape and element type of `a`, unless others are told."""
    wanted = _like(a, dtype, shape)
    return splat(1, wanted.type, wanted.weak)


@public(static=("dtype", "shape"))
def empty_like(prototype: Any, dtype: Any = None, shape: Any = None) -> Any:
    """Zeros of the shape and element type of `prototype`, unless others are told."""
    wanted = _like(prototype, dtype, shape)
    return splat(0, wanted.type, wanted.weak)


@public(static=("dtype", "shape"))
def full_like(a: Any, fill_value: Any, dtype: Any = None, shape: Any = None) -> Any:
    """`fill_value`, broadcast, in the shape and element type of `a`, unless others are told."""
    wanted = _like(a, dtype, shape)
    if is_number(fill_value):
        return splat(fill_value, wanted.type, wanted.weak)
    value = convert(as_tracer(fill_value), wanted.type.dtype, wanted.weak)
    return broadcast(value, wanted.type.shape)


@public(static=("start", "stop", "step", "dtype"))
def arange(start: Any, stop: Any = None, step: Any = None, dtype: Any = None) -> Any:
    """start, start + step, ... before stop; with one number, from 0 before that.

    The numbers must be known while tracing.
    """
    if stop is None:
        start, stop = type(start)(0), start
    step = type(start)(1) if step is None else step
    bounds = (start, stop, step)
    for bound in bounds:
        if isinstance(bound, Tracer):
            bound.__index__()  # says that a shape needs numbers that are known
    if step == 0:
        raise ArgumentError(point("arange with step 0 never ends"))
    count = len(np.arange(*bounds))
    name = promotion.result_type(*map(kind_of, bounds))[0] if dtype is None else dtype_of(dtype)
    return counted(count, start, step, name)


def counted(count: int, start: Any, step: Any, name: str) -> Tracer:
    """start + i * step for i = 0, ..., count - 1."""
    whole = isinstance(start, (int, np.integer)) and isinstance(step, (int, np.integer))
    exact = name in INTEGERS if whole else name in ("f64", "c128")
    computed = name if exact or name in ("f32", "c64") else "i32" if whole else "f32"
    numbers: Tracer = emit("iota", dim=0, result=TensorType((count,), computed))
    if step != 1:
        numbers = emit("mul", numbers, splat(step, numbers.value.type))
    if start != 0:
        numbers = emit("add", numbers, splat(start, numbers.value.type))
    return convert(numbers, name)
