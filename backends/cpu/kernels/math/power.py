"""Powers, cube roots and remainders.

Powers of f32 with a positive normal base take logarithms from a table, in two parts.
"""

from math import log2

from shardir.backends.cpu.codegen.llvm_text import LLVMValue, element_type, lane_count, vector_type
from shardir.backends.cpu.kernels.math.exponential import exp2, exp2_of_normal
from shardir.backends.cpu.kernels.math.logarithm import (
    LOG2_E_SINGLE,
    THREE_QUARTERS_BITS,
    is_ordinary,
    scale_subnormals,
    split_normal,
)
from shardir.backends.cpu.kernels.math.logarithm_double import LOG2_E_PARTS, log2_parts
from shardir.backends.cpu.kernels.math.lookup_tables import (
    has_register_tables,
    lookup,
    split_with_avx512,
)
from shardir.backends.cpu.kernels.math.vector_arithmetic import (
    INFINITY,
    MIN_NORMAL,
    NAN,
    FunctionTable,
    absolute_value,
    any_of,
    bits_of,
    clamp_above,
    clamp_below,
    constant_like,
    copy_sign,
    fast_two_sum,
    float_of,
    fma,
    is_single,
    polynomial,
    round_product_to_integer,
    round_to_integer,
    scale_by_power_of_two,
    select_rare,
    shift_right,
    to_float,
    two_product,
    where,
)

TABLE_STEPS = 32
"""Steps of m from 3/4 to 3/2: half of them below 1, where floats are twice as dense. The first five
bits of the fraction are the index."""


def _inverses() -> list[float]:
    """Return a number near 1 / m for each step, so short that its product with m, minus 1, is
    exact.

    m below 1 has bits down to 2^-24, above down to 2^-23; with 5 or 6 more they end at 2^-29, and
    the difference is below 2^-5. The steps on either side of 1 have the inverse 1.
    """
    found = []
    for step in range(TABLE_STEPS):
        unit, parts = (1.0, 64) if step < TABLE_STEPS / 2 else (0.5, 32)
        low, high = (unit * (1 + end / TABLE_STEPS) for end in (step, step + 1))
        found.append(1.0 if 1.0 in (low, high) else round(2 / (low + high) * parts) / parts)
    return found


TABLE_INVERSES = _inverses()
TABLE_LOG2 = [round(-log2(inverse) * 2**15) / 2**15 for inverse in TABLE_INVERSES]
"""-log2 of the inverses to 15 bits, so that sums with k are exact."""
TABLE_LOG2_RESTS = [-log2(i) - high for i, high in zip(TABLE_INVERSES, TABLE_LOG2, strict=True)]


def power_of_ordinary(x: LLVMValue, y: LLVMValue) -> tuple[LLVMValue, LLVMValue]:
    """Return 2^(y log2 x), and where it is valid: for x positive and finite, |y log2 x| up to 124.

    log2 x = k - log2 c + log2(1 + f) for c of the table and f = c m - 1, of which f - f^2 / 2 is
    computed in two parts, and so is the product with y. Subnormal x are valid with AVX-512 only.
    """
    m, exponent, unit = _split_and_exponent(x)
    index = bits_of(m) >> 18
    f = fma(lookup(index, "shardir_inverses", TABLE_INVERSES), m, -1.0)
    square, square_low = two_product(f, f)
    h = fma(square, -0.5, f)
    tail = fma(square_low, -0.5, fma(square, -0.5, f - h))
    tail = fma(f * square, polynomial(f, "log_near", "f32"), tail)
    whole, part = LOG2_E_SINGLE
    p, p_low = two_product(h, x.function.value(whole, h.type))
    p_low = fma(tail, whole, fma(h, part, p_low))
    base = fma(exponent, unit, lookup(index, "shardir_logarithms", TABLE_LOG2))
    high = base + p
    low = (p - (high - base)) + (p_low + lookup(index, "shardir_rests", TABLE_LOG2_RESTS))
    k, integer = round_product_to_integer(y, high + low)
    z = y * high
    r = (z - k) + fma(y, low, fma(y, high, -z))
    value = fma(r, polynomial(r, "exp2", "f32"), 1.0)
    ordinary = absolute_value(k).is_("olt", 125.0)
    if not has_register_tables(x.function.machine):
        ordinary = ordinary & is_ordinary(x)
    return float_of(bits_of(value) + (integer << 23)), ordinary


