"""Common and different values of two concrete arrays.

Integers of a small range are marked in one lookup table per array. Other values are sorted
together: a value of at most 32 bits and the number of its array form one 64-bit integer, so that
only integers are sorted and no gather is necessary.
"""

from collections.abc import Sequence

from shardir.frontend.arrays.array import Array
from shardir.frontend.arrays.array_types import ArrayLike
from shardir.frontend.dispatch.eager import public
from shardir.frontend.numpy.creation import filling
from shardir.frontend.numpy.elementwise import float_parts, selection
from shardir.frontend.numpy.indexing.mask_compression import compress_rows
from shardir.frontend.numpy.shaping import concatenation, reshaping
from shardir.frontend.numpy.tracer_helpers.axis_slices import concatenate_parts
from shardir.frontend.numpy.tracer_helpers.elementwise_emission import (
    as_operands,
    constant_like,
    emit_elementwise,
)
from shardir.frontend.tracing.operands import convert, promote
from shardir.frontend.tracing.trace import emit, emit_results
from shardir.frontend.tracing.tracer import Tracer
from shardir.ir.dtypes import DTYPE_INFO, UNSIGNED_BY_BITS
from shardir.ir.types import INEXACT, INTEGERS, TensorType

RANGE_SEARCH_MIN_ELEMENTS = 1 << 12
"""The number of integers below which finding their range costs more than a table saves."""
F32_NAN_BITS = 0x7FC00000
F32_MAGNITUDE_MASK = 0x7FFFFFFF
"""All bits of an f32 except its sign."""


def select_set_values(arrays: Sequence[Array], which: str) -> Tracer:
    """Return the values in `both` arrays, only in `one`, or only in the `first`, sorted."""
    first, second = arrays
    close = integer_range(first, second, first.size + second.size)
    if close is None:
        values, found = _select_by_sort(first, second, which)
    else:
        values, found = _select_by_table(first, second, *close, which)
    selected = compress_rows(values, found, None)
    assert selected is not None, "the operands are concrete vectors of one length"
    return selected


def integer_range(first: Array, second: Array, most: int) -> tuple[ArrayLike, int] | None:
    """Return the smallest integer of two arrays, and a power of two above their range.

    Return `None` if the range exceeds `most`, for few integers, and for other types.
    """
    kind = first.type.dtype
    if kind not in INTEGERS or kind != second.type.dtype or most < RANGE_SEARCH_MIN_ELEMENTS:
        return None
    ends = [array.storage.array for array in (first, second)]
    smallest, largest = min(x.min() for x in ends), max(x.max() for x in ends)
    span = 1 << (int(largest) - int(smallest)).bit_length()
    return (smallest, span) if span <= most else None


@public(static=("which", "span"))
def _select_by_table(
    ar1: ArrayLike, ar2: ArrayLike, smallest: ArrayLike, span: int, which: str
) -> list[Tracer]:
    """Return all integers of the range, and the mask of those that `which` selects."""

    first, second, start = (reshaping.ravel(x) for x in promote(*as_operands(ar1, ar2, smallest)))
    dtype = first.value.type.dtype
    tables = []
    for x in (first, second):
        offset = convert(x - start, UNSIGNED_BY_BITS[DTYPE_INFO[x.value.type.dtype].bits])
        empty = filling.zeros((span,), bool)
        tables.append(empty.at[offset].set(True, mode="promise_in_bounds"))
    in_first, in_second = tables
    found = {
        "both": in_first & in_second,
        "first": in_first & ~in_second,
        "one": in_first != in_second,
    }[which]
    numbers: Tracer = emit("iota", dim=0, result=TensorType((span,), dtype))
    return [numbers + start, found]


@public(static=("which",))
def _select_by_sort(ar1: ArrayLike, ar2: ArrayLike, which: str) -> list[Tracer]:
    """Return all values in order, and a mask with one element per selected value."""

    first, second = (reshaping.ravel(x) for x in promote(*as_operands(ar1, ar2)))
    narrow = first.value.type.numpy.itemsize <= 4
    values, from_first, equals_next = (_sort_as_words if narrow else _sort_with_positions)(
        first, second
    )
    false = filling.zeros((1,), bool)
    if which == "both":
        return [
            values,
            concatenation.concatenate([equals_next & from_first[:-1] & ~from_first[1:], false]),
        ]
    found = from_first & ~concatenation.concatenate([equals_next, false])
    if which == "one":
        found = found | (~from_first & ~concatenation.concatenate([false, equals_next]))
    return [values, found]


