"""Logarithms: x = m 2^k with m around 1, and a polynomial in m - 1; for f64 by a table."""

from math import log

from shardir.backends.cpu.native.llvm.text import Value, element
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
    two_sum,
    where,
)
from shardir.backends.cpu.native.vector.logarithm_double import (
    log1p_of_ordinary,
    log2_of_ordinary,
    log_of_ordinary,
)
from shardir.backends.cpu.native.vector.pieces import chosen, split_at_once
from shardir.backends.cpu.native.vector.tables import has_registers

LOG2_E_SINGLE = (1.4426950216293335, 1.925963033500011e-08)
"""1 / ln 2 in two parts of f32."""
LN2_SINGLE = 0.6931471824645996
LEAST = 0x3F3504F3
"""The bits of sqrt(1/2) in f32."""
LEAST_OF_PIECES = 0x3F400000
"""The bits of 3/4 in f32."""


def normal(x: Value) -> tuple[Value, Value]:
    """Return m and k of x = m 2^k, also for subnormal x; meaningless for x without a logarithm."""
    kind = element(x.type)
    lift = 25 if kind == "float" else 54
    small = x.is_("olt", TINY[kind])
    m, k = split_power(where(small, x * 2.0**lift, x))
    return m, k - where(small, x.function.value(lift, k.type), 0)


def edges(x: Value, value: Value) -> Value:
    """Fix a logarithm for arguments with an infinite one, or with none."""
    value = where(x.is_("oeq", INFINITY), INFINITY, value)
    value = where(x.is_("oeq", 0.0), -INFINITY, value)
    return where(x.is_("ult", 0.0), NAN, value)


def _single(f: Value, k: Value, piece: Value | None, unit: float = 2.0**-23) -> Value:
    """Return log(1 + f) + k ln 2 in f32; the f32 ln 2 happens to be accurate to four more
    digits."""
    return fma(k, LN2_SINGLE * unit, fma(f * f, _tail(f, piece), f))


def _tail(f: Value, piece: Value | None) -> Value:
    """Return (log(1 + f) - f) / f^2, by the polynomial of the piece, if any."""
    return polynomial(f, "log", "f32") if piece is None else chosen(f, piece, "log")


def _piece(m: Value) -> Value:
    """Return the piece of m from 3/4 to 3/2, or of m 2^k: the first four bits of the fraction."""
    return bits_of(m) >> 19


def _log_at_once(x: Value) -> Value:
    """Return the logarithm of any f32 with AVX-512 instructions."""
    m, k = split_at_once(x)
    return _single(m - 1.0, k, _piece(m), 1.0)


def _split(x: Value) -> tuple[Value, Value]:
    """Return m, and the bits of 2^k minus those of 1, for positive normal f32 x = m 2^k."""
    exponent = (bits_of(x) - LEAST) & -(1 << 23)
    return float_of(bits_of(x) - exponent), exponent


def is_ordinary(x: Value) -> Value:
    """Return whether a number is positive, normal and finite."""
    least, range_ = (0x00800000, 0x7F000000) if is_single(x) else (1 << 52, 0x7FE << 52)
    return (bits_of(x) - least).is_("ult", range_)


def _is_subnormal(x: Value) -> Value:
    """Return whether an f64 is positive and subnormal."""
    return (bits_of(x) - 1).is_("ult", (1 << 52) - 1)


def lifted(x: Value) -> tuple[Value, Value]:
    """Return x 2^lift, which is normal if x is positive, and the lift; for f64."""
    small = x.is_("olt", TINY["double"])
    none = x.function.value(0, bits_of(x).type)
    return where(small, x * 2.0**54, x), where(small, 54, none)


def log_(x: Value, grade: str) -> Value:
    """Return the natural logarithm."""
    if not is_single(x):
        value = edges(x, log_of_ordinary(x, None, grade))
        return rarely(_is_subnormal(x), value, lambda: _log_lifted(x, grade))
    if has_registers():
        return _log_at_once(x)
    m, k = _split(x)
    value = _single(m - 1.0, to_float(k), None)
    return rarely(~is_ordinary(x), value, lambda: _log_lifted(x, grade))


