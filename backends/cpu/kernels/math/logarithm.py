"""Logarithms: x = m 2^k with m around 1, and a polynomial in m - 1; for f64 by a table."""

from math import log

from shardir.backends.cpu.codegen.llvm_text import LLVMValue, element_type
from shardir.backends.cpu.kernels.math.logarithm_double import (
    log1p_of_ordinary,
    log2_of_ordinary,
    log_of_ordinary,
)
from shardir.backends.cpu.kernels.math.lookup_tables import (
    has_register_tables,
    piecewise_polynomial,
    split_with_avx512,
)
from shardir.backends.cpu.kernels.math.vector_arithmetic import (
    INFINITY,
    MIN_NORMAL,
    NAN,
    FunctionTable,
    absolute_value,
    bits_of,
    constant_like,
    copy_sign,
    fast_two_sum,
    float_of,
    fma,
    is_single,
    polynomial,
    select_rare,
    split_power,
    square_root,
    to_float,
    two_sum,
    where,
)

LOG2_E_SINGLE = (1.4426950216293335, 1.925963033500011e-08)
"""1 / ln 2 in two parts of f32."""
LN2_SINGLE = 0.6931471824645996
SQRT_HALF_BITS = 0x3F3504F3
"""The bits of sqrt(1/2) in f32."""
THREE_QUARTERS_BITS = 0x3F400000
"""The bits of 3/4 in f32."""


def split_normal(x: LLVMValue) -> tuple[LLVMValue, LLVMValue]:
    """Return m and k of x = m 2^k, also for subnormal x; meaningless for x without a logarithm."""
    kind = element_type(x.type)
    lift = 25 if kind == "float" else 54
    small = x.is_("olt", MIN_NORMAL[kind])
    m, k = split_power(where(small, x * 2.0**lift, x))
    return m, k - where(small, x.function.value(lift, k.type), 0)


def fix_log_edges(x: LLVMValue, value: LLVMValue) -> LLVMValue:
    """Fix a logarithm for arguments with an infinite one, or with none."""
    value = where(x.is_("oeq", INFINITY), INFINITY, value)
    value = where(x.is_("oeq", 0.0), -INFINITY, value)
    return where(x.is_("ult", 0.0), NAN, value)


def _log_single(
    f: LLVMValue, k: LLVMValue, piece: LLVMValue | None, unit: float = 2.0**-23
) -> LLVMValue:
    """Return log(1 + f) + k ln 2 in f32; the f32 ln 2 happens to be accurate to four more
    digits."""
    return fma(k, LN2_SINGLE * unit, fma(f * f, _log_tail(f, piece), f))


def _log_tail(f: LLVMValue, piece: LLVMValue | None) -> LLVMValue:
    """Return (log(1 + f) - f) / f^2, by the polynomial of the piece, if any."""
    return polynomial(f, "log", "f32") if piece is None else piecewise_polynomial(f, piece, "log")


def _piece_index(m: LLVMValue) -> LLVMValue:
    """Return the piece of m from 3/4 to 3/2, or of m 2^k: the first four bits of the fraction."""
    return bits_of(m) >> 19


def _log_with_avx512(x: LLVMValue) -> LLVMValue:
    """Return the logarithm of any f32 with AVX-512 instructions."""
    m, k = split_with_avx512(x)
    return _log_single(m - 1.0, k, _piece_index(m), 1.0)


def _split_single(x: LLVMValue) -> tuple[LLVMValue, LLVMValue]:
    """Return m, and the bits of 2^k minus those of 1, for positive normal f32 x = m 2^k."""
    exponent = (bits_of(x) - SQRT_HALF_BITS) & -(1 << 23)
    return float_of(bits_of(x) - exponent), exponent


def is_ordinary(x: LLVMValue) -> LLVMValue:
    """Return whether a number is positive, normal and finite."""
    least, range_ = (0x00800000, 0x7F000000) if is_single(x) else (1 << 52, 0x7FE << 52)
    return (bits_of(x) - least).is_("ult", range_)


def _is_subnormal(x: LLVMValue) -> LLVMValue:
    """Return whether an f64 is positive and subnormal."""
    return (bits_of(x) - 1).is_("ult", (1 << 52) - 1)


def scale_subnormals(x: LLVMValue) -> tuple[LLVMValue, LLVMValue]:
    """Return x 2^lift, which is normal if x is positive, and the lift; for f64."""
    small = x.is_("olt", MIN_NORMAL["double"])
    none = x.function.value(0, bits_of(x).type)
    return where(small, x * 2.0**54, x), where(small, 54, none)


def log_(x: LLVMValue, grade: str) -> LLVMValue:
    """Return the natural logarithm."""
    if not is_single(x):
        value = fix_log_edges(x, log_of_ordinary(x, None, grade))
        return select_rare(_is_subnormal(x), value, lambda: _log_rare(x, grade))
    if has_register_tables(x.function.machine):
        return _log_with_avx512(x)
    m, k = _split_single(x)
    value = _log_single(m - 1.0, to_float(k), None)
    return select_rare(~is_ordinary(x), value, lambda: _log_rare(x, grade))


def _log_rare(x: LLVMValue, grade: str) -> LLVMValue:
    """Return the logarithm of rare arguments: subnormal numbers, and those without one."""
    if not is_single(x):
        return fix_log_edges(x, log_of_ordinary(*scale_subnormals(x), grade))
    if has_register_tables(x.function.machine):
        return _log_with_avx512(x)
    m, k = split_normal(x)
    return fix_log_edges(x, _log_single(m - 1.0, to_float(k), None, 1.0))


