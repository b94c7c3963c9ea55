"""The error function and related functions."""

from shardir.backends.cpu.native.llvm.text import Value
from shardir.backends.cpu.native.vector.arithmetic import (
    INFINITY,
    NAN,
    Functions,
    at_least,
    at_most,
    constant,
    fast_two_sum,
    fma,
    horner,
    polynomial,
    root,
    scaled,
    signed_as,
    size,
    two_product,
    where,
)
from shardir.backends.cpu.native.vector.coefficients import POLYNOMIALS
from shardir.backends.cpu.native.vector.exponential import exp, reduced
from shardir.backends.cpu.native.vector.logarithm import log1p
from shardir.ops.special import GILES_CENTRE, GILES_TAIL


def erf(x: Value, grade: str) -> Value:
    """Return erf: an odd polynomial near 0; beyond, 1 - erfc, for f32 as the exponential of a
    polynomial."""
    a = size(x)
    z = a * a
    bound = 0.92 if grade == "f32" else 1.0
    near = fma(a, polynomial(at_most(z, bound * bound), "erf", grade), a)
    if grade == "f32":
        inside = at_most(a, 3.95)
        outer_value = 1.0 - exp(inside * polynomial(inside, "erf_tail", grade), grade)
    else:
        outer_value = 1.0 - erfc_right(at_most(a, 6.0), grade)
    return signed_as(where(a.is_("olt", bound), near, outer_value), x)


def erfc_right(x: Value, grade: str) -> Value:
    """Return erfc from 1/2 on: exp(-x^2) times a slowly varying function of (x - 3) / (x + 3).

    The variable is that of M. M. Shepherd and J. G. Laframboise, Math. Comp. 36 (1981). x^2 is
    computed in two parts, so that its rounding error is not magnified.
    """
    square, low = two_product(x, x)
    t = (x - 3.0) / (x + 3.0)
    if grade != "f64":
        bell = exp(-square, grade, -low)
        return bell * (polynomial(t, "erfc", grade) / fma(x, 2.0, 1.0))
    # The rounding errors of the quotient and of the exponential are added before the last rounding.
    first, *others = POLYNOMIALS["erfc.f64"]
    above, lost = fast_two_sum(constant(x, first), t * horner(t, others))
    below, more = fast_two_sum(x * 2.0, constant(x, 1.0))
    inverse = 1.0 / below
    quotient = above * inverse
    rest = fma(-quotient, below, above) + fma(-quotient, more, lost)
    r, k = reduced(at_least(-square, -746.0), -low)
    part = fma(r * r, polynomial(r, "exp", grade), r)
    return scaled(quotient + fma(part, quotient, rest * inverse), k)


def erfc(x: Value, grade: str) -> Value:
    """Return 1 - erf(x) without cancellation."""
    a = at_most(size(x), 30.0)
    right = erfc_right(where(a.is_("olt", 0.5), 0.5, a), grade)
    outer_value = where(x.is_("olt", 0.0), 2.0 - right, right)
    small = where(a.is_("olt", 0.5), x, 0.0)
    near = 1.0 - fma(small, polynomial(small * small, "erf", grade), small)
    return where(a.is_("olt", 0.5), near, outer_value)


def erf_inv(x: Value, grade: str) -> Value:
    """Return x times a polynomial in w = -log(1 - x^2) or its root (the branches of M. Giles,
    2012)."""
    square, low = two_product(x, x)
    w = -log1p(-square, grade, -low)
    central = w.is_("olt", 6.25)
    s = root(where(central, constant(x, 9.0), w))
    factor = polynomial(s - 3.25, "erf_inv_middle", grade)
    if grade == "f64":
        factor = where(s.is_("ogt", 4.0), polynomial(s - 5.0, "erf_inv_high", grade), factor)
    near = polynomial(where(central, w, 0.0) - 3.125, "erf_inv_low", grade)
    value = x * where(central, near, factor)
    value = where(size(x).is_("oeq", 1.0), signed_as(constant(x, INFINITY), x), value)
    return where(size(x).is_("ugt", 1.0), NAN, value)


def erf_inv_xla(x: Value, grade: str) -> Value:
    """Return erf_inv of f32 by the steps of `shardir.ops.special`, so that random numbers equal
    JAX's."""
    if grade != "f32":
        return erf_inv(x, grade)
    w = -log1p(-(x * x), "f32")
    centre = w.is_("olt", 5.0)
    w = where(centre, w - 2.5, root(where(centre, constant(x, 9.0), w)) - 3.0)
    value = constant(x, 0.0)
    for near, far in zip(GILES_CENTRE, GILES_TAIL, strict=True):
        value = value * w + where(centre, constant(x, near), constant(x, far))
    value = value * x
    return where(size(x).is_("oeq", 1.0), signed_as(constant(x, INFINITY), x), value)


FUNCTIONS: Functions = {
    "erf": (1, erf),
    "erfc": (1, erfc),
    "erf_inv": (1, erf_inv),
    "erf_inv_xla": (1, erf_inv_xla),
}
