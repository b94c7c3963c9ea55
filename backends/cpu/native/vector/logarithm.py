"""Logarithms: x = m 2^k with m around 1, and a polynomial in m - 1; of f64 by a table."""

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


def is_ordinary(x: Value) -> Value:
    """Whether a number is positive, normal and finite."""
    least, range_ = (0x00800000, 0x7F000000) if is_single(x) else (1 << 52, 0x7FE << 52)
    return (bits_of(x) - least).is_("ult", range_)


def _is_subnormal(x: Value) -> Value:
    """Whether a number of f64 is positive and subnormal."""
    return (bits_of(x) - 1).is_("ult", (1 << 52) - 1)


def lifted(x: Value) -> tuple[Value, Value]:
    """x 2^lift, which is normal if x is positive, and the lift; of f64."""
    small = x.is_("olt", TINY["double"])
    none = x.function.value(0, bits_of(x).type)
    return where(small, x * 2.0**54, x), where(small, 54, none)


def log_(x: Value, grade: str) -> Value:
    """The natural logarithm."""
    if not is_single(x):
        value = edges(x, log_of_ordinary(x, None, grade))
        return rarely(_is_subnormal(x), value, lambda: _log_lifted(x, grade))
    if has_registers():
        return _log_at_once(x)
    m, k = _split(x)
    value = _single(m - 1.0, to_float(k), None)
    return rarely(~is_ordinary(x), value, lambda: _log_lifted(x, grade))


def _log_lifted(x: Value, grade: str) -> Value:
    """The logarithm where it is rare: of subnormal numbers, and where there is none."""
    if not is_single(x):
        return edges(x, log_of_ordinary(*lifted(x), grade))
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
        return rarely(~is_ordinary(x), value, lambda: edges(x, of(*normal(x))))
    value = edges(x, log2_of_ordinary(x, None))
    return rarely(_is_subnormal(x), value, lambda: edges(x, log2_of_ordinary(*lifted(x))))


def log1p(x: Value, grade: str, low: Value | None = None) -> Value:
    """log(1 + x + low)"""
    least, range_ = (0x00800000, 0x7E000000) if is_single(x) else (1 << 52, 0x7FC << 52)
    rare = ~(bits_of(1.0 + x) - least).is_("ult", range_)
    value = signed_as(_log1p_ordinary(x, low, grade, exact=low is not None), x)
    return rarely(rare, value, lambda: _log1p_edges(x, _log_lifted(x, grade)))


def _log1p_ordinary(x: Value, low: Value | None, grade: str, exact: bool = False) -> Value:
    """log(1 + x + low) for a sum that is ordinary and not the largest; +0 for -0."""
    if is_single(x):
        return _log1p_single(x, low, exact)
    return log1p_of_ordinary(x, low, grade)


def _log1p_single(x: Value, low: Value | None, exact: bool) -> Value:
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
    square = a * a
    inner, low = fast_two_sum(a, square / (1.0 + root(1.0 + square)))
    value = _log1p_ordinary(inner, low, grade)
    rare = ~a.is_("olt", 2.0**60)
    return signed_as(rarely(rare, value, lambda: _log_lifted(a, grade) + _ln2(x)), x)


def acosh(x: Value, grade: str) -> Value:
    """log1p(t + sqrt(2t + t^2)) of t = x - 1, and log 2x where that is the same."""
    t = x - 1.0
    inner, low = two_sum(root(fma(t, t, 2.0 * t)), t)
    value = _log1p_ordinary(inner, low, grade, exact=True)
    rare = ~(x.is_("oge", 1.0) & x.is_("olt", 2.0**60))
    return rarely(rare, value, lambda: _acosh_edges(x, _log_lifted(x, grade) + _ln2(x)))


def _acosh_edges(x: Value, value: Value) -> Value:
    return where(x.is_("ult", 1.0), NAN, value)


def atanh(x: Value, grade: str) -> Value:
    """log1p(2x / (1 - x)) / 2, with what the difference and the quotient lose."""
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
