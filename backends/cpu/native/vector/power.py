"""Powers, cube roots and remainders."""

from shardir.backends.cpu.native.llvm.text import Value, element, lanes, vector
from shardir.backends.cpu.native.vector.arithmetic import (
    INFINITY,
    NAN,
    TINY,
    Functions,
    any_of,
    at_least,
    at_most,
    bits_of,
    constant,
    fast_two_sum,
    float_of,
    fma,
    halved,
    is_single,
    nearest,
    polynomial,
    rarely,
    scaled,
    signed_as,
    size,
    to_float,
    two_product,
    where,
)
from shardir.backends.cpu.native.vector.exponential import exp2, exp2_inside
from shardir.backends.cpu.native.vector.logarithm import is_ordinary, lifted, normal
from shardir.backends.cpu.native.vector.logarithm_double import LOG2_E, log2_parts
from shardir.backends.cpu.native.vector.power_single import power_of_ordinary


def _power_single(x: Value, y: Value) -> Value:
    """Return 2^(y log2 x) for positive x, even subnormal: the product in f64, the rest in f32.

    The division of the logarithm is an f32 division and a Newton step in f64.
    """
    wide = vector("double", lanes(x.type))
    m, k = normal(x)
    f = m - 1.0
    inverse = (1.0 / (f + 2.0)).to(wide, "fpext")
    f = f.to(wide, "fpext")
    s = f * fma(inverse, fma(-(f + 2.0), inverse, 1.0), inverse)
    z = s * s
    part = fma(s * z, polynomial(z, "log_ratio", "short"), 2.0 * s)
    logarithm = fma(part, LOG2_E[0], to_float(k).to(wide, "fpext"))
    exponent = at_most(at_least(y.to(wide, "fpext") * logarithm, -151.0), 129.0)
    whole, integer = nearest(exponent)
    r = (exponent - whole).to(x.type, "fptrunc")
    value = fma(r, polynomial(r, "exp2", "f32"), 1.0)
    return scaled(value, integer.to(k.type, "trunc"))


def pow_(x: Value, y: Value, grade: str) -> Value:
    """Return 2^(y log2 |x|), negative if x is and y is odd; special cases follow C99."""

    def vanishes() -> tuple[Value, float]:
        """Return 0 for zeros, which are common in arrays."""
        return bits_of(x).is_("eq", 0) & y.is_("ogt", 0.0), 0.0

    if is_single(x):
        value, ordinary = power_of_ordinary(x, y)
        return rarely(
            ~ordinary, value, lambda: _power_edges(x, y, _power_single(size(x), y)), vanishes
        )
    high, low = log2_parts(x, None)
    exponent = y * high
    value = exp2_inside(exponent, fma(y, low, fma(y, high, -exponent)))
    ordinary = is_ordinary(x) & size(exponent).is_("olt", 1021.0)
    return rarely(~ordinary, value, lambda: _power_edges(x, y, _power_double(size(x), y)), vanishes)


def _power_double(x: Value, y: Value) -> Value:
    """Return 2^(y log2 x) for positive x, even subnormal, and for any exponent."""
    high, low = log2_parts(*lifted(x))
    # Beyond this bound all powers are 0, 1 or infinite; products of larger exponents would be NaN.
    factor = at_most(at_least(y, -(2.0**72)), 2.0**72)
    exponent, rest = two_product(factor, high)
    exponent, rest = fast_two_sum(exponent, fma(factor, low, rest))
    rest = where(size(exponent).is_("olt", 2000.0), rest, 0.0)
    return exp2(exponent, "f64", rest)


def _power_edges(x: Value, y: Value, value: Value) -> Value:
    """Return the power for zeros, infinities, NaN and negative x; `value` is the power of |x|."""
    a, f = size(x), x.function
    integral = f.intrinsic("trunc", y).is_("oeq", y)
    half = y * 0.5
    odd = integral & f.intrinsic("trunc", half).is_("one", half) & size(y).is_("olt", 2.0**53)
    outside = a.is_("oeq", 0.0) | a.is_("oeq", INFINITY)
    falling = where(a.is_("oeq", 0.0), INFINITY, constant(x, 0.0))
    value = where(outside, where(y.is_("ogt", 0.0), a, falling), value)
    is_infinite = size(y).is_("oeq", INFINITY)
    grows = a.is_("ogt", 1.0) ^ y.is_("olt", 0.0)
    value = where(is_infinite, where(grows, INFINITY, constant(x, 0.0)), value)
    value = where(a.is_("oeq", 1.0), 1.0, value)
    value = where(bits_of(x).is_("slt", 0) & odd, -value, value)
    value = where(x.is_("olt", 0.0) & ~(integral | is_infinite | outside), NAN, value)
    value = where(x.is_("uno", y), NAN, value)
    return where(y.is_("oeq", 0.0) | x.is_("oeq", 1.0), 1.0, value)


