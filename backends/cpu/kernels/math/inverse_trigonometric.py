"""asin, acos, atan and atan2: odd polynomials near 0, identities elsewhere."""

from math import atan as atan_of

from shardir.backends.cpu.codegen.llvm_text import LLVMValue
from shardir.backends.cpu.kernels.math.lookup_tables import lookup
from shardir.backends.cpu.kernels.math.vector_arithmetic import (
    FunctionTable,
    absolute_value,
    bits_of,
    clamp_above,
    clamp_below,
    constant_like,
    copy_sign,
    fma,
    is_single,
    polynomial,
    select_rare,
    square_root,
    where,
)

HALF_PI_PARTS = {
    True: (1.5707963705062866, -4.371138828673793e-08),
    False: (1.5707963267948966, 6.123233995736766e-17),
}
"""pi/2 in two parts, for f32 and for f64."""
FIRST_PIECE_START, LAST_PIECE_START = 2.0**-4, 2.0**3
"""The starts of the first and the last piece of f64; the first piece extends down to 0."""
PIECE_BASES = (
    2.7031250000003375, 5.3515625000021645, 16.062500000000863, 0.0, 0.18629700000006277,
    0.3710937500000435, 0.7226562500001701, 1.3867187500004672,
)  # fmt: skip
"""A number of each piece whose arc tangent is within a thousandth of an ulp of an f64 number.

The index consists of the three lowest bits of the exponent: pieces from 2, 4 and 8 on, below 1/8,
and from 1/8 to 1 on.
"""
TAN_PI_OVER_8 = 0.41421356237309503
"""tan(pi / 8)"""


def asin(x: LLVMValue, grade: str) -> LLVMValue:
    """Return asin, as pi/2 - 2 asin(sqrt((1 - |x|) / 2)) from 1/2 on; NaN beyond 1."""
    right, right_low = HALF_PI_PARTS[is_single(x)]
    r, tail, inner = _asin_parts(absolute_value(x), grade)
    outer_value = fma(r, -2.0, right)
    low = fma(tail, -2.0, fma(r, -2.0, right - outer_value) + right_low)
    high, low = where(inner, r, outer_value), where(inner, tail, low)
    return copy_sign(high + low, x)


def _asin_parts(a: LLVMValue, grade: str) -> tuple[LLVMValue, LLVMValue, LLVMValue]:
    """Return root and tail of asin(a) if a <= 1/2, else of asin(sqrt((1 - a) / 2)), and which of
    both."""
    inner = a.is_("ole", 0.5)
    z = where(inner, a * a, fma(a, -0.5, 0.5))
    r = where(inner, a, square_root(z))
    return r, r * z * polynomial(z, "asin", grade), inner


def acos(x: LLVMValue, grade: str) -> LLVMValue:
    """Return pi/2 - asin(x) near 0, 2 asin(sqrt((1 - x) / 2)) near 1, and pi minus the latter near
    -1."""
    right, right_low = HALF_PI_PARTS[is_single(x)]
    r, tail, inner = _asin_parts(absolute_value(x), grade)
    left = x.is_("olt", 0.0)
    r, tail = copy_sign(r, x), copy_sign(tail, x)
    turn = where(left, constant_like(x, 2.0 * right), 0.0)
    rest = where(left, constant_like(x, 2.0 * right_low), 0.0)
    high = where(inner, right - r, fma(r, 2.0, turn))
    return high + where(inner, right_low - tail, fma(tail, 2.0, rest))


def _first_quadrant_angle(y: LLVMValue, x: LLVMValue, grade: str) -> tuple[LLVMValue, LLVMValue]:
    """Return the angle in [0, pi/2] of a point with nonnegative coordinates, and its rounding
    error."""
    right, right_low = HALF_PI_PARTS[is_single(x)]
    steep = y.is_("ogt", x)
    high, low = where(steep, y, x), where(steep, x, y)
    large = 2.0**100 if is_single(x) else 2.0**1000
    down = where(high.is_("ogt", large), 2.0**-10, constant_like(x, 1.0))
    high, low = high * down, low * down
    middle = low.is_("ogt", high * TAN_PI_OVER_8)
    both = low.is_("oeq", high)
    above = where(middle, low - high, low)
    below = where(middle, low + high, high)
    t = where(both, 0.0, above / where(below.is_("oeq", 0.0), 1.0, below))
    z = t * t
    tail = t * z * polynomial(z, "atan", grade)
    middle = middle | (both & high.is_("one", 0.0))
    base, rest = (
        where(middle, right / 2, constant_like(x, 0.0)),
        where(middle, right_low / 2, 0.0 * t),
    )
    value = base + t
    rest = ((base - value) + t) + (tail + rest)
    turned = right - value
    turned_rest = ((right - turned) - value) + (right_low - rest)
    return where(steep, turned, value), where(steep, turned_rest, rest)


