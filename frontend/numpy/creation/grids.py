"""Evenly spaced values, and coordinates of grids."""

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np

from shardir.frontend.argument_checks import as_integer, canonicalize_shape
from shardir.frontend.argument_errors import with_argument_errors
from shardir.frontend.arrays.array import Array
from shardir.frontend.arrays.array_types import ArrayLike, DTypeLike, ShapeLike
from shardir.frontend.arrays.device_transfer import device_put
from shardir.frontend.arrays.numpy_conversion import is_number
from shardir.frontend.call_signatures import call_user_function
from shardir.frontend.dispatch.eager import public
from shardir.frontend.errors import ArgumentError, ShapeError
from shardir.frontend.numpy.creation.array_conversion import asarray
from shardir.frontend.numpy.tracer_helpers.axes import canonicalize_axis
from shardir.frontend.numpy.tracer_helpers.axis_slices import broadcast_in_dim
from shardir.frontend.numpy.tracer_helpers.elementwise_emission import (
    common_kind,
    constant_like,
    convert_and_broadcast,
    emit_elementwise,
)
from shardir.frontend.pytree_types import PyTree, UserFunction
from shardir.frontend.quoting import brief, quote_message
from shardir.frontend.shardings.requested_sharding import ShardingRequest
from shardir.frontend.source_locations import with_location
from shardir.frontend.tracing import promotion
from shardir.frontend.tracing.operands import (
    MAX_CONSTANT_BYTES,
    align,
    as_tracer,
    broadcast_shapes,
    constant,
    convert,
)
from shardir.frontend.tracing.promotion import canonical_dtype, dtype_of
from shardir.frontend.tracing.trace import current_trace, emit
from shardir.frontend.tracing.tracer import Tracer
from shardir.ir.types import INTEGERS, NUMPY_DTYPES, NumpyArray, TensorType


def _check_count(name: str, num: object) -> int:
    count = as_integer(num)
    if count is None:
        raise ArgumentError(with_location(f"num of {name} is {brief(num)}; it must be an integer"))
    if count < 0:
        raise ArgumentError(with_location(f"num of {name} is {count}; it must not be negative"))
    return count


@with_argument_errors
def linspace(
    start: ArrayLike, stop: ArrayLike, num: int = 50, endpoint: bool = True, retstep: bool = False,
    dtype: DTypeLike | None = None, axis: int = 0, *, device: ShardingRequest = None,
) -> PyTree:  # fmt: skip
    """Return `num` evenly spaced values from `start` to `stop`, along a new axis if those are
    arrays.

    Without `endpoint` the last value is one step before `stop`; with `retstep` return also the
    step, NaN if there is none. The result has the floating type to which both ends promote, or
    `dtype`; values of integer types are rounded down. A short result between concrete ends is a
    constant.
    """
    count = _check_count("linspace", num)
    if is_number(start) and is_number(stop) and count * 8 <= MAX_CONSTANT_BYTES:
        result = _linspace_constant(start, stop, count, endpoint, retstep, dtype, axis)
    else:
        result = _linspace_emitted(start, stop, count, endpoint, retstep, dtype, axis)
    return result if device is None else device_put(result, device)


@public(static=("start", "stop", "count", "endpoint", "retstep", "dtype", "axis"), name="linspace")
def _linspace_constant(
    start: complex,
    stop: complex,
    count: int,
    endpoint: bool,
    retstep: bool,
    dtype: DTypeLike | None,
    axis: int,
) -> PyTree:
    canonicalize_axis(axis, 1)
    name, _ = _inexact_kind(start, stop)
    exact, gap = np.linspace(start, stop, count, endpoint, retstep=True)
    kind = NUMPY_DTYPES[name]
    values = exact.astype(NUMPY_DTYPES[name])
    if dtype is not None:
        name = dtype_of(dtype)
        values = (np.floor(exact) if name in INTEGERS else exact).astype(NUMPY_DTYPES[name])
    return (constant(values), constant(np.asarray(gap, kind))) if retstep else constant(values)


@public(static=("count", "endpoint", "retstep", "dtype", "axis"), name="linspace")
def _linspace_emitted(
    start: ArrayLike,
    stop: ArrayLike,
    count: int,
    endpoint: bool,
    retstep: bool,
    dtype: DTypeLike | None,
    axis: int,
) -> PyTree:
    first, last, position = _ends_and_positions(start, stop, count, endpoint, axis)
    rest = emit_elementwise("sub", constant_like(position, 1), position)
    result = emit_elementwise(
        "add", emit_elementwise("mul", first, rest), emit_elementwise("mul", last, position)
    )
    name = result.value.type.dtype if dtype is None else dtype_of(dtype)
    if name in INTEGERS:
        result = emit_elementwise("floor", result)
    result = convert(result, name)
    if not retstep:
        return result
    gaps = count - 1 if endpoint else count
    low, high = align(start, stop, kind=_inexact_kind(start, stop))
    if gaps < 1:
        return result, constant(np.array(np.nan, NUMPY_DTYPES[low.value.type.dtype]))
    return result, emit_elementwise(
        "div", emit_elementwise("sub", high, low), constant_like(low, gaps)
    )