def _split_and_exponent(x: LLVMValue) -> tuple[LLVMValue, LLVMValue, float]:
    """Return m from 3/4 to 3/2, k, and the unit of k, for x = m 2^k.

    AVX-512 instructions give NaN or an infinity if x is not positive and finite, and then the
    exponent is not valid.
    """
    if has_register_tables(x.function.machine):
        return *split_with_avx512(x), 1.0
    exponent = (bits_of(x) - THREE_QUARTERS_BITS) & -(1 << 23)
    return float_of(bits_of(x) - exponent), to_float(exponent), 2.0**-23


def _power_of_positive_single(x: LLVMValue, y: LLVMValue) -> LLVMValue:
    """Return 2^(y log2 x) for positive x, even subnormal: the product in f64, the rest in f32.

    The division of the logarithm is an f32 division and a Newton step in f64.
    """
    wide = vector_type("double", lane_count(x.type))
    m, k = split_normal(x)
    f = m - 1.0
    inverse = (1.0 / (f + 2.0)).to(wide, "fpext")
    f = f.to(wide, "fpext")
    s = f * fma(inverse, fma(-(f + 2.0), inverse, 1.0), inverse)
    z = s * s
    part = fma(s * z, polynomial(z, "log_ratio", "short"), 2.0 * s)
    logarithm = fma(part, LOG2_E_PARTS[0], to_float(k).to(wide, "fpext"))
    exponent = clamp_above(clamp_below(y.to(wide, "fpext") * logarithm, -151.0), 129.0)
    whole, integer = round_to_integer(exponent)
    r = (exponent - whole).to(x.type, "fptrunc")
    value = fma(r, polynomial(r, "exp2", "f32"), 1.0)
    return scale_by_power_of_two(value, integer.to(k.type, "trunc"))


def pow_(x: LLVMValue, y: LLVMValue, grade: str) -> LLVMValue:
    """Return 2^(y log2 |x|), negative if x is and y is odd; special cases follow C99."""

    def vanishes() -> tuple[LLVMValue, float]:
        """Return 0 for zeros, which are common in arrays."""
        return bits_of(x).is_("eq", 0) & y.is_("ogt", 0.0), 0.0

    if is_single(x):
        value, ordinary = power_of_ordinary(x, y)
        return select_rare(
            ~ordinary,
            value,
            lambda: _fix_power_edges(x, y, _power_of_positive_single(absolute_value(x), y)),
            vanishes,
        )
    high, low = log2_parts(x, None)
    exponent = y * high
    value = exp2_of_normal(exponent, fma(y, low, fma(y, high, -exponent)))
    ordinary = is_ordinary(x) & absolute_value(exponent).is_("olt", 1021.0)
    return select_rare(
        ~ordinary,
        value,
        lambda: _fix_power_edges(x, y, _power_of_positive_double(absolute_value(x), y)),
        vanishes,
    )


def _power_of_positive_double(x: LLVMValue, y: LLVMValue) -> LLVMValue:
    """Return 2^(y log2 x) for positive x, even subnormal, and for any exponent."""
    high, low = log2_parts(*scale_subnormals(x))
    # Beyond this bound all powers are 0, 1 or infinite; products of larger exponents would be NaN.
    factor = clamp_above(clamp_below(y, -(2.0**72)), 2.0**72)
    exponent, rest = two_product(factor, high)
    exponent, rest = fast_two_sum(exponent, fma(factor, low, rest))
    rest = where(absolute_value(exponent).is_("olt", 2000.0), rest, 0.0)
    return exp2(exponent, "f64", rest)


def _fix_power_edges(x: LLVMValue, y: LLVMValue, value: LLVMValue) -> LLVMValue:
    """Return the power for zeros, infinities, NaN and negative x; `value` is the power of |x|."""
    a, f = absolute_value(x), x.function
    integral = f.intrinsic("trunc", y).is_("oeq", y)
    half = y * 0.5
    odd = (
        integral
        & f.intrinsic("trunc", half).is_("one", half)
        & absolute_value(y).is_("olt", 2.0**53)
    )
    outside = a.is_("oeq", 0.0) | a.is_("oeq", INFINITY)
    falling = where(a.is_("oeq", 0.0), INFINITY, constant_like(x, 0.0))
    value = where(outside, where(y.is_("ogt", 0.0), a, falling), value)
    is_infinite = absolute_value(y).is_("oeq", INFINITY)
    grows = a.is_("ogt", 1.0) ^ y.is_("olt", 0.0)
    value = where(is_infinite, where(grows, INFINITY, constant_like(x, 0.0)), value)
    value = where(a.is_("oeq", 1.0), 1.0, value)
    value = where(bits_of(x).is_("slt", 0) & odd, -value, value)
    value = where(x.is_("olt", 0.0) & ~(integral | is_infinite | outside), NAN, value)
    value = where(x.is_("uno", y), NAN, value)
    return where(y.is_("oeq", 0.0) | x.is_("oeq", 1.0), 1.0, value)


