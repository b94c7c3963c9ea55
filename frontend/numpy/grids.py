"""Evenly spaced values, and coordinates of grids."""

from collections.abc import Callable
from typing import Any

import numpy as np

from shardir.frontend import promotion
from shardir.frontend.amounts import whole
from shardir.frontend.array import Array
from shardir.frontend.eager import public
from shardir.frontend.errors import ArgumentError, ShapeError
from shardir.frontend.locations import point
from shardir.frontend.numpy.axes import axis_of, shape_of
from shardir.frontend.numpy.creation import asarray
from shardir.frontend.numpy.layout import spread
from shardir.frontend.numpy.pointwise import common, fitted, like, same
from shardir.frontend.operands import (
    SMALL,
    align,
    as_tracer,
    broadcast_shapes,
    constant,
    convert,
    is_number,
)
from shardir.frontend.parameters import called
from shardir.frontend.placing import device_put
from shardir.frontend.promotion import canonical, dtype_of
from shardir.frontend.quoting import brief
from shardir.frontend.trace import current, emit
from shardir.frontend.tracer import Tracer
from shardir.types import INTEGERS, NUMPY_DTYPES, TensorType


def _count(name: str, num: Any) -> int:
    count = whole(num)
    if count is None:
        raise ArgumentError(point(f"{name} of {brief(num)} numbers; num must be a whole number"))
    if count < 0:
        raise ArgumentError(point(f"{name} of {count} numbers; num must not be negative"))
    return count


def linspace(
    start: Any, stop: Any, num: int = 50, endpoint: bool = True, retstep: bool = False,
    dtype: Any = None, axis: int = 0, *, device: Any = None,
) -> Any:  # fmt: skip
    """Return `num` evenly spaced values from `start` to `stop`, along a new axis if those are
    arrays.

    Without `endpoint` the last value is one step before `stop`; with `retstep` return also the
    step. The result has the floating type to which both ends promote, or `dtype`; values of integer
    types are rounded down. A short result between concrete ends is a constant.
    """
    count = _count("linspace", num)
    if is_number(start) and is_number(stop) and count * 8 <= SMALL:
        result = _known(start, stop, count, endpoint, retstep, dtype, axis)
    else:
        result = _spaced(start, stop, count, endpoint, retstep, dtype, axis)
    return result if device is None else device_put(result, device)


@public(static=("start", "stop", "count", "endpoint", "retstep", "dtype", "axis"), name="linspace")
def _known(
    start: Any, stop: Any, count: int, endpoint: bool, retstep: bool, dtype: Any, axis: int
) -> Any:
    axis_of(axis, 1)
    name, _ = _kind(start, stop)
    exact, gap = np.linspace(start, stop, count, endpoint, retstep=True)
    values = exact.astype(NUMPY_DTYPES[name])
    if dtype is not None:
        name = dtype_of(dtype)
        values = (np.floor(exact) if name in INTEGERS else exact).astype(NUMPY_DTYPES[name])
    return (constant(values), constant(gap.astype(NUMPY_DTYPES[_kind(start, stop)[0]]))) if (
        retstep) else constant(values)  # fmt: skip


@public(static=("count", "endpoint", "retstep", "dtype", "axis"), name="linspace")
def _spaced(
    start: Any, stop: Any, count: int, endpoint: bool, retstep: bool, dtype: Any, axis: int
) -> Any:
    first, last, position = _between(start, stop, count, endpoint, axis)
    rest = same("sub", like(position, 1), position)
    result = same("add", same("mul", first, rest), same("mul", last, position))
    name = result.value.type.dtype if dtype is None else dtype_of(dtype)
    if name in INTEGERS:
        result = same("floor", result)
    result = convert(result, name)
    if not retstep:
        return result
    gaps = count - 1 if endpoint else count
    low, high = align(start, stop, kind=_kind(start, stop))
    return result, same("div", same("sub", high, low), like(low, gaps if gaps > 0 else np.nan))


def _kind(*xs: Any) -> tuple[str, bool]:
    return promotion.inexact(common(*xs)[0]), False


