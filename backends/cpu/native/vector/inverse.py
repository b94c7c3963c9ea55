"""asin, acos, atan and atan2: odd polynomials near 0, identities elsewhere."""

from shardir.backends.cpu.native.llvm.text import Value
from shardir.backends.cpu.native.vector.arithmetic import (
    NAN,
    Functions,
    bits_of,
    constant,
    fma,
    polynomial,
    root,
    signed_as,
    size,
    where,
)

HALF_PI = (1.5707963267948966, 6.123233995736766e-17)
PI = (3.141592653589793, 1.2246467991473532e-16)
QUARTER_PI = (0.7853981633974483, 3.061616997868383e-17)
EIGHTH_TANGENT = 0.41421356237309503
"""tan(pi / 8)"""


def _reflected(a: Value, grade: str) -> tuple[Value, Value, Value, Value]:
    """asin(a) where a <= 1/2, else asin(sqrt((1 - a) / 2)): root, its rest, tail, which."""
    inner = a.is_("ole", 0.5)
    z = where(inner, a * a, fma(a, -0.5, 0.5))
    s = root(z)
    r = where(inner, a, s)
    rest = where(inner | r.is_("oeq", 0.0), 0.0, fma(-s, s, z) / (s + s))
    return r, rest, r * z * polynomial(z, "asin", grade), inner


def asin(x: Value, grade: str) -> Value:
    """pi/2 - 2 asin(sqrt((1 - |x|) / 2)) from 1/2 on; NaN beyond 1."""
    r, rest, tail, inner = _reflected(size(x), grade)
    far = HALF_PI[0] - (2.0 * r - (HALF_PI[1] - 2.0 * (tail + rest)))
    return _within(x, signed_as(where(inner, r + tail, far), x))


def acos(x: Value, grade: str) -> Value:
    """pi/2 - asin(x) near 0; 2 asin(sqrt((1 - x) / 2)) near 1; pi less that near -1."""
    r, rest, tail, inner = _reflected(size(x), grade)
    signed, signed_tail = signed_as(r, x), signed_as(tail, x)
    near = HALF_PI[0] - (signed - (HALF_PI[1] - signed_tail))
    right = 2.0 * (r + (tail + rest))
    left = PI[0] - (2.0 * r - (PI[1] - 2.0 * (tail + rest)))
    return _within(x, where(inner, near, where(x.is_("olt", 0.0), left, right)))


def _within(x: Value, value: Value) -> Value:
    return where(size(x).is_("ule", 1.0), value, NAN)


def _angle(y: Value, x: Value, grade: str) -> tuple[Value, Value]:
    """The angle from 0 to pi/2 of a point with coordinates that are not negative; its rest."""
    steep = y.is_("ogt", x)
    high, low = where(steep, y, x), where(steep, x, y)
    down = where(high.is_("ogt", 2.0**1000), 2.0**-10, constant(x, 1.0))
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
        where(middle, QUARTER_PI[0], constant(x, 0.0)),
        where(middle, QUARTER_PI[1], 0.0 * t),
    )
    value = base + t
    rest = ((base - value) + t) + (tail + rest)
    turned = HALF_PI[0] - value
    turned_rest = ((HALF_PI[0] - turned) - value) + (HALF_PI[1] - rest)
    return where(steep, turned, value), where(steep, turned_rest, rest)


def atan(x: Value, grade: str) -> Value:
    """The arc tangent."""
    value, rest = _angle(size(x), constant(x, 1.0), grade)
    return signed_as(value + rest, x)


def atan2(y: Value, x: Value, grade: str) -> Value:
    """The angle of the point (x, y), from -pi to pi; zeros and infinities as C99 has them."""
    value, rest = _angle(size(y), size(x), grade)
    left = bits_of(x).is_("slt", 0)
    turned = PI[0] - value
    turned_rest = ((PI[0] - turned) - value) + (PI[1] - rest)
    angle = where(left, turned + turned_rest, value + rest)
    return where(x.is_("uno", y), x + y, signed_as(angle, y))


FUNCTIONS: Functions = {
    "asin": (1, asin), "acos": (1, acos), "atan": (1, atan), "atan2": (2, atan2),
}  # fmt: skip
