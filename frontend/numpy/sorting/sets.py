"""Set operations of arrays: union, intersection, difference. See `unique` for `size`."""

from typing import TypeGuard

import numpy as np

from shardir.frontend.argument_checks import check_flag
from shardir.frontend.argument_errors import with_argument_errors
from shardir.frontend.arrays.array import Array, from_numpy
from shardir.frontend.arrays.array_types import ArrayLike
from shardir.frontend.dispatch.eager import public
from shardir.frontend.numpy import dtypes
from shardir.frontend.numpy.creation import array_conversion, filling, ranges
from shardir.frontend.numpy.elementwise import selection
from shardir.frontend.numpy.indexing import nonzero, take
from shardir.frontend.numpy.reductions import basic_reductions
from shardir.frontend.numpy.shaping import concatenation, reshaping
from shardir.frontend.numpy.sorting import searching, sort_functions
from shardir.frontend.numpy.sorting.set_comparison import select_set_values
from shardir.frontend.numpy.sorting.unique import (
    call_numpy,
    concrete_promoted,
    concrete_unsharded_arrays,
    from_numpy_result,
    unique,
)
from shardir.frontend.numpy.tracer_helpers.axis_slices import slice_dim
from shardir.frontend.numpy.tracer_helpers.elementwise_emission import as_operands, emit_elementwise
from shardir.frontend.pytree_types import PyTree
from shardir.frontend.tracing.operands import (
    align,
    as_indices,
    broadcast,
    convert,
    promote,
    reshape,
)
from shardir.frontend.tracing.trace import current_trace, emit
from shardir.frontend.tracing.tracer import Tracer
from shardir.frontend.tracing.weak_types import strip_weak_types
from shardir.ir.dtypes import DTYPE_INFO, UNSIGNED_BY_BITS
from shardir.ir.types import INTEGERS

MAX_REGISTER_TEST_ELEMENTS = 128
"""The maximum number of test elements to which each element is compared in registers."""
MAX_COMPARISONS_PER_ELEMENT = 256
"""The maximum number of comparisons per element that are faster than a binary search."""
MAX_TABLE_SIZE_RATIO = 6
"""The maximum ratio of the size of a lookup table to the number of integers."""
MAX_FULL_ISIN_COMPARISONS = 1 << 16
"""The maximum number of comparisons for a full comparison; above it, one operand is sorted."""


@with_argument_errors
def union1d(
    ar1: ArrayLike, ar2: ArrayLike, *, size: int | None = None, fill_value: ArrayLike | None = None
) -> Tracer:
    """Return the unique values of both arrays in ascending order."""

    if size is None and concrete_unsharded_arrays(ar1, ar2) is None:
        return from_numpy_result(call_numpy("union1d", concrete_promoted("union1d", ar1, ar2)))
    both = concatenation.concatenate([reshaping.ravel(ar1), reshaping.ravel(ar2)])
    values: Tracer = unique(both, size=size, fill_value=fill_value)
    return values


@with_argument_errors
@strip_weak_types
def intersect1d(
    ar1: ArrayLike,
    ar2: ArrayLike,
    assume_unique: bool = False,
    return_indices: bool = False,
    *,
    size: int | None = None,
    fill_value: ArrayLike | None = None,
) -> PyTree:
    """Return the values that both arrays contain, in ascending order.

    With `return_indices`, return also their indices in each array. Values beyond those found, up to
    `size`, are `fill_value` (by default the smallest value found), with index 0.
    """
    assume_unique = check_flag("assume_unique of intersect1d", assume_unique)
    return_indices = check_flag("return_indices of intersect1d", return_indices)
    if size is not None:
        result = _intersection(ar1, ar2, fill_value, size)
        return tuple(result) if return_indices else result[0]
    free = None if return_indices else concrete_unsharded_arrays(ar1, ar2)
    if free is not None:
        return select_set_values(free, "both")
    both = concrete_promoted("intersect1d", ar1, ar2)
    found = call_numpy("intersect1d", both, assume_unique, return_indices)
    return tuple(map(from_numpy_result, found)) if return_indices else from_numpy_result(found)


