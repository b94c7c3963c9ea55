"""Indices of nonzero elements, and conversions between flat and multi-dimensional indices.

The number of nonzero elements depends on the values. Outside of a trace the values are read; inside
one, `size=` must state the length of the result.
"""

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from shardir.backends.storage import Storage
from shardir.errors import OperationTypeError
from shardir.frontend.argument_checks import canonicalize_shape, check_not_in_place, is_one_of
from shardir.frontend.argument_errors import with_argument_errors
from shardir.frontend.arrays.abstract_value import AbstractValue
from shardir.frontend.arrays.array import Array, make_uncommitted_array
from shardir.frontend.arrays.array_types import ArrayLike, DTypeLike, ShapeLike
from shardir.frontend.dispatch.composed import composed_function
from shardir.frontend.dispatch.eager import public
from shardir.frontend.errors import ArgumentError, IndexingError, TracedValueError
from shardir.frontend.numpy.creation import filling, ranges
from shardir.frontend.numpy.elementwise import arithmetic, selection
from shardir.frontend.numpy.indexing import take
from shardir.frontend.numpy.indexing.mask_compression import Mask, is_plain_mask, true_indices
from shardir.frontend.numpy.indexing.updates import convert_lossless
from shardir.frontend.numpy.reductions import basic_reductions
from shardir.frontend.numpy.shaping import concatenation, reshaping
from shardir.frontend.numpy.shaping.reshaping import check_order, ravel
from shardir.frontend.numpy.tracer_helpers.array_annotations import ArraySequence, as_result
from shardir.frontend.numpy.tracer_helpers.axis_slices import prefix_sums
from shardir.frontend.numpy.tracer_helpers.concrete_values import is_concrete, to_concrete_array
from shardir.frontend.numpy.tracer_helpers.elementwise_emission import as_bool
from shardir.frontend.numpy.tracer_helpers.inspection import tensor_type_of
from shardir.frontend.pytree_types import PyTree
from shardir.frontend.quoting import brief
from shardir.frontend.source_locations import with_location
from shardir.frontend.tracing.operands import (
    as_indices,
    as_tracer,
    convert,
    index_dtype,
    operand_dtype,
    reshape,
)
from shardir.frontend.tracing.promotion import canonical_dtype, result_type
from shardir.frontend.tracing.tracer import Tracer
from shardir.frontend.tracing.weak_types import strip_weak_types
from shardir.ir.dtypes import DTYPE_INFO
from shardir.ir.types import INTEGERS, NUMPY_DTYPES, UNSIGNED, NumpyArray, TensorType

NATIVE_NONZERO_MIN_ELEMENTS = 1 << 11
"""The number of elements below which NumPy is faster than native code."""


@with_argument_errors
def nonzero(
    a: ArrayLike, *, size: int | None = None, fill_value: ArrayLike | None = None
) -> tuple[Tracer, ...]:
    """Return the indices of the nonzero elements, one vector of the default integer type per
    dimension.

    `size` states the length of the result; it is required for a traced array. Indices beyond it are
    dropped; missing ones are `fill_value` (0; a tuple has one value per dimension).
    """
    if size is not None:
        return _nonzero(a, size, fill_value)
    default = canonical_dtype("i64")
    found = [each.astype(NUMPY_DTYPES[default], copy=False) for each in concrete_nonzero(a)]
    first = make_uncommitted_array(
        _vector_storage(found[0]), AbstractValue(TensorType(found[0].shape, default))
    )
    others = (Array(first.signature, first.sharding, _vector_storage(each)) for each in found[1:])
    return tuple(map(as_result, (first, *others)))


def _vector_storage(numbers: NumpyArray) -> Storage:
    """Return the storage of a contiguous vector."""
    address: int = numbers.__array_interface__["data"][0]
    return Storage(address, numbers, numbers.shape, numbers.dtype)


def concrete_nonzero(a: ArrayLike, label: str = "argument a of nonzero") -> tuple[NumpyArray, ...]:
    """Return the indices of the nonzero elements as new i32 vectors.

    Raise `TracedValueError` for a traced array, and `NotAnArrayError`, which mentions `label`, for
    an object that is not an array.
    """
    if not is_concrete(a):
        raise TracedValueError(
            with_location(
                "the number of elements that are not zero depends on traced values; state "
                "a maximum with size=, or select with snp.where(condition, x, y)"
            )
        )
    array = a if is_plain_mask(a) else to_concrete_array(a, label)
    _check_has_dimension(array.ndim)
    if not NATIVE_NONZERO_MIN_ELEMENTS <= array.size < 1 << 31:
        values = array.storage.array if isinstance(array, Array) else array
        return tuple(each.astype(np.int32) for each in np.nonzero(values))
    # Flat indices are split into coordinates: NumPy is slower because it visits each dimension.
    mask: Mask = array if isinstance(array, Array) or array.dtype == np.bool_ else array != 0
    flat_indices = true_indices(mask).array
    found = []
    for extent in array.shape[:0:-1]:
        quotient = flat_indices // np.int32(max(extent, 1))
        found.append(flat_indices - quotient * np.int32(extent))
        flat_indices = quotient
    return (flat_indices, *found[::-1])