def log2(x: LLVMValue, grade: str) -> LLVMValue:
    """Return the logarithm to base 2; it is exact for powers of two."""
    if is_single(x) and has_register_tables(x.function.machine):
        m, k = split_with_avx512(x)
        f = m - 1.0
        return fma(f, piecewise_polynomial(f, _piece_index(m), "log2"), k + f)
    if is_single(x):

        def of(m: LLVMValue, k: LLVMValue) -> LLVMValue:
            f = m - 1.0
            return fma(f, polynomial(f, "log2", grade), to_float(k))

        value = of(*split_power(x))
        return select_rare(~is_ordinary(x), value, lambda: fix_log_edges(x, of(*split_normal(x))))
    value = fix_log_edges(x, log2_of_ordinary(x, None))
    return select_rare(
        _is_subnormal(x), value, lambda: fix_log_edges(x, log2_of_ordinary(*scale_subnormals(x)))
    )


def log1p(x: LLVMValue, grade: str, low: LLVMValue | None = None) -> LLVMValue:
    """Return log(1 + x + low)."""
    least, range_ = (0x00800000, 0x7E000000) if is_single(x) else (1 << 52, 0x7FC << 52)
    rare = ~(bits_of(1.0 + x) - least).is_("ult", range_)
    value = copy_sign(_log1p_ordinary(x, low, grade, exact=low is not None), x)
    return select_rare(rare, value, lambda: _log1p_edges(x, _log_rare(x, grade)))


def _log1p_ordinary(
    x: LLVMValue, low: LLVMValue | None, grade: str, exact: bool = False
) -> LLVMValue:
    """Return log(1 + x + low) for an ordinary sum that is not the largest; +0 for -0."""
    if is_single(x):
        return _log1p_single(x, low, exact)
    return log1p_of_ordinary(x, low, grade)


def _log1p_single(x: LLVMValue, low: LLVMValue | None, exact: bool) -> LLVMValue:
    """Return log(1 + x + low) of f32 for an ordinary sum below 2^126; +0 for -0.

    1 + x only determines k: f = (1 + x) / 2^k - 1 is rounded once, and its rounding error is
    carried along if the result is to be `exact`, approximately as a fraction of 1 + f.
    """
    piece = _piece_index(1.0 + x) if has_register_tables(x.function.machine) else None
    least = SQRT_HALF_BITS if piece is None else THREE_QUARTERS_BITS
    exponent = (bits_of(1.0 + x) - least) & -(1 << 23)
    down = float_of(0x3F800000 - exponent)
    shift = down - 1.0
    f = fma(x, down, shift)
    k = to_float(exponent)
    if low is None:
        return _log_single(f, k, piece)
    if not exact:
        return _log_single(fma(low, down, f), k, piece)
    lost = fma(low, down, fma(x, down, shift - f))
    tail = fma(f * f, _log_tail(f, piece), fma(-f, lost, lost))
    return fma(k, LN2_SINGLE * 2.0**-23, f + tail)


def _log1p_edges(x: LLVMValue, value: LLVMValue) -> LLVMValue:
    value = where(x.is_("oeq", INFINITY), INFINITY, value)
    value = where(x.is_("oeq", -1.0), -INFINITY, value)
    return where(x.is_("ult", -1.0), NAN, value)


def asinh(x: LLVMValue, grade: str) -> LLVMValue:
    """Return log1p(x + x^2 / (1 + sqrt(1 + x^2))), or log 2x for large x."""
    a = absolute_value(x)
    square = a * a
    inner, low = fast_two_sum(a, square / (1.0 + square_root(1.0 + square)))
    value = _log1p_ordinary(inner, low, grade)
    rare = ~a.is_("olt", 2.0**60)
    return copy_sign(select_rare(rare, value, lambda: _log_rare(a, grade) + _ln2(x)), x)


def acosh(x: LLVMValue, grade: str) -> LLVMValue:
    """Return log1p(t + sqrt(2t + t^2)) with t = x - 1, or log 2x for large x."""
    t = x - 1.0
    inner, low = two_sum(square_root(fma(t, t, 2.0 * t)), t)
    value = _log1p_ordinary(inner, low, grade, exact=True)
    rare = ~(x.is_("oge", 1.0) & x.is_("olt", 2.0**60))
    return select_rare(rare, value, lambda: _acosh_edges(x, _log_rare(x, grade) + _ln2(x)))


def _acosh_edges(x: LLVMValue, value: LLVMValue) -> LLVMValue:
    return where(x.is_("ult", 1.0), NAN, value)


def atanh(x: LLVMValue, grade: str) -> LLVMValue:
    """Return log1p(2x / (1 - x)) / 2, with the rounding errors of difference and quotient."""
    a = absolute_value(x)
    below = 1.0 - a
    lost = (1.0 - below) - a
    inverse, twice = 1.0 / below, a + a
    ratio = twice * inverse
    low = fma(-ratio, lost, fma(-ratio, below, twice)) * inverse
    value = copy_sign(0.5 * _log1p_ordinary(ratio, low, grade, exact=True), x)
    ends = where(a.is_("oeq", 1.0), INFINITY, constant_like(x, NAN))
    return select_rare(~a.is_("olt", 1.0), value, lambda: copy_sign(ends, x))


def _ln2(like: LLVMValue) -> float:
    return LN2_SINGLE if is_single(like) else log(2)


FUNCTIONS: FunctionTable = {
    "log": (1, log_), "log2": (1, log2), "log1p": (1, log1p),
    "asinh": (1, asinh), "acosh": (1, acosh), "atanh": (1, atanh),
}  # fmt: skip
