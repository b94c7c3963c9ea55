"""Elementwise NumPy functions with StableHLO semantics.

Integers wrap. The functions emit no warnings, because the interpreter disables NumPy's warnings.

Source: the StableHLO specification (openxla/stablehlo, docs/spec.md); the functions document their
choice where it leaves a case open.
"""

from collections.abc import Callable

import numpy as np

from shardir.ir.dtypes import DTYPE_INFO, NARROW_FLOATS
from shardir.ir.types import (
    FLOATS,
    INTEGERS,
    NUMPY_DTYPES,
    NumpyArray,
    NumpyDType,
    TensorType,
    dtype_name,
)

Array = NumpyArray

_EXTENSION_FLOATS = frozenset(
    NUMPY_DTYPES[name] for name in NARROW_FLOATS if DTYPE_INFO[name].is_extension
)
"""16-bit floats to which `ml_dtypes` converts f64 and integers by two roundings."""


_NARROW_DTYPES = frozenset(NUMPY_DTYPES[name] for name in NARROW_FLOATS)


def compute_in_f32(function: Callable[..., object]) -> Callable[..., Array]:
    """Return `function` with narrow floats computed in f32; results are always arrays."""

    def compute(*operands: Array) -> Array:
        wide = [x.astype(np.float32) if is_narrow_float(x.dtype) else x for x in operands]
        return np.asarray(function(*wide))

    return compute


def equal(x: Array, y: Array) -> Array:
    """Return whether elements are equal; NumPy's function does not compare keys of four words."""
    return np.asarray(x == y if x.dtype.type is np.void else np.equal(x, y))


def not_equal(x: Array, y: Array) -> Array:
    """Return whether elements differ."""
    return np.asarray(x != y if x.dtype.type is np.void else np.not_equal(x, y))


def is_narrow_float(dtype: NumpyDType) -> bool:
    """Return whether elements are floats that are computed in a wider float."""
    return dtype in _NARROW_DTYPES


def is_float(x: Array) -> bool:
    return dtype_name(x.dtype) in FLOATS


def accumulation_dtype(dtype: NumpyDType) -> NumpyDType:
    """Return the accumulation dtype: f64 for floats, c128 for complex, else the same."""
    if dtype.kind == "c":
        return np.dtype(np.complex128)
    return np.dtype(np.float64) if dtype_name(dtype) in FLOATS else dtype


def num_bits(x: Array) -> int:
    """Return the width of an element in bits."""
    return x.dtype.itemsize * 8


def as_unsigned(x: Array) -> Array:
    """Return the bits as unsigned integers."""
    return x.view(np.dtype(f"u{x.dtype.itemsize}"))


def as_signed(x: Array) -> Array:
    """Return the bits as signed integers."""
    return x.view(np.dtype(f"i{x.dtype.itemsize}"))


def total_order_key(x: Array) -> Array:
    """Return values that compare as `x`; for floats, integers in IEEE's total order."""
    if not is_float(x):
        return x
    bits = as_signed(x)
    return np.where(bits < 0, bits ^ np.iinfo(bits.dtype).max, bits)


def divide(x: Array, y: Array) -> Array:
    """Return the quotient; integers truncate, with x / 0 = -1 (all bits set) and min / -1 = min."""
    if x.dtype.kind not in "iu":
        return np.asarray(np.divide(x, y))
    safe = np.where(y == 0, np.ones_like(y), y)
    quotient = (x - np.fmod(x, safe)) // safe
    return np.where(y == 0, ~np.zeros_like(x), quotient)


def remainder(x: Array, y: Array) -> Array:
    """Return the remainder with the sign of `x`; for integers x rem 0 = x and min rem -1 = 0."""
    if x.dtype.kind not in "iu":
        return np.asarray(np.fmod(x, y))
    safe = np.where(y == 0, np.ones_like(y), y)
    return np.where(y == 0, x, np.fmod(x, safe))