def _inexact_kind(*xs: PyTree) -> tuple[str, bool]:
    return promotion.inexact_dtype(common_kind(*xs)[0]), False


def _ends_and_positions(
    start: ArrayLike, stop: ArrayLike, count: int, endpoint: bool, axis: int
) -> tuple[Tracer, Tracer, Tracer]:
    """Return both ends and positions from 0 to 1 between them, all in the shape of the result."""
    name, _ = _inexact_kind(start, stop)
    sizes = broadcast_shapes(*(() if is_number(x) else as_tracer(x).shape for x in (start, stop)))
    dim = canonicalize_axis(axis, len(sizes) + 1)
    shape = (*sizes[:dim], count, *sizes[dim:])
    kept = [d for d in range(len(shape)) if d != dim]
    ends = convert_and_broadcast(sizes, (name, False), start, stop) if sizes else ()
    if not sizes:
        low, high = convert_and_broadcast(shape, (name, False), start, stop)
    else:
        low, high = (broadcast_in_dim(end, shape, kept) for end in ends)
    position: Tracer = emit("iota", dim=dim, result=TensorType(shape, name))
    gaps = count - 1 if endpoint else count
    if gaps > 1:
        position = emit_elementwise("div", position, constant_like(position, gaps))
    return low, high, position


@public(static=("num", "endpoint", "dtype", "axis"))
def logspace(
    start: ArrayLike, stop: ArrayLike, num: int = 50, endpoint: bool = True, base: ArrayLike = 10.0,
    dtype: DTypeLike | None = None, axis: int = 0,
) -> Tracer:  # fmt: skip
    """Return `base` to the powers of `linspace(start, stop, num)`."""
    powers = linspace(start, stop, num, endpoint, False, None, axis)
    kind = _inexact_kind(powers, base)
    shape = broadcast_shapes(powers.shape, () if is_number(base) else as_tracer(base).shape)
    result = emit_elementwise("pow", *convert_and_broadcast(shape, kind, base, powers))
    return result if dtype is None else convert(result, dtype_of(dtype))


@with_argument_errors
def geomspace(
    start: ArrayLike,
    stop: ArrayLike,
    num: int = 50,
    endpoint: bool = True,
    dtype: DTypeLike | None = None,
    axis: int = 0,
) -> Tracer:
    """Return `num` values from `start` to `stop` with equal ratios.

    Both ends are nonzero and have the same sign.
    """
    if 0 in [end for end in (start, stop) if is_number(end)]:
        raise ArgumentError(with_location("start or stop of geomspace is 0; both must be nonzero"))
    return _geomspace(start, stop, num, endpoint, dtype, axis)


@public(static=("num", "endpoint", "dtype", "axis"))
def _geomspace(
    start: ArrayLike, stop: ArrayLike, num: int, endpoint: bool, dtype: DTypeLike | None, axis: int
) -> Tracer:
    first, last, position = _ends_and_positions(
        start, stop, _check_count("geomspace", num), endpoint, axis
    )
    result = emit_elementwise(
        "mul", first, emit_elementwise("pow", emit_elementwise("div", last, first), position)
    )
    ends = emit_elementwise("eq", position, constant_like(position, 1))
    result = emit_elementwise("select", ends, last, result)
    return result if dtype is None else convert(result, dtype_of(dtype))


@public(static=("copy", "sparse", "indexing"))
def meshgrid(
    *xi: object, copy: bool = True, sparse: bool = False, indexing: str = "xy"
) -> list[Tracer]:
    """Return the coordinates of a grid, one array for each vector of `xi`.

    With `indexing="xy"` the first two axes are exchanged; `sparse` leaves the other axes with size
    1.
    """
    if indexing not in ("xy", "ij"):
        raise ArgumentError(
            with_location(f"indexing of meshgrid is {indexing!r}; it is 'xy' or 'ij'")
        )
    vectors = [as_tracer(x) for x in xi]
    for x in vectors:
        if x.ndim > 1:
            raise ShapeError(with_location(f"meshgrid takes vectors, got shape {x.shape}"))
    order = list(range(len(vectors)))
    if indexing == "xy" and len(vectors) > 1:
        order[:2] = [1, 0]
    sizes = [1] * len(vectors)
    for x, dim in zip(vectors, order, strict=True):
        sizes[dim] = x.value.type.size
    result = []
    for x, dim in zip(vectors, order, strict=True):
        shape = [n if not sparse or d == dim else 1 for d, n in enumerate(sizes)]
        result.append(broadcast_in_dim(x, shape, (dim,) if x.ndim else ()))
    return result


