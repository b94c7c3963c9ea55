"""Tensor types: a shape and a dtype, without sharding."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from shardir.ir.cached_hash import CachedHash, cache_hash
from shardir.ir.dtypes import (
    COMPLEX as COMPLEX,
    COMPLEX_OF as COMPLEX_OF,
    DTYPES as DTYPES,
    FLOATS as FLOATS,
    INEXACT as INEXACT,
    INTEGERS as INTEGERS,
    NUMPY_DTYPES as NUMPY_DTYPES,
    REAL_OF as REAL_OF,
    SIGNED as SIGNED,
    TOKEN as TOKEN,
    UNSIGNED as UNSIGNED,
    NumpyArray as NumpyArray,
    NumpyDType as NumpyDType,
    dtype_name as dtype_name,
)


@cache_hash
@dataclass(frozen=True, slots=True)
class TensorType(CachedHash):
    """The shape and the element type of a tensor."""

    shape: tuple[int, ...]
    """The size of each dimension."""
    dtype: str
    """The name of the element type in the IR."""

    @property
    def rank(self) -> int:
        """The number of dimensions."""
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
        """The size of all elements in bytes; 0 for a token."""
        return 0 if self.dtype == TOKEN else self.size * NUMPY_DTYPES[self.dtype].itemsize

    @property
    def numpy(self) -> NumpyDType:
        """The NumPy element type of the storage; raises `TypeError` for a token."""
        if self.dtype == TOKEN:
            raise TypeError("a token has no elements; it only orders side effects")
        return NUMPY_DTYPES[self.dtype]

    def with_shape(self, shape: Sequence[int]) -> Self:
        """Return the type with the same element type and another shape."""
        return type(self)(tuple(shape), self.dtype)

    def with_dtype(self, dtype: str) -> Self:
        """Return the type with the same shape and another element type."""
        return type(self)(self.shape, dtype)

    def __str__(self) -> str:
        return f"{self.dtype}[{', '.join(map(str, self.shape))}]"
