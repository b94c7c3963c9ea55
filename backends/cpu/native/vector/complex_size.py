"""Sizes of complex numbers of f32: a root, made good by what its square lacks."""

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
"""The bits of 2^-55 and 2^62: squares between do not overflow, nor vanish beside each other."""
HALF_OF_INVERSE_ROOT = 0x5EB759DF
"""Less half of the bits of s, those of 1 / (2 sqrt(s)) to a thirtieth (C. Lomont, 2003)."""


def size_of_single(z: Pair, elsewhere: Callable[[], Value]) -> Value:
    """The root of the sum of squares; what `elsewhere` makes where they are no ordinary numbers.

    The squares and their sum are taken in two parts. The root is right to half an ulp, and what
    its square lacks of the sum over 2 sqrt(s) is a fraction of an ulp, which need not be exact.
    """
    a, b = size(z[0]), size(z[1])
    larger = a.is_("ogt", b)
    high, low = where(larger, a, b), where(larger, b, a)
    p, q = high * high, low * low
    lost = fma(high, high, -p) + fma(low, low, -q)
    s, rest = fast_two_sum(p, q)
    near = root(s)
    slip = fma(-near, near, s) + (rest + lost)
    value = fma(slip, float_of(HALF_OF_INVERSE_ROOT - (bits_of(s) >> 1)), near)
    return rarely((bits_of(high) - LEAST).is_("ugt", MOST - LEAST), value, elsewhere)
