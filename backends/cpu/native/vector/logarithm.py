"""Logarithms: x = m 2^k with m around 1, and a series in m - 1 or in (m - 1) / (m + 1).

The sums are ordered as in the logarithm of FreeBSD's msun (K. Ng, 1993): what is large is added
last.
"""

from math import log

from shardir.backends.cpu.native.llvm.text import Value, element, lanes, vector
from shardir.backends.cpu.native.vector.arithmetic import (
    INFINITY,
    NAN,
    TINY,
    Functions,
    bits_of,
    constant,
    fast_two_sum,
    float_of,
    fma,
    is_single,
    polynomial,
    rarely,
    root,
    signed_as,
    size,
    split_power,
    to_float,
    two_product,
    two_sum,
    where,
)
from shardir.backends.cpu.native.vector.exponential import LN2
from shardir.backends.cpu.native.vector.pieces import chosen, split_at_once
from shardir.backends.cpu.native.vector.tables import has_registers

LOG2_E = {
    True: (1.4426950216293335, 1.925963033500011e-08),
    False: (1.4426950408889634, 2.0355273740931033e-17),
}
"""1 / ln 2 in two parts, of f32 and of f64."""
LN2_SINGLE = 0.6931471824645996
LEAST = 0x3F3504F3
"""The bits of sqrt(1/2) in f32."""
LEAST_OF_PIECES = 0x3F400000
"""Those of 3/4."""


def normal(x: Value) -> tuple[Value, Value]:
    """m and k of x = m 2^k, for subnormal numbers too; nonsense for what has no logarithm."""
    kind = element(x.type)
    lift = 25 if kind == "float" else 54
    small = x.is_("olt", TINY[kind])
    m, k = split_power(where(small, x * 2.0**lift, x))
    return m, k - where(small, x.function.value(lift, k.type), 0)


def edges(x: Value, value: Value) -> Value:
    """A logarithm, right also where there is none or no finite one."""
    value = where(x.is_("oeq", INFINITY), INFINITY, value)
    value = where(x.is_("oeq", 0.0), -INFINITY, value)
    return where(x.is_("ult", 0.0), NAN, value)


def series(f: Value, k: Value, extra: Value | None, grade: str) -> Value:
    """log(1 + f + extra) + k ln 2, the extra less than a rounding of 1 + f."""
    high, rest = LN2[is_single(f)]
    low = k * rest if extra is None else fma(k, rest, extra)
    s = f / (f + 2.0)
    z = s * s
    half = f * f * 0.5
    inner = fma(s, fma(z, polynomial(z, "log_ratio", grade), half), low)
    return fma(k, high, f - (half - inner))


def _single(f: Value, k: Value, piece: Value | None, unit: float = 2.0**-23) -> Value:
    """log(1 + f) + k ln 2, in f32 and units of k: ln 2 happens to have four digits more there."""
    return fma(k, LN2_SINGLE * unit, fma(f * f, _tail(f, piece), f))


def _tail(f: Value, piece: Value | None) -> Value:
    """(log(1 + f) - f) / f^2, by the piece if there are some."""
    return polynomial(f, "log", "f32") if piece is None else chosen(f, piece, "log")


def _piece(m: Value) -> Value:
    """Pieces of m from 3/4 to 3/2, or m 2^k: those of the same first four bits of the fraction."""
    return bits_of(m) >> 19


def _log_at_once(x: Value) -> Value:
    """The logarithm of any number of f32, by the instructions of AVX-512."""
    m, k = split_at_once(x)
    return _single(m - 1.0, k, _piece(m), 1.0)


def _split(x: Value) -> tuple[Value, Value]:
    """m and the bits of 2^k over those of 1, for x = m 2^k of f32 that is positive and normal."""
    exponent = (bits_of(x) - LEAST) & -(1 << 23)
    return float_of(bits_of(x) - exponent), exponent


def _is_ordinary(x: Value) -> Value:
    """Whether a number of f32 is positive, normal and finite."""
    return (bits_of(x) - 0x00800000).is_("ult", 0x7F000000)


def log_(x: Value, grade: str) -> Value:
    """The natural logarithm."""
    if is_single(x) and has_registers():
        return _log_at_once(x)
    if is_single(x):
        m, k = _split(x)
        value = _single(m - 1.0, to_float(k), None)
        return rarely(~_is_ordinary(x), value, lambda: _log_lifted(x))
    m, k = normal(x)
    return edges(x, series(m - 1.0, to_float(k), None, grade))


def _log_lifted(x: Value) -> Value:
    """The logarithm of f32 where it is rare: of subnormal numbers, and where there is none."""
    if has_registers():
        return _log_at_once(x)
    m, k = normal(x)
    return edges(x, _single(m - 1.0, to_float(k), None, 1.0))


def log2(x: Value, grade: str) -> Value:
    """The logarithm to base 2; exact for powers of two."""
    if is_single(x) and has_registers():
        m, k = split_at_once(x)
        f = m - 1.0
        return fma(f, chosen(f, _piece(m), "log2"), k + f)
    if is_single(x):

        def of(m: Value, k: Value) -> Value:
            f = m - 1.0
            return fma(f, polynomial(f, "log2", grade), to_float(k))

        value = of(*split_power(x))
        return rarely(~_is_ordinary(x), value, lambda: edges(x, of(*normal(x))))
    m, integer = normal(x)
    k, f = to_float(integer), m - 1.0
    whole, part = LOG2_E[is_single(x)]
    s = f / (f + 2.0)
    z = s * s
    half = f * f * 0.5
    rest = s * fma(z, polynomial(z, "log_ratio", grade), half) - half
    # f / ln 2 in two parts, so that the sum with k is rounded once
    high, low = two_product(f, f.function.value(whole, f.type))
    low = fma(f, part, low) + rest * whole
    total = k + high
    left = where(k.is_("oeq", 0.0), low, (high - (total - k)) + low)
    return edges(x, total + left)


