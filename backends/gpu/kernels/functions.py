"""Helper functions of kernels: operations that Triton lacks or defines differently.

This file is never imported: `kernels.helpers` reads the text of the functions that a program needs.
16-bit floats are passed and returned as f32.
"""

import triton
import triton.language as tl
from triton.language.extra import libdevice


@triton.jit
def maximum(x, y):
    """Return the maximum; NaN if either is NaN."""
    return tl.maximum(x, y, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def minimum(x, y):
    """Return the minimum; NaN if either is NaN."""
    return tl.minimum(x, y, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def leading_bits(x):
    """Return the number whose significand has the first 8 bits of that of an f32, and NaN for NaN,
    whose first bits may be those of an infinite number."""
    first = (x.to(tl.int32, bitcast=True) & -65536).to(tl.float32, bitcast=True)
    return tl.where(x == x, first, float("nan"))


@triton.jit
def multiply_split(x, y, z):
    """Return the matrix product of f32 `x` and bf16 `y`, added to `z`.

    Three numbers of 8 bits have the sum `x`, so that all products are exact. The later numbers are
    often 0, whose product with an infinite number is NaN: only the first decides about NaN.
    """
    high = leading_bits(x)
    rest = x - high
    middle = leading_bits(rest)
    small = tl.dot((rest - middle).to(tl.bfloat16), y)
    small = tl.dot(middle.to(tl.bfloat16), y, small)
    z += tl.where(small == small, small, 0.0)
    return tl.dot(high.to(tl.bfloat16), y, z)


@triton.jit
def product(x, y):
    return x * y


@triton.jit
def either(x, y):
    return x | y


@triton.jit
def both(x, y):
    return x & y


@triton.jit
def sign(x):
    """Return -1, 0 or 1; zeros keep their sign, NaN stays NaN."""
    return tl.where(x > 0, 1, tl.where(x < 0, -1, x))


@triton.jit
def logistic(x):
    """Return 1 / (1 + exp(-x)), using the exponential that is at most 1."""
    small = libdevice.exp(-tl.abs(x))
    return tl.where(x < 0, small, 1.0) / (1.0 + small)


@triton.jit
def logistic_f32(x):
    """Return 1 / (1 + exp(-x)), using the exponential that is at most 1."""
    small = libdevice.exp(-tl.abs(x))
    return tl.div_rn(tl.where(x < 0, small, 1.0), 1.0 + small)


@triton.jit
def erf_inv(x):
    """Return the number whose erf is x, by Giles' polynomials in f32 as XLA does."""
    w = -libdevice.log1p(-x * x)
    near = w < 5.0
    w = tl.where(near, w - 2.5, tl.sqrt_rn(tl.where(near, 0.0, w)) - 3.0)
    p = tl.where(near, 2.81022636e-08, -0.000200214257)
    p = p * w + tl.where(near, 3.43273939e-07, 0.000100950558)
    p = p * w + tl.where(near, -3.5233877e-06, 0.00134934322)
    p = p * w + tl.where(near, -4.39150654e-06, -0.00367342844)
    p = p * w + tl.where(near, 0.00021858087, 0.00573950773)
    p = p * w + tl.where(near, -0.00125372503, -0.0076224613)
    p = p * w + tl.where(near, -0.00417768164, 0.00943887047)
    p = p * w + tl.where(near, 0.246640727, 1.00167406)
    p = p * w + tl.where(near, 1.50140941, 2.83297682)
    return tl.where(tl.abs(x) == 1.0, x * float("inf"), p * x)


@triton.jit
def rescale(x, old, new):
    """Return a sum of exponentials relative to the maximum `old` as one relative to `new`.

    While the maximum is -inf, exponentials are NaN; a larger maximum makes them 0.
    """
    scaled = x * tl.where(old == new, 1.0, libdevice.exp(old - new))
    return tl.where((old == float("-inf")) & (new > old), 0.0, scaled)


@triton.jit
def quotient(x, y):
    """Return x / y, truncated; all bits set for y = 0, the minimum for minimum / -1."""
    safe = tl.where((y == 0) | (y == -1), 1, y)
    return tl.where(y == 0, -1, tl.where(y == -1, -x, x // safe))


@triton.jit
def quotient_unsigned(x, y):
    """Return x / y; all bits set for y = 0."""
    safe = tl.where(y == 0, 1, y)
    return tl.where(y == 0, ~(x ^ x), x // safe)


@triton.jit
def remainder(x, y):
    """Return the remainder of x / y, with the sign of x; x for y = 0."""
    safe = tl.where((y == 0) | (y == -1), 1, y)
    return tl.where(y == 0, x, tl.where(y == -1, 0, x % safe))


@triton.jit
def remainder_unsigned(x, y):
    """Return the remainder of x / y; x for y = 0."""
    safe = tl.where(y == 0, 1, y)
    return tl.where(y == 0, x, x % safe)


@triton.jit
def power_unsigned(x, y):
    """Return x to the power y, wrapping."""
    bits: tl.constexpr = y.dtype.primitive_bitwidth
    result = tl.where(y == y, 1, x)
    for bit in tl.static_range(bits):
        result = tl.where((y >> bit) & 1 != 0, result * x, result)
        x = x * x
    return result


@triton.jit
def power(x, y):
    """Return x to the power y, wrapping; truncated to zero for negative powers."""
    inverse = tl.where(x == 1, 1, tl.where(x == -1, tl.where(y & 1 == 0, 1, x), 0))
    return tl.where(y < 0, inverse, power_unsigned(x, y))


@triton.jit
def shift_left(x, amount):
    """Shift left; 0 if the amount, taken as unsigned, is at least the bit width."""
    bits: tl.constexpr = x.dtype.primitive_bitwidth
    some = (amount >= 0) & (amount < bits)
    return tl.where(some, x << tl.where(some, amount, 0), 0)


@triton.jit
def shift_right_logical(x, amount):
    """Shift unsigned x right; 0 if the amount is at least the bit width."""
    bits: tl.constexpr = x.dtype.primitive_bitwidth
    some = amount < bits
    return tl.where(some, x >> tl.where(some, amount, 0), 0)


@triton.jit
def shift_right_arithmetic(x, amount):
    """Shift signed x right, extending its sign; amounts are taken as unsigned."""
    bits: tl.constexpr = x.dtype.primitive_bitwidth
    some = (amount >= 0) & (amount < bits)
    return x >> tl.where(some, amount, bits - 1)


@triton.jit
def to_integer(x, dtype: tl.constexpr, LEAST: tl.constexpr, MOST: tl.constexpr):
    """Truncate towards zero, saturate out-of-range values, and return 0 for NaN."""
    below = x <= LEAST
    above = x >= MOST
    whole = tl.where(below | above | (x != x), 0.0, x).to(dtype)
    return tl.where(below, LEAST, tl.where(above, MOST, whole))


@triton.jit
def odd_from_f64(x):
    """Round to f32 with round-to-odd, so that a second rounding gives the same as one."""
    short = libdevice.double2float_rz(x)
    odd = (short.to(tl.int32, bitcast=True) | 1).to(tl.float32, bitcast=True)
    return tl.where(short.to(tl.float64) == x, short, odd)


@triton.jit
def odd_from_i64(x):
    """Round to f32 with round-to-odd, so that a second rounding gives the same as one."""
    short = libdevice.ll2float_rz(x)
    odd = (short.to(tl.int32, bitcast=True) | 1).to(tl.float32, bitcast=True)
    return tl.where(libdevice.float2ll_rz(short) == x, short, odd)


@triton.jit
def odd_from_u64(x):
    """Round to f32 with round-to-odd, so that a second rounding gives the same as one."""
    short = libdevice.ull2float_rz(x)
    odd = (short.to(tl.int32, bitcast=True) | 1).to(tl.float32, bitcast=True)
    return tl.where(libdevice.float2ull_rz(short) == x, short, odd)


@triton.jit
def four_rounds(x, y, A: tl.constexpr, B: tl.constexpr, C: tl.constexpr, D: tl.constexpr):
    """Apply four rounds of Threefry, with the rotations A to D of the second word."""
    x = x + y
    y = ((y << A) | (y >> (32 - A))) ^ x
    x = x + y
    y = ((y << B) | (y >> (32 - B))) ^ x
    x = x + y
    y = ((y << C) | (y >> (32 - C))) ^ x
    x = x + y
    y = ((y << D) | (y >> (32 - D))) ^ x
    return x, y


@triton.jit
def threefry(key, high, low):
    """Hash pairs of counter words (u32) with keys (u64): Threefry-2x32 with twenty rounds."""
    key0 = (key >> 32).to(tl.uint32)
    key1 = key.to(tl.uint32)
    key2 = key0 ^ key1 ^ 0x1BD11BDA
    x, y = four_rounds(high + key0, low + key1, 13, 15, 26, 6)
    x, y = four_rounds(x + key1, y + key2 + 1, 17, 29, 16, 24)
    x, y = four_rounds(x + key2, y + key0 + 2, 13, 15, 26, 6)
    x, y = four_rounds(x + key0, y + key1 + 3, 17, 29, 16, 24)
    x, y = four_rounds(x + key1, y + key2 + 4, 13, 15, 26, 6)
    return x + key2, y + key0 + 5
