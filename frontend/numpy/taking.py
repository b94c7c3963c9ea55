"""Elements at index arrays along one dimension: `take`, `take_along_axis` and what is like them."""

from math import prod
from typing import Any

import numpy as np

from shardir.errors import OperationTypeError
from shardir.frontend.eager import public
from shardir.frontend.errors import ArgumentError, IndexingError
from shardir.frontend.locations import point
from shardir.frontend.numpy.at import fitted
from shardir.frontend.numpy.axes import axis_of
from shardir.frontend.numpy.indexing import filling, read, select_inside
from shardir.frontend.numpy.known import is_known, known_array
from shardir.frontend.numpy.pointwise import common, known
from shardir.frontend.numpy.subscripts import Span, Subscript
from shardir.frontend.numpy.vectors import clamped, wrapped
from shardir.frontend.operands import (
    as_tracer,
    broadcast,
    broadcast_shapes,
    promote_to,
    reshape,
    splat,
)
from shardir.frontend.trace import emit
from shardir.frontend.tracer import Tracer
from shardir.opset import Symbol
from shardir.types import INTEGERS

MODES = ("fill", "clip", "wrap", "promise_in_bounds")


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
    """The elements of `a` at `indices` along `axis` (without it, of the flat array).

    The indices' dimensions take the place of the axis. Indices out of range give `fill_value`
    (mode "fill", the default; NaN, or the lowest integer unless told), the nearest element
    ("clip", where negative indices are out of range), or start again ("wrap").
    """
    if out is not None:
        raise ArgumentError(point("take has no out=; arrays are never written into"))
    _check_mode("take", mode)
    if is_known(indices) and not hasattr(indices, "abstract"):
        indices = np.asarray(indices)
        if not indices.size:
            indices = indices.astype(np.int32)
        elif indices.dtype.kind in "iu" and mode in (None, "fill"):
            size = _size_along(a, axis)
            if ((indices >= -size) & (indices < size)).all():
                mode, indices = "clip", np.where(indices < 0, indices + size, indices)
    return _take(a, indices, axis, mode or "fill", fill_value)


def _size_along(a: Any, axis: int | None) -> int:
    shape = a.shape if hasattr(a, "shape") else np.shape(a)
    return prod(shape) if axis is None else shape[axis_of(axis, len(shape))]


def _check_mode(what: str, mode: str | None) -> None:
    if mode is not None and mode not in MODES:
        raise ArgumentError(point(f"{what} has no mode {mode!r}; its modes are {', '.join(MODES)}"))


def _indices(indices: Any, what: str) -> Tracer:
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
    index = _indices(indices, "take")
    if not x.shape[dim] and index.size:
        raise IndexingError(point(f"take has nothing to take from: axis {axis} is empty"))
    spans = tuple(Span(0, n) if d != dim else None for d, n in enumerate(x.shape))
    subscript = Subscript(x.shape, spans, index.shape, dim, known=True)
    index = _counted(index, x.shape[dim], mode)
    vectors = reshape(index, (*index.shape, 1))
    fill = filling(x.value.type.dtype, fill_value) if mode == "fill" else None
    return read(x, subscript, [vectors], fill)


_take.__name__ = "take"


def _counted(index: Tracer, size: int, mode: str) -> Tracer:
    """Indices counted from the front, in the way of a mode."""
    from shardir.frontend import numpy as snp

    if mode == "wrap":
        wrapped_around: Tracer = snp.remainder(index, max(size, 1))
        return wrapped_around
    if mode in ("clip", "promise_in_bounds"):
        return index
    return wrapped([index], [size])[0]


def take_along_axis(
    arr: Any, indices: Any, axis: int | None = -1, mode: str | None = None, fill_value: Any = None
) -> Any:
    """For each line of `arr` along `axis` the elements at the same line of `indices`.

    The other dimensions broadcast. Without an axis both are flat. Indices out of range give
    `fill_value` (mode "fill", the default), the nearest element ("clip") or start again ("wrap").
    """
    _check_mode("take_along_axis", mode)
    return _take_along(arr, indices, axis, mode or "fill", fill_value)


@public(static=("axis", "mode", "fill_value"))
def _take_along(arr: Any, indices: Any, axis: int | None, mode: str, fill_value: Any) -> Any:
    x, index = as_tracer(arr), _indices(indices, "take_along_axis")
    x, index, dim = _lined_up(x, index, axis, "take_along_axis")
    if not index.size:
        return splat(0, x.value.type.with_shape(index.shape), x.weak_type)
    if not x.shape[dim]:
        raise IndexingError(
            point(f"take_along_axis has nothing to take from: axis {axis} is empty")
        )
    counted = _counted(index, x.shape[dim], mode)
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


_take_along.__name__ = "take_along_axis"


def _lined_up(x: Tracer, index: Tracer, axis: int | None, what: str) -> tuple[Tracer, Tracer, int]:
    """Both with the same sizes but along the axis."""
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


