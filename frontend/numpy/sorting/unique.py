"""Unique values of an array.

The number of unique values depends on the elements. Outside of a trace the elements are read;
inside one, `size=` states the size of the result, which is truncated or padded.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from shardir.frontend.argument_checks import check_flag
from shardir.frontend.argument_errors import with_argument_errors
from shardir.frontend.arrays.array import Array
from shardir.frontend.arrays.array_types import ArrayLike
from shardir.frontend.arrays.numpy_conversion import to_numpy
from shardir.frontend.arrays.operators import Operators
from shardir.frontend.dispatch.eager import public
from shardir.frontend.errors import TracedValueError
from shardir.frontend.numpy.creation import array_conversion, filling, ranges
from shardir.frontend.numpy.elementwise import float_parts, selection
from shardir.frontend.numpy.indexing import nonzero, take
from shardir.frontend.numpy.indexing.mask_compression import compress_rows, true_indices
from shardir.frontend.numpy.indexing.nonzero import as_default_index_array
from shardir.frontend.numpy.reductions import basic_reductions
from shardir.frontend.numpy.shaping import concatenation, reshaping
from shardir.frontend.numpy.sorting import sort_functions
from shardir.frontend.numpy.tracer_helpers.axes import canonicalize_axis
from shardir.frontend.numpy.tracer_helpers.axis_slices import prefix_sums
from shardir.frontend.numpy.tracer_helpers.concrete_values import is_concrete, to_concrete_array
from shardir.frontend.pytree_types import PyTree
from shardir.frontend.source_locations import with_location
from shardir.frontend.tracing.operands import as_indices, as_tracer, operand_dtype, reshape
from shardir.frontend.tracing.promotion import canonical_dtype, result_type
from shardir.frontend.tracing.trace import current_trace, emit, emit_results
from shardir.frontend.tracing.tracer import Tracer
from shardir.ir.dtypes import KEYS
from shardir.ir.types import COMPLEX, INEXACT, NUMPY_DTYPES, NumpyArray, TensorType


def concrete_promoted(what: str, *xs: PyTree) -> list[NumpyArray]:
    """Return concrete arrays as NumPy arrays, promoted to one element type."""
    if not is_concrete(xs):
        raise TracedValueError(
            with_location(
                f"the number of values of {what} depends on traced values; "
                "state a maximum with size="
            )
        )
    arrays = [to_numpy(to_concrete_array(x, f"an argument of {what}")) for x in xs]
    dtype, _ = result_type(*(operand_dtype(array) for array in arrays))
    return [array.astype(NUMPY_DTYPES[dtype], copy=False) for array in arrays]


def call_numpy(name: str, arrays: Sequence[NumpyArray], *flags: bool, **options: PyTree) -> PyTree:
    """Call the NumPy function `name` and return its result, values first.

    bf16 is computed as f32, because NumPy does not sort NaN of bf16 to the end.
    """
    (kind,) = {array.dtype for array in arrays}
    wide = [array.astype(np.float32) if kind.kind == "V" else array for array in arrays]
    result = getattr(np, name)(*wide, *flags, **options)
    if type(result) is not tuple:
        return result.astype(kind, copy=False)
    values, *others = result
    return (values.astype(kind, copy=False), *others)


def from_numpy_result(numbers: NumpyArray) -> Tracer:
    """Convert a NumPy array to an array."""

    return array_conversion.asarray(numbers)


@with_argument_errors
def unique(
    ar: ArrayLike,
    return_index: bool = False,
    return_inverse: bool = False,
    return_counts: bool = False,
    axis: int | None = None,
    *,
    equal_nan: bool = True,
    size: int | None = None,
    fill_value: ArrayLike | None = None,
    sorted: bool = True,
) -> PyTree:
    """Return the unique values in ascending order; with `axis`, the unique slices along it.

    The flags append: the index of the first occurrence of each value, the index into the values for
    each element, and the count of each value. `size` states the number of values; missing values
    are `fill_value` (by default the smallest value), with count 0.
    """
    flags = (
        check_flag("return_index of unique", return_index),
        check_flag("return_inverse of unique", return_inverse),
        check_flag("return_counts of unique", return_counts),
    )
    equal_nan = check_flag("equal_nan of unique", equal_nan)
    if size is not None:
        result = _unique(ar, fill_value, flags, axis, equal_nan, size)
        return tuple(result) if any(flags) else result[0]
    free = concrete_unsharded_arrays(ar) if axis is None else None
    if free is not None and (canonical_dtype("i64") == "i32" or not any(flags)):
        return _unique_of_concrete(free[0], flags, equal_nan)
    (array,) = concrete_promoted("unique", ar)
    if axis is not None:
        axis = canonicalize_axis(axis, array.ndim)
    found = call_numpy("unique", [array], *flags, axis=axis, equal_nan=equal_nan)
    return tuple(map(from_numpy_result, found)) if any(flags) else from_numpy_result(found)


def concrete_unsharded_arrays(*xs: ArrayLike) -> list[Array] | None:
    """Return concrete real operands as arrays without a sharding.

    Return `None` for other operands, for empty ones, and inside of a trace.
    """

    if current_trace() is not None:
        return None
    arrays: list[Any] = [x if type(x) is Array else array_conversion.asarray(x) for x in xs]
    for x in arrays:
        if x.signature.sharding is not None or not x.size or x.type.dtype in (*COMPLEX, *KEYS):
            return None
    return arrays


def _unique_of_concrete(x: Array, flags: tuple[bool, bool, bool], equal_nan: bool) -> PyTree:
    """Compute `unique` of concrete values: sort, compare neighbouring elements, compress."""
    order = inverse = None
    if flags[0] or flags[1]:
        sorted_values, order, is_first, inverse = _sort_with_indices(x, flags[1], equal_nan)
    else:
        sorted_values, is_first = _sort_and_mark_firsts(x, equal_nan)
    result: list[Tracer | None] = [compress_rows(sorted_values, is_first, None)]
    if not any(flags):
        return result[0]
    if flags[0]:
        result.append(compress_rows(order, is_first, None))
    if flags[1]:
        result.append(inverse)
    if flags[2]:
        starts = true_indices(is_first).array
        counts = np.empty_like(starts)
        np.subtract(starts[1:], starts[:-1], out=counts[:-1])
        counts[-1] = x.size - starts[-1]
        result.append(as_default_index_array(counts))
    return tuple(result)


@public(static=("equal_nan",), name="unique")
def _sort_and_mark_firsts(x: ArrayLike, equal_nan: bool) -> list[Tracer]:
    """Return the sorted elements and the mask of the first elements of equal runs."""

    sorted_values = sort_functions.sort(x, axis=None)
    return [sorted_values, _is_first_of_run(sorted_values, equal_nan)]


@public(static=("back", "equal_nan"), name="unique")
def _sort_with_indices(x: Operators, back: bool, equal_nan: bool) -> list[PyTree]:
    """Return the sorted elements, their order, the mask of first elements, and the inverse."""

    flat = reshaping.ravel(x)
    positions = emit("iota", dim=0, result=TensorType(flat.shape, "i32"))
    sorted_values, order = emit_results("sort", flat, positions, dim=0, keys=1, stable=True)
    is_first = _is_first_of_run(sorted_values, equal_nan)
    inverse = None
    if back:
        number = prefix_sums(is_first) - 1
        inverse = filling.zeros(flat.shape, np.int32).at[order].set(number, unique_indices=True)
        inverse = reshape(inverse, x.shape)
    return [sorted_values, order, is_first, inverse]


def _is_first_of_run(sorted_values: Tracer, equal_nan: bool) -> Tracer:
    """Return whether each element of a sorted vector differs from the element before it."""

    current, before = sorted_values[1:], sorted_values[:-1]
    other = current != before
    if equal_nan and sorted_values.value.type.dtype in INEXACT:
        other = other & ~float_parts.isnan(before)  # an element after NaN is NaN
    is_first: Tracer = concatenation.concatenate([filling.ones((1,), bool), other])
    return is_first


@public(static=("flags", "axis", "equal_nan", "size"))
def _unique(
    ar: ArrayLike,
    fill_value: ArrayLike | None,
    flags: tuple[bool, bool, bool],
    axis: int | None,
    equal_nan: bool,
    size: int,
) -> list[Tracer]:

    x = as_tracer(ar)
    shape = x.shape
    if axis is None:
        dim, rows = 0, reshape(x, (x.size,))
    else:
        dim = canonicalize_axis(axis, x.ndim)
        rows = reshaping.moveaxis(x, dim, 0)
    count = rows.shape[0]
    if not count:
        empty = filling.full(
            (size, *rows.shape[1:]), 0 if fill_value is None else fill_value, x.dtype
        )
        no_indices = filling.zeros((size,), int)
        inverse = filling.zeros(shape if axis is None else (0,), int)
        placeholders = (no_indices, inverse, no_indices)
        return [
            reshaping.moveaxis(empty, 0, dim),
            *(w for w, flag in zip(placeholders, flags, strict=True) if flag),
        ]
    sorted_rows, order, is_first = _sort_rows(rows, equal_nan)
    first = nonzero.nonzero(is_first, size=size)[0]
    values = take.take(sorted_rows, first, axis=0, mode="promise_in_bounds")
    if fill_value is not None:
        is_valid = ranges.arange(size) < basic_reductions.sum(is_first, dtype=np.int32)
        is_valid = reshape(is_valid, (size, *(1,) * (rows.ndim - 1)))
        values = selection.where(is_valid, values, array_conversion.asarray(fill_value, x.dtype))
    results = [reshaping.moveaxis(values, 0, dim) if axis is not None else values]
    if flags[0]:
        results.append(as_indices(take.take(order, first, mode="promise_in_bounds")))
    if flags[1]:
        number = prefix_sums(is_first) - 1
        inverse = filling.zeros((count,), np.int32).at[order].set(number)
        results.append(as_indices(reshape(inverse, shape) if axis is None else inverse))
    if flags[2]:
        bounds = nonzero.nonzero(is_first, size=size + 1, fill_value=count)[0]
        results.append(as_indices(bounds[1:] - bounds[:-1]))
    return results


def _sort_rows(rows: Tracer, equal_nan: bool) -> tuple[Tracer, Tracer, Tracer]:
    """Return the sorted rows, their original indices, and whether each differs from the row
    before.
    """

    count = rows.shape[0]
    flat = reshape(rows, (count, -1 if not rows.size else rows.size // count))
    columns = [flat[:, i] for i in range(flat.shape[1])]
    positions = emit("iota", dim=0, result=TensorType((count,), "i32"))
    keys = max(len(columns), 1)
    operands = [*columns, positions] if columns else [positions]
    found = emit_results("sort", *operands, dim=0, keys=keys, stable=True)
    order = found[-1]
    arranged = (
        take.take(rows, order, axis=0, mode="promise_in_bounds") if rows.ndim > 1 else found[0]
    )
    sorted_flat = (
        take.take(flat, order, axis=0, mode="promise_in_bounds")
        if rows.ndim > 1
        else reshape(found[0], (count, 1))
    )
    current, before = sorted_flat[1:], sorted_flat[:-1]
    other = current != before
    if equal_nan and rows.value.type.dtype in INEXACT:
        other = other & ~(float_parts.isnan(current) & float_parts.isnan(before))
    differs = concatenation.concatenate(
        [filling.ones((1,), bool), basic_reductions.any(other, axis=1)]
    )
    return arranged, order, differs


class UniqueAll(NamedTuple):
    """The result of `unique_all`."""

    values: Tracer
    indices: Tracer
    inverse_indices: Tracer
    counts: Tracer


class UniqueCounts(NamedTuple):
    """The result of `unique_counts`."""

    values: Tracer
    counts: Tracer


class UniqueInverse(NamedTuple):
    """The result of `unique_inverse`."""

    values: Tracer
    inverse_indices: Tracer


@with_argument_errors
def unique_all(
    x: ArrayLike, /, *, size: int | None = None, fill_value: ArrayLike | None = None
) -> UniqueAll:
    """Return the unique values, indices of first occurrences, the inverse, and counts.

    NaNs count as different values.
    """
    found = unique(x, True, True, True, equal_nan=False, size=size, fill_value=fill_value)
    return UniqueAll(*found)


@with_argument_errors
def unique_counts(
    x: ArrayLike, /, *, size: int | None = None, fill_value: ArrayLike | None = None
) -> UniqueCounts:
    """Return the unique values and the count of each; NaNs count as different values."""
    found = unique(x, return_counts=True, equal_nan=False, size=size, fill_value=fill_value)
    return UniqueCounts(*found)


@with_argument_errors
def unique_inverse(
    x: ArrayLike, /, *, size: int | None = None, fill_value: ArrayLike | None = None
) -> UniqueInverse:
    """Return the unique values, and for each element the index of its value.

    NaNs count as different values.
    """
    found = unique(x, return_inverse=True, equal_nan=False, size=size, fill_value=fill_value)
    return UniqueInverse(*found)


@with_argument_errors
def unique_values(
    x: ArrayLike, /, *, size: int | None = None, fill_value: ArrayLike | None = None
) -> Tracer:
    """Return the unique values; NaNs count as different values."""
    values: Tracer = unique(x, equal_nan=False, size=size, fill_value=fill_value)
    return values