def power(x: Array, y: Array) -> Array:
    """Return x ** y; integers wrap, and negative powers round towards zero."""
    if x.dtype.kind != "i":
        return np.asarray(np.power(x, y))
    minus_one = np.where(y % 2 == 0, np.ones_like(x), -np.ones_like(x))
    inverse = np.where(x == 1, np.ones_like(x), np.where(x == -1, minus_one, np.zeros_like(x)))
    product: Array = np.power(x, np.maximum(y, np.zeros_like(y)))
    return np.where(y < 0, inverse, product)


def maximum(x: Array, y: Array) -> Array:
    """Return the larger value; NaN if either is NaN, +0 above -0."""
    best = np.asarray(np.maximum(x, y))
    if is_float(x) and (zeros := (x == 0) & (y == 0)).any():
        return np.where(zeros, x + y, best)
    return best


def minimum(x: Array, y: Array) -> Array:
    """Return the smaller value; NaN if either is NaN, -0 below +0."""
    best = np.asarray(np.minimum(x, y))
    if is_float(x) and (zeros := (x == 0) & (y == 0)).any():
        return np.where(zeros, -(-x - y), best)
    return best


def clamp(low: Array, x: Array, high: Array) -> Array:
    """Return minimum(maximum(x, low), high)."""
    low, high = np.broadcast_to(low, x.shape), np.broadcast_to(high, x.shape)
    return minimum(maximum(x, low), high)


def sign(x: Array) -> Array:
    """Return -1, 0 or 1; zeros keep their sign, NaN is preserved, and complex numbers become x /
    |x|.
    """
    if x.dtype.kind == "c":
        size = np.abs(x)
        return np.where(size == 0, np.zeros_like(x), x / np.where(size == 0, 1, size))
    if is_float(x):
        return np.where(x == 0, x, np.sign(x))
    return np.asarray(np.sign(x))


def logistic(x: Array) -> Array:
    """Return 1 / (1 + exp(-x)), computed from the smaller of both exponentials."""
    negative = x.real < 0
    small = np.exp(np.where(negative, x, -x))
    value: Array = np.where(negative, small, x.dtype.type(1)) / (1 + small)
    return value


def rsqrt(x: Array) -> Array:
    return np.asarray(np.ones_like(x) / np.sqrt(x))


def expm1(x: Array) -> Array:
    """Return exp(x) - 1, accurate near 0; complex special values follow C99 and the Array API."""
    if x.dtype.kind != "c":
        return np.asarray(np.expm1(x))
    a, b = x.real, x.imag
    half = np.sin(b / 2)
    real = np.expm1(a) * np.cos(b) - 2 * half * half
    imag = np.where(b == 0, b, np.exp(a) * np.sin(b))
    non_finite = ~np.isfinite(b)
    real = np.where(a == -np.inf, -1, np.where((a == np.inf) & non_finite, np.inf, real))
    imag = np.where((a == -np.inf) & non_finite, 0, imag)
    return make_complex(real, imag).astype(x.dtype)


def popcnt(x: Array) -> Array:
    """Return the number of set bits."""
    return np.asarray(np.bitwise_count(as_unsigned(x))).astype(x.dtype)


def clz(x: Array) -> Array:
    """Return the number of leading zero bits."""
    smeared = as_unsigned(x)
    for step in (1, 2, 4, 8, 16, 32):
        if step < num_bits(x):
            smeared = smeared | (smeared >> np.asarray(step, smeared.dtype))
    return (num_bits(x) - np.bitwise_count(smeared)).astype(x.dtype)


def _clamp_shift(x: Array, amount: Array) -> tuple[Array, Array]:
    """Return whether an unsigned shift amount is less than the width, and the amount or 0."""
    amount = as_unsigned(amount)
    some = amount < num_bits(x)
    return some, np.where(some, amount, np.zeros_like(amount))


def shift_left(x: Array, amount: Array) -> Array:
    """Return the left shift; 0 if all bits are shifted out."""
    some, within = _clamp_shift(x, amount)
    shifted = (as_unsigned(x) << within).view(x.dtype)
    return np.where(some, shifted, np.zeros_like(x))


def shift_right_logical(x: Array, amount: Array) -> Array:
    """Return the right shift that fills with zeros."""
    some, within = _clamp_shift(x, amount)
    shifted = (as_unsigned(x) >> within).view(x.dtype)
    return np.where(some, shifted, np.zeros_like(x))