def log1p(x: Value, grade: str, low: Value | None = None) -> Value:
    """log(1 + x + low): what 1 + x loses is added as a fraction of it."""
    if is_single(x):
        rare = ~(bits_of(1.0 + x) - 0x00800000).is_("ult", 0x7E000000)
        value = signed_as(_log1p_single(x, low, exact=low is not None), x)
        return rarely(rare, value, lambda: _log1p_edges(x, _log_lifted(x)))
    u = 1.0 + x
    m, integer = split_power(u)
    k = to_float(integer)
    whole = k.is_("oeq", 0.0)
    lost = where(x.is_("oge", 1.0), 1.0 - (u - x), x - (u - 1.0))
    lost = where(whole, 0.0, lost)
    value = series(where(whole, x, m - 1.0), k, (lost if low is None else lost + low) / u, grade)
    return _log1p_edges(x, where(size(x).is_("olt", 2.0**-54), x, value))


def _log1p_single(x: Value, low: Value | None, exact: bool = False) -> Value:
    """log(1 + x + low) of f32 for a sum that is ordinary and below 2^126; +0 for -0.

    1 + x only says what k is: f = (1 + x) / 2^k - 1 is rounded once, and what that loses is carried
    along if it is to be `exact`, as a fraction of 1 + f, nearly.
    """
    piece = _piece(1.0 + x) if has_registers() else None
    least = LEAST if piece is None else LEAST_OF_PIECES
    exponent = (bits_of(1.0 + x) - least) & -(1 << 23)
    down = float_of(0x3F800000 - exponent)
    shift = down - 1.0
    f = fma(x, down, shift)
    k = to_float(exponent)
    if low is None:
        return _single(f, k, piece)
    if not exact:
        return _single(fma(low, down, f), k, piece)
    lost = fma(low, down, fma(x, down, shift - f))
    tail = fma(f * f, _tail(f, piece), fma(-f, lost, lost))
    return fma(k, LN2_SINGLE * 2.0**-23, f + tail)


def _log1p_edges(x: Value, value: Value) -> Value:
    value = where(x.is_("oeq", INFINITY), INFINITY, value)
    value = where(x.is_("oeq", -1.0), -INFINITY, value)
    return where(x.is_("ult", -1.0), NAN, value)


def asinh(x: Value, grade: str) -> Value:
    """log1p(x + x^2 / (1 + sqrt(1 + x^2))), and log 2x where that is the same."""
    a = size(x)
    if is_single(x):
        square = a * a
        inner, low = fast_two_sum(a, square / (1.0 + root(1.0 + square)))
        value = _log1p_single(inner, low)
        value = rarely(~a.is_("olt", 2.0**60), value, lambda: _log_lifted(a) + LN2_SINGLE)
        return signed_as(value, x)
    far = a.is_("ogt", 2.0**54)
    near = where(far, 1.0, a)
    square = near * near
    inner, low = two_sum(near, square / (1.0 + root(1.0 + square)))
    value = log1p(where(far, a, inner), grade, where(far, 0.0, low)) + where(far, _ln2(x), 0.0)
    return signed_as(where(a.is_("olt", 2.0**-28), a, value), x)


def acosh(x: Value, grade: str) -> Value:
    """log1p(t + sqrt(2t + t^2)) of t = x - 1, and log 2x where that is the same."""
    if is_single(x):
        t = x - 1.0
        inner, low = two_sum(root(fma(t, t, 2.0 * t)), t)
        value = _log1p_single(inner, low, exact=True)
        rare = ~(x.is_("oge", 1.0) & x.is_("olt", 2.0**60))
        return rarely(rare, value, lambda: _acosh_edges(x, _log_lifted(x) + LN2_SINGLE))
    far = x.is_("ogt", 2.0**54)
    t = where(far, 1.0, x) - 1.0
    inner, low = two_sum(root(fma(t, t, 2.0 * t)), t)
    value = log1p(where(far, x, inner), grade, where(far, 0.0, low)) + where(far, _ln2(x), 0.0)
    return _acosh_edges(x, value)


def _acosh_edges(x: Value, value: Value) -> Value:
    return where(x.is_("ult", 1.0), NAN, value)


def atanh(x: Value, grade: str) -> Value:
    """log1p(2x / (1 - x)) / 2, with what the difference and the quotient lose."""
    a = size(x)
    below = 1.0 - a
    lost = (1.0 - below) - a
    if is_single(x):
        inverse, twice = 1.0 / below, a + a
        ratio = twice * inverse
        low = fma(-ratio, lost, fma(-ratio, below, twice)) * inverse
        value = signed_as(0.5 * _log1p_single(ratio, low, exact=True), x)
        ends = where(a.is_("oeq", 1.0), INFINITY, constant(x, NAN))
        return rarely(~a.is_("olt", 1.0), value, lambda: signed_as(ends, x))
    ratio = 2.0 * (a / below)
    low = (fma(-ratio, below, 2.0 * a) - ratio * lost) / below
    value = 0.5 * log1p(ratio, grade, low)
    value = where(a.is_("olt", 2.0**-28), a, value)
    return signed_as(where(a.is_("ugt", 1.0), NAN, value), x)


def _ln2(like: Value) -> Value:
    return like.function.value(log(2), vector(element(like.type), lanes(like.type)))


FUNCTIONS: Functions = {
    "log": (1, log_), "log2": (1, log2), "log1p": (1, log1p),
    "asinh": (1, asinh), "acosh": (1, acosh), "atanh": (1, atanh),
}  # fmt: skip