def cbrt(x: LLVMValue, grade: str) -> LLVMValue:
    """Return the cube root, as a y^2 for a corrected estimate y of the inverse root, without a
    division."""
    kind = element_type(x.type)
    least = (0x00800000, 0x0010000000000000)[kind == "double"]
    range_ = (0x7F000000, 0x7FE0000000000000)[kind == "double"]
    rare = ~(bits_of(absolute_value(x)) - least).is_("ult", range_) & x.is_("une", 0.0)
    return select_rare(rare, _cbrt_ordinary(x), lambda: _cbrt_rare(x))


def _cbrt_ordinary(x: LLVMValue) -> LLVMValue:
    """Return the cube root of normal numbers, and of 0.

    y is about a^(-1/3), and a y^2 is corrected by the series of (1 - s)^(-2/3) with s = 1 - a y^3,
    which leaves a third of the rounding error of a y^2.
    """
    a = absolute_value(x)
    y = _inverse_root_single(a) if is_single(x) else _inverse_root_double(a)
    t = a * y * y
    residual = fma(-t, y, 1.0)
    return copy_sign(fma(t * residual, fma(residual, 5 / 9, 2 / 3), t), x)


def _inverse_root_single(a: LLVMValue) -> LLVMValue:
    """Estimate a^(-1/3) from a third of the bits to 3 %, then refine it by the series of (1 -
    s)^(-1/3)."""
    guess = fma(to_float(bits_of(a)), -1 / 3, float(0x54A20000))
    y = float_of(guess.to(bits_of(a).type, "fptosi"))
    residual = fma(-(a * y), y * y, 1.0)
    return fma(y * residual, fma(residual, 2 / 9, 1 / 3), y)


def _inverse_root_double(a: LLVMValue) -> LLVMValue:
    """Estimate a^(-1/3) from a third of the upper half of the bits, then refine it to 21 bits."""
    guess = a.function.value(0x553EE978D4FDF400, bits_of(a).type)
    y = float_of(guess - (bits_of(a) >> 32) * 0x55555556)
    residual = fma(-(a * y), y * y, 1.0)
    return fma(y * residual, polynomial(residual, "cbrt", "f64"), y)


def _cbrt_rare(x: LLVMValue) -> LLVMValue:
    """Return the cube root of subnormal, zero or nonfinite numbers."""
    value = _cbrt_ordinary(x * 2.0**54) * 2.0**-18
    return where(x.is_("oeq", 0.0) | absolute_value(x).is_("ueq", INFINITY), x, value)


def rem(x: LLVMValue, y: LLVMValue, grade: str) -> LLVMValue:
    """Return x - y trunc(x / y), exactly, by subtracting scaled multiples of y.

    Each iteration reduces the quotient by 50 bits; most arguments need one.
    """
    f = x.function
    a, b = absolute_value(x), absolute_value(y)
    valid = a.is_("olt", INFINITY) & b.is_("ogt", 0.0)
    ordinary = valid & b.is_("olt", INFINITY)
    a, b = where(ordinary, a, 0.0), where(ordinary, b, 1.0)
    exponent = _exponent_of_positive(b)
    left = f.variable(a.type, a)
    with f.while_(lambda: any_of(f, left.get().is_("oge", b))):
        now = left.get()
        gap = _exponent_of_positive(now) - exponent - 50
        lift = where(gap.is_("sgt", 0), gap, 0)
        third = shift_right(lift * 21845, 16)
        step = (
            b
            * _power_of_two_double(third)
            * _power_of_two_double(third)
            * _power_of_two_double(lift - third - third)
        )
        quotient = f.intrinsic("trunc", now / step)
        rest = fma(-quotient, step, now)
        rest = where(rest.is_("olt", 0.0), rest + step, rest)
        left.set(where(now.is_("oge", b), rest, now))
    value = where(ordinary, left.get(), absolute_value(x))
    return where(valid, copy_sign(value, x), NAN)


def _exponent_of_positive(x: LLVMValue) -> LLVMValue:
    """Return the exponent of a positive number, even a subnormal one."""
    small = x.is_("olt", MIN_NORMAL["double"])
    lifted = where(small, x * 2.0**54, x)
    return (bits_of(lifted) >> 52) - where(small, x.function.value(54, bits_of(x).type), 0)


def _power_of_two_double(exponent: LLVMValue) -> LLVMValue:
    return float_of((exponent + 1023) << 52)


FUNCTIONS: FunctionTable = {"pow": (2, pow_), "cbrt": (1, cbrt), "rem": (2, rem)}