def cbrt(x: Value, grade: str) -> Value:
    """Return the cube root, as a y^2 for a corrected estimate y of the inverse root, without a
    division."""
    kind = element(x.type)
    least = (0x00800000, 0x0010000000000000)[kind == "double"]
    range_ = (0x7F000000, 0x7FE0000000000000)[kind == "double"]
    rare = ~(bits_of(size(x)) - least).is_("ult", range_) & x.is_("une", 0.0)
    return rarely(rare, _root(x), lambda: _root_edges(x))


def _root(x: Value) -> Value:
    """Return the cube root of normal numbers, and of 0.

    y is about a^(-1/3), and a y^2 is corrected by the series of (1 - s)^(-2/3) with s = 1 - a y^3,
    which leaves a third of the rounding error of a y^2.
    """
    a = size(x)
    y = _inverse_root_single(a) if is_single(x) else _inverse_root_double(a)
    t = a * y * y
    residual = fma(-t, y, 1.0)
    return signed_as(fma(t * residual, fma(residual, 5 / 9, 2 / 3), t), x)


def _inverse_root_single(a: Value) -> Value:
    """Estimate a^(-1/3) from a third of the bits to 3 %, then refine it by the series of (1 -
    s)^(-1/3)."""
    guess = fma(to_float(bits_of(a)), -1 / 3, float(0x54A20000))
    y = float_of(guess.to(bits_of(a).type, "fptosi"))
    residual = fma(-(a * y), y * y, 1.0)
    return fma(y * residual, fma(residual, 2 / 9, 1 / 3), y)


def _inverse_root_double(a: Value) -> Value:
    """Estimate a^(-1/3) from a third of the upper half of the bits, then refine it to 21 bits."""
    guess = a.function.value(0x553EE978D4FDF400, bits_of(a).type)
    y = float_of(guess - (bits_of(a) >> 32) * 0x55555556)
    residual = fma(-(a * y), y * y, 1.0)
    return fma(y * residual, polynomial(residual, "cbrt", "f64"), y)


def _root_edges(x: Value) -> Value:
    """Return the cube root of subnormal, zero or nonfinite numbers."""
    value = _root(x * 2.0**54) * 2.0**-18
    return where(x.is_("oeq", 0.0) | size(x).is_("ueq", INFINITY), x, value)


def rem(x: Value, y: Value, grade: str) -> Value:
    """Return x - y trunc(x / y), exactly, by subtracting scaled multiples of y.

    Each iteration reduces the quotient by 50 bits; most arguments need one.
    """
    f = x.function
    a, b = size(x), size(y)
    valid = a.is_("olt", INFINITY) & b.is_("ogt", 0.0)
    ordinary = valid & b.is_("olt", INFINITY)
    a, b = where(ordinary, a, 0.0), where(ordinary, b, 1.0)
    exponent = _exponent(b)
    left = f.variable(a.type, a)
    with f.while_(lambda: any_of(f, left.get().is_("oge", b))):
        now = left.get()
        gap = _exponent(now) - exponent - 50
        lift = where(gap.is_("sgt", 0), gap, 0)
        third = halved(lift * 21845, 16)
        step = b * _power(third) * _power(third) * _power(lift - third - third)
        quotient = f.intrinsic("trunc", now / step)
        rest = fma(-quotient, step, now)
        rest = where(rest.is_("olt", 0.0), rest + step, rest)
        left.set(where(now.is_("oge", b), rest, now))
    value = where(ordinary, left.get(), size(x))
    return where(valid, signed_as(value, x), NAN)


def _exponent(x: Value) -> Value:
    """Return the exponent of a positive number, even a subnormal one."""
    small = x.is_("olt", TINY["double"])
    lifted = where(small, x * 2.0**54, x)
    return (bits_of(lifted) >> 52) - where(small, x.function.value(54, bits_of(x).type), 0)


def _power(exponent: Value) -> Value:
    return float_of((exponent + 1023) << 52)


FUNCTIONS: Functions = {"pow": (2, pow_), "cbrt": (1, cbrt), "rem": (2, rem)}
