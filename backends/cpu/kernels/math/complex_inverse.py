"""Inverse trigonometric and hyperbolic functions of complex numbers, on pairs of f64.

The formulas are W. Kahan's, "Branch cuts for complex elementary functions" (1987), which use the
roots of 1 - z and 1 + z; if |z| is large or infinite, the logarithm of z. Branch cuts, zeros and
infinities follow C99.
"""

from math import log, pi

from shardir.backends.cpu.codegen.llvm_text import LLVMValue
from shardir.backends.cpu.kernels.math.complex_arithmetic import ComplexPair, divide_complex
from shardir.backends.cpu.kernels.math.complex_functions import (
    call_double,
    complex_log,
    rotate_by_i,
    sqrt,
)
from shardir.backends.cpu.kernels.math.vector_arithmetic import (
    INFINITY,
    NAN,
    absolute_value,
    constant_like,
    copy_sign,
    fma,
    where,
)

LARGE_MAGNITUDE = 2.0**500
"""From this magnitude on squares may overflow, and 1 is negligible beside z."""


def _roots_of_1_minus_and_plus(z: ComplexPair) -> tuple[ComplexPair, ComplexPair]:
    """Return the square roots of 1 - z and 1 + z."""
    a, b = z
    return sqrt((1.0 - a, -b)), sqrt((1.0 + a, b))


def _is_large(z: ComplexPair) -> LLVMValue:
    return absolute_value(z[0]).is_("ogt", LARGE_MAGNITUDE) | absolute_value(z[1]).is_(
        "ogt", LARGE_MAGNITUDE
    )


def _has_nan(z: ComplexPair) -> LLVMValue:
    return z[0].is_("uno", z[1])


def _finite_direction(z: ComplexPair) -> ComplexPair:
    """Return z; of infinite z replace infinite parts by 1 and finite ones by 0."""
    is_infinite = _has_infinity(z)
    result = []
    for part in z:
        one = where(absolute_value(part).is_("oeq", INFINITY), 1.0, constant_like(part, 0.0))
        result.append(where(is_infinite & part.is_("ord", part), copy_sign(one, part), part))
    return result[0], result[1]


def _has_infinity(z: ComplexPair) -> LLVMValue:
    return absolute_value(z[0]).is_("oeq", INFINITY) | absolute_value(z[1]).is_("oeq", INFINITY)


def _imaginary_magnitude(z: ComplexPair, near: LLVMValue) -> LLVMValue:
    """Return the magnitude of the imaginary part of asin and acos; `near` for ordinary z."""
    value = where(_is_large(z), complex_log(z)[0] + log(2), near)
    small = absolute_value(z[0]).is_("olt", 2.0**-28) & absolute_value(z[1]).is_("olt", 2.0**-28)
    value = where(small, z[1], value)
    return where(_has_infinity(z), INFINITY, value)


def asin(z: ComplexPair) -> ComplexPair:
    a, b = z
    (p, q), (r, s) = _roots_of_1_minus_and_plus(z)
    x, y = _finite_direction(z)
    near = call_double("atan2", a, fma(p, r, -(q * s)))
    real = where(_is_large(z), call_double("atan2", x, absolute_value(y)), near)
    real = where(a.is_("oeq", 0.0), a, where(_has_nan(z), NAN, real))
    return real, copy_sign(_imaginary_magnitude(z, call_double("asinh", fma(p, s, -(q * r)))), b)


def acos(z: ComplexPair) -> ComplexPair:
    a, b = z
    (p, q), (r, s) = _roots_of_1_minus_and_plus(z)
    x, y = _finite_direction(z)
    real = where(
        _is_large(z), call_double("atan2", absolute_value(y), x), 2.0 * call_double("atan2", p, r)
    )
    flat = where(a.is_("oeq", 0.0), pi / 2, constant_like(a, NAN))
    real = where(_has_nan(z), flat, real)
    return real, -copy_sign(_imaginary_magnitude(z, call_double("asinh", fma(r, q, -(s * p)))), b)


def acosh(z: ComplexPair) -> ComplexPair:
    """Rotate acos to a nonnegative real part."""
    real, imag = acos(z)
    return absolute_value(imag), copy_sign(real, z[1])


def atanh(z: ComplexPair) -> ComplexPair:
    a, b = absolute_value(z[0]), z[1]
    below = fma(1.0 - a, 1.0 - a, b * b)
    real = 0.25 * call_double("log1p", 4.0 * a / below)
    is_near_pole = a.is_("oeq", 1.0) & absolute_value(b).is_("olt", 2.0**-400)  # b^2 underflows
    real = where(is_near_pole, 0.5 * (log(2) - call_double("log", absolute_value(b))), real)
    inverse = divide_complex((constant_like(a, 1.0), constant_like(a, 0.0)), (a, b))[0]
    is_large, is_infinite = _is_large(z), _has_infinity(z)
    real = where(is_infinite, 0.0, where(is_large, inverse, real))
    real = where(z[0].is_("oeq", 0.0), 0.0, real)
    imag = 0.5 * call_double("atan2", 2.0 * b, fma(1.0 - a, 1.0 + a, -(b * b)))
    turn = where(b.is_("uno", b), NAN, copy_sign(constant_like(b, pi / 2), b))
    imag = where(is_large & (is_infinite | ~_has_nan(z)), turn, imag)
    return copy_sign(real, z[0]), imag


asinh = rotate_by_i(asin)
atan = rotate_by_i(atanh)

FUNCTIONS = {
    "asin": asin, "acos": acos, "atan": atan, "asinh": asinh, "acosh": acosh, "atanh": atanh,
}  # fmt: skip