def _between(
    start: Any, stop: Any, count: int, endpoint: bool, axis: int
) -> tuple[Tracer, Tracer, Tracer]:
    """Return both ends and positions from 0 to 1 between them, all in the shape of the result."""
    name, _ = _kind(start, stop)
    sizes = broadcast_shapes(*(() if is_number(x) else as_tracer(x).shape for x in (start, stop)))
    dim = axis_of(axis, len(sizes) + 1)
    shape = (*sizes[:dim], count, *sizes[dim:])
    kept = [d for d in range(len(shape)) if d != dim]
    ends = fitted(sizes, (name, False), start, stop) if sizes else ()
    if not sizes:
        low, high = fitted(shape, (name, False), start, stop)
    else:
        low, high = (spread(end, shape, kept) for end in ends)
    position: Tracer = emit("iota", dim=dim, result=TensorType(shape, name))
    gaps = count - 1 if endpoint else count
    if gaps > 1:
        position = same("div", position, like(position, gaps))
    return low, high, position


@public(static=("num", "endpoint", "dtype", "axis"))
def logspace(
    start: Any, stop: Any, num: int = 50, endpoint: bool = True, base: Any = 10.0,
    dtype: Any = None, axis: int = 0,
) -> Any:  # fmt: skip
    """Return `base` to the powers of `linspace(start, stop, num)`."""
    powers = linspace(start, stop, num, endpoint, False, None, axis)
    kind = _kind(powers, base)
    shape = broadcast_shapes(powers.shape, () if is_number(base) else as_tracer(base).shape)
    result = same("pow", *fitted(shape, kind, base, powers))
    return result if dtype is None else convert(result, dtype_of(dtype))


def geomspace(
    start: Any, stop: Any, num: int = 50, endpoint: bool = True, dtype: Any = None, axis: int = 0
) -> Any:
    """Return `num` values from `start` to `stop` with equal ratios.

    Both ends are nonzero and have the same sign.
    """
    if 0 in [end for end in (start, stop) if is_number(end)]:
        raise ArgumentError(point("geomspace has no ratio from or to 0"))
    return _geomspace(start, stop, num, endpoint, dtype, axis)


@public(static=("num", "endpoint", "dtype", "axis"))
def _geomspace(start: Any, stop: Any, num: int, endpoint: bool, dtype: Any, axis: int) -> Any:
    first, last, position = _between(start, stop, _count("geomspace", num), endpoint, axis)
    result = same("mul", first, same("pow", same("div", last, first), position))
    ends = same("eq", position, like(position, 1))
    result = same("select", ends, last, result)
    return result if dtype is None else convert(result, dtype_of(dtype))


@public(static=("copy", "sparse", "indexing"))
def meshgrid(*xi: Any, copy: bool = True, sparse: bool = False, indexing: str = "xy") -> Any:
    """Return the coordinates of a grid, one array for each vector of `xi`.

    With `indexing="xy"` the first two axes are exchanged; `sparse` leaves the other axes with size
    1.
    """
    if indexing not in ("xy", "ij"):
        raise ArgumentError(point(f"indexing of meshgrid is {indexing!r}; it is 'xy' or 'ij'"))
    vectors = [as_tracer(x) for x in xi]
    for x in vectors:
        if x.ndim > 1:
            raise ShapeError(point(f"meshgrid takes vectors, got shape {x.shape}"))
    order = list(range(len(vectors)))
    if indexing == "xy" and len(vectors) > 1:
        order[:2] = [1, 0]
    sizes = [1] * len(vectors)
    for x, dim in zip(vectors, order, strict=True):
        sizes[dim] = x.value.type.size
    result = []
    for x, dim in zip(vectors, order, strict=True):
        shape = [n if not sparse or d == dim else 1 for d, n in enumerate(sizes)]
        result.append(spread(x, shape, (dim,) if x.ndim else ()))
    return result


