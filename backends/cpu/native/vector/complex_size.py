"""The absolute value of c64 numbers: a square root, corrected by the residual of its square."""

from collections.abc import Callable

from shardir.backends.cpu.native.llvm.text import Value
from shardir.backends.cpu.native.vector.arithmetic import (
    bits_of,
    fast_two_sum,
    float_of,
    fma,
    rarely,
    root,
    size,
    where,
)
from shardir.backends.cpu.native.vector.complexes import Pair

LEAST, MOST = 0x24000000, 0x5E800000
"""The bits of 2^-55 and 2^62: squares in between neither overflow nor underflow."""
HALF_OF_INVERSE_ROOT = 0x5EB759DF
"""Minus half of the bits of s, these are the bits of 1 / (2 sqrt(s)) to 1/30 (C. Lomont, 2003)."""


def size_of_single(z: Pair, elsewhere: Callable[[], Value]) -> Value:
    """Return the root of the sum of squares; use `elsewhere` for magnitudes that are not ordinary.

    The squares and their sum are computed in two parts. The root is accurate to half an ulp, and
    the residual of its square divided by 2 sqrt(s) is a fraction of an ulp, which need not be
    exact.
    """
    a, b = size(z[0]), size(z[1])
    larger = a.is_("ogt", b)
    high, low = where(larger, a, b), where(larger, b, a)
    p, q = high * high, low * low
    lost = fma(high, high, -p) + fma(low, low, -q)
    s, rest = fast_two_sum(p, q)
    near = root(s)
    correction = fma(-near, near, s) + (rest + lost)
    value = fma(correction, float_of(HALF_OF_INVERSE_ROOT - (bits_of(s) >> 1)), near)
    return rarely((bits_of(high) - LEAST).is_("ugt", MOST - LEAST), value, elsewhere)
