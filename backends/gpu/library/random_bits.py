"""Threefry-2x32: random bits as a function of a key and a counter, bit-identical to shardir's.

32-bit words are stored in i32, which wraps alike; a key is a u64 with its high word first. Source:
Salmon, Moraes, Dror, Shaw: Parallel random numbers: as easy as 1, 2, 3 (SC 2011).
"""

import math

import torch
from torch import Tensor

THREEFRY_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))


def high_word(x: Tensor) -> Tensor:
    """Return the high 32 bits of 64-bit words, as i32."""
    return (x >> 32).to(torch.int32)


def low_word(x: Tensor) -> Tensor:
    """Return the low 32 bits of 64-bit words, as i32."""
    return (((x & 0xFFFFFFFF) ^ 0x80000000) - 0x80000000).to(torch.int32)


def join_words(high: Tensor, low: Tensor) -> Tensor:
    """Return 64-bit words from their high and low 32 bits."""
    return (high.to(torch.int64) << 32) | (low.to(torch.int64) & 0xFFFFFFFF)


def hash_words(keys: Tensor, first: Tensor, second: Tensor) -> tuple[Tensor, Tensor]:
    """Hash pairs of counter words (i32) with keys (64-bit words as i64) in twenty rounds."""
    key0, key1 = high_word(keys), low_word(keys)
    schedule = (key0, key1, key0 ^ key1 ^ 0x1BD11BDA)
    x, y = first + key0, second + key1
    for group in range(5):
        for rotation in THREEFRY_ROTATIONS[group % 2]:
            x = x + y
            y = (y << rotation) | ((y >> (32 - rotation)) & ((1 << rotation) - 1))
            y = y ^ x
        x = x + schedule[(group + 1) % 3]
        y = y + schedule[(group + 2) % 3] + (group + 1)
    return x, y


def hash_pairs(keys: Tensor, first: Tensor, second: Tensor) -> Tensor:
    """Return new keys from keys and pairs of u32 counters."""
    words = keys.view(torch.int64)
    return join_words(
        *hash_words(words, first.view(torch.int32), second.view(torch.int32))
    ).view(torch.uint64)  # fmt: skip


def fold_into(keys: Tensor, data: Tensor) -> Tensor:
    """Return new keys from keys and u32 data."""
    return hash_pairs(keys, torch.zeros_like(data), data)


def counted_in(shape: list[int], starts: list[Tensor], piece: list[int], like: Tensor) -> Tensor:
    """Return the row-major index in an array of `shape` of each element of the slice at
    `starts`.
    """
    flat = torch.zeros([1] * len(shape), dtype=torch.int64, device=like.device)
    for dim, extent in enumerate(piece):
        places = torch.arange(extent, device=like.device)
        if starts:
            places = places + starts[dim].to(torch.int64).clamp(min=0)
        along = places * math.prod(shape[dim + 1 :])
        flat = flat + along.reshape([-1 if d == dim else 1 for d in range(len(shape))])
    return flat


def original_words(keys: Tensor, words: Tensor, count: int) -> Tensor:
    """Return the 32-bit words at indices `words` of the `count` words of the original scheme."""
    half = (count + 1) // 2
    first = words % half
    second = torch.where(first + half < count, first + half, 0)
    high, low = hash_words(keys, low_word(first), low_word(second))
    return torch.where(words < half, high, low)


def hashed_places(
    keys: Tensor, shape: list[int], starts: list[Tensor], piece: list[int]
) -> tuple[Tensor, Tensor]:
    """Return the key (i64) of each element of a slice, and its index among all elements
    of the key.
    """
    words, places = keys.view(torch.int64), counted_in(shape, starts, piece, keys)
    if keys.dim():
        words = words.reshape([*keys.shape, *[1] * len(piece)]).expand([*keys.shape, *piece])
        places = places.expand([*keys.shape, *piece])
    return words, places


def draw_bits(
    keys: Tensor,
    dtype: torch.dtype,
    scheme: str,
    shape: list[int],
    starts: list[Tensor],
    piece: list[int],
) -> Tensor:
    """Return random bits: for each key the slice at `starts` of its array of `shape`."""
    words, places = hashed_places(keys, shape, starts, piece)
    width, size = torch.iinfo(dtype).bits, math.prod(shape)
    if scheme == "partitionable":
        high, low = hash_words(words, high_word(places), low_word(places))
        made = join_words(high, low) if width == 64 else high ^ low
    elif width == 64:
        high = original_words(words, places, 2 * size)
        made = join_words(high, original_words(words, places + size, 2 * size))
    else:
        per_word = 32 // width
        made = original_words(words, places // per_word, -(-size * width // 32))
        made = made.to(torch.int64) >> (places % per_word * width)
    made = made.expand([*keys.shape, *piece])
    if width == 64:
        return made.view(torch.uint64)
    return (made.to(torch.int64) & ((1 << width) - 1)).to(dtype)


def split_keys(
    keys: Tensor, scheme: str, shape: list[int], starts: list[Tensor], piece: list[int]
) -> Tensor:
    """Return new keys: for each key the slice at `starts` of its array of keys of `shape`."""
    words, places = hashed_places(keys, shape, starts, piece)
    if scheme == "partitionable":
        made = join_words(*hash_words(words, high_word(places), low_word(places)))
    else:
        count = 2 * math.prod(shape)
        high = original_words(words, 2 * places, count)
        made = join_words(high, original_words(words, 2 * places + 1, count))
    return made.expand([*keys.shape, *piece]).view(torch.uint64)
