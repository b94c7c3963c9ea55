"""What two known arrays have in common, and what not: all their values in one order, then marked.

Integers that are close together are marked in a table for each array. Of others, a value of at most
32 bits and the array that it is from make an integer of 64 bits, so that integers alone are sorted
and nothing has to be fetched from anywhere.
"""

from collections.abc import Sequence
from typing import Any

from shardir.frontend.array import Array
from shardir.frontend.eager import public
from shardir.frontend.numpy.along import joined
from shardir.frontend.numpy.masking import chosen
from shardir.frontend.numpy.pointwise import known, like, same
from shardir.frontend.operands import convert, promote
from shardir.frontend.trace import emit
from shardir.frontend.tracer import Tracer
from shardir.types import INEXACT, INTEGERS, TensorType

MANY = 1 << 12
"""Of fewer integers, looking for the least and the largest takes longer than sorting saves."""
NAN = 0x7FC00000
SIZE = 0x7FFFFFFF
"""All bits of an f32 but its sign."""


def values_of_both(arrays: Sequence[Array], which: str) -> Any:
    """The values that `both` of two arrays have, only `one`, or only the `first`, sorted."""
    first, second = arrays
    close = least_and_span(first, second, first.size + second.size)
    if close is None:
        values, found = _compared(first, second, which)
    else:
        values, found = _marked(first, second, *close, which)
    return chosen(values, found, None)


def least_and_span(first: Array, second: Array, most: int) -> tuple[Any, int] | None:
    """The least of the integers in two arrays, and a power of two so that all are fewer above it;
    `None` where those would be more than `most`, and for few, whose look-up takes longer."""
    kind = first.type.dtype
    if kind not in INTEGERS or kind != second.type.dtype or most < MANY:
        return None
    ends = [array.storage.array for array in (first, second)]
    least, largest = min(x.min() for x in ends), max(x.max() for x in ends)
    span = 1 << (int(largest) - int(least)).bit_length()
    return (least, span) if span <= most else None


@public(static=("which", "span"))
def _marked(ar1: Any, ar2: Any, least: Any, span: int, which: str) -> Any:
    """All integers from the least on, and whether each is asked for."""
    from shardir.frontend import numpy as snp

    first, second, start = (snp.ravel(x) for x in promote(*known(ar1, ar2, least)))
    dtype = first.value.type.dtype
    tables = []
    for x in (first, second):
        place = convert(x - start, f"u{x.value.type.numpy.itemsize * 8}")
        empty = snp.zeros((span,), bool)
        tables.append(empty.at[place].set(True, mode="promise_in_bounds"))
    mine, other = tables
    found = {"both": mine & other, "first": mine & ~other, "one": mine != other}[which]
    numbers: Tracer = emit("iota", dim=0, result=TensorType((span,), dtype))
    return [numbers + start, found]


@public(static=("which",))
def _compared(ar1: Any, ar2: Any, which: str) -> Any:
    """All values of both in order, and one place for each that is asked for."""
    from shardir.frontend import numpy as snp

    first, second = (snp.ravel(x) for x in promote(*known(ar1, ar2)))
    narrow = first.value.type.numpy.itemsize <= 4
    values, mine, alike = (_as_words if narrow else _with_places)(first, second)
    no = snp.zeros((1,), bool)
    if which == "both":
        return [values, snp.concatenate([alike & mine[:-1] & ~mine[1:], no])]
    found = mine & ~snp.concatenate([alike, no])
    if which == "one":
        found = found | (~mine & ~snp.concatenate([no, alike]))
    return [values, found]


def _as_words(first: Tracer, second: Tracer) -> tuple[Tracer, Tracer, Tracer]:
    """Values in order, of equal ones those of the first array first; which these are; and which
    are like the next. NaN is unlike that of the other array."""

    words = joined([_unsigned(_words(first, 0)), _unsigned(_words(second, 1))], 0)
    words = _unsigned(emit("sort", words, dim=0))
    key = _right(words, 2)
    mine = same("eq", same("and", words, like(words, 2)), like(words, 0))
    return _values(words, key, first.value.type.dtype), mine, same("eq", key[1:], key[:-1])


def _unsigned(words: Tracer) -> Tracer:
    """Words without a sign in the same order, and back: what is sorted for `argsort`, too."""
    to = "i64" if words.value.type.dtype == "u64" else "u64"
    words = emit("bitcast", words, result=words.value.type.with_dtype(to))
    return same("xor", words, like(words, 1 << 63 if to == "u64" else -(1 << 63)))


def _words(x: Tracer, side: int) -> Tracer:
    """Keys in the order of the values, then the array, then whether it is anything but -0.0."""
    from shardir.frontend import numpy as snp

    if x.value.type.dtype not in INEXACT:
        return same("or", _left(convert(x, "i64"), 2), like(convert(x, "i64"), 2 * side))
    x = convert(x, "f32")
    bits = emit("bitcast", x, result=x.value.type.with_dtype("i32"))
    negative_zero = same("eq", bits, like(bits, -SIZE - 1))
    bits = snp.where(snp.isnan(x), like(bits, NAN + side), bits)
    bits = snp.where(negative_zero, like(bits, 0), bits)
    word = same("or", _left(convert(_turned(bits), "i64"), 2), like(convert(bits, "i64"), 2 * side))
    return same("or", word, convert(~negative_zero, "i64"))


def _values(words: Tracer, key: Tracer, dtype: str) -> Tracer:
    """The values of words."""
    from shardir.frontend import numpy as snp

    if dtype not in INEXACT:
        return convert(key, dtype)
    bits = _turned(convert(key, "i32"))
    x = emit("bitcast", bits, result=bits.value.type.with_dtype("f32"))
    negative_zero = same("eq", same("or", key, same("and", words, like(words, 1))), like(words, 0))
    return convert(snp.where(negative_zero, like(x, -0.0), x), dtype)


def _turned(bits: Tracer) -> Tracer:
    """Bits of f32 as integers in their order, and back."""
    sign = _right(bits, 31)
    return same("xor", bits, same("and", sign, like(bits, SIZE)))


def _left(x: Tracer, by: int) -> Tracer:
    return same("shift_left", x, like(x, by))


def _right(x: Tracer, by: int) -> Tracer:
    return same("shift_right_arithmetic", x, like(x, by))


def _with_places(first: Tracer, second: Tracer) -> tuple[Tracer, Tracer, Tracer]:
    """The same for values of 64 bits, which have no room for more."""
    from shardir.frontend import numpy as snp

    values = snp.concatenate([first, second])
    places = emit("iota", dim=0, result=TensorType(values.shape, "i32"))
    values, order = emit("sort", values, places, dim=0, keys=1, stable=True)
    mine = order < first.shape[0]
    alike = values[1:] == values[:-1]
    if values.value.type.dtype in INEXACT:
        nan = snp.isnan(values)
        alike = alike | (nan[1:] & nan[:-1] & (mine[1:] == mine[:-1]))
    return values, mine, alike
