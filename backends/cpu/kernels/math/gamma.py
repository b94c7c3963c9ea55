"""The logarithm of the gamma function, and its derivative.

A polynomial covers 1 to 3, to which the recurrence reduces arguments below 10; Stirling's series
covers those above (Abramowitz and Stegun 6.1.40, 6.3.18), and reflection those left of 0 (6.1.17,
6.3.7).
"""

from math import log, pi

from shardir.backends.cpu.codegen.llvm_text import LLVMValue
from shardir.backends.cpu.kernels.math.coefficients import POLYNOMIALS
from shardir.backends.cpu.kernels.math.logarithm import log_
from shardir.backends.cpu.kernels.math.logarithm_double import log_parts
from shardir.backends.cpu.kernels.math.trigonometric import cosine, sine
from shardir.backends.cpu.kernels.math.vector_arithmetic import (
    INFINITY,
    NAN,
    FunctionTable,
    absolute_value,
    clamp_above,
    constant_like,
    copy_sign,
    fast_two_sum,
    fma,
    horner,
    polynomial,
    two_product,
    where,
)

LGAMMA_SERIES = (1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188, -691 / 360360)
DIGAMMA_SERIES = (1 / 12, -1 / 120, 1 / 252, -1 / 240, 1 / 132, -691 / 32760, 1 / 12)
DIGAMMA_ROOT = (1.4616321449683622, 9.549995429965697e-17)
"""The positive root in two parts."""
MAX_RECURRENCE_STEPS = 7
"""The number of times that 1 is subtracted from a number below 10 until it is at most 3."""


def _sin_and_cos_of_pi(x: LLVMValue, grade: str) -> tuple[LLVMValue, LLVMValue]:
    """Return |sin(pi x)|, and cos(pi x) with the sign that makes their quotient the cotangent."""
    f = x.function
    rest = x - f.intrinsic("roundeven", x)
    a = absolute_value(rest)
    steep = a.is_("ogt", 0.25)
    angle = where(steep, 0.5 - a, a)
    r, low = two_product(angle, constant_like(x, pi))
    low = fma(angle, 1.2246467991473532e-16, low)
    first, second = sine(r, low, grade)[0], cosine(r, low, grade)[0]
    return where(steep, second, first), copy_sign(where(steep, first, second), rest)


def _is_pole(x: LLVMValue) -> LLVMValue:
    return x.is_("ole", 0.0) & x.function.intrinsic("floor", x).is_("oeq", x)


def lgamma(x: LLVMValue, grade: str) -> LLVMValue:
    """Return log |gamma(x)|; it is infinite at the poles 0, -1, -2, ... and at -infinity."""
    right = x.is_("ugt", 0.0)
    value = _lgamma_positive(where(right, x, 1.0 - x), grade)
    sines, _ = _sin_and_cos_of_pi(x, grade)
    value = where(right, value, log(pi) - log_(sines, grade) - value)
    return where(_is_pole(x), INFINITY, value)


def _lgamma_positive(x: LLVMValue, grade: str) -> LLVMValue:
    small, is_large = x.is_("olt", 1.0), x.is_("oge", 10.0)
    z, factor = where(small, x + 1.0, clamp_above(x, 10.0)), constant_like(x, 1.0)
    for _ in range(MAX_RECURRENCE_STEPS):
        large = z.is_("ogt", 3.0)
        z = where(large, z - 1.0, z)
        factor = where(large, factor * z, factor)
    logarithm = log_(where(is_large | small, x, factor), grade)
    past_one, past_two = where(small, x, z - 1.0), where(small, x - 1.0, z - 2.0)
    extra = where(small, -logarithm, logarithm)
    if grade == "f64":
        # Rounding errors of the polynomial and of its product with its first root.
        first, *others = POLYNOMIALS["lgamma.f64"]
        total, lost = fast_two_sum(constant_like(x, first), (z - 2.0) * horner(z - 2.0, others))
        product, correction = two_product(total, past_one)
        correction = fma(lost, past_one, correction) * past_two
        # And of the logarithm, where most of it cancels.
        cancels = x.is_("oge", 0.25) & x.is_("olt", 1.0)
        high, low = log_parts(where(cancels, x, 1.0))
        extra = where(cancels, -high, extra)
        near = fma(product, past_two, extra) + where(cancels, correction - low, correction)
    else:
        near = fma(polynomial(z - 2.0, "lgamma", grade) * past_one, past_two, extra)
    w = where(is_large, x, 10.0)
    inverse = 1.0 / w
    series = inverse * horner(inverse * inverse, LGAMMA_SERIES)
    large = fma(w - 0.5, logarithm - 1.0, (log(2 * pi) - 1) / 2 + series)
    large = where(x.is_("oeq", INFINITY), INFINITY, large)
    return where(is_large, large, near)


def digamma(x: LLVMValue, grade: str) -> LLVMValue:
    """Return the derivative of `lgamma`; NaN at the poles."""
    right = x.is_("ugt", 0.0)
    value = _digamma_positive(where(right, x, 1.0 - x), grade)
    sines, cosines = _sin_and_cos_of_pi(x, grade)
    value = where(right, value, value - pi * (cosines / sines))
    return where(_is_pole(x), NAN, value)


def _digamma_positive(x: LLVMValue, grade: str) -> LLVMValue:
    small, is_large = x.is_("olt", 1.0), x.is_("oge", 10.0)
    z, total = where(small, x + 1.0, clamp_above(x, 10.0)), constant_like(x, 0.0)
    for _ in range(MAX_RECURRENCE_STEPS):
        large = z.is_("ogt", 3.0)
        z = where(large, z - 1.0, z)
        total = where(large, total + 1.0 / z, total)
    extra = where(small, -1.0 / x, total)
    past_root = (z - DIGAMMA_ROOT[0]) - DIGAMMA_ROOT[1]
    if grade == "f64":
        # Rounding errors of x + 1, of the difference, of the polynomial and of the inverse.
        first, *others = POLYNOMIALS["digamma.f64"]
        factor, lost = fast_two_sum(constant_like(x, first), (z - 2.0) * horner(z - 2.0, others))
        rest = ((z - DIGAMMA_ROOT[0]) - past_root) - DIGAMMA_ROOT[1]
        rest = rest + where(small, x - (z - 1.0), 0.0)
        correction = where(small & x.is_("ogt", 2.0**-90), fma(extra, x, 1.0) * extra, 0.0)
        correction = correction + fma(factor, rest, lost * past_root)
        near = fma(factor, past_root, extra) + correction
    else:
        near = fma(polynomial(z - 2.0, "digamma", grade), past_root, extra)
    w = where(is_large, x, 10.0)
    inverse = 1.0 / w
    square = inverse * inverse
    large = log_(w, grade) - (0.5 * inverse + square * horner(square, DIGAMMA_SERIES))
    return where(is_large, large, near)


FUNCTIONS: FunctionTable = {"lgamma": (1, lgamma), "digamma": (1, digamma)}