def _atan_tail(t: LLVMValue, rest: LLVMValue, grade: str) -> LLVMValue:
    """Return the arc tangent of t (at most 1) minus t, plus `rest`."""
    z = t * t
    return fma(t * z, polynomial(z, "atan", grade), rest)


def atan(x: LLVMValue, grade: str) -> LLVMValue:
    """Return atan: of f32 by 1 / x beyond 1, of f64 by pieces."""
    a = absolute_value(x)
    if not is_single(x):
        return copy_sign(_atan_by_pieces(a), x)
    steep = a.is_("ogt", 1.0)
    t = where(steep, -1.0, a) / where(steep, a, 1.0)
    right, right_low = HALF_PI_PARTS[True]
    base, rest = (
        where(steep, constant_like(x, right), 0.0),
        where(steep, constant_like(x, right_low), 0.0),
    )
    return copy_sign(base + (t + _atan_tail(t, rest, grade)), x)


def _atan_by_pieces(a: LLVMValue) -> LLVMValue:
    """Return atan(base) + atan(t) with t = (a - base) / (1 + a base), which is below 0.163."""
    index = bits_of(clamp_above(clamp_below(a, FIRST_PIECE_START), LAST_PIECE_START)) >> 52
    base = lookup(index, "shardir_atan_bases", PIECE_BASES)
    angle = lookup(index, "shardir_atan_angles", [atan_of(base) for base in PIECE_BASES])
    inside = clamp_above(a, 2.0**500)
    t = (inside - base) / fma(inside, base, 1.0)
    z = t * t
    return angle + fma(t * z, polynomial(z, "atan_near", "f64"), t)


def atan2(y: LLVMValue, x: LLVMValue, grade: str) -> LLVMValue:
    """Return the angle of the point (x, y), from -pi to pi; zeros and infinities follow C99."""
    if is_single(x):
        a, b = absolute_value(y), absolute_value(x)
        steep, left = a.is_("ogt", b), bits_of(x).is_("slt", 0)
        ratio = where(steep, b, a) / where(steep, a, b)
        t = where(steep ^ left, -ratio, ratio)
        base = where(
            steep,
            HALF_PI_PARTS[True][0],
            where(left, constant_like(x, 2 * HALF_PI_PARTS[True][0]), 0.0),
        )
        slip = base * (HALF_PI_PARTS[True][1] / HALF_PI_PARTS[True][0])
        value = copy_sign(base + (t + _atan_tail(t, slip, grade)), y)
        both = a + b
        rare = ~(bits_of(both) - 1).is_("ult", 0x7F800000 - 1)
        return select_rare(rare, value, lambda: _atan2_accurate(y, x, grade))
    return _atan2_accurate(y, x, grade)


def _atan2_accurate(y: LLVMValue, x: LLVMValue, grade: str) -> LLVMValue:
    """Return `atan2` for arbitrary operands."""
    value, rest = _first_quadrant_angle(absolute_value(y), absolute_value(x), grade)
    right, right_low = HALF_PI_PARTS[is_single(x)]
    left = bits_of(x).is_("slt", 0)
    turned = 2 * right - value
    turned_rest = ((2 * right - turned) - value) + (2 * right_low - rest)
    angle = where(left, turned + turned_rest, value + rest)
    return where(x.is_("uno", y), x + y, copy_sign(angle, y))


FUNCTIONS: FunctionTable = {
    "asin": (1, asin), "acos": (1, acos), "atan": (1, atan), "atan2": (2, atan2),
}  # fmt: skip