def _log_lifted(x: Value, grade: str) -> Value:
    """Return the logarithm of rare arguments: subnormal numbers, and those without one."""
    if not is_single(x):
        return edges(x, log_of_ordinary(*lifted(x), grade))
    if has_registers():
        return _log_at_once(x)
    m, k = normal(x)
    return edges(x, _single(m - 1.0, to_float(k), None, 1.0))


def log2(x: Value, grade: str) -> Value:
    """Return the logarithm to base 2; it is exact for powers of two."""
    if is_single(x) and has_registers():
        m, k = split_at_once(x)
        f = m - 1.0
        return fma(f, chosen(f, _piece(m), "log2"), k + f)
    if is_single(x):

        def of(m: Value, k: Value) -> Value:
            f = m - 1.0
            return fma(f, polynomial(f, "log2", grade), to_float(k))

        value = of(*split_power(x))
        return rarely(~is_ordinary(x), value, lambda: edges(x, of(*normal(x))))
    value = edges(x, log2_of_ordinary(x, None))
    return rarely(_is_subnormal(x), value, lambda: edges(x, log2_of_ordinary(*lifted(x))))


def log1p(x: Value, grade: str, low: Value | None = None) -> Value:
    """Return log(1 + x + low)."""
    least, range_ = (0x00800000, 0x7E000000) if is_single(x) else (1 << 52, 0x7FC << 52)
    rare = ~(bits_of(1.0 + x) - least).is_("ult", range_)
    value = signed_as(_log1p_ordinary(x, low, grade, exact=low is not None), x)
    return rarely(rare, value, lambda: _log1p_edges(x, _log_lifted(x, grade)))


def _log1p_ordinary(x: Value, low: Value | None, grade: str, exact: bool = False) -> Value:
    """Return log(1 + x + low) for an ordinary sum that is not the largest; +0 for -0."""
    if is_single(x):
        return _log1p_single(x, low, exact)
    return log1p_of_ordinary(x, low, grade)


def _log1p_single(x: Value, low: Value | None, exact: bool) -> Value:
    """Return log(1 + x + low) of f32 for an ordinary sum below 2^126; +0 for -0.

    1 + x only determines k: f = (1 + x) / 2^k - 1 is rounded once, and its rounding error is
    carried along if the result is to be `exact`, approximately as a fraction of 1 + f.
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
    """Return log1p(x + x^2 / (1 + sqrt(1 + x^2))), or log 2x for large x."""
    a = size(x)
    square = a * a
    inner, low = fast_two_sum(a, square / (1.0 + root(1.0 + square)))
    value = _log1p_ordinary(inner, low, grade)
    rare = ~a.is_("olt", 2.0**60)
    return signed_as(rarely(rare, value, lambda: _log_lifted(a, grade) + _ln2(x)), x)


def acosh(x: Value, grade: str) -> Value:
    """Return log1p(t + sqrt(2t + t^2)) with t = x - 1, or log 2x for large x."""
    t = x - 1.0
    inner, low = two_sum(root(fma(t, t, 2.0 * t)), t)
    value = _log1p_ordinary(inner, low, grade, exact=True)
    rare = ~(x.is_("oge", 1.0) & x.is_("olt", 2.0**60))
    return rarely(rare, value, lambda: _acosh_edges(x, _log_lifted(x, grade) + _ln2(x)))


def _acosh_edges(x: Value, value: Value) -> Value:
    return where(x.is_("ult", 1.0), NAN, value)


def atanh(x: Value, grade: str) -> Value:
    """Return log1p(2x / (1 - x)) / 2, with the rounding errors of difference and quotient."""
    a = size(x)
    below = 1.0 - a
    lost = (1.0 - below) - a
    inverse, twice = 1.0 / below, a + a
    ratio = twice * inverse
    low = fma(-ratio, lost, fma(-ratio, below, twice)) * inverse
    value = signed_as(0.5 * _log1p_ordinary(ratio, low, grade, exact=True), x)
    ends = where(a.is_("oeq", 1.0), INFINITY, constant(x, NAN))
    return rarely(~a.is_("olt", 1.0), value, lambda: signed_as(ends, x))


def _ln2(like: Value) -> float:
    return LN2_SINGLE if is_single(like) else log(2)


FUNCTIONS: Functions = {
    "log": (1, log_), "log2": (1, log2), "log1p": (1, log1p),
    "asinh": (1, asinh), "acosh": (1, acosh), "atanh": (1, atanh),
}  # fmt: skip