def _check_has_dimension(rank: int) -> None:
    if not rank:
        raise OperationTypeError(
            with_location("nonzero takes at least one dimension; use atleast_1d")
        )


def as_default_index_array(numbers: NumpyArray) -> Tracer:
    """Convert concrete indices, which have no other reference, to the default integer type."""
    default = canonical_dtype("i64")
    storage = Storage.of(numbers.astype(NUMPY_DTYPES[default], copy=False))
    return as_result(
        make_uncommitted_array(storage, AbstractValue(TensorType(numbers.shape, default)))
    )


@public(static=("size", "fill_value"))
def _nonzero(a: ArrayLike, size: int, fill_value: ArrayLike | None) -> tuple[Tracer, ...]:

    nonzero_mask = as_bool(a)
    _check_has_dimension(nonzero_mask.ndim)
    flat = reshape(nonzero_mask, (nonzero_mask.size,))
    rank = nonzero_mask.ndim
    fills = fill_value if isinstance(fill_value, (tuple, list)) else (fill_value or 0,) * rank
    if len(fills) != rank:
        raise OperationTypeError(
            with_location(f"nonzero takes one fill_value or {rank} of them, got {len(fills)}")
        )
    # A prefix sum counts the true elements up to each one, which gives its index in the result.
    count = prefix_sums(flat)
    where = selection.where(flat, count - 1, size)
    found = (
        filling.zeros((size,), np.int32)
        .at[where]
        .set(ranges.arange(nonzero_mask.size, dtype=np.int32))
    )
    total = basic_reductions.sum(flat, dtype=np.int32)
    valid = ranges.arange(size, dtype=np.int32) < total
    coordinates = unravel_index(found, nonzero_mask.shape)
    return tuple(
        as_indices(selection.where(valid, coordinate, int(fill)))
        for coordinate, fill in zip(coordinates, fills, strict=True)
    )


@with_argument_errors
def flatnonzero(
    a: ArrayLike, *, size: int | None = None, fill_value: ArrayLike | None = None
) -> Tracer:
    """Return the flat indices of the nonzero elements; see `nonzero` for `size` and
    `fill_value`.
    """
    if size is None and is_plain_mask(a) and a.size < 1 << 31:
        return as_default_index_array(true_indices(a).array)
    if size is None:
        label = "argument a of flatnonzero"
        return as_default_index_array(
            concrete_nonzero(np.ravel(to_concrete_array(a, label)) if is_concrete(a) else a)[0]
        )
    return nonzero(ravel(a), size=size, fill_value=fill_value)[0]


@with_argument_errors
def argwhere(
    a: ArrayLike, *, size: int | None = None, fill_value: ArrayLike | None = None
) -> Tracer:
    """Return the indices of the nonzero elements, one row per element; see `nonzero` for `size`."""

    if not tensor_type_of(a).rank:
        coordinates = nonzero(reshaping.atleast_1d(a), size=size, fill_value=fill_value)
        return filling.zeros((coordinates[0].shape[0], 0), int)
    return concatenation.stack(nonzero(a, size=size, fill_value=fill_value), axis=-1)


@composed_function()
def ix_(*args: ArrayLike) -> tuple[PyTree, ...]:
    """Return index arrays that select a grid of rows, columns, ...: `x[ix_([0, 2], [1, 3])]`.

    Each argument is a vector of integers or bools.
    """
    result: tuple[PyTree, ...] = _open_mesh(*map(_as_index_vector, args)) if args else ()
    return result


@public(name="ix_")
def _open_mesh(*vectors: object) -> tuple[Tracer, ...]:
    """Reshape each vector to extend along a dimension of its own."""
    rank, tracers = len(vectors), map(as_tracer, vectors)
    return tuple(
        reshape(x, tuple(x.size if d == dim else 1 for d in range(rank)))
        for dim, x in enumerate(tracers)
    )


def _as_index_vector(arg: Any) -> Any:
    vector = arg if hasattr(arg, "shape") else np.asarray(arg)
    if len(vector.shape) != 1:
        raise IndexingError(with_location(f"ix_ takes vectors, got shape {tuple(vector.shape)}"))
    if vector.dtype == np.bool_:
        (vector,) = nonzero(vector)
    elif not vector.shape[0]:
        vector = np.zeros((0,), np.int32)
    return vector


