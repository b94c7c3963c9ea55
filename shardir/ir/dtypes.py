"""Element types (dtypes): the table of their facts that no target changes, and groups of names.

A dtype has a short name, as in the text (`f32`). `DTYPE_INFO` is the only list of dtypes: all
groups, limits and bit patterns in this file are derived from it. The types that a target uses
instead are in one table of each target. `docs/map.md` lists the steps that add a dtype.

`key` is the dtype of random keys: each element is one threefry key, stored as one 64-bit word (high
half first), so that operations that only move data accept arrays of keys like other arrays. The
dtypes `key_rbg` and `key_urbg` are those of the generators `rbg` and `unsafe_rbg`: each element is
four words of 32 bits, stored in their order.

Small dtypes are floats of 8 or 4 bits and integers of 4 or 2 bits. An array stores each element in
one byte, as `ml_dtypes` and JAX do on the host; the upper bits of a byte have no meaning.
Operations that compute with them convert them to a wider dtype and back; see
`shardir.op_rules.widening`.
"""

from dataclasses import dataclass
from functools import cache
from itertools import starmap
from math import frexp, inf, nan
from typing import Any, Literal

import ml_dtypes
import numpy as np

NumpyDType = np.dtype[Any]
"""An element type of NumPy."""

NumpyArray = np.ndarray[Any, np.dtype[Any]]
"""A NumPy array of any element type and shape."""

DTypeKind = Literal["bool", "signed", "unsigned", "float", "complex", "key"]

Specials = Literal["ieee", "fn", "fnuz", "fnu", "finite"]
"""Which bit patterns of a float are not numbers:

* `ieee`: the largest exponent means infinity and NaN;
* `fn`: only a pattern of ones means NaN, there is no infinity;
* `fnuz`: only the pattern of -0 means NaN, there is no infinity and no -0;
* `fnu`: as `fn`, without sign and without zero;
* `finite`: all patterns are numbers.
"""


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
    specials: Specials = "ieee"
    """For floats, the bit patterns that are not numbers."""
    exponent_bias: int = 0
    """For floats, the bias of the exponent; 0 if it is half of the exponent's range."""
    integer_bits: int = 0
    """For integers, the number of bits of an element if an array stores them in more bits."""

    @property
    def bits(self) -> int:
        """The number of bits of an element, which may be fewer than in memory."""
        if self.specials == "fnu":
            return self.exponent_bits + self.mantissa_bits
        if self.kind == "float":
            return 1 + self.exponent_bits + self.mantissa_bits
        return self.integer_bits or self.memory_bits

    @property
    def memory_bits(self) -> int:
        """The number of bits of an element in memory."""
        return self.numpy.itemsize * 8

    @property
    def bias(self) -> int:
        """The bias of the exponent of a float."""
        return self.exponent_bias or (1 << self.exponent_bits - 1) - 1

    @property
    def is_small(self) -> bool:
        """Return whether this is a float of at most 8 bits or an integer of fewer."""
        return self.bits < 8 or (self.kind == "float" and self.bits == 8)

    @property
    def min_integer(self) -> int:
        """The least integer of an integer dtype."""
        return -(1 << self.bits - 1) if self.kind == "signed" else 0

    @property
    def max_integer(self) -> int:
        """The largest integer of an integer dtype."""
        return (1 << self.bits - (self.kind == "signed")) - 1

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
    def min_finite(self) -> float:
        """The lowest finite number of a float."""
        return 2.0**-self.bias if self.specials == "fnu" else -self.max_finite

    @property
    def has_infinity(self) -> bool:
        """Return whether a float has infinities."""
        return self.specials == "ieee"

    @property
    def has_zero(self) -> bool:
        """Return whether zero is an element."""
        return self.specials != "fnu"

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
        return self._bits_of(inf if self.has_infinity else self.max_finite)

    @property
    def nan_bits(self) -> int:
        """The bit pattern of a quiet NaN of a float."""
        return self._bits_of(nan)

    def _bits_of(self, number: float) -> int:
        return int(np.asarray(number).astype(self.numpy).view(f"u{self.numpy.itemsize}"))

    @property
    def is_extension(self) -> bool:
        """Return whether another package than NumPy defines the NumPy dtype."""
        return self.kind != "key" and self.numpy.isbuiltin != 1


def _small_float(
    name: str,
    numpy: type,
    exponent_bits: int,
    mantissa_bits: int,
    specials: Specials,
    exponent_bias: int = 0,
) -> DTypeInfo:
    """Return the facts of a float of at most 8 bits."""
    return DTypeInfo(
        name,
        "float",
        np.dtype(numpy),
        exponent_bits,
        mantissa_bits,
        "f32",
        tolerance=2.0 ** -(mantissa_bits - 1),
        specials=specials,
        exponent_bias=exponent_bias,
    )


