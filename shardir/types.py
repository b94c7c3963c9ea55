"""Tensor types: a shape and an element type, nothing about devices.

An element type is a short name, as in text (`f32`). `key` is the element type of random keys:
one threefry key per element, stored as one 64-bit word (high half first), so that every
operation that only moves data works on arrays of keys as on any other.
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
"""How the elements of each type are stored in a NumPy array."""

DTYPES = tuple(NUMPY_DTYPES)
SIGNED = ("i8", "i16", "i32", "i64")
TOKEN = "token"
"""The element type of tokens, which only order what happens: they hold nothing, and no array is
one. Programs of other languages have them."""
UNSIGNED = ("u8", "u16", "u32", "u64")
INTEGERS = SIGNED + UNSIGNED
FLOATS = ("f16", "bf16", "f32", "f64")
COMPLEX = ("c64", "c128")
INEXACT = FLOATS + COMPLEX
REAL_OF = {"c64": "f32", "c128": "f64"}
COMPLEX_OF = {real: whole for whole, real in REAL_OF.items()}
"""The element type of the real and imaginary parts."""

_NAMES = {dtype: name for name, dtype in NUMPY_DTYPES.items() if name != "key"}


def dtype_name(dtype: Any) -> str:
    """The name of a NumPy element type; raises `TypeError` for one the IR does not have."""
    try:
        return _NAMES[np.dtype(dtype)]
    except KeyError:
        found = np.dtype(dtype)
        native = found.newbyteorder("=")
        way_out = f"the element types are {', '.join(DTYPES)}"
        if native != found and native in _NAMES:
            way_out = f"x.astype({native.name!r}) has its bytes in this machine's order"
        raise TypeError(f"no element type stands for NumPy's {found}; {way_out}") from None


@dataclass(frozen=True, slots=True)
class TensorType:
    shape: tuple[int, ...]
    dtype: str

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        size = 1
        for extent in self.shape:
            size *= extent
        return size

    @property
    def nbytes(self) -> int:
        return 0 if self.dtype == TOKEN else self.size * NUMPY_DTYPES[self.dtype].itemsize

    @property
    def numpy(self) -> np.dtype[Any]:
        """The NumPy element type that stores it; raises `TypeError` for a token."""
        if self.dtype == TOKEN:
            raise TypeError("a token holds nothing; it only orders what happens")
        return NUMPY_DTYPES[self.dtype]

    def with_shape(self, shape: Sequence[int]) -> Self:
        return type(self)(tuple(shape), self.dtype)

    def with_dtype(self, dtype: str) -> Self:
        return type(self)(self.shape, dtype)

    def __str__(self) -> str:
        return f"{self.dtype}[{', '.join(map(str, self.shape))}]"