@public(static=("size",), name="intersect1d")
def _intersection(
    ar1: ArrayLike, ar2: ArrayLike, fill_value: ArrayLike | None, size: int
) -> list[Tracer]:

    first, second = (reshaping.ravel(x) for x in promote(*as_operands(ar1, ar2)))
    width = first.shape[0]
    values, positions, counts = unique(first, True, False, True, size=max(width, 1))
    there = isin(values, second) & (counts > 0)
    (where,) = nonzero.nonzero(there, size=size)
    valid = ranges.arange(size) < basic_reductions.sum(there, dtype=np.int32)
    found = take.take(values, where, mode="promise_in_bounds")
    if fill_value is not None:
        found = selection.where(valid, found, array_conversion.asarray(fill_value, values.dtype))
    first_indices = selection.where(valid, take.take(positions, where, mode="promise_in_bounds"), 0)
    if not second.shape[0]:
        return [found, as_indices(first_indices), filling.zeros((size,), int)]
    order = sort_functions.argsort(second)
    found_positions = searching.searchsorted(
        take.take(second, order, mode="promise_in_bounds"), found
    )
    there = selection.where(valid, take.take(order, found_positions, mode="promise_in_bounds"), 0)
    return [found, as_indices(first_indices), as_indices(there)]


@with_argument_errors
def setdiff1d(
    ar1: ArrayLike,
    ar2: ArrayLike,
    assume_unique: bool = False,
    *,
    size: int | None = None,
    fill_value: ArrayLike | None = None,
) -> Tracer:
    """Return the values of the first array that the second does not contain, in ascending order.

    They have the type of the first array. Missing values up to `size` are `fill_value`, by default
    0.
    """
    assume_unique = check_flag("assume_unique of setdiff1d", assume_unique)
    if size is not None:
        return _difference(ar1, ar2, fill_value, size)
    first, second = map(array_conversion.asarray, (ar1, ar2))
    if first.dtype != dtypes.result_type(first, second):
        # The values are those of the first array, which its promotion could round.
        values = reshaping.ravel(first) if assume_unique else unique(first)
        return values[~isin(values, second)]
    free = None if assume_unique else concrete_unsharded_arrays(ar1, ar2)
    if free is not None:
        return select_set_values(free, "first")
    return from_numpy_result(
        call_numpy("setdiff1d", concrete_promoted("setdiff1d", ar1, ar2), assume_unique)
    )


@public(static=("size",), name="setdiff1d")
def _difference(ar1: ArrayLike, ar2: ArrayLike, fill_value: ArrayLike | None, size: int) -> Tracer:

    first, second = (reshaping.ravel(x) for x in as_operands(ar1, ar2))
    values, counts = unique(first, return_counts=True, size=max(first.shape[0], 1))
    return _select_values(values, ~isin(values, second) & (counts > 0), fill_value, size)


@with_argument_errors
def setxor1d(
    ar1: ArrayLike,
    ar2: ArrayLike,
    assume_unique: bool = False,
    *,
    size: int | None = None,
    fill_value: ArrayLike | None = None,
) -> Tracer:
    """Return the values that exactly one of the arrays contains, in ascending order.

    Missing values up to `size` are `fill_value`, by default 0.
    """
    assume_unique = check_flag("assume_unique of setxor1d", assume_unique)
    if size is not None:
        return _symmetric_difference(ar1, ar2, fill_value, size)
    free = concrete_unsharded_arrays(ar1, ar2)
    if free is not None:
        return select_set_values(free, "one")
    return from_numpy_result(
        call_numpy("setxor1d", concrete_promoted("setxor1d", ar1, ar2), assume_unique)
    )


@public(static=("size",), name="setxor1d")
def _symmetric_difference(
    ar1: ArrayLike, ar2: ArrayLike, fill_value: ArrayLike | None, size: int
) -> Tracer:

    first, second = (reshaping.ravel(x) for x in promote(*as_operands(ar1, ar2)))
    both = concatenation.concatenate([first, second])
    values, counts = unique(both, return_counts=True, size=max(both.shape[0], 1))
    once = isin(values, first) != isin(values, second)
    return _select_values(values, once & (counts > 0), fill_value, size)