DTYPE_INFO = {
    info.name: info
    for info in (
        DTypeInfo("bool", "bool", np.dtype(np.bool_)),
        DTypeInfo("i2", "signed", np.dtype(ml_dtypes.int2), compute_dtype="i8", integer_bits=2),
        DTypeInfo("i4", "signed", np.dtype(ml_dtypes.int4), compute_dtype="i8", integer_bits=4),
        DTypeInfo("i8", "signed", np.dtype(np.int8)),
        DTypeInfo("i16", "signed", np.dtype(np.int16)),
        DTypeInfo("i32", "signed", np.dtype(np.int32)),
        DTypeInfo("i64", "signed", np.dtype(np.int64)),
        DTypeInfo("u2", "unsigned", np.dtype(ml_dtypes.uint2), compute_dtype="u8", integer_bits=2),
        DTypeInfo("u4", "unsigned", np.dtype(ml_dtypes.uint4), compute_dtype="u8", integer_bits=4),
        DTypeInfo("u8", "unsigned", np.dtype(np.uint8)),
        DTypeInfo("u16", "unsigned", np.dtype(np.uint16)),
        DTypeInfo("u32", "unsigned", np.dtype(np.uint32)),
        DTypeInfo("u64", "unsigned", np.dtype(np.uint64)),
        *starmap(
            _small_float,
            (
                ("f4e2m1fn", ml_dtypes.float4_e2m1fn, 2, 1, "finite"),
                ("f8e3m4", ml_dtypes.float8_e3m4, 3, 4, "ieee"),
                ("f8e4m3", ml_dtypes.float8_e4m3, 4, 3, "ieee"),
                ("f8e4m3fn", ml_dtypes.float8_e4m3fn, 4, 3, "fn"),
                ("f8e4m3b11fnuz", ml_dtypes.float8_e4m3b11fnuz, 4, 3, "fnuz", 11),
                ("f8e4m3fnuz", ml_dtypes.float8_e4m3fnuz, 4, 3, "fnuz", 8),
                ("f8e5m2", ml_dtypes.float8_e5m2, 5, 2, "ieee"),
                ("f8e5m2fnuz", ml_dtypes.float8_e5m2fnuz, 5, 2, "fnuz", 16),
                ("f8e8m0fnu", ml_dtypes.float8_e8m0fnu, 8, 0, "fnu"),
            ),
        ),
        DTypeInfo("f16", "float", np.dtype(np.float16), 5, 10, "f32", tolerance=2e-2),
        DTypeInfo("bf16", "float", np.dtype(ml_dtypes.bfloat16), 8, 7, "f32", tolerance=1e-1),
        DTypeInfo("f32", "float", np.dtype(np.float32), 8, 23, tolerance=2e-4),
        DTypeInfo("f64", "float", np.dtype(np.float64), 11, 52, tolerance=1e-9),
        DTypeInfo("c64", "complex", np.dtype(np.complex64), real_dtype="f32", tolerance=2e-4),
        DTypeInfo("c128", "complex", np.dtype(np.complex128), real_dtype="f64", tolerance=1e-9),
        DTypeInfo("key", "key", np.dtype(np.uint64)),
        DTypeInfo("key_rbg", "key", np.dtype("V16")),
        DTypeInfo("key_urbg", "key", np.dtype("V16")),
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
SMALL_DTYPES = tuple(name for name, info in DTYPE_INFO.items() if info.is_small)
"""Floats of at most 8 bits and integers of fewer, stored in one byte each."""
SMALL_FLOATS = tuple(name for name in FLOATS if DTYPE_INFO[name].is_small)
SMALL_INTEGERS = tuple(name for name in INTEGERS if DTYPE_INFO[name].is_small)
COMPLEX = _names_of_kind("complex")
KEYS = _names_of_kind("key")
"""The dtypes of random keys."""
RBG_KEYS = tuple(name for name in KEYS if name != "key")
"""The dtypes of keys of four words, whose bits are those of `lax.rng_bit_generator`."""
KEY_WORDS = {name: DTYPE_INFO[name].memory_bits // 32 for name in KEYS}
"""The number of 32-bit words of a key of each dtype."""
INEXACT = FLOATS + COMPLEX
COMPUTE_DTYPES = {name: info.compute_dtype or name for name, info in DTYPE_INFO.items()}
"""The dtype in which operations compute on elements of each dtype."""
NARROW_FLOATS = tuple(
    name for name in FLOATS if COMPUTE_DTYPES[name] != name and name not in SMALL_FLOATS
)
"""Floats of 16 bits, which kernels compute in a wider float and round once."""
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

_NAMES = {dtype: name for name, dtype in NUMPY_DTYPES.items() if name not in KEYS}


def least_number(dtype: str) -> float:
    """Return the least element of a real dtype: minus infinity, or the lowest number."""
    info = DTYPE_INFO[dtype]
    if info.kind != "float":
        return info.min_integer
    return -inf if info.has_infinity else info.min_finite


def greatest_number(dtype: str) -> float:
    """Return the greatest element of a real dtype: infinity, or the largest number."""
    info = DTYPE_INFO[dtype]
    if info.kind != "float":
        return info.max_integer
    return inf if info.has_infinity else info.max_finite


def precision_dtype(dtype: str) -> str:
    """Return the float in which `reduce_precision` rounds the bits of a float, as XLA does.

    Most formats of at most 8 bits have no infinity, to which larger numbers are rounded.
    """
    if not DTYPE_INFO[dtype].is_small:
        return dtype
    return "f16" if represents_float("f16", dtype) else "f32"


def represents_float(wide: str, narrow: str) -> bool:
    """Return whether the float `wide` represents every number of the float `narrow`."""
    if wide == narrow:
        return True
    if wide in SMALL_FLOATS:
        return narrow in SMALL_FLOATS and _represents_codes(wide, narrow)
    a, b = DTYPE_INFO[wide], DTYPE_INFO[narrow]
    return a.mantissa_bits >= b.mantissa_bits and a.exponent_bits >= b.exponent_bits


@cache
def _represents_codes(wide: str, narrow: str) -> bool:
    """Return whether a small float represents every number of another one, by trying all."""
    codes = np.arange(1 << DTYPE_INFO[narrow].bits, dtype=np.uint8).view(NUMPY_DTYPES[narrow])
    exact = codes.astype(np.float32)
    with np.errstate(all="ignore"):
        kept = exact.astype(NUMPY_DTYPES[wide]).astype(np.float32)
    same = (kept == exact) & (np.signbit(kept) == np.signbit(exact))
    return bool((same | (np.isnan(kept) & np.isnan(exact))).all())


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
