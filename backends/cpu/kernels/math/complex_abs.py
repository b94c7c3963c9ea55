"""The absolute value of c64 numbers: a square root, corrected by the residual of its square."""

from collections.abc import Callable

from shardir.backends.cpu.codegen.llvm_text import LLVMValue
from shardir.backends.cpu.kernels.math.complex_arithmetic import ComplexPair
from shardir.backends.cpu.kernels.math.vector_arithmetic import (
    absolute_value,
    bits_of,
    fast_two_sum,
    float_of,
    fma,
    select_rare,
    square_root,
    where,
)

MIN_SAFE_BITS, MAX_SAFE_BITS = 0x24000000, 0x5E800000
"""The bits of 2^-55 and 2^62: squares in between neither overflow nor underflow."""
HALF_INVERSE_ROOT_MAGIC = 0x5EB759DF
"""Minus half of the bits of s, these are the bits of 1 / (2 sqrt(s)) to 1/30 (C. Lomont, 2003)."""


def abs_of_single(z: ComplexPair, elsewhere: Callable[[], LLVMValue]) -> LLVMValue:
    """Return the root of the sum of squares; use `elsewhere` for magnitudes that are not ordinary.

    The squares and their sum are computed in two parts. The root is accurate to half an ulp, and
    the residual of its square divided by 2 sqrt(s) is a fraction of an ulp, which need not be
    exact.
    """
    a, b = absolute_value(z[0]), absolute_value(z[1])
    larger = a.is_("ogt", b)
    high, low = where(larger, a, b), where(larger, b, a)
    p, q = high * high, low * low
    lost = fma(high, high, -p) + fma(low, low, -q)
    s, rest = fast_two_sum(p, q)
    near = square_root(s)
    correction = fma(-near, near, s) + (rest + lost)
    value = fma(correction, float_of(HALF_INVERSE_ROOT_MAGIC - (bits_of(s) >> 1)), near)
    return select_rare(
        (bits_of(high) - MIN_SAFE_BITS).is_("ugt", MAX_SAFE_BITS - MIN_SAFE_BITS), value, elsewhere
    )
