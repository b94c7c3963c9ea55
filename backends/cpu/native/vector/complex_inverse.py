"""Inverse trigonometric and hyperbolic functions of complex numbers, on pairs of f64.

The formulas are W. Kahan's, "Branch cuts for complex elementary functions" (1987), which use the
roots of 1 - z and 1 + z; if |z| is large or infinite, the logarithm of z. Branch cuts, zeros and
infinities follow C99.
"""

from math import log, pi

from shardir.backends.cpu.native.llvm.text import Value
from shardir.backends.cpu.native.vector.arithmetic import (
    INFINITY,
    NAN,
    constant,
    fma,
    signed_as,
    size,
    where,
)
from shardir.backends.cpu.native.vector.complex_functions import call, log_of, sqrt, turned
from shardir.backends.cpu.native.vector.complexes import Pair, divided

FAR = 2.0**500
"""From this magnitude on squares may overflow, and 1 is negligible beside z."""


def _roots(z: Pair) -> tuple[Pair, Pair]:
    """Return the square roots of 1 - z and 1 + z."""
    a, b = z
    return sqrt((1.0 - a, -b)), sqrt((1.0 + a, b))


def _is_far(z: Pair) -> Value:
    return size(z[0]).is_("ogt", FAR) | size(z[1]).is_("ogt", FAR)


def _is_nan(z: Pair) -> Value:
    return z[0].is_("uno", z[1])


def _direction(z: Pair) -> Pair:
    """Return z; of infinite z replace infinite parts by 1 and finite ones by 0."""
    is_infinite = _is_endless(z)
    result = []
    for part in z:
        one = where(size(part).is_("oeq", INFINITY), 1.0, constant(part, 0.0))
        result.append(where(is_infinite & part.is_("ord", part), signed_as(one, part), part))
    return result[0], result[1]


def _is_endless(z: Pair) -> Value:
    return size(z[0]).is_("oeq", INFINITY) | size(z[1]).is_("oeq", INFINITY)


def _height(z: Pair, near: Value) -> Value:
    """Return the magnitude of the imaginary part of asin and acos; `near` for ordinary z."""
    value = where(_is_far(z), log_of(z)[0] + log(2), near)
    small = size(z[0]).is_("olt", 2.0**-28) & size(z[1]).is_("olt", 2.0**-28)
    value = where(small, z[1], value)
    return where(_is_endless(z), INFINITY, value)


def asin(z: Pair) -> Pair:
    a, b = z
    (p, q), (r, s) = _roots(z)
    x, y = _direction(z)
    near = call("atan2", a, fma(p, r, -(q * s)))
    real = where(_is_far(z), call("atan2", x, size(y)), near)
    real = where(a.is_("oeq", 0.0), a, where(_is_nan(z), NAN, real))
    return real, signed_as(_height(z, call("asinh", fma(p, s, -(q * r)))), b)


def acos(z: Pair) -> Pair:
    a, b = z
    (p, q), (r, s) = _roots(z)
    x, y = _direction(z)
    real = where(_is_far(z), call("atan2", size(y), x), 2.0 * call("atan2", p, r))
    flat = where(a.is_("oeq", 0.0), pi / 2, constant(a, NAN))
    real = where(_is_nan(z), flat, real)
    return real, -signed_as(_height(z, call("asinh", fma(r, q, -(s * p)))), b)


def acosh(z: Pair) -> Pair:
    """Rotate acos to a nonnegative real part."""
    real, imag = acos(z)
    return size(imag), signed_as(real, z[1])


def atanh(z: Pair) -> Pair:
    a, b = size(z[0]), z[1]
    below = fma(1.0 - a, 1.0 - a, b * b)
    real = 0.25 * call("log1p", 4.0 * a / below)
    is_near_pole = a.is_("oeq", 1.0) & size(b).is_("olt", 2.0**-400)  # b^2 underflows
    real = where(is_near_pole, 0.5 * (log(2) - call("log", size(b))), real)
    inverse = divided((constant(a, 1.0), constant(a, 0.0)), (a, b))[0]
    is_large, is_infinite = _is_far(z), _is_endless(z)
    real = where(is_infinite, 0.0, where(is_large, inverse, real))
    real = where(z[0].is_("oeq", 0.0), 0.0, real)
    imag = 0.5 * call("atan2", 2.0 * b, fma(1.0 - a, 1.0 + a, -(b * b)))
    turn = where(b.is_("uno", b), NAN, signed_as(constant(b, pi / 2), b))
    imag = where(is_large & (is_infinite | ~_is_nan(z)), turn, imag)
    return signed_as(real, z[0]), imag


asinh = turned(asin)
atan = turned(atanh)

FUNCTIONS = {
    "asin": asin, "acos": acos, "atan": atan, "asinh": asinh, "acosh": acosh, "atanh": atanh,
}  # fmt: skip