def shift_right_arithmetic(x: Array, amount: Array) -> Array:
    """Return the right shift that fills with the sign bit."""
    some, within = _clamp_shift(x, amount)
    last = np.asarray(num_bits(x) - 1, within.dtype)
    shifted: Array = as_signed(x) >> as_signed(np.where(some, within, last))
    return shifted.view(x.dtype)


def make_complex(real: Array, imag: Array) -> Array:
    """Return real + imag * 1j without arithmetic, which would change infinities and -0."""
    result = np.empty(real.shape, np.result_type(real, np.complex64))
    result.real, result.imag = real, imag
    return result


def convert(x: Array, to: TensorType) -> Array:
    """Return the elements converted to another type.

    Floats truncate to integers, saturate out of range, and NaN becomes 0 (StableHLO leaves these
    cases open; this is the behaviour of XLA's CPU target). Integers wrap. Conversions to floats of
    at most 8 bits go through f32, as those of `ml_dtypes`. As bool, all nonzero
    elements are true. The imaginary part is dropped.
    """
    if x.dtype.kind == "c" and to.dtype not in ("c64", "c128", "bool"):
        x = x.real
    if to.dtype == "bool":
        return np.asarray(x != 0)
    if is_float(x) and to.dtype in INTEGERS:
        return _saturate(x, to.dtype)
    return round_to(x, to.numpy)


def round_to(x: Array, dtype: NumpyDType) -> Array:
    """Return the elements as another type, rounded once; raise `TypeError` for complex elements of
    a real type.
    """
    if x.dtype.kind == "c" and dtype.kind != "c":
        raise TypeError(f"the elements are {x.dtype}, which {dtype} cannot represent")
    if dtype in _EXTENSION_FLOATS and x.dtype.itemsize > 2:
        return _round_to_odd_f32(x).astype(dtype)
    if x.dtype.itemsize == dtype.itemsize == 1 and x.dtype != dtype:
        x = _widen_byte(x)  # ml_dtypes does not convert between all small dtypes.
    return x.astype(dtype, copy=False)


def _widen_byte(x: Array) -> Array:
    """Return elements of one byte in the wider dtype of their kind."""
    return x.astype(np.float32 if is_float(x) else np.int16)


def _saturate(x: Array, name: str) -> Array:
    dtype, info = NUMPY_DTYPES[name], DTYPE_INFO[name]
    minimum_value, maximum_value = info.min_integer, info.max_integer
    truncated = np.trunc(x.astype(np.float64))
    below, above = truncated <= float(minimum_value), truncated >= float(maximum_value)
    inside = np.where(below | above | np.isnan(truncated), 0, truncated).astype(dtype)
    return np.where(
        below, dtype.type(minimum_value), np.where(above, dtype.type(maximum_value), inside)
    )


def _round_to_odd_f32(x: Array) -> Array:
    """Return `x` in f32 rounded to odd, so that another rounding is as accurate as from `x`.

    A conversion to a narrow float through the nearest f32 would round twice, and could break ties
    in the wrong direction.
    """
    if x.dtype == np.float32:
        return x
    wide = _round_to_odd_f64(x) if x.dtype.kind in "iu" else x
    single = wide.astype(np.float32)
    back = single.astype(np.float64)
    inward = np.where(np.abs(back) > np.abs(wide), np.nextafter(single, np.float32(0)), single)
    odd = (inward.view(np.uint32) | np.uint32(1)).view(np.float32)
    return np.where((back == wide) | ~np.isfinite(wide), single, odd)


def _round_to_odd_f64(x: Array) -> Array:
    """Return integers in f64 rounded to odd (f64 has 53 = 64 - 11 bits)."""
    if x.dtype.itemsize < 8:
        return x.astype(np.float64)
    lost = x.dtype.type(0x7FF)
    odd = ((x >> 11) | (x & lost != 0)) << 11
    small = (x <= 2**53) & (x >= 0 if x.dtype.kind == "u" else x >= -(2**53))
    return np.where(small, x, odd).astype(np.float64)
