"""tanh: piecewise polynomials for f32 with tables in registers, and by e^2x elsewhere."""

import math

from shardir.backends.cpu.codegen.llvm_text import LLVMValue
from shardir.backends.cpu.kernels.math.exponential import (
    LN2_PARTS,
    LOG2_E,
    exp_minus_one,
    reduce_by_ln2,
)
from shardir.backends.cpu.kernels.math.lookup_tables import (
    has_register_tables,
    lookup,
    piecewise_polynomial,
)
from shardir.backends.cpu.kernels.math.vector_arithmetic import (
    FunctionTable,
    absolute_value,
    bits_of,
    clamp_above,
    copy_sign,
    fma,
    is_single,
    polynomial,
    power_of_two,
    round_product_to_integer,
    where,
)

SATURATION_SINGLE = 10.0
"""From here on tanh is 1 in f32."""
SATURATION_DOUBLE = 22.0
"""From here on tanh is 1 in f64."""
FIRST_PIECE_BITS = 0x3D800000
"""The bits of 1/16. Smaller numbers belong to the same piece."""
PIECE_INDEX_SHIFT = 22
PIECE_BASES = (
    2.5003089904785156, 3.5000295639038086, 5.00009822845459, 7.0, 10.0, 11.003813743591309, 0.0,
    0.10937631875276566, 0.15625424683094025, 0.21875740587711334, 0.3125048875808716,
    0.43750306963920593, 0.6250293254852295, 0.875001847743988, 1.2500032186508179,
    1.7500572204589844,
)  # fmt: skip
"""A number of each piece whose tanh is within a tenth of an ulp of an f32 number.

The index consists of the four lowest bits of the exponent and the first one of the fraction: first
the pieces from 2 on, of which the last is beyond saturation, then those up to 2.
"""


def tanh(x: LLVMValue, grade: str) -> LLVMValue:
    if is_single(x) and has_register_tables(x.function.machine):
        return _tanh_by_pieces(x)
    return _tanh_by_exponential(x, grade)


def _tanh_by_pieces(x: LLVMValue) -> LLVMValue:
    """Return tanh(base) + d P(d) with d = |x| - base."""
    a = clamp_above(absolute_value(x), SATURATION_SINGLE)
    bits = bits_of(a)
    index = (
        x.function.intrinsic("smax", bits, x.function.value(FIRST_PIECE_BITS, bits.type))
        >> PIECE_INDEX_SHIFT
    )
    d = a - lookup(index, "shardir_tanh_bases", PIECE_BASES)
    value = lookup(index, "shardir_tanh_values", [math.tanh(base) for base in PIECE_BASES])
    return copy_sign(fma(d, piecewise_polynomial(d, index, "tanh"), value), x)


def _tanh_by_exponential(x: LLVMValue, grade: str) -> LLVMValue:
    """Return E / (E + 2) with E = e^2|x| - 1 below tanh(x) = 1/2, and 1 - 2 / (E + 2) above.

    The rounding error of the sum E + 2 in the first quotient is corrected as if the sum were 2,
    which it is where the error matters most.
    """
    a = absolute_value(x)
    if is_single(x):
        r, k, _ = reduce_by_ln2(2.0 * clamp_above(a, SATURATION_SINGLE))
        p = exp_minus_one(r, grade)
    else:
        r, k = _reduce_to_positive(2.0 * clamp_above(a, SATURATION_DOUBLE))
        p = fma(r * r, polynomial(r, "exp_right", grade), r)
    power = power_of_two(k)
    part = fma(power, p, power - 1.0)
    below = part + 2.0
    is_large = a.is_("ogt", 0.55)
    ratio = where(is_large, -2.0, part) / below
    lost = part - (below - 2.0)
    near = fma(ratio * lost, -0.5, ratio)
    return copy_sign(where(is_large, 1.0 + ratio, near), x)


def _reduce_to_positive(x: LLVMValue) -> tuple[LLVMValue, LLVMValue]:
    """Return x = k ln 2 + r with r from -0.007 to 0.687, so that 2^k e^r - 1 has no
    cancellation."""
    high, rest = LN2_PARTS[False]
    k, integer = round_product_to_integer(x - 0.34, LOG2_E)
    return fma(k, -rest, fma(k, -high, x)), integer


FUNCTIONS: FunctionTable = {"tanh": (1, tanh)}
