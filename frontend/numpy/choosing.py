"""Selection of elements by index or condition, and writes at indices: `choose`, `compress`,
`put`.
"""

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
    """Return a copy of `arr` with `values` where `take_along_axis(arr, indices, axis)` reads.

    Updates at indices out of range are dropped, or are clamped with mode "clip". Raise
    `ArgumentError` if `inplace` is true.
    """
    not_in_place("put_along_axis", inplace)
    array, index = as_tracer(arr), indices_of(indices, "put_along_axis")
    x, index, dim = lined_up(array, index, axis, "put_along_axis")
    if x.size != array.size:
        raise OperationTypeError(
            point(f"indices of shape {index.shape} do not fit an array of shape {array.shape}")
        )
    new = broadcast(fitted(x, values), index.shape)
    if not new.size:
        return array
    vectors = reshape(wrapped([index], [x.shape[dim]])[0], (*index.shape, 1))
    if mode == "clip":
        vectors = clamped(vectors, [x.shape[dim]])
    others = tuple(d for d in range(x.ndim) if d != dim)
    result = emit(
        "scatter",
        x,
        vectors,
        new,
        update_window_dims=(),
        inserted_window_dims=(dim,),
        scatter_dims=(dim,),
        operand_batching_dims=others,
        indices_batching_dims=others,
        op=Symbol("set"),
        weak=x.weak_type,
    )
    return reshape(result, array.shape)


def not_in_place(what: str, inplace: bool) -> None:
    """Raise `ArgumentError` if `inplace` is true: arrays are immutable."""
    if flag_of(f"inplace of {what}", inplace):
        raise ArgumentError(
            point(f"{what} cannot write into an array; take the result and pass inplace=False")
        )


@public(static=("mode", "inplace"))
def put(a: Any, ind: Any, v: Any, mode: str | None = None, *, inplace: bool = False) -> Any:
    """Return a copy of `a` with the values `v` at the flat indices `ind`; `v` is repeated if
    short.
    """
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
    """Return an array whose element i is element i of `choices[a[i]]`; all operands broadcast.

    Indices out of range raise an error (mode "raise", for concrete indices), are clamped ("clip")
    or are taken modulo the number of choices ("wrap").
    """
    if out is not None:
        raise ArgumentError(point("choose takes no out=; arrays are immutable"))
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
            "choose checks that its indices are in range",
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
    """Return the elements of `a` along `axis` (without it, flattened) where `condition` is true.

    The number of elements must be concrete, or stated by `size`: then the result is truncated, or
    padded with `fill_value`. Raise `IndexingError` if `condition` is true beyond the last element.
    """
    if out is not None:
        raise ArgumentError(point("compress takes no out=; arrays are immutable"))
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
        positions = known_places(flat)[0]
        _check_places(positions, type_of(a).shape, axis)
        return _compressed(a, positions, axis)
    return _compressed_to(condition, a, axis, size, fill_value)


def _check_places(positions: Any, shape: tuple[int, ...], axis: int | None) -> None:
    extent = prod(shape) if axis is None else shape[axis]
    if positions.size and int(positions[-1]) >= extent:
        raise IndexingError(
            point(f"a condition is true at {int(positions[-1])}, and there are {extent} elements")
        )


@public(static=("axis",), name="compress")
def _compressed(a: Any, positions: Any, axis: int | None) -> Any:
    return take(a, positions, axis, mode="promise_in_bounds")


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
    in_range = where < x.shape[dim]
    in_range = reshape(in_range, (size, *(1,) * (x.ndim - dim - 1)))
    return snp.where(in_range, found, fitted(x, fill_value))


@refusing
def extract(condition: Any, arr: Any, *, size: int | None = None, fill_value: Any = 0) -> Any:
    """Return the elements of `arr` where `condition` is true, both flattened; see `compress` for
    `size`.
    """
    return compress(condition, arr, size=size, fill_value=fill_value)
