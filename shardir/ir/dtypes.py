"""Element types (dtypes): the table of their facts that no target changes, and groups of names.

A dtype has a short name, as in the text (`f32`). `DTYPE_INFO` is the only list of dtypes: all
groups, limits and bit patterns in this file are derived from it. The types that a target uses
instead are in one table of each target. `docs/map.md` lists the steps that add a dtype.

`key` is the dtype of random keys: each element is one threefry key, stored as one 64-bit word (high
half first), so that operations that only move data accept arrays of keys like other arrays.
"""

from dataclasses import dataclass
from math import frexp, inf, nan
from typing import Any, Literal

import ml_dtypes
import numpy as np

NumpyDType = np.dtype[Any]
"""An element type of NumPy."""

NumpyArray = np.ndarray[Any, np.dtype[Any]]
"""A NumPy array of any element type and shape."""

DTypeKind = Literal["bool", "signed", "unsigned", "float", "complex", "key"]


@dataclass(frozen=True, slots=True)
class DTypeInfo:
    """The facts of one dtype."""

    name: str
    kind: DTypeKind
    numpy: NumpyDType
    """The NumPy dtype that stores the elements."""
    exponent_bits: int = 0
    """For floats, the number of bits of the exponent."""
    mantissa_bits: int = 0
    """For floats, the number of stored bits of the mantissa, without the leading 1."""
    compute_dtype: str = ""
    """The dtype in which operations compute before they round once; empty if it is this dtype."""
    real_dtype: str = ""
    """For complex dtypes, the dtype of the real and imaginary parts."""
    tolerance: float = 0.0
    """The tolerance of results relative to the largest element, for sums in a different order."""

    @property
    def bits(self) -> int:
        """The number of bits of an element in memory."""
        return self.numpy.itemsize * 8

    @property
    def precision_bits(self) -> int:
        """For floats, the number of bits of the significand, including the leading 1."""
        return self.mantissa_bits + 1

    @property
    def max_finite(self) -> float:
        """The largest finite number of a float."""
        info: Any = ml_dtypes.finfo  # Its annotations lack the type of the argument.
        return float(info(self.numpy).max)

    @property
    def max_exponent(self) -> int:
        """The exponent of the largest power of two of a float."""
        return frexp(self.max_finite)[1] - 1

    @property
    def one_bits(self) -> int:
        """The bit pattern of the number 1 of a float."""
        return self._bits_of(1.0)

    @property
    def largest_bits(self) -> int:
        """The bit pattern of infinity, or of the largest number of a float without infinity."""
        has_infinity = np.isinf(np.asarray(inf).astype(self.numpy))
        return self._bits_of(inf if has_infinity else self.max_finite)

    @property
    def nan_bits(self) -> int:
        """The bit pattern of a quiet NaN of a float."""
        return self._bits_of(nan)

    def _bits_of(self, number: float) -> int:
        return int(np.asarray(number).astype(self.numpy).view(f"u{self.numpy.itemsize}"))

    @property
    def is_extension(self) -> bool:
        """Return whether another package than NumPy defines the NumPy dtype."""
        return self.numpy.isbuiltin != 1


DTYPE_INFO = {
    info.name: info
    for info in (
        DTypeInfo("bool", "bool", np.dtype(np.bool_)),
        DTypeInfo("i8", "signed", np.dtype(np.int8)),
        DTypeInfo("i16", "signed", np.dtype(np.int16)),
        DTypeInfo("i32", "signed", np.dtype(np.int32)),
        DTypeInfo("i64", "signed", np.dtype(np.int64)),
        DTypeInfo("u8", "unsigned", np.dtype(np.uint8)),
        DTypeInfo("u16", "unsigned", np.dtype(np.uint16)),
        DTypeInfo("u32", "unsigned", np.dtype(np.uint32)),
        DTypeInfo("u64", "unsigned", np.dtype(np.uint64)),
        DTypeInfo("f16", "float", np.dtype(np.float16), 5, 10, "f32", tolerance=2e-2),
        DTypeInfo("bf16", "float", np.dtype(ml_dtypes.bfloat16), 8, 7, "f32", tolerance=1e-1),
        DTypeInfo("f32", "float", np.dtype(np.float32), 8, 23, tolerance=2e-4),
        DTypeInfo("f64", "float", np.dtype(np.float64), 11, 52, tolerance=1e-9),
        DTypeInfo("c64", "complex", np.dtype(np.complex64), real_dtype="f32", tolerance=2e-4),
        DTypeInfo("c128", "complex", np.dtype(np.complex128), real_dtype="f64", tolerance=1e-9),
        DTypeInfo("key", "key", np.dtype(np.uint64)),
    )
}
"""The facts of each dtype by name."""


def _names_of_kind(kind: DTypeKind) -> tuple[str, ...]:
    return tuple(name for name, info in DTYPE_INFO.items() if info.kind == kind)


DTYPES = tuple(DTYPE_INFO)
NUMPY_DTYPES = {name: info.numpy for name, info in DTYPE_INFO.items()}
"""The NumPy dtype that stores each dtype."""
SIGNED = _names_of_kind("signed")
UNSIGNED = _names_of_kind("unsigned")
INTEGERS = SIGNED + UNSIGNED
SIGNED_BY_BITS = {DTYPE_INFO[name].bits: name for name in SIGNED}
UNSIGNED_BY_BITS = {DTYPE_INFO[name].bits: name for name in UNSIGNED}
FLOATS = _names_of_kind("float")
COMPLEX = _names_of_kind("complex")
INEXACT = FLOATS + COMPLEX
COMPUTE_DTYPES = {name: info.compute_dtype or name for name, info in DTYPE_INFO.items()}
"""The dtype in which operations compute on elements of each dtype."""
NARROW_FLOATS = tuple(name for name in FLOATS if COMPUTE_DTYPES[name] != name)
"""Floats that are computed in a wider float and rounded once."""
REAL_OF = {name: DTYPE_INFO[name].real_dtype for name in COMPLEX}
COMPLEX_OF = {real: name for name, real in REAL_OF.items()}
"""The complex dtype for each dtype of real and imaginary parts."""
EXTENSION_DTYPES = {
    info.numpy.name: info.numpy for info in DTYPE_INFO.values() if info.is_extension
}
"""The NumPy dtypes that another package than NumPy defines, by their names in NumPy."""
TOKEN = "token"
"""The dtype of tokens, which only order side effects.

A token has no elements and no array. StableHLO programs contain tokens.
"""

_NAMES = {dtype: name for name, dtype in NUMPY_DTYPES.items() if name != "key"}


def represents_float(wide: str, narrow: str) -> bool:
    """Return whether the float `wide` represents every number of the float `narrow`."""
    a, b = DTYPE_INFO[wide], DTYPE_INFO[narrow]
    return a.mantissa_bits >= b.mantissa_bits and a.exponent_bits >= b.exponent_bits


def dtype_name(dtype: Any) -> str:
    """Return the name of a NumPy dtype; raise `TypeError` if the IR has no such dtype."""
    try:
        return _NAMES[np.dtype(dtype)]
    except KeyError:
        numpy_dtype = np.dtype(dtype)
        native = numpy_dtype.newbyteorder("=")
        way_out = f"the element types are {', '.join(DTYPES)}"
        if native != numpy_dtype and native in _NAMES:
            way_out = f"x.astype({native.name!r}) has its bytes in this machine's order"
        raise TypeError(f"there is no element type for NumPy's {numpy_dtype}; {way_out}") from None