@public(static=("dimensions", "dtype", "sparse"))
def indices(dimensions: ShapeLike, dtype: DTypeLike | None = None, sparse: bool = False) -> PyTree:
    """Return the index of each element of an array along each axis, stacked in a leading axis.

    With `sparse`, return a tuple of arrays that extend along one axis each.
    """
    sizes = canonicalize_shape(dimensions)
    name = canonical_dtype("i64") if dtype is None else dtype_of(dtype)
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
        result = emit_elementwise(
            "select", emit_elementwise("ge", axis, constant_like(axis, number)), other, result
        )
    return result


@public(static=("function", "shape", "dtype", "kwargs"), cached=False)
def _fromfunction(
    function: UserFunction, shape: ShapeLike, dtype: DTypeLike, kwargs: dict[str, PyTree]
) -> PyTree:
    return call_user_function(
        function, "the function of fromfunction", _emit_indices(shape, dtype), kwargs
    )


@with_argument_errors
def fromfunction(
    function: UserFunction, shape: ShapeLike, *, dtype: DTypeLike = float, **kwargs: PyTree
) -> PyTree:
    """Return `function` of the indices along each axis of an array of `shape`.

    Outside of a trace the function is called with arrays and not traced, because each call would
    compile another program.
    """
    if current_trace() is not None or not callable(function):
        return _fromfunction(function, shape, dtype, kwargs)
    result = call_user_function(
        function, "the function of fromfunction", _emit_indices(shape, dtype), kwargs
    )
    return result if type(result) is Array else _as_arrays(result)


@public(static=("shape", "dtype"), name="fromfunction")
def _emit_indices(shape: ShapeLike, dtype: DTypeLike) -> list[Tracer]:
    sizes, name = canonicalize_shape(shape), dtype_of(dtype)
    return [emit("iota", dim=d, result=TensorType(sizes, name)) for d in range(len(sizes))]


@public(name="fromfunction")
def _as_arrays(made: PyTree) -> PyTree:
    """Convert the result of a user's function to arrays."""
    return made


@public(static=("N", "increasing"))
def vander(x: ArrayLike, N: int | None = None, increasing: bool = False) -> Tracer:
    """Return each element of a vector to the powers N - 1, ..., 1, 0 (0, 1, ... if
    `increasing`).
    """
    x = as_tracer(x)
    if x.ndim != 1:
        raise ShapeError(with_location(f"vander takes a vector, got shape {x.shape}"))
    count = x.shape[0] if N is None else _check_count("vander", N)
    name = "i32" if x.value.type.dtype == "bool" else x.value.type.dtype
    rows = broadcast_in_dim(convert(x, name), (x.shape[0], count), (0,))
    powers: Tracer = emit("iota", dim=1, result=rows.value.type)
    if not increasing:
        powers = emit_elementwise("sub", constant_like(powers, count - 1), powers)
    return emit_elementwise("pow", rows, powers)


GridMaker: TypeAlias = Callable[
    [slice | Sequence[slice]], NumpyArray | tuple[NumpyArray, ...] | list[NumpyArray]
]


class GridIndexer:
    """`mgrid[0:3, 0:1:5j]`: coordinates by slices; a step of nj means n values, ends included."""

    def __init__(self, name: str, maker: GridMaker) -> None:
        self._name, self._maker = name, maker

    def __getitem__(self, key: slice | tuple[slice, ...]) -> PyTree:
        slices = key if isinstance(key, tuple) else (key,)
        for each in slices:
            if not _is_range(each):
                raise ArgumentError(
                    with_location(
                        f"{self._name} takes slices of concrete numbers, as "
                        f"{self._name}[0:3, 0:1:5j], got {brief(each)}"
                    )
                )
        try:
            coordinates = self._maker(key)
        except (ValueError, OverflowError, MemoryError) as error:
            raise ArgumentError(
                with_location(
                    f"{self._name} cannot make coordinates of {brief(key)}: "
                    f"{quote_message(str(error))}"
                )
            ) from None
        if isinstance(coordinates, np.ndarray):
            return asarray(coordinates)
        return [asarray(each) for each in coordinates]

    def __repr__(self) -> str:
        return f"shardir.numpy.{self._name}"


def _is_range(key: object) -> bool:
    """Return whether the key is a slice of numbers with an end and a nonzero step."""
    if not isinstance(key, slice) or key.stop is None:
        return False
    bounds = (key.start, key.stop, key.step)
    numbers = all(each is None or np.isscalar(each) for each in bounds)
    return numbers and not any(isinstance(each, (str, bytes)) for each in bounds) and key.step != 0


mgrid = GridIndexer("mgrid", np.mgrid.__getitem__)
"""`mgrid[0:3, 0:1:5j]` returns the coordinates of a dense grid as one array.

A step of nj means n values, ends included.
"""
ogrid = GridIndexer("ogrid", np.ogrid.__getitem__)
"""`ogrid[0:3, 0:1:5j]` returns the coordinates of a grid as a list of arrays that broadcast to it.

A step of nj means n values, ends included.
"""
