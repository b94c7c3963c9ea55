"""exp and related functions: 2^k times a polynomial of the remainder (Cody and Waite, 1980).

The remainder x - k ln 2 is computed with ln 2 in two parts and fused products.
"""

from math import log2
from typing import NamedTuple

import numpy as np

from shardir.backends.cpu.codegen.llvm_text import LLVMValue
from shardir.backends.cpu.kernels.math.lookup_tables import lookup
from shardir.backends.cpu.kernels.math.vector_arithmetic import (
    FRACTION_BITS,
    INFINITY,
    FunctionTable,
    absolute_value,
    bits_of,
    clamp_above,
    clamp_below,
    constant_like,
    copy_sign,
    fast_two_sum,
    float_of,
    fma,
    has_scaling_registers,
    is_single,
    polynomial,
    power_of_two,
    round_product_to_integer,
    round_to_integer,
    scale_by_power_of_two,
    scale_registers,
    select_rare,
    where,
)

LN2_PARTS = {True: (0.693145751953125, 1.428606765330187e-06),
       False: (0.6931471805599453, 2.3190468138462996e-17)}  # fmt: skip
"""ln 2 in two parts; in f32 the first one is short, so that its products with k are exact."""
LOG2_E = log2(2.718281828459045)
EXP_TABLE_ENTRIES = 16
"""Entries of the table of `_exp_by_table`, which a register of AVX-512 holds."""


class Reduction(NamedTuple):
    """The number k ln 2 + r."""

    r: LLVMValue
    k: LLVMValue
    """The integer k."""
    number: LLVMValue
    """k as a float."""


def reduce_by_ln2(x: LLVMValue, low: LLVMValue | None = None) -> Reduction:
    """Return the reduction of x (+ low). |x| must be small enough for k to be exact."""
    high, rest = LN2_PARTS[is_single(x)]
    number, k = round_product_to_integer(x, LOG2_E)
    r = fma(number, -high, x)
    if low is not None:
        r = r + low
    return Reduction(fma(number, -rest, r), k, number)


def exp_minus_one(r: LLVMValue, grade: str) -> LLVMValue:
    """Return e^r - 1 for |r| up to ln 2 / 2."""
    return fma(r * r, polynomial(r, "exp", grade), r)


def exp(x: LLVMValue, grade: str, low: LLVMValue | None = None) -> LLVMValue:
    """Return e^(x + low)."""
    least, most = (-104.0, 89.0) if is_single(x) else (-746.0, 710.0)
    inside = clamp_above(clamp_below(x, least), most)
    if is_single(x) and has_scaling_registers(x.function.machine):
        return _exp_by_table(inside, low)
    r, k, number = reduce_by_ln2(inside, low)
    return scale_by_power_of_two(1.0 + exp_minus_one(r, grade), k, number)


def _exp_by_table(x: LLVMValue, low: LLVMValue | None) -> LLVMValue:
    """Return e^(x + low) as 2^k times a root of two times e^r, with |r| up to ln 2 / 32.

    The short polynomial takes fewer fused products than the table, which is in registers, takes
    other instructions. An entry is the sum of two f32 numbers, of which the second one corrects the
    rounding of the first.
    """
    shift = 1.5 * 2.0 ** FRACTION_BITS["float"] / EXP_TABLE_ENTRIES
    scaled = fma(x, LOG2_E, shift)
    number = scaled - shift
    high, rest = LN2_PARTS[True]
    r = fma(number, -high, x)
    if low is not None:
        r = r + low
    r = fma(number, -rest, r)
    powers = [2.0 ** (j / EXP_TABLE_ENTRIES) for j in range(EXP_TABLE_ENTRIES)]
    rounded = [float(np.float32(power)) for power in powers]
    lost = [power - near for power, near in zip(powers, rounded, strict=True)]
    root = lookup(bits_of(scaled), "shardir_exp_roots", rounded)
    correction = lookup(bits_of(scaled), "shardir_exp_corrections", lost)
    part = fma(r * r, polynomial(r, "exp_near", "f32"), r)
    return scale_registers(root + fma(root, part, correction), number)


def exp2(x: LLVMValue, grade: str, low: LLVMValue | None = None) -> LLVMValue:
    """Return 2^(x + low)."""
    least, most = (-151.0, 129.0) if is_single(x) else (-1076.0, 1025.0)
    inside = clamp_above(clamp_below(x, least), most)
    number, k = round_to_integer(inside)
    r = inside - number if low is None else inside - number + low
    return scale_by_power_of_two(fma(r, polynomial(r, "exp2", grade), 1.0), k, number)


def exp2_of_normal(x: LLVMValue, low: LLVMValue) -> LLVMValue:
    """Return 2^(x + low) if the result is certain to be a normal f64."""
    k, integer = round_to_integer(x + low)
    r = (x - k) + low
    value = fma(r, polynomial(r, "exp2", "f64"), 1.0)
    return float_of(bits_of(value) + (integer << 52))


