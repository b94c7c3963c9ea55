"""Arrays of random keys as programs on devices of GPUs, IPUs and PJRT take and return them.

A key of four words (`rbg`, `unsafe_rbg`) is an element of 16 bytes on the host. These programs went
through `expand-rbg-keys`, in which the words are the last dimension of an array, because the
devices have no elements of 128 bits.
"""

import numpy as np

from shardir.backends.base import Array
from shardir.ir.dtypes import KEY_WORDS, NUMPY_DTYPES, RBG_KEYS
from shardir.ir.types import NumpyDType

_KEYS = {NUMPY_DTYPES[name]: KEY_WORDS[name] for name in RBG_KEYS}
"""The number of words of the NumPy dtype of each such key."""


def view_as_words(elements: Array) -> Array:
    """Return the elements of a host array as programs take them."""
    count = _KEYS.get(elements.dtype)
    if count is None:
        return elements
    contiguous = np.ascontiguousarray(elements).reshape(elements.shape)
    return contiguous[..., None].view(np.uint32).reshape(*elements.shape, count)


def view_as_elements(words: Array, dtype: NumpyDType) -> Array:
    """Return what a program returns as elements of a dtype of the host."""
    if words.dtype == dtype:
        return words
    if dtype in _KEYS:
        return np.ascontiguousarray(words).view(dtype).reshape(words.shape[:-1])
    return words.view(dtype)
