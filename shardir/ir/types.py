"""Tensor types: a shape and an element type, without sharding.

An element type has a short name, as in the text (`f32`). `key` is the element type of random keys:
each element is one threefry key, stored as one 64-bit word (high half first), so that operations
that only move data accept arrays of keys like other arrays.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import ml_dtypes
import numpy as np

NUMPY_DTYPES: dict[str, np.dtype[Any]] = {
    "bool": np.dtype(np.bool_),
    "i8": np.dtype(np.int8),
    "i16": np.dtype(np.int16),
    "i32": np.dtype(np.int32),
    "i64": np.dtype(np.int64),
    "u8": np.dtype(np.uint8),
    "u16": np.dtype(np.uint16),
    "u32": np.dtype(np.uint32),
    "u64": np.dtype(np.uint64),
    "f16": np.dtype(np.float16),
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "f32": np.dtype(np.float32),
    "f64": np.dtype(np.float64),
    "c64": np.dtype(np.complex64),
    "c128": np.dtype(np.complex128),
    "key": np.dtype(np.uint64),
}
"""The NumPy element type that stores each element type."""

DTYPES = tuple(NUMPY_DTYPES)
SIGNED = ("i8", "i16", "i32", "i64")
TOKEN = "token"
"""The element type of tokens, which only order side effects.

A token has no elements and no array. StableHLO programs contain tokens.
"""
UNSIGNED = ("u8", "u16", "u32", "u64")
INTEGERS = SIGNED + UNSIGNED
FLOATS = ("f16", "bf16", "f32", "f64")
COMPLEX = ("c64", "c128")
INEXACT = FLOATS + COMPLEX
REAL_OF = {"c64": "f32", "c128": "f64"}
COMPLEX_OF = {real: name for name, real in REAL_OF.items()}
"""The complex element type for each element type of real and imaginary parts."""

_NAMES = {dtype: name for name, dtype in NUMPY_DTYPES.items() if name != "key"}


def dtype_name(dtype: Any) -> str:
    """Return the name of a NumPy element type; raise `TypeError` if the IR has no such type."""
    try:
        return _NAMES[np.dtype(dtype)]
    except KeyError:
        found = np.dtype(dtype)
        native = found.newbyteorder("=")
        way_out = f"the element types are {', '.join(DTYPES)}"
        if native != found and native in _NAMES:
            way_out = f"x.astype({native.name!r}) has its bytes in this machine's order"
        raise TypeError(f"there is no element type for NumPy's {found}; {way_out}") from None


@dataclass(frozen=True, slots=True)
class TensorType:
    shape: tuple[int, ...]
    dtype: str

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        size = 1
        for extent in self.shape:
            size *= extent
        return size

    @property
    def nbytes(self) -> int:
        return 0 if self.dtype == TOKEN else self.size * NUMPY_DTYPES[self.dtype].itemsize

    @property
    def numpy(self) -> np.dtype[Any]:
        """The NumPy element type of the storage; raises `TypeError` for a token."""
        if self.dtype == TOKEN:
            raise TypeError("a token has no elements; it only orders side effects")
        return NUMPY_DTYPES[self.dtype]

    def with_shape(self, shape: Sequence[int]) -> Self:
        return type(self)(tuple(shape), self.dtype)

    def with_dtype(self, dtype: str) -> Self:
        return type(self)(self.shape, dtype)

    def __str__(self) -> str:
        return f"{self.dtype}[{', '.join(map(str, self.shape))}]"