def expm1_parts(x: LLVMValue, grade: str) -> tuple[LLVMValue, LLVMValue]:
    """Return e^x - 1, and its rounding error; -0 gives +0, subnormals lose a bit.

    Half of it is summed, as 2^k may overflow even if the result does not.
    """
    least, most = (-18.0, 89.0) if is_single(x) else (-38.0, 710.0)
    r, k, _ = reduce_by_ln2(clamp_above(clamp_below(x, least), most))
    p, p_low = fast_two_sum(r, r * r * polynomial(r, "exp", grade))
    half = power_of_two(k - 1)
    whole, low = fast_two_sum(half - 0.5, half * p)
    return 2.0 * whole, 2.0 * fma(half, p_low, low)


def expm1(x: LLVMValue, grade: str) -> LLVMValue:
    """Return e^x - 1."""
    if is_single(x):
        r, k, _ = reduce_by_ln2(x)
        power = power_of_two(k)
        part = exp_minus_one(r, grade)
        value = copy_sign(fma(power, part, power - 1.0), x)
        return select_rare(
            absolute_value(x).is_("uge", 87.0), value, lambda: _expm1_accurate(x, grade)
        )
    return _expm1_accurate(x, grade)


def _expm1_accurate(x: LLVMValue, grade: str) -> LLVMValue:
    whole, low = expm1_parts(x, grade)
    value = where(whole.is_("oeq", INFINITY), whole, whole + low)
    return where(absolute_value(x).is_("olt", 2.0**-54), x, value)


def logistic(x: LLVMValue, grade: str) -> LLVMValue:
    """Return 1 / (1 + e^-x) from e^-|x|, with the rounding error of the quotient corrected."""
    least = -104.0 if is_single(x) else -746.0
    r, k, number = reduce_by_ln2(clamp_below(-absolute_value(x), least))
    one = constant_like(x, 1.0)
    high, low = fast_two_sum(one, exp_minus_one(r, grade))
    e, rest = (scale_by_power_of_two(each, k, number) for each in (high, low))
    whole, lost = fast_two_sum(one, e)
    inverse = 1.0 / whole
    correction = fma(-inverse, lost + rest, fma(-inverse, whole, 1.0))
    inverse = fma(inverse, correction, inverse)
    return where(x.is_("olt", 0.0), fma(e, inverse, rest * inverse), inverse)


def sinh(x: LLVMValue, grade: str) -> LLVMValue:
    """Return sinh: an odd polynomial below 1; above, E / 2 - 1 / (2 E) with E = e^|x|."""
    if is_single(x):
        odd, even, up, down = _hyperbolic_parts(x, grade)
        difference = up - down
        value = copy_sign(difference + fma(odd, up + down, even * difference), x)
        return select_rare(absolute_value(x).is_("uge", 87.0), value, lambda: _sinh_large(x, grade))
    a = absolute_value(x)
    z = a * a
    near = fma(a * z, polynomial(z, "sinh", grade), a)
    return where(a.is_("olt", 1.0), copy_sign(near, x), _sinh_large(x, grade))


def _sinh_large(x: LLVMValue, grade: str) -> LLVMValue:
    half = _half_exp(absolute_value(x), grade)
    return copy_sign(half - 0.25 / half, x)


def cosh(x: LLVMValue, grade: str) -> LLVMValue:
    """Return E / 2 + 1 / (2 E) with E = e^|x|."""
    if is_single(x):
        odd, even, up, down = _hyperbolic_parts(x, grade)
        value = up + fma(odd, up - down, fma(even, up + down, down))
        return select_rare(absolute_value(x).is_("uge", 87.0), value, lambda: _cosh_large(x, grade))
    return _cosh_large(x, grade)


def _cosh_large(x: LLVMValue, grade: str) -> LLVMValue:
    half = _half_exp(absolute_value(x), grade)
    return half + 0.25 / half


def _hyperbolic_parts(
    x: LLVMValue, grade: str
) -> tuple[LLVMValue, LLVMValue, LLVMValue, LLVMValue]:
    """Return sinh(r), cosh(r) - 1, 2^k / 2 and 2^-k / 2, for |x| below 87.

    By the addition theorems sinh(x) is the sum of both halves times sinh(r) plus their difference
    times cosh(r), and cosh(x) vice versa: without a division or a branch.
    """
    r, k, _ = reduce_by_ln2(x)
    z = r * r
    odd = fma(r * z, polynomial(z, "sinh_near", grade), r)
    even = z * polynomial(z, "cosh_near", grade)
    return odd, even, power_of_two(k - 1), power_of_two(-1 - k)


def _half_exp(x: LLVMValue, grade: str) -> LLVMValue:
    """Return e^x / 2, correct even where e^x overflows."""
    inside = clamp_above(x, 91.0 if is_single(x) else 712.0)
    r, k, number = reduce_by_ln2(inside)
    value = scale_by_power_of_two(1.0 + exp_minus_one(r, grade), k - 1, number - 1.0)
    return where(x.is_("oeq", INFINITY), INFINITY, value)


FUNCTIONS: FunctionTable = {
    "exp": (1, exp), "exp2": (1, exp2), "expm1": (1, expm1), "logistic": (1, logistic),
    "sinh": (1, sinh), "cosh": (1, cosh),
}  # fmt: skip
