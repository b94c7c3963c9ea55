"""The error function and related functions."""

import math

from shardir.backends.cpu.codegen.llvm_text import LLVMValue
from shardir.backends.cpu.kernels.math.coefficients import POLYNOMIALS
from shardir.backends.cpu.kernels.math.exponential import (
    LN2_PARTS,
    LOG2_E,
    exp,
    exp_minus_one,
    reduce_by_ln2,
)
from shardir.backends.cpu.kernels.math.logarithm import log1p
from shardir.backends.cpu.kernels.math.lookup_tables import (
    has_permutations,
    has_register_tables,
    lookup,
    piecewise_polynomial,
)
from shardir.backends.cpu.kernels.math.vector_arithmetic import (
    INFINITY,
    NAN,
    FunctionTable,
    absolute_value,
    bits_of,
    clamp_above,
    clamp_below,
    constant_like,
    copy_sign,
    fast_two_sum,
    fma,
    horner,
    polynomial,
    round_product_to_integer,
    scale_by_power_of_two,
    square_root,
    two_product,
    where,
)
from shardir.ops.elementwise.special import GILES_CENTRE, GILES_TAIL

ERFC_UNDERFLOW_SINGLE = 10.25
"""From here on erfc is 0 in f32."""
PIECE_INDEX_SHIFT = 21
ERFC_PIECE_OFFSET = 0.75
ERFC_PIECE_BASES = (
    1.4999969005584717, 2.000000238418579, 2.499999523162842, 2.9999983310699463,
    3.7500967979431152, 4.75001335144043, 5.749992847442627, 6.749990463256836,
    8.24999713897705, 9.750024795532227, 0.0, 0.18749983608722687,
    0.3749993145465851, 0.6250006556510925, 0.87501060962677, 1.124991774559021,
)  # fmt: skip
"""A number of each piece whose exp(x^2) erfc(x) is within a hundredth of an ulp of an f32 number.

The index consists of the two lowest bits of the exponent of |x| + `ERFC_PIECE_OFFSET`, a number
from 3/4 to 11, and the first two of the fraction. Numbers below 1 have the exponent of those from 8
on modulo 4, and other bits of the fraction.
"""

ERF_SATURATION_SINGLE = 3.95
"""From here on erf is 1 in f32."""
ERF_PIECE_SCALE = 0.264
ERF_PIECE_BASES = (
    0.3300009071826935, 0.46199968457221985, 0.5940040946006775, 0.7260047197341919,
    0.9240015745162964, 1.1880067586898804, 1.4520072937011719, 1.7159981727600098,
    2.111988067626953, 2.6399924755096436, 3.1681113243103027, 3.6910030841827393,
    0.0, 0.09900060296058655, 0.16500224173069, 0.23099970817565918,
)  # fmt: skip
"""A number of each piece whose erf is within a hundredth of an ulp of an f32 number; the pieces are
selected by the two lowest bits of the exponent of 1 + |x| / `ERF_PIECE_SCALE` and the first two of
the fraction: the pieces below `ERF_PIECE_SCALE` are the last ones."""


def erf(x: LLVMValue, grade: str) -> LLVMValue:
    """Return erf: an odd polynomial near 0; beyond, 1 - erfc, for f32 as the exponential of a
    polynomial. If tables are in registers, f32 takes one of several polynomials."""
    if grade == "f32" and has_permutations(x.function.machine):
        return _erf_by_pieces(x)
    a = absolute_value(x)
    z = a * a
    bound = 0.92 if grade == "f32" else 1.0
    near = fma(a, polynomial(clamp_above(z, bound * bound), "erf", grade), a)
    if grade == "f32":
        inside = clamp_above(a, ERF_SATURATION_SINGLE)
        outer_value = 1.0 - exp(inside * polynomial(inside, "erf_tail", grade), grade)
    else:
        outer_value = 1.0 - erfc_positive(clamp_above(a, 6.0), grade)
    return copy_sign(where(a.is_("olt", bound), near, outer_value), x)


def _erf_by_pieces(x: LLVMValue) -> LLVMValue:
    """Return erf(base) + d P(d) with d = |x| - base; next to 0 it is |x| + |x| P(|x|)."""
    a = clamp_above(absolute_value(x), ERF_SATURATION_SINGLE)
    place = fma(a, 1 / ERF_PIECE_SCALE, 1.0)
    index = bits_of(place) >> PIECE_INDEX_SHIFT
    d = a - lookup(index, "shardir_erf_bases", ERF_PIECE_BASES)
    value = lookup(index, "shardir_erf_values", [math.erf(base) for base in ERF_PIECE_BASES])
    value = where(place.is_("olt", 1.25), a, value)
    return copy_sign(fma(d, piecewise_polynomial(d, index, "erf"), value), x)