def _select_values(
    values: Tracer, mask: ArrayLike, fill_value: ArrayLike | None, size: int
) -> Tracer:
    """Return `size` values where `mask` is true, padded with `fill_value` or 0."""

    (where,) = nonzero.nonzero(mask, size=size)
    valid = ranges.arange(size) < basic_reductions.sum(mask, dtype=np.int32)
    fill = array_conversion.asarray(0 if fill_value is None else fill_value, values.dtype)
    return selection.where(valid, take.take(values, where, mode="promise_in_bounds"), fill)


def _isin_registers(x: Tracer, tests: Tracer) -> Tracer:
    """Return whether each element equals one of few test elements, in one pass over `x`."""
    result = None
    for k in range(tests.size):
        test = broadcast(reshape(slice_dim(tests, 0, k, k + 1), ()), x.shape)
        equal: Tracer = emit("eq", x, test)
        result = equal if result is None else emit_elementwise("or", result, equal)
    assert result is not None
    return result


@with_argument_errors
def isin(
    element: ArrayLike,
    test_elements: ArrayLike,
    assume_unique: bool = False,
    invert: bool = False,
    *,
    method: object = None,
) -> Tracer:
    """Return whether each element is in `test_elements` (or, with `invert`, is not).

    NaN equals no element.
    """
    if current_trace() is None:
        element, test_elements = (
            from_numpy(x) if type(x) is np.ndarray else x for x in (element, test_elements)
        )
    return _isin(element, test_elements, invert, _lookup_table_size(element, test_elements))


def _is_concrete_integers(x: object) -> TypeGuard[Array]:
    return type(x) is Array and x.signature.sharding is None and x.type.dtype in INTEGERS


def _lookup_table_size(element: object, test_elements: object) -> int | None:
    """Return the size of a lookup table for concrete integers, a power of two.

    Return `None` if the table would cost more than a search, or if the values are not concrete.
    """
    if not (_is_concrete_integers(element) and _is_concrete_integers(test_elements)):
        return None
    count = test_elements.size
    if count <= MAX_COMPARISONS_PER_ELEMENT or current_trace() is not None:
        return None
    numbers = test_elements.storage.array
    extent = int(numbers.max()) - int(numbers.min())
    return (
        1 << extent.bit_length() if extent < MAX_TABLE_SIZE_RATIO * (element.size + count) else None
    )


@public(static=("invert", "span"), name="isin")
def _isin(element: ArrayLike, test_elements: ArrayLike, invert: bool, span: int | None) -> Tracer:

    x, tests = promote(*as_operands(element, test_elements))
    tests = reshape(tests, (tests.size,))
    if not tests.size:
        found = filling.zeros(x.shape, bool)
    elif span is not None and x.value.type.dtype in INTEGERS:
        found = _isin_table(x, tests, span)
    elif tests.size <= MAX_REGISTER_TEST_ELEMENTS:
        found = _isin_registers(x, tests)
    elif (
        tests.size <= MAX_COMPARISONS_PER_ELEMENT
        or x.size * tests.size <= MAX_FULL_ISIN_COMPARISONS
    ):
        one, other = align(reshape(x, (*x.shape, 1)), tests)
        found = basic_reductions.any(emit("eq", one, other), axis=-1)
    else:
        sorted_tests = sort_functions.sort(tests)
        candidate = take.take(
            sorted_tests, searching.searchsorted(sorted_tests, x), mode="promise_in_bounds"
        )
        found = emit("eq", candidate, x)
    return ~found if invert else found


def _isin_table(x: Tracer, tests: Tracer, span: int) -> Tracer:
    """Return whether each element is set in a lookup table that begins at the smallest test
    element.
    """

    smallest = basic_reductions.min(tests)
    unsigned = UNSIGNED_BY_BITS[DTYPE_INFO[x.value.type.dtype].bits]
    # An element below the smallest wraps to an index beyond the end of the table.
    offset, marked = (
        convert(emit_elementwise("sub", *align(y, smallest)), unsigned) for y in (x, tests)
    )
    table = filling.zeros((span,), bool).at[marked].set(True, mode="promise_in_bounds")
    if span.bit_length() > DTYPE_INFO[x.value.type.dtype].bits:
        inside: Tracer = filling.ones(x.shape, bool)
    else:
        inside = offset < span
    return emit_elementwise("and", take.take(table, offset, mode="promise_in_bounds"), inside)