@public(static=("shape",))
def unravel_index(indices: ArrayLike, shape: ShapeLike) -> tuple[Tracer, ...]:
    """Convert flat indices into an array of `shape` to one index array per dimension.

    Negative indices count from the end; indices out of range are clamped. The results have the
    type of the indices, unless that is too narrow for the sizes. The sizes may be traced, and then
    the results have the type to which indices and sizes promote.
    """
    indices = _require_integers(indices, "unravel_index")
    kind = indices.value.type.dtype
    parts: PyTree = shape
    if not is_concrete(parts):
        return _unravel_traced_shape(indices, shape)
    sizes = canonicalize_shape(shape)
    size = prod(sizes)
    result_kind = _index_dtype("unravel_index", kind, max(sizes, default=0))
    flat = convert(indices, _index_dtype("unravel_index", kind, size), indices.weak_type)
    if len(sizes) == 1:
        return (flat if not size else selection.clip(_wrap_negative(flat, size), 0, size - 1),)
    flat = selection.clip(_wrap_negative(flat, size), 0, max(size - 1, 0))
    coordinates = []
    for n in reversed(sizes):
        coordinate = arithmetic.remainder(flat, max(n, 1))
        coordinates.append(convert(coordinate, result_kind, coordinate.weak_type))
        flat = arithmetic.floor_divide(flat, max(n, 1))
    return tuple(reversed(coordinates))


def _unravel_traced_shape(indices: Tracer, shape: PyTree) -> tuple[Tracer, ...]:
    """Return the coordinates of flat indices into an array whose sizes are traced.

    They have the type to which the indices and the sizes promote. The product of the sizes, which
    may exceed that type, is not needed.
    """
    what = "the shape of unravel_index"
    parts = shape if isinstance(shape, (list, tuple)) else _require_integers(shape, what)
    if isinstance(parts, Tracer):
        parts = [parts[i] for i in range(parts.size)] if parts.ndim == 1 else [parts]
    sizes = [_require_integers(n, what) for n in parts]
    if any(n.ndim for n in sizes):
        raise IndexingError(
            with_location(f"{what} is an integer or a vector of integers, got {brief(shape)}")
        )
    kinds = [operand_dtype(x) for x in (indices, *sizes)]
    dtype, narrow = result_type(*((name, False) for name, _ in kinds))[0], result_type(*kinds)[0]
    if dtype not in INTEGERS:  # u64 and a signed type have no common integer type.
        dtype = narrow = "u64" if kinds[0][0] in UNSIGNED else "i64"
    rest, sizes = convert(indices, dtype), [convert(n, dtype) for n in sizes]
    coordinates = []
    for n in reversed(sizes):
        coordinates.append((as_tracer(arithmetic.remainder(rest, n)), n))
        rest = as_tracer(arithmetic.floor_divide(rest, n))
    # The quotient is 0 for indices in range, and -1 for those that count from the end.
    above, below = rest > 0, rest < (0 if dtype in UNSIGNED else -1)
    found = [
        as_tracer(selection.where(above, n - 1, selection.where(below, 0, coordinate)))
        for coordinate, n in reversed(coordinates)
    ]
    return tuple([convert(coordinate, narrow) for coordinate in found])


def _index_dtype(what: str, dtype: str, size: int) -> str:
    """Return `dtype`, or the default integer type if `dtype` cannot represent `size`.

    Raise `IndexingError` if the default integer type cannot represent it either.
    """
    if size <= DTYPE_INFO[dtype].max_integer:
        return dtype
    usual = canonical_dtype("i64")
    if size > DTYPE_INFO[usual].max_integer:
        raise IndexingError(
            with_location(
                f"{what} computes indices of an array of {size} elements, which do not fit into "
                f"{NUMPY_DTYPES[usual]}; shardir.enable_x64() allows int64"
            )
        )
    return usual


def _require_integers(x: ArrayLike, what: str) -> Tracer:
    tracer = as_tracer(x)
    if tracer.value.type.dtype not in INTEGERS:
        raise IndexingError(with_location(f"{what} takes integers, got {tracer.value.type.dtype}"))
    return tracer


def _wrap_negative(index: Tracer, size: int) -> Tracer:

    counted: Tracer = selection.where(index < 0, index + size, index)
    return counted


