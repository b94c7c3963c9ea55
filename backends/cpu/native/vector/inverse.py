"""asin, acos, atan and atan2: odd polynomials near 0, identities elsewhere."""

from math import atan as atan_of

from shardir.backends.cpu.native.llvm.text import Value
from shardir.backends.cpu.native.vector.arithmetic import (
    Functions,
    at_least,
    at_most,
    bits_of,
    constant,
    fma,
    is_single,
    polynomial,
    rarely,
    root,
    signed_as,
    size,
    where,
)
from shardir.backends.cpu.native.vector.tables import looked_up

HALF_PI = {
    True: (1.5707963705062866, -4.371138828673793e-08),
    False: (1.5707963267948966, 6.123233995736766e-17),
}
"""pi/2 in two parts, for f32 and for f64."""
LEAST, MOST = 2.0**-4, 2.0**3
"""The starts of the first and the last piece of f64; the first piece extends down to 0."""
BASES = (
    2.7031250000003375, 5.3515625000021645, 16.062500000000863, 0.0, 0.18629700000006277,
    0.3710937500000435, 0.7226562500001701, 1.3867187500004672,
)  # fmt: skip
"""A number of each piece whose arc tangent is within a thousandth of an ulp of an f64 number.

The index consists of the three lowest bits of the exponent: pieces from 2, 4 and 8 on, below 1/8,
and from 1/8 to 1 on.
"""
EIGHTH_TANGENT = 0.41421356237309503
"""tan(pi / 8)"""


def asin(x: Value, grade: str) -> Value:
    """Return asin, as pi/2 - 2 asin(sqrt((1 - |x|) / 2)) from 1/2 on; NaN beyond 1."""
    right, right_low = HALF_PI[is_single(x)]
    r, tail, inner = _halved(size(x), grade)
    outer_value = fma(r, -2.0, right)
    low = fma(tail, -2.0, fma(r, -2.0, right - outer_value) + right_low)
    high, low = where(inner, r, outer_value), where(inner, tail, low)
    return signed_as(high + low, x)


def _halved(a: Value, grade: str) -> tuple[Value, Value, Value]:
    """Return root and tail of asin(a) if a <= 1/2, else of asin(sqrt((1 - a) / 2)), and which of
    both."""
    inner = a.is_("ole", 0.5)
    z = where(inner, a * a, fma(a, -0.5, 0.5))
    r = where(inner, a, root(z))
    return r, r * z * polynomial(z, "asin", grade), inner


def acos(x: Value, grade: str) -> Value:
    """Return pi/2 - asin(x) near 0, 2 asin(sqrt((1 - x) / 2)) near 1, and pi minus the latter near
    -1."""
    right, right_low = HALF_PI[is_single(x)]
    r, tail, inner = _halved(size(x), grade)
    left = x.is_("olt", 0.0)
    r, tail = signed_as(r, x), signed_as(tail, x)
    turn = where(left, constant(x, 2.0 * right), 0.0)
    rest = where(left, constant(x, 2.0 * right_low), 0.0)
    high = where(inner, right - r, fma(r, 2.0, turn))
    return high + where(inner, right_low - tail, fma(tail, 2.0, rest))


def _angle(y: Value, x: Value, grade: str) -> tuple[Value, Value]:
    """Return the angle in [0, pi/2] of a point with nonnegative coordinates, and its rounding
    error."""
    right, right_low = HALF_PI[is_single(x)]
    steep = y.is_("ogt", x)
    high, low = where(steep, y, x), where(steep, x, y)
    large = 2.0**100 if is_single(x) else 2.0**1000
    down = where(high.is_("ogt", large), 2.0**-10, constant(x, 1.0))
    high, low = high * down, low * down
    middle = low.is_("ogt", high * EIGHTH_TANGENT)
    both = low.is_("oeq", high)
    above = where(middle, low - high, low)
    below = where(middle, low + high, high)
    t = where(both, 0.0, above / where(below.is_("oeq", 0.0), 1.0, below))
    z = t * t
    tail = t * z * polynomial(z, "atan", grade)
    middle = middle | (both & high.is_("one", 0.0))
    base, rest = (
        where(middle, right / 2, constant(x, 0.0)),
        where(middle, right_low / 2, 0.0 * t),
    )
    value = base + t
    rest = ((base - value) + t) + (tail + rest)
    turned = right - value
    turned_rest = ((right - turned) - value) + (right_low - rest)
    return where(steep, turned, value), where(steep, turned_rest, rest)


def _arc_tail(t: Value, rest: Value, grade: str) -> Value:
    """Return the arc tangent of t (at most 1) minus t, plus `rest`."""
    z = t * t
    return fma(t * z, polynomial(z, "atan", grade), rest)


def atan(x: Value, grade: str) -> Value:
    """Return atan: of f32 by 1 / x beyond 1, of f64 by pieces."""
    a = size(x)
    if not is_single(x):
        return signed_as(_by_pieces(a), x)
    steep = a.is_("ogt", 1.0)
    t = where(steep, -1.0, a) / where(steep, a, 1.0)
    right, right_low = HALF_PI[True]
    base, rest = where(steep, constant(x, right), 0.0), where(steep, constant(x, right_low), 0.0)
    return signed_as(base + (t + _arc_tail(t, rest, grade)), x)


def _by_pieces(a: Value) -> Value:
    """Return atan(base) + atan(t) with t = (a - base) / (1 + a base), which is below 0.163."""
    index = bits_of(at_most(at_least(a, LEAST), MOST)) >> 52
    base = looked_up(index, "shardir_atan_bases", BASES)
    angle = looked_up(index, "shardir_atan_angles", [atan_of(base) for base in BASES])
    inside = at_most(a, 2.0**500)
    t = (inside - base) / fma(inside, base, 1.0)
    z = t * t
    return angle + fma(t * z, polynomial(z, "atan_near", "f64"), t)


def atan2(y: Value, x: Value, grade: str) -> Value:
    """Return the angle of the point (x, y), from -pi to pi; zeros and infinities follow C99."""
    if is_single(x):
        a, b = size(y), size(x)
        steep, left = a.is_("ogt", b), bits_of(x).is_("slt", 0)
        ratio = where(steep, b, a) / where(steep, a, b)
        t = where(steep ^ left, -ratio, ratio)
        base = where(steep, HALF_PI[True][0], where(left, constant(x, 2 * HALF_PI[True][0]), 0.0))
        slip = base * (HALF_PI[True][1] / HALF_PI[True][0])
        value = signed_as(base + (t + _arc_tail(t, slip, grade)), y)
        both = a + b
        rare = ~(bits_of(both) - 1).is_("ult", 0x7F800000 - 1)
        return rarely(rare, value, lambda: _turned(y, x, grade))
    return _turned(y, x, grade)


def _turned(y: Value, x: Value, grade: str) -> Value:
    """Return `atan2` for arbitrary numbers."""
    value, rest = _angle(size(y), size(x), grade)
    right, right_low = HALF_PI[is_single(x)]
    left = bits_of(x).is_("slt", 0)
    turned = 2 * right - value
    turned_rest = ((2 * right - turned) - value) + (2 * right_low - rest)
    angle = where(left, turned + turned_rest, value + rest)
    return where(x.is_("uno", y), x + y, signed_as(angle, y))


FUNCTIONS: Functions = {
    "asin": (1, asin), "acos": (1, acos), "atan": (1, atan), "atan2": (2, atan2),
}  # fmt: skip
