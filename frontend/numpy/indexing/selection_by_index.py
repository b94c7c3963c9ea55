"""Selection of elements by index or condition, and writes at indices: `choose`, `compress`,
`put`.
"""

from math import prod

import numpy as np

from shardir.errors import OperationTypeError, state_count
from shardir.frontend.argument_checks import check_not_in_place, is_one_of
from shardir.frontend.argument_errors import with_argument_errors
from shardir.frontend.arrays.array_types import ArrayLike
from shardir.frontend.dispatch.eager import public
from shardir.frontend.errors import ArgumentError, IndexingError
from shardir.frontend.numpy.elementwise import arithmetic, selection
from shardir.frontend.numpy.indexing.index_vectors import clamp_index_vectors, wrap_negative_indices
from shardir.frontend.numpy.indexing.mask_compression import compress_rows
from shardir.frontend.numpy.indexing.nonzero import concrete_nonzero, flatnonzero
from shardir.frontend.numpy.indexing.take import (
    broadcast_except_axis,
    require_index_array,
    take,
    take_along_axis,
)
from shardir.frontend.numpy.indexing.unclamped_indices import emit_index_check
from shardir.frontend.numpy.indexing.updates import convert_lossless
from shardir.frontend.numpy.shaping import concatenation, reshaping, tiling
from shardir.frontend.numpy.tracer_helpers.array_annotations import ArraySequence
from shardir.frontend.numpy.tracer_helpers.axes import canonicalize_axis
from shardir.frontend.numpy.tracer_helpers.concrete_values import (
    is_concrete,
    require_concrete,
    to_concrete_array,
)
from shardir.frontend.numpy.tracer_helpers.elementwise_emission import (
    as_operands,
    check_no_out,
    common_kind,
)
from shardir.frontend.numpy.tracer_helpers.inspection import tensor_type_of
from shardir.frontend.quoting import brief
from shardir.frontend.source_locations import with_location
from shardir.frontend.tracing.operands import (
    as_tracer,
    broadcast,
    broadcast_shapes,
    promote_to,
    reshape,
)
from shardir.frontend.tracing.trace import emit
from shardir.frontend.tracing.tracer import Tracer
from shardir.frontend.tracing.weak_types import strip_weak_types
from shardir.ir.operation import Symbol
from shardir.ir.types import NumpyArray


@public(static=("axis", "inplace", "mode"))
def put_along_axis(
    arr: ArrayLike,
    indices: ArrayLike,
    values: ArrayLike,
    axis: int | None,
    inplace: bool = False,
    *,
    mode: str | None = None,
) -> Tracer:
    """Return a copy of `arr` with `values` where `take_along_axis(arr, indices, axis)` reads.

    Updates at indices out of range are dropped, or are clamped with mode "clip". Raise
    `ArgumentError` if `inplace` is true.
    """
    check_not_in_place("put_along_axis", inplace)
    array, index = as_tracer(arr), require_index_array(indices, "put_along_axis")
    x, index, dim = broadcast_except_axis(array, index, axis, "put_along_axis")
    if x.size != array.size:
        raise OperationTypeError(
            with_location(
                f"indices of shape {index.shape} do not fit an array of shape {array.shape}"
            )
        )
    new = broadcast(convert_lossless(x, values), index.shape)
    if not new.size:
        return array
    vectors = reshape(wrap_negative_indices([index], [x.shape[dim]])[0], (*index.shape, 1))
    if mode == "clip":
        emit_index_check(x.shape, vectors, (dim,))
        vectors = clamp_index_vectors(vectors, [x.shape[dim]])
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


@public(static=("mode", "inplace"))
def put(
    a: ArrayLike, ind: ArrayLike, v: ArrayLike, mode: str | None = None, *, inplace: bool = False
) -> Tracer:
    """Return a copy of `a` with the values `v` at the flat indices `ind`; `v` is repeated if
    short.
    """

    check_not_in_place("put", inplace)
    x = as_tracer(a)
    index = reshaping.ravel(require_index_array(ind, "put"))
    new = reshaping.ravel(as_tracer(v))
    if not index.size or not new.size:
        return x
    new = tiling.resize(new, (index.size,))
    if mode == "wrap":
        index = arithmetic.remainder(index, x.size)
    elif mode == "clip":
        index = selection.clip(index, 0, x.size - 1)
    elif mode is not None:
        raise ArgumentError(
            with_location(f"put has no mode {mode!r}; its modes are 'clip' and 'wrap'")
        )
    return reshape(reshape(x, (x.size,)).at[index].set(new), x.shape)