@with_argument_errors
@strip_weak_types
def ravel_multi_index(
    multi_index: ArraySequence,
    dims: ShapeLike,
    mode: str | list[str] | tuple[str, ...] = "raise",
    order: str = "C",
    *,
    dtype: DTypeLike | None = None,
) -> Tracer:
    """Convert one index array per dimension of `dims` to flat indices.

    Indices out of range raise an error (mode "raise", for concrete indices), are clamped ("clip"),
    are taken modulo the size ("wrap") or are used unchanged ("ignore"); `mode` may be a list with
    one mode per dimension. The result has the type of the indices unless `dtype` is given.
    """
    sizes = canonicalize_shape(dims)
    modes: tuple[str, ...] = (
        tuple(mode) if isinstance(mode, (list, tuple)) else (mode,) * len(sizes)
    )
    if not isinstance(multi_index, (list, tuple)) and not tensor_type_of(multi_index).rank:
        raise IndexingError(
            with_location(
                "ravel_multi_index takes a list of index arrays, or one along its first axis, "
                f"got {brief(multi_index)}"
            )
        )
    if len(multi_index) != len(sizes) or len(modes) != len(sizes):
        raise IndexingError(
            with_location(
                f"ravel_multi_index takes {len(sizes)} index arrays, got {len(multi_index)}"
            )
        )
    for index, size, each in zip(multi_index, sizes, modes, strict=True):
        if not is_one_of(each, ("raise", "clip", "wrap", "ignore")):
            raise IndexingError(
                with_location(
                    f"mode {brief(each)} is unknown; the modes are 'raise', 'clip', 'wrap' and "
                    "'ignore'"
                )
            )
        if each != "raise":
            continue
        if not is_concrete(index):
            raise TracedValueError(
                with_location(
                    "ravel_multi_index checks that indices are in range, which are traced; "
                    "pass mode='clip' or mode='wrap'"
                )
            )
        numbers = to_concrete_array(index, "an index array of ravel_multi_index")
        if numbers.dtype.kind in "iu" and ((numbers < 0) | (numbers >= size)).any():
            raise IndexingError(
                with_location(
                    f"invalid entry in the indices of ravel_multi_index, out of range for {dims}"
                )
            )
    return _ravel_traced(tuple(multi_index), sizes, modes, order, dtype)


@public(static=("sizes", "modes", "order", "dtype"), name="ravel_multi_index")
def _ravel_traced(
    indices: Sequence[ArrayLike],
    sizes: tuple[int, ...],
    modes: tuple[str, ...],
    order: str,
    dtype: DTypeLike | None,
) -> Tracer:
    check_order("ravel_multi_index", order)
    flat: Tracer | int = 0
    size_of_all = prod(sizes)
    parts = list(zip(indices, sizes, modes, strict=True))
    for index, size, mode in parts if order == "C" else reversed(parts):
        coordinate: Tracer = _require_integers(index, "ravel_multi_index")
        kind = _index_dtype("ravel_multi_index", coordinate.value.type.dtype, size_of_all)
        coordinate = convert(coordinate, kind, coordinate.weak_type)
        if mode == "clip":
            coordinate = selection.clip(coordinate, 0, size - 1)
        elif mode == "wrap":
            coordinate = arithmetic.remainder(coordinate, size)
        flat = flat * size + coordinate
    found = as_tracer(flat)
    if dtype is None:
        return found
    return convert(found, index_dtype("ravel_multi_index", dtype, size_of_all))


@with_argument_errors
def place(arr: ArrayLike, mask: ArrayLike, vals: ArrayLike, *, inplace: bool = False) -> Tracer:
    """Return a copy of `arr` in which the n-th true element of `mask` is the n-th element of
    `vals`.

    `vals` is repeated if it is shorter.
    """
    check_not_in_place("place", inplace)
    return _emit_place(arr, mask, vals)


@public(name="place")
def _emit_place(arr: ArrayLike, mask: ArrayLike, vals: ArrayLike) -> Tracer:
    x, flags = as_tracer(arr), as_bool(mask)
    new = convert_lossless(x, vals)
    if flags.size != x.size or not new.size:
        raise OperationTypeError(
            with_location(f"place takes a mask of shape {x.shape} and values, got {flags.shape}")
        )
    order = arithmetic.remainder(prefix_sums(reshaping.ravel(flags)) - 1, new.size)
    filled = reshape(take.take(new, order, mode="promise_in_bounds"), x.shape)
    return selection.where(reshape(flags, x.shape), filled, x)


@composed_function()
def where(
    condition: ArrayLike,
    x: ArrayLike | None = None,
    y: ArrayLike | None = None,
    /,
    **options: PyTree,
) -> PyTree:
    """Return `x` where the condition is true (not zero) and `y` elsewhere; all three broadcast.

    The result has the promoted type of `x` and `y`. With only a condition, return
    `nonzero(condition, **options)`.
    """
    if x is None and y is None:
        return nonzero(condition, **options)
    if x is None or y is None or options:
        raise ArgumentError(
            with_location("where takes a condition, or a condition and two arrays to choose from")
        )
    return selection.where(condition, x, y)
