"""Random bits of JAX's original (not partitionable) counter scheme.

The counters 0, 1, ..., m - 1 are split into two halves, whose i-th members are hashed together. The
two words of every hash are concatenated, first all first words, then all second words. The emitted
program has this structure: for sharded results, every device hashes its share of the pairs, and the
words are sent to the devices that hold their positions. The partitionable scheme needs no
communication, because an element depends only on its own position.
"""

from math import prod

from shardir.frontend.tracing.operands import broadcast, convert, splat
from shardir.frontend.tracing.trace import emit
from shardir.frontend.tracing.tracer import Tracer
from shardir.ir.dtypes import UNSIGNED_BY_BITS
from shardir.ir.types import TensorType
from shardir.ops.random import threefry


def count_words(shape: tuple[int, ...], width: int) -> int:
    """Return the number of 32-bit words for an array of `shape` with `width` bits per element."""
    return threefry.num_counters(prod(shape), width)


def draw_original_bits(key: Tracer, shape: tuple[int, ...], width: int) -> Tracer:
    """Return unsigned integers of `width` random bits from one key."""
    size = prod(shape)
    words = _hash_counters(key, count_words(shape, width))
    if width == 64:
        high, low = (convert(_slice_words(words, start, size), "u64") for start in (0, size))
        high = emit("shift_left", high, splat(32, high.value.type))
        return _reshape(emit("or", high, low), shape)
    if width < 32:
        per_word, count = 32 // width, words.shape[0]
        type = TensorType((count, per_word), UNSIGNED_BY_BITS[width])
        pieces = emit("bitcast", words, result=type)
        words = _slice_words(_reshape(pieces, (count * per_word,)), 0, size)
    return _reshape(words, shape)


def _hash_counters(key: Tracer, count: int) -> Tracer:
    """Return `count` hashed words, u32; an odd number of counters is padded with a zero."""
    half = (count + 1) // 2
    kind = TensorType((half,), "u32")
    first = emit("iota", dim=0, result=kind)
    second = emit("add", first, splat(half, kind))
    if count % 2:
        last = emit("eq", first, splat(half - 1, kind))
        second = emit("select", last, splat(0, kind), second)
    hashed = emit("random_hash", broadcast(key, (half,)), first, second)
    pairs = emit("bitcast", hashed, result=TensorType((half, 2), "u32"))
    halves = [
        _reshape(
            emit(
                "slice",
                pairs,
                starts=(0, column),
                strides=(1, 1),
                result=TensorType((half, 1), "u32"),
            ),
            (half,),
        )
        for column in (0, 1)
    ]
    return _slice_words(emit("concatenate", *halves, dim=0), 0, count)


def _slice_words(words: Tracer, start: int, count: int) -> Tracer:
    if count == words.shape[0]:
        return words
    part: Tracer = emit("slice", words, starts=(start,), strides=(1,),
                        result=TensorType((count,), words.value.type.dtype))  # fmt: skip
    return part


def _reshape(array: Tracer, shape: tuple[int, ...]) -> Tracer:
    if array.shape == shape:
        return array
    result: Tracer = emit("reshape", array, result=TensorType(shape, array.value.type.dtype))
    return result