@public(static=("dimensions", "dtype", "sparse"))
def indices(dimensions: Any, dtype: Any = None, sparse: bool = False) -> Any:
    """Return the index of each element of an array along each axis, stacked in a leading axis.

    With `sparse`, return a tuple of arrays that extend along one axis each.
    """
    sizes = shape_of(dimensions)
    name = canonical("i64") if dtype is None else dtype_of(dtype)
    if sparse:
        return tuple(
            emit("iota", dim=d, result=TensorType(tuple(n if k == d else 1 for k in range(
                len(sizes))), name)) for d, n in enumerate(sizes)
        )  # fmt: skip
    if not sizes:
        return asarray(np.zeros((0,)), dtype=promotion.user_dtype(name))
    # The parts are selected by the axis: a concatenation would write each part twice.
    shape = (len(sizes), *sizes)
    axis: Tracer = emit("iota", dim=0, result=TensorType(shape, "i32"))
    result, *others = (
        emit("iota", dim=d + 1, result=TensorType(shape, name)) for d in range(len(sizes))
    )
    for number, other in enumerate(others, 1):
        result = same("select", same("ge", axis, like(axis, number)), other, result)
    return result


@public(static=("function", "shape", "dtype", "kwargs"), cached=False)
def _fromfunction(
    function: Callable[..., Any], shape: Any, dtype: Any, kwargs: dict[str, Any]
) -> Any:
    return called(function, "the function of fromfunction", _places(shape, dtype), kwargs)


def fromfunction(
    function: Callable[..., Any], shape: Any, *, dtype: Any = float, **kwargs: Any
) -> Any:
    """Return `function` of the indices along each axis of an array of `shape`.

    Outside of a trace the function is called with arrays and not traced, because each call would
    compile another program.
    """
    if current() is not None or not callable(function):
        return _fromfunction(function, shape, dtype, kwargs)
    result = called(function, "the function of fromfunction", _places(shape, dtype), kwargs)
    return result if type(result) is Array else _returned(result)


@public(static=("shape", "dtype"), name="fromfunction")
def _places(shape: Any, dtype: Any) -> Any:
    sizes, name = shape_of(shape), dtype_of(dtype)
    return [emit("iota", dim=d, result=TensorType(sizes, name)) for d in range(len(sizes))]


@public(name="fromfunction")
def _returned(made: Any) -> Any:
    """Convert the result of a user's function to arrays."""
    return made


@public(static=("N", "increasing"))
def vander(x: Any, N: Any = None, increasing: bool = False) -> Any:
    """Return each element of a vector to the powers N - 1, ..., 1, 0 (0, 1, ... if
    `increasing`).
    """
    x = as_tracer(x)
    if x.ndim != 1:
        raise ShapeError(point(f"vander takes a vector, got shape {x.shape}"))
    count = x.shape[0] if N is None else _count("vander", N)
    name = "i32" if x.value.type.dtype == "bool" else x.value.type.dtype
    rows = spread(convert(x, name), (x.shape[0], count), (0,))
    powers: Tracer = emit("iota", dim=1, result=rows.value.type)
    if not increasing:
        powers = same("sub", like(powers, count - 1), powers)
    return same("pow", rows, powers)


class Grid:
    """`mgrid[0:3, 0:1:5j]`: coordinates by slices; a step of nj means n values, ends included."""

    def __init__(self, name: str, maker: Any) -> None:
        self._name, self._maker = name, maker

    def __getitem__(self, key: Any) -> Any:
        slices = key if isinstance(key, tuple) else (key,)
        for each in slices:
            if not _is_range(each):
                raise ArgumentError(
                    point(
                        f"{self._name} takes slices of concrete numbers, as "
                        f"{self._name}[0:3, 0:1:5j], got {brief(each)}"
                    )
                )
        coordinates = self._maker[key]
        if isinstance(coordinates, np.ndarray):
            return asarray(coordinates)
        return tuple(asarray(each) for each in coordinates)

    def __repr__(self) -> str:
        return f"shardir.numpy.{self._name}"


def _is_range(key: Any) -> bool:
    """Return whether the key is a slice of numbers with an end and a nonzero step."""
    if not isinstance(key, slice) or key.stop is None:
        return False
    bounds = (key.start, key.stop, key.step)
    numbers = all(each is None or np.isscalar(each) for each in bounds)
    return numbers and not any(isinstance(each, (str, bytes)) for each in bounds) and key.step != 0


mgrid, ogrid = Grid("mgrid", np.mgrid), Grid("ogrid", np.ogrid)
