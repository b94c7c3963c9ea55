"""Arrays next to a guard page: an access beyond that end of the array ends the process."""

import ctypes
import mmap
import sys
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
_PROT_NONE = 0
"""The protection of an inaccessible page (`PROT_NONE`)."""


def copy_before_guard_page(array: Array) -> Array:
    """Return a contiguous copy before a guard page on Linux, or any copy on other systems."""
    return _copy_next_to_guard_page(array, is_before=True)


def copy_after_guard_page(array: Array) -> Array:
    """Return a contiguous copy after a guard page on Linux, or any copy on other systems."""
    return _copy_next_to_guard_page(array, is_before=False)


def _copy_next_to_guard_page(array: Array, is_before: bool) -> Array:
    if not array.nbytes or not sys.platform.startswith("linux"):
        return array.copy()
    page = mmap.PAGESIZE
    size = -(-array.nbytes // page) * page
    memory = mmap.mmap(-1, size + page)
    mapped_bytes = np.frombuffer(memory, np.uint8)
    libc = ctypes.CDLL(None, use_errno=True)
    guard_page = ctypes.c_void_p(mapped_bytes.ctypes.data + (size if is_before else 0))
    assert libc.mprotect(guard_page, ctypes.c_size_t(page), _PROT_NONE) == 0
    first = size - array.nbytes if is_before else page
    copied = mapped_bytes[first : first + array.nbytes].view(array.dtype).reshape(array.shape)
    copied[...] = array
    return np.asarray(copied)