@public(static=("axis", "inplace", "mode"))
def put_along_axis(
    arr: Any,
    indices: Any,
    values: Any,
    axis: int | None,
    inplace: bool = False,
    *,
    mode: str | None = None,
) -> Any:
    """A copy of `arr` with `values` where `take_along_axis(arr, indices, axis)` reads.

    Indices out of range are dropped, or moved to the nearest element with mode "clip".
    """
    not_in_place("put_along_axis", inplace)
    whole, index = as_tracer(arr), _indices(indices, "put_along_axis")
    x, index, dim = _lined_up(whole, index, axis, "put_along_axis")
    if x.size != whole.size:
        raise OperationTypeError(
            point(f"indices of shape {index.shape} do not fit an array of shape {whole.shape}")
        )
    new = broadcast(fitted(x, values), index.shape)
    if not new.size:
        return whole
    counted = reshape(wrapped([index], [x.shape[dim]])[0], (*index.shape, 1))
    if mode == "clip":
        counted = clamped(counted, [x.shape[dim]])
    others = tuple(d for d in range(x.ndim) if d != dim)
    made = emit(
        "scatter",
        x,
        counted,
        new,
        update_window_dims=(),
        inserted_window_dims=(dim,),
        scatter_dims=(dim,),
        operand_batching_dims=others,
        indices_batching_dims=others,
        op=Symbol("set"),
        weak=x.weak_type,
    )
    return reshape(made, whole.shape)


def not_in_place(what: str, inplace: bool) -> None:
    """Raise `ArgumentError` if an array is to be written into."""
    if inplace:
        raise ArgumentError(
            point(f"{what} cannot write into an array; take the result and pass inplace=False")
        )


@public(static=("mode", "inplace"))
def put(a: Any, ind: Any, v: Any, mode: str | None = None, *, inplace: bool = False) -> Any:
    """A copy of `a` with the values `v`, from the start again if short, at flat indices `ind`."""
    from shardir.frontend import numpy as snp

    not_in_place("put", inplace)
    x = as_tracer(a)
    index = snp.ravel(_indices(ind, "put"))
    new = snp.ravel(as_tracer(v))
    if not index.size or not new.size:
        return x
    new = snp.resize(new, (index.size,))
    if mode == "wrap":
        index = snp.remainder(index, x.size)
    elif mode == "clip":
        index = snp.clip(index, 0, x.size - 1)
    elif mode is not None:
        raise ArgumentError(point(f"put has no mode {mode!r}; its modes are 'clip' and 'wrap'"))
    return reshape(reshape(x, (x.size,)).at[index].set(new), x.shape)


def choose(a: Any, choices: Any, out: None = None, mode: str = "raise") -> Any:
    """Element i of the result is element i of `choices[a[i]]`; everything broadcasts.

    Indices out of range raise (which takes indices that are known), are moved to the nearest
    ("clip") or start again ("wrap").
    """
    if out is not None:
        raise ArgumentError(point("choose has no out=; arrays are never written into"))
    if mode not in ("raise", "clip", "wrap"):
        raise ArgumentError(
            point(f"choose has no mode {mode!r}; its modes are 'raise', 'clip' and 'wrap'")
        )
    if mode == "raise":
        index = known_array(
            a, "choose looks whether its indices are in range", "pass mode='clip' or mode='wrap'"
        )
        if index.size and not ((index >= 0) & (index < len(choices))).all():
            raise IndexingError(
                point(f"choose has an index out of range for {len(choices)} choices")
            )
    return _choose(a, choices, mode)


@public(static=("mode",))
def _choose(a: Any, choices: Any, mode: str) -> Any:
    from shardir.frontend import numpy as snp

    index = _indices(a, "choose")
    items = known(*(choices[i] for i in range(len(choices))))
    tracers = promote_to(common(*items), *items)
    shape = broadcast_shapes(index.shape, *(x.shape for x in tracers))
    stacked = snp.stack([broadcast(x, shape) for x in tracers])
    where = reshape(broadcast(index, shape), (1, *shape))
    where = _counted(where, len(items), "wrap") if mode == "wrap" else where
    return reshape(_take_along(stacked, where, 0, "clip", None), shape)


_choose.__name__ = "choose"


def compress(
    condition: Any,
    a: Any,
    axis: int | None = None,
    *,
    size: int | None = None,
    fill_value: Any = 0,
    out: None = None,
) -> Any:
    """The elements of `a` along `axis` (without it, of the flat array) where `condition` is true.

    How many there are must be known, or stated by `size`: then it is cut off there, or lengthened
    by `fill_value`.
    """
    if out is not None:
        raise ArgumentError(point("compress has no out=; arrays are never written into"))
    from shardir.frontend.numpy.positions import flatnonzero

    if size is None:
        return _compressed(a, np.asarray(flatnonzero(condition)), axis)
    return _compressed_to(condition, a, axis, size, fill_value)


@public(static=("axis",))
def _compressed(a: Any, places: Any, axis: int | None) -> Any:
    return take(a, places, axis, mode="clip")


@public(static=("axis", "size"))
def _compressed_to(condition: Any, a: Any, axis: int | None, size: int, fill_value: Any) -> Any:
    from shardir.frontend import numpy as snp
    from shardir.frontend.numpy.positions import flatnonzero

    x = as_tracer(a)
    if axis is None:
        x, axis = reshape(x, (x.size,)), 0
    dim = axis_of(axis, x.ndim)
    where = flatnonzero(condition, size=size, fill_value=x.shape[dim])
    found = take(x, where, dim, mode="clip")
    there = where < x.shape[dim]
    there = reshape(there, (size, *(1,) * (x.ndim - dim - 1)))
    return snp.where(there, found, fitted(x, fill_value))


_compressed.__name__ = _compressed_to.__name__ = "compress"


def extract(condition: Any, arr: Any, *, size: int | None = None, fill_value: Any = 0) -> Any:
    """The elements of `arr` where `condition` is true, both flat; see `compress` for `size`."""
    from shardir.frontend.numpy.manipulation import ravel

    return compress(ravel(condition), ravel(arr), size=size, fill_value=fill_value)