def _sort_as_words(first: Tracer, second: Tracer) -> tuple[Tracer, Tracer, Tracer]:
    """Sort 64-bit words of value and array number.

    Return the values in order, with equal values of the first array first; the mask of elements of
    the first array; and whether each equals the next one. NaN differs from NaN of the other array.
    """

    words = concatenate_parts(
        [_flip_word_sign(_pack_words(first, 0)), _flip_word_sign(_pack_words(second, 1))], 0
    )
    words = _flip_word_sign(emit("sort", words, dim=0))
    key = _shift_right(words, 2)
    from_first = emit_elementwise(
        "eq", emit_elementwise("and", words, constant_like(words, 2)), constant_like(words, 0)
    )
    return (
        _unpack_values(words, key, first.value.type.dtype),
        from_first,
        emit_elementwise("eq", key[1:], key[:-1]),
    )


def _flip_word_sign(words: Tracer) -> Tracer:
    """Convert between signed and unsigned words in the same order; `argsort` sorts such words."""
    to = "i64" if words.value.type.dtype == "u64" else "u64"
    words = emit("bitcast", words, result=words.value.type.with_dtype(to))
    return emit_elementwise(
        "xor", words, constant_like(words, 1 << 63 if to == "u64" else -(1 << 63))
    )


def _pack_words(x: Tracer, side: int) -> Tracer:
    """Return words: the key in the order of the values, the array number, and a bit that is 0 for
    -0.0.
    """

    if x.value.type.dtype not in INEXACT:
        return emit_elementwise(
            "or", _shift_left(convert(x, "i64"), 2), constant_like(convert(x, "i64"), 2 * side)
        )
    x = convert(x, "f32")
    bits = emit("bitcast", x, result=x.value.type.with_dtype("i32"))
    negative_zero = emit_elementwise("eq", bits, constant_like(bits, -F32_MAGNITUDE_MASK - 1))
    bits = selection.where(float_parts.isnan(x), constant_like(bits, F32_NAN_BITS + side), bits)
    bits = selection.where(negative_zero, constant_like(bits, 0), bits)
    word = emit_elementwise(
        "or",
        _shift_left(convert(_order_float_bits(bits), "i64"), 2),
        constant_like(convert(bits, "i64"), 2 * side),
    )
    return emit_elementwise("or", word, convert(~negative_zero, "i64"))


def _unpack_values(words: Tracer, key: Tracer, dtype: str) -> Tracer:
    """Return the values of words."""

    if dtype not in INEXACT:
        return convert(key, dtype)
    bits = _order_float_bits(convert(key, "i32"))
    x = emit("bitcast", bits, result=bits.value.type.with_dtype("f32"))
    negative_zero = emit_elementwise(
        "eq",
        emit_elementwise("or", key, emit_elementwise("and", words, constant_like(words, 1))),
        constant_like(words, 0),
    )
    return convert(selection.where(negative_zero, constant_like(x, -0.0), x), dtype)


def _order_float_bits(bits: Tracer) -> Tracer:
    """Convert between the bits of f32 and integers in the same order."""
    sign = _shift_right(bits, 31)
    return emit_elementwise(
        "xor", bits, emit_elementwise("and", sign, constant_like(bits, F32_MAGNITUDE_MASK))
    )


def _shift_left(x: Tracer, by: int) -> Tracer:
    return emit_elementwise("shift_left", x, constant_like(x, by))


def _shift_right(x: Tracer, by: int) -> Tracer:
    return emit_elementwise("shift_right_arithmetic", x, constant_like(x, by))


def _sort_with_positions(first: Tracer, second: Tracer) -> tuple[Tracer, Tracer, Tracer]:
    """Sort 64-bit values, which leave no bits for the array number, with their indices."""

    values = concatenation.concatenate([first, second])
    positions = emit("iota", dim=0, result=TensorType(values.shape, "i32"))
    values, order = emit_results("sort", values, positions, dim=0, keys=1, stable=True)
    from_first = order < first.shape[0]
    equals_next = values[1:] == values[:-1]
    if values.value.type.dtype in INEXACT:
        nan = float_parts.isnan(values)
        equals_next = equals_next | (nan[1:] & nan[:-1] & (from_first[1:] == from_first[:-1]))
    return values, from_first, equals_next