def erfc_positive(x: LLVMValue, grade: str) -> LLVMValue:
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
    above, lost = fast_two_sum(constant_like(x, first), t * horner(t, others))
    below, more = fast_two_sum(x * 2.0, constant_like(x, 1.0))
    inverse = 1.0 / below
    quotient = above * inverse
    rest = fma(-quotient, below, above) + fma(-quotient, more, lost)
    r, k, number = reduce_by_ln2(clamp_below(-square, -746.0), -low)
    part = exp_minus_one(r, grade)
    return scale_by_power_of_two(quotient + fma(part, quotient, rest * inverse), k, number)


def erfc(x: LLVMValue, grade: str) -> LLVMValue:
    """Return 1 - erf(x) without cancellation."""
    if grade == "f32":
        return _erfc_by_pieces(x)
    a = clamp_above(absolute_value(x), 30.0)
    right = erfc_positive(where(a.is_("olt", 0.5), 0.5, a), grade)
    outer_value = where(x.is_("olt", 0.0), 2.0 - right, right)
    small = where(a.is_("olt", 0.5), x, 0.0)
    near = 1.0 - fma(small, polynomial(small * small, "erf", grade), small)
    return where(a.is_("olt", 0.5), near, outer_value)


def _erfc_by_pieces(x: LLVMValue) -> LLVMValue:
    """Return exp(-x^2) times exp(x^2) erfc(x), which is W + d P(d) with d = |x| - base.

    All terms except W are small, so that the last rounding error is the largest. That of x^2 is
    added to the exponent. Without tables in registers, so many instructions look up numbers that
    the latency of Horner's rule limits the speed: on a Zen 4 limited to AVX2, pairs of terms take
    0.93 of the time.
    """
    a = clamp_above(absolute_value(x), ERFC_UNDERFLOW_SINGLE)
    index = bits_of(a + ERFC_PIECE_OFFSET) >> PIECE_INDEX_SHIFT
    d = a - lookup(index, "shardir_erfc_bases", ERFC_PIECE_BASES)
    value = lookup(index, "shardir_erfc_values", [scaled_erfc(b) for b in ERFC_PIECE_BASES])
    in_pairs = not has_register_tables(x.function.machine)
    change = d * piecewise_polynomial(d, index, "erfc", in_pairs)
    square, low = two_product(a, a)
    high, rest = LN2_PARTS[True]
    number, k = round_product_to_integer(square, -LOG2_E)
    r = fma(number, -high, -square) + fma(number, -rest, -low)
    part = fma(r * r, polynomial(r, "exp_factor", "f32"), r)
    right = value + fma(value + change, part, change)
    right = scale_by_power_of_two(right, k, number)
    return where(x.is_("olt", 0.0), 2.0 - right, right)


def scaled_erfc(x: float) -> float:
    """Return exp(x^2) erfc(x)."""
    return math.exp(x * x) * math.erfc(x)


def erf_inv(x: LLVMValue, grade: str) -> LLVMValue:
    """Return x times a polynomial in w = -log(1 - x^2) or its root (the branches of M. Giles,
    2012)."""
    square, low = two_product(x, x)
    w = -log1p(-square, grade, -low)
    central = w.is_("olt", 6.25)
    s = square_root(where(central, constant_like(x, 9.0), w))
    factor = polynomial(s - 3.25, "erf_inv_middle", grade)
    if grade == "f64":
        factor = where(s.is_("ogt", 4.0), polynomial(s - 5.0, "erf_inv_high", grade), factor)
    near = polynomial(where(central, w, 0.0) - 3.125, "erf_inv_low", grade)
    value = x * where(central, near, factor)
    value = where(
        absolute_value(x).is_("oeq", 1.0), copy_sign(constant_like(x, INFINITY), x), value
    )
    return where(absolute_value(x).is_("ugt", 1.0), NAN, value)


def erf_inv_like_xla(x: LLVMValue, grade: str) -> LLVMValue:
    """Return erf_inv of f32 by the steps of `shardir.ops.elementwise.special`, so that random
    numbers equal JAX's."""
    if grade != "f32":
        return erf_inv(x, grade)
    w = -log1p(-(x * x), "f32")
    centre = w.is_("olt", 5.0)
    w = where(centre, w - 2.5, square_root(where(centre, constant_like(x, 9.0), w)) - 3.0)
    value = constant_like(x, 0.0)
    for near, far in zip(GILES_CENTRE, GILES_TAIL, strict=True):
        value = value * w + where(centre, constant_like(x, near), constant_like(x, far))
    value = value * x
    return where(absolute_value(x).is_("oeq", 1.0), copy_sign(constant_like(x, INFINITY), x), value)


FUNCTIONS: FunctionTable = {
    "erf": (1, erf),
    "erfc": (1, erfc),
    "erf_inv": (1, erf_inv),
    "erf_inv_xla": (1, erf_inv_like_xla),
}
