"""The element types of arrays in files of NumPy (`.npy` and `.npz`).

The format has no name for the types of ml_dtypes: NumPy writes most of them as elements of a number
of bytes without a type, and `float8_e5m2` with a name that it cannot read.
"""

import numpy as np

from shardir.ir.dtypes import NumpyArray
from shardir.ir.types import NumpyDType


def has_npy_name(dtype: NumpyDType) -> bool:
    """Return whether the format has a name for an element type."""
    return dtype.isbuiltin == 1


def untyped_bytes(dtype: NumpyDType) -> NumpyDType:
    """Return the type of as many bytes as an element of `dtype` has."""
    return np.dtype((np.void, dtype.itemsize))


def to_npy(array: NumpyArray) -> NumpyArray:
    """Return an array as it is written to a file: without its type if the format has no name for
    it."""
    return array if has_npy_name(array.dtype) else array.view(untyped_bytes(array.dtype))
