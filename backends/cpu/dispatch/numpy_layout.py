"""The memory layout of NumPy arrays and `bytes`, for native code that reads them in place.

NumPy guarantees this layout to extension modules (`PyArrayObject_fields` in its C API). The layout
is verified nevertheless; if it differs, Python does the work.
"""

import ctypes
from functools import cache

import numpy as np

from shardir.backends.cpu.dispatch import object_layout

DATA_OFFSET, RANK_OFFSET, SHAPE_OFFSET, DTYPE_OFFSET, FLAGS_OFFSET = 16, 24, 32, 56, 64
"""Byte offsets in an array of its data pointer, rank, extents, element type, and flags."""
C_CONTIGUOUS_ALIGNED = 0x0001 | 0x0100
"""The flags of aligned, C-contiguous arrays."""

BYTES_SIZE_OFFSET = 16
"""Byte offset in a `bytes` object of its size."""
BYTES_DATA_OFFSET = bytes.__basicsize__ - 1
"""Byte offset in a `bytes` object of its data."""


@cache
def has_known_layout() -> bool:
    """Return whether NumPy arrays have the expected layout."""
    if not object_layout.has_known_layout():
        return False
    shapes: tuple[tuple[int, ...], ...] = ((), (3,), (2, 3, 4))
    samples = [np.zeros(shape, kind) for shape in shapes for kind in (np.float32, np.int64)]
    return all(map(_matches_layout, samples)) and not _flags(samples[-1].T) & 1


def _matches_layout(sample: "np.ndarray[tuple[int, ...], np.dtype[np.generic]]") -> bool:
    start = id(sample)
    if _word(start + DATA_OFFSET) != sample.__array_interface__["data"][0]:
        return False
    if (
        _word(start + DTYPE_OFFSET) != id(sample.dtype)
        or _flags(sample) & C_CONTIGUOUS_ALIGNED != C_CONTIGUOUS_ALIGNED
    ):
        return False
    if ctypes.c_int32.from_address(start + RANK_OFFSET).value != sample.ndim:
        return False
    extents = _word(start + SHAPE_OFFSET) if sample.ndim else 0
    return all(_word(extents + 8 * k) == extent for k, extent in enumerate(sample.shape))


def _flags(sample: object) -> int:
    return ctypes.c_int32.from_address(id(sample) + FLAGS_OFFSET).value


def _word(address: int) -> int:
    return ctypes.c_uint64.from_address(address).value