@with_argument_errors
def choose(a: ArrayLike, choices: ArraySequence, out: None = None, mode: str = "raise") -> Tracer:
    """Return an array whose element i is element i of `choices[a[i]]`; all operands broadcast.

    Indices out of range raise an error (mode "raise", for concrete indices), are clamped ("clip")
    or are taken modulo the number of choices ("wrap").
    """
    check_no_out("choose", out)
    if not is_one_of(mode, ("raise", "clip", "wrap")):
        raise ArgumentError(
            with_location(
                f"choose has no mode {brief(mode)}; its modes are 'raise', 'clip' and 'wrap'"
            )
        )
    if not isinstance(choices, (list, tuple)) and not getattr(choices, "shape", ()):
        raise ArgumentError(
            with_location(
                f"choose takes choices as a list, or along an array, got {brief(choices)}"
            )
        )
    if mode == "raise":
        index = require_concrete(
            a,
            "argument a of choose",
            "choose checks that its indices are in range",
            "pass mode='clip' or mode='wrap'",
        )
        if index.dtype.kind in "iu" and not ((index >= 0) & (index < len(choices))).all():
            raise IndexingError(
                with_location(f"invalid entry in the indices of choose, for {len(choices)} choices")
            )
    return _choose(a, choices, mode)


@public(static=("mode",))
def _choose(a: ArrayLike, choices: ArraySequence, mode: str) -> Tracer:

    index = require_index_array(a, "choose")
    items = as_operands(*(choices[i] for i in range(len(choices))))
    tracers = promote_to(common_kind(*items), *items)
    shape = broadcast_shapes(index.shape, *(x.shape for x in tracers))
    stacked = concatenation.stack([broadcast(x, shape) for x in tracers])
    where = reshape(broadcast(index, shape), (1, *shape))
    if mode == "wrap":
        return reshape(take_along_axis(stacked, where, 0, "wrap"), shape)
    nearest = selection.clip(where, 0, len(tracers) - 1)
    return reshape(take_along_axis(stacked, nearest, 0, "promise_in_bounds"), shape)


@with_argument_errors
@strip_weak_types
def compress(
    condition: ArrayLike,
    a: ArrayLike,
    axis: int | None = None,
    *,
    size: int | None = None,
    fill_value: ArrayLike = 0,
    out: None = None,
) -> Tracer:
    """Return the elements of `a` along `axis` (without it, flattened) where `condition` is true.

    The number of elements must be concrete, or stated by `size`: then the result is truncated, or
    padded with `fill_value`. Raise `IndexingError` if `condition` is true beyond the last element.
    """
    check_no_out("compress", out)
    if size is None and (axis is None or type(axis) is int):
        result = compress_rows(a, condition, axis)
        if result is not None:
            return result
    if axis is not None:
        axis = canonicalize_axis(axis, tensor_type_of(a).rank)
    if size is None:
        label = "argument condition of compress"
        flat = (
            np.ravel(to_concrete_array(condition, label)) if is_concrete(condition) else condition
        )
        positions = concrete_nonzero(flat)[0]
        _check_positions(positions, tensor_type_of(a).shape, axis)
        return _take_positions(a, positions, axis)
    return _compress_to_size(condition, a, axis, size, fill_value)


def _check_positions(positions: NumpyArray, shape: tuple[int, ...], axis: int | None) -> None:
    extent = prod(shape) if axis is None else shape[axis]
    if positions.size and int(positions[-1]) >= extent:
        raise IndexingError(
            with_location(
                f"a condition is true at {int(positions[-1])}, and {state_count(extent, 'element')}"
            )
        )


@public(static=("axis",), name="compress")
def _take_positions(a: ArrayLike, positions: ArrayLike, axis: int | None) -> Tracer:
    return take(a, positions, axis, mode="promise_in_bounds")


@public(static=("axis", "size"), name="compress")
def _compress_to_size(
    condition: ArrayLike, a: ArrayLike, axis: int | None, size: int, fill_value: ArrayLike
) -> Tracer:
    x = as_tracer(a)
    if axis is None:
        x, axis = reshape(x, (x.size,)), 0
    dim = canonicalize_axis(axis, x.ndim)
    where = flatnonzero(condition, size=size, fill_value=x.shape[dim])
    found = take(x, where, dim, mode="promise_in_bounds")
    in_range = where < x.shape[dim]
    in_range = reshape(in_range, (size, *(1,) * (x.ndim - dim - 1)))
    return selection.where(in_range, found, convert_lossless(x, fill_value))


@with_argument_errors
@strip_weak_types
def extract(
    condition: ArrayLike, arr: ArrayLike, *, size: int | None = None, fill_value: ArrayLike = 0
) -> Tracer:
    """Return the elements of `arr` where `condition` is true, both flattened; see `compress` for
    `size`.
    """
    return compress(condition, arr, size=size, fill_value=fill_value)
