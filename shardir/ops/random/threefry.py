"""Threefry-2x32 in NumPy: random bits as a function of a key and a counter.

A key is one 64-bit word, high half first. Two schemes convert hashes to arrays of bits; both equal
JAX's bit for bit. In the `partitionable` scheme the element with flat (row-major) index n is the
hash of the counter n. In the `original` scheme the counters 0, 1, ..., m - 1 are hashed in pairs
(i, i + m / 2), and the first outputs of all pairs precede the second ones. In both schemes an
element depends only on its index in the global array, so each shard can be computed where it is
needed: `random_bits` and `split_key` take indices instead of a shape.

Source: Salmon, Moraes, Dror, Shaw: Parallel random numbers: as easy as 1, 2, 3 (SC 2011).
"""

from collections.abc import Sequence
from math import prod

import numpy as np

from shardir.ir.dtypes import NumpyArray

Array = NumpyArray

SCHEMES = ("partitionable", "original")

PARITY = 0x1BD11BDA
ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_CHUNK_COUNTERS = 1 << 14
"""The number of counters per chunk, so that the twenty rounds run in cache."""


def hash_pairs(key: Array, first: Array, second: Array) -> tuple[Array, Array]:
    """Return the hashes of the counter words `first` and `second` (u32, equal shapes).

    `key` (u64) is one key for all counters or an array of their shape.
    """
    shape = first.shape
    key, first, second = key.reshape(-1), first.reshape(-1), second.reshape(-1)
    outs = np.empty((2, first.size), np.uint32)
    for start in range(0, first.size, _CHUNK_COUNTERS):
        part = slice(start, start + _CHUNK_COUNTERS)
        keys = key if key.size == 1 else key[part]
        outs[0, part], outs[1, part] = _threefry_2x32(*split_words(keys), first[part], second[part])
    return outs[0].reshape(shape), outs[1].reshape(shape)


def _threefry_2x32(key0: Array, key1: Array, first: Array, second: Array) -> tuple[Array, Array]:
    schedule = (key0, key1, key0 ^ key1 ^ np.uint32(PARITY))
    x, y = first + key0, second + key1
    low = np.empty_like(y)
    for group in range(5):
        for rotation in ROTATIONS[group % 2]:
            x += y
            np.right_shift(y, np.uint32(32 - rotation), out=low)
            np.left_shift(y, np.uint32(rotation), out=y)
            y |= low
            y ^= x
        x += schedule[(group + 1) % 3]
        y += schedule[(group + 2) % 3] + np.uint32(group + 1)
    return x, y


def split_words(words: Array) -> tuple[Array, Array]:
    """Return the high and the low 32 bits of 64-bit words."""
    return (words >> np.uint64(32)).astype(np.uint32), words.astype(np.uint32)


def join_words(high: Array, low: Array) -> Array:
    """Return 64-bit words from their high and low 32 bits."""
    words: Array = high.astype(np.uint64) << np.uint64(32) | low
    return words


def fold_in(keys: Array, data: Array) -> Array:
    """Return new keys (u64) from keys and data (u32) of equal shapes."""
    return join_words(*hash_pairs(keys, np.zeros_like(data), data))


def random_bits(key: Array, indices: Array, size: int, width: int, scheme: str) -> Array:
    """Return the elements at flat `indices` (u64) of an array of `size` random words of `width`
    bits.

    The result has the shape of `indices` and the unsigned type of that width.
    """
    dtype = np.dtype(f"u{width // 8}")
    if scheme == "partitionable":
        high, low = hash_pairs(key, *split_words(indices))
        return join_words(high, low) if width == 64 else (high ^ low).astype(dtype)
    if width == 64:
        low = indices + np.uint64(size)
        return join_words(
            _original_words(key, indices, 2 * size), _original_words(key, low, 2 * size)
        )
    per_word = 32 // width
    words = _original_words(key, indices // np.uint64(per_word), num_counters(size, width))
    shifts = indices % np.uint64(per_word) * np.uint64(width)
    return (words >> shifts.astype(np.uint32)).astype(dtype)


def split_key(key: Array, indices: Array, size: int, scheme: str) -> Array:
    """Return the keys at flat `indices` (u64) of the `size` keys into which `key` is split."""
    if scheme == "partitionable":
        return join_words(*hash_pairs(key, *split_words(indices)))
    high = indices * np.uint64(2)
    low = high + np.uint64(1)
    return join_words(_original_words(key, high, 2 * size), _original_words(key, low, 2 * size))


def num_counters(size: int, width: int) -> int:
    """Return the number of 32-bit counters of the original scheme for `size` words."""
    return -(-size * width // 32)


def _original_words(key: Array, words: Array, count: int) -> Array:
    """Return the words at the indices `words` (u64) of the `count` words of the original scheme.

    The counters are padded with one zero to an even number.
    """
    half = np.uint64((count + 1) // 2)
    first = words % half
    second = np.where(first + half < np.uint64(count), first + half, np.uint64(0))
    outs = hash_pairs(key, first.astype(np.uint32), second.astype(np.uint32))
    return np.where(words < half, *outs)


def window_indices(shape: Sequence[int], starts: Sequence[int], window: Sequence[int]) -> Array:
    """Return the flat indices (u64) in an array of `shape` of the window of shape `window` at
    `starts`.

    A window of `shape` at zeros gives the index of every element. Negative starts are clamped to 0.
    """
    flat = np.zeros((1,) * len(shape), np.uint64)
    for dim, (start, extent) in enumerate(zip(starts, window, strict=True)):
        places = np.arange(extent, dtype=np.uint64) + np.uint64(max(start, 0))
        along = places * np.uint64(prod(shape[dim + 1 :]))
        flat = flat + along.reshape([-1 if d == dim else 1 for d in range(len(shape))])
    return flat
