"""Elements chosen by others, and put in their places: `choose`, `compress`, `put`."""

from math import prod
from typing import Any

import numpy as np

from shardir.errors import OperationTypeError
from shardir.frontend.amounts import flag_of, is_one_of
from shardir.frontend.eager import public
from shardir.frontend.errors import ArgumentError, IndexingError
from shardir.frontend.locations import point
from shardir.frontend.numpy.axes import axis_of
from shardir.frontend.numpy.inspection import type_of
from shardir.frontend.numpy.known import is_known, known_array, numbers_of
from shardir.frontend.numpy.masking import chosen
from shardir.frontend.numpy.pointwise import common, known
from shardir.frontend.numpy.taking import indices_of, lined_up, take, take_along_axis
from shardir.frontend.numpy.updates import fitted
from shardir.frontend.numpy.vectors import clamped, wrapped
from shardir.frontend.operands import as_tracer, broadcast, broadcast_shapes, promote_to, reshape
from shardir.frontend.quoting import brief
from shardir.frontend.refusals import refusing
from shardir.frontend.trace import emit
from shardir.opset import Symbol


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
    whole, index = as_tracer(arr), indices_of(indices, "put_along_axis")
    x, index, dim = lined_up(whole, index, axis, "put_along_axis")
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
    if flag_of(f"inplace of {what}", inplace):
        raise ArgumentError(
            point(f"{what} cannot write into an array; take the result and pass inplace=False")
        )


@public(static=("mode", "inplace"))
def put(a: Any, ind: Any, v: Any, mode: str | None = None, *, inplace: bool = False) -> Any:
    """A copy of `a` with the values `v`, from the start again if short, at flat indices `ind`."""
    from shardir.frontend import numpy as snp

    not_in_place("put", inplace)
    x = as_tracer(a)
    index = snp.ravel(indices_of(ind, "put"))
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
    if not is_one_of(mode, ("raise", "clip", "wrap")):
        raise ArgumentError(
            point(f"choose has no mode {brief(mode)}; its modes are 'raise', 'clip' and 'wrap'")
        )
    if not isinstance(choices, (list, tuple)) and not getattr(choices, "shape", ()):
        raise ArgumentError(
            point(f"choose takes choices as a list, or along an array, got {brief(choices)}")
        )
    if mode == "raise":
        index = known_array(
            a,
            "argument a of choose",
            "choose looks whether its indices are in range",
            "pass mode='clip' or mode='wrap'",
        )
        if index.dtype.kind in "iu" and not ((index >= 0) & (index < len(choices))).all():
            raise IndexingError(
                point(f"choose has an index out of range for {len(choices)} choices")
            )
    return _choose(a, choices, mode)


@public(static=("mode",))
def _choose(a: Any, choices: Any, mode: str) -> Any:
    from shardir.frontend import numpy as snp

    index = indices_of(a, "choose")
    items = known(*(choices[i] for i in range(len(choices))))
    tracers = promote_to(common(*items), *items)
    shape = broadcast_shapes(index.shape, *(x.shape for x in tracers))
    stacked = snp.stack([broadcast(x, shape) for x in tracers])
    where = reshape(broadcast(index, shape), (1, *shape))
    if mode == "wrap":
        return reshape(take_along_axis(stacked, where, 0, "wrap"), shape)
    return reshape(take_along_axis(stacked, snp.maximum(where, 0), 0, "clip"), shape)


@refusing
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
    by `fill_value`. Raises `IndexingError` where `condition` is true beyond the last element.
    """
    if out is not None:
        raise ArgumentError(point("compress has no out=; arrays are never written into"))
    if size is None and (axis is None or type(axis) is int):
        found = chosen(a, condition, axis)
        if found is not None:
            return found
    if axis is not None:
        axis = axis_of(axis, type_of(a).rank)
    if size is None:
        from shardir.frontend.numpy.positions import known_places

        label = "argument condition of compress"
        flat = np.ravel(numbers_of(condition, label)) if is_known(condition) else condition
        places = known_places(flat)[0]
        _check_places(places, type_of(a).shape, axis)
        return _compressed(a, places, axis)
    return _compressed_to(condition, a, axis, size, fill_value)


def _check_places(places: Any, shape: tuple[int, ...], axis: int | None) -> None:
    extent = prod(shape) if axis is None else shape[axis]
    if places.size and int(places[-1]) >= extent:
        raise IndexingError(
            point(f"a condition is true at {int(places[-1])}, and there are {extent} elements")
        )


@public(static=("axis",), name="compress")
def _compressed(a: Any, places: Any, axis: int | None) -> Any:
    return take(a, places, axis, mode="promise_in_bounds")


@public(static=("axis", "size"), name="compress")
def _compressed_to(condition: Any, a: Any, axis: int | None, size: int, fill_value: Any) -> Any:
    from shardir.frontend import numpy as snp
    from shardir.frontend.numpy.positions import flatnonzero

    x = as_tracer(a)
    if axis is None:
        x, axis = reshape(x, (x.size,)), 0
    dim = axis_of(axis, x.ndim)
    where = flatnonzero(condition, size=size, fill_value=x.shape[dim])
    found = take(x, where, dim, mode="promise_in_bounds")
    there = where < x.shape[dim]
    there = reshape(there, (size, *(1,) * (x.ndim - dim - 1)))
    return snp.where(there, found, fitted(x, fill_value))


@refusing
def extract(condition: Any, arr: Any, *, size: int | None = None, fill_value: Any = 0) -> Any:
    """The elements of `arr` where `condition` is true, both flat; see `compress` for `size`."""
    return compress(condition, arr, size=size, fill_value=fill_value)
