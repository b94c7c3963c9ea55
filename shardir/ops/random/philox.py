"""Philox-4x32 in NumPy: the random bits of keys of four words, as a function of a key and an index.

The words of a key are those of the state of XLA's `rng_bit_generator`: the two words of the cipher
key, low word first, and the two words of a counter. Block n of four words is the cipher of the
counter plus n; a carry out of the counter increments the upper half of the block, which starts as
the cipher key. An element of 64 bits takes two words, and each other element takes one, whose low
bits it has. The bits equal those of XLA for CPUs.

Source: Salmon, Moraes, Dror, Shaw: Parallel random numbers: as easy as 1, 2, 3 (SC 2011).
"""

import numpy as np

from shardir.ir.dtypes import NumpyArray
from shardir.ir.key_implementations import split_keys
from shardir.ops.random.threefry import join_words, split_words

Array = NumpyArray

ROUNDS = 10
MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
KEY_INCREMENTS = (0x9E3779B9, 0xBB67AE85)
_CHUNK_BLOCKS = 1 << 13
"""The number of blocks per chunk, so that the ten rounds run in cache."""


def random_bits(keys: Array, indices: Array, width: int) -> Array:
    """Return the elements at flat `indices` (u64) of arrays of words of `width` bits.

    `keys` are in the storage of `key_rbg`: one key for all indices, or an array of their shape. The
    result has the shape of `indices` and the unsigned type of that width.
    """
    dtype = np.dtype(f"u{width // 8}")
    per_block = np.uint64(2 if width == 64 else 4)
    halves = split_keys(keys, "key_rbg").astype(np.uint64).reshape(-1, 2, 2)
    states = halves[..., 0] | halves[..., 1] << np.uint64(32)
    flat = indices.reshape(-1)
    if states.shape[0] == 1 and flat.size and int(flat[-1] - flat[0]) + 1 == flat.size:
        first = flat[0] // per_block
        blocks = np.arange(first, flat[-1] // per_block + np.uint64(1), dtype=np.uint64)
        start = int(flat[0] - first * per_block)
        elements = _elements(_cipher(states, blocks), width)
        return elements[start : start + flat.size].astype(dtype).reshape(indices.shape)
    rows = _elements(_cipher(states, flat // per_block), width).reshape(flat.size, int(per_block))
    chosen = np.take_along_axis(rows, (flat % per_block).astype(np.int64)[:, None], 1)
    return chosen.astype(dtype).reshape(indices.shape)


def _elements(words: Array, width: int) -> Array:
    """Return the elements of all blocks in their order, u64 or u32."""
    flat = words.reshape(-1)
    return join_words(flat[1::2], flat[::2]) if width == 64 else flat


def _cipher(states: Array, blocks: Array) -> Array:
    """Return the four words of each block, u32[..., 4]."""
    result = np.empty((blocks.size, 4), np.uint32)
    for start in range(0, blocks.size, _CHUNK_BLOCKS):
        part = slice(start, start + _CHUNK_BLOCKS)
        state = states if states.shape[0] == 1 else states[part]
        result[part] = _encrypt(state[:, 0], state[:, 1], blocks[part])
    return result


def _encrypt(key: Array, counter: Array, blocks: Array) -> Array:
    low = counter + blocks
    upper = key + (low < counter).astype(np.uint64)
    (x1, x0), (x3, x2) = split_words(low), split_words(np.broadcast_to(upper, low.shape))
    key1, key0 = split_words(key)
    for _ in range(ROUNDS):
        high0, low0 = split_words(x0.astype(np.uint64) * np.uint64(MULTIPLIERS[0]))
        high1, low1 = split_words(x2.astype(np.uint64) * np.uint64(MULTIPLIERS[1]))
        x0, x1, x2, x3 = high1 ^ x1 ^ key0, low1, high0 ^ x3 ^ key1, low0
        key0, key1 = key0 + np.uint32(KEY_INCREMENTS[0]), key1 + np.uint32(KEY_INCREMENTS[1])
    return np.stack([x0, x1, x2, x3], -1)
