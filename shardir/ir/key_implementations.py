"""Implementations of random keys: their public names, their dtypes, and the words of a key.

The names and the tags are JAX's. A key of `threefry2x32` has two words of 32 bits, which one 64-bit
word stores, the first word in its high half. A key of `rbg` or `unsafe_rbg` has four words, stored
in their order; both draw the bits of `lax.rng_bit_generator`, and differ in how they derive keys.
"""

from dataclasses import dataclass

import numpy as np

from shardir.ir.dtypes import KEY_WORDS, NUMPY_DTYPES, NumpyArray


@dataclass(frozen=True, slots=True)
class KeyImplementation:
    """An implementation of random keys."""

    name: str
    """The name in the public interface, such as `threefry2x32`."""
    tag: str
    """The name in the public dtype, such as `fry` in `key<fry>`."""
    dtype: str
    """The dtype of its keys in the IR."""

    @property
    def num_words(self) -> int:
        """The number of 32-bit words of a key."""
        return KEY_WORDS[self.dtype]


THREEFRY = KeyImplementation("threefry2x32", "fry", "key")
RBG = KeyImplementation("rbg", "rbg", "key_rbg")
UNSAFE_RBG = KeyImplementation("unsafe_rbg", "urbg", "key_urbg")

KEY_IMPLEMENTATIONS = {each.dtype: each for each in (THREEFRY, RBG, UNSAFE_RBG)}
"""The implementations by the dtype of their keys."""
IMPLEMENTATIONS_BY_NAME = {each.name: each for each in KEY_IMPLEMENTATIONS.values()}


def split_keys(keys: NumpyArray, dtype: str) -> NumpyArray:
    """Return the words u32[..., n] of keys in storage."""
    # In contrast to ascontiguousarray, asarray keeps rank 0.
    words = np.asarray(keys, order="C")[..., None].view(np.uint32)
    return words[..., ::-1] if dtype == THREEFRY.dtype else words


def join_words(words: NumpyArray, dtype: str) -> NumpyArray:
    """Return the storage of the keys that have the words u32[..., n]."""
    ordered = words[..., ::-1] if dtype == THREEFRY.dtype else words
    contiguous = np.ascontiguousarray(ordered, np.uint32)
    return contiguous.view(NUMPY_DTYPES[dtype]).reshape(words.shape[:-1])
