"""How arrays of NumPy and `bytes` lie in memory, for machine code that reads them as they are.

NumPy promises these places to compiled extensions (`PyArrayObject_fields` in its C API); they are
tried out all the same, and where they are not as expected Python does the work.
"""

import ctypes
from functools import cache

import numpy as np

from shardir.backends.cpu.native.runtime import objects

DATA, RANK, SHAPE, DTYPE, FLAGS = 16, 24, 32, 56, 64
"""Bytes from an array to where its elements are, how many dimensions it has, where their extents
are, its element type, and its flags."""
IN_ONE_PIECE = 0x0001 | 0x0100
"""The flags of elements in row-major order without gaps, each aligned."""

SIZE = 16
"""Bytes from `bytes` to how many there are."""
OCTETS = bytes.__basicsize__ - 1
"""Bytes from `bytes` to the first of them."""


@cache
def readable() -> bool:
    """Whether arrays of NumPy lie as it is taken for here."""
    if not objects.readable():
        return False
    shapes: tuple[tuple[int, ...], ...] = ((), (3,), (2, 3, 4))
    samples = [np.zeros(shape, kind) for shape in shapes for kind in (np.float32, np.int64)]
    return all(map(_as_expected, samples)) and not _flags(samples[-1].T) & 1


def _as_expected(sample: "np.ndarray[tuple[int, ...], np.dtype[np.generic]]") -> bool:
    start = id(sample)
    if _word(start + DATA) != sample.__array_interface__["data"][0]:
        return False
    if _word(start + DTYPE) != id(sample.dtype) or _flags(sample) & IN_ONE_PIECE != IN_ONE_PIECE:
        return False
    if ctypes.c_int32.from_address(start + RANK).value != sample.ndim:
        return False
    extents = _word(start + SHAPE) if sample.ndim else 0
    return all(_word(extents + 8 * k) == extent for k, extent in enumerate(sample.shape))


def _flags(sample: object) -> int:
    return ctypes.c_int32.from_address(id(sample) + FLAGS).value


def _word(address: int) -> int:
    return ctypes.c_uint64.from_address(address).value
