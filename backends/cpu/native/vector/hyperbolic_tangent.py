"""tanh: piecewise polynomials for f32 with tables in registers, and by e^2x elsewhere."""

import math

from shardir.backends.cpu.native.llvm.text import Value
from shardir.backends.cpu.native.vector.arithmetic import (
    Functions,
    at_most,
    bits_of,
    fma,
    is_single,
    nearest_product,
    polynomial,
    power_of_two,
    signed_as,
    size,
    where,
)
from shardir.backends.cpu.native.vector.exponential import LN2, LOG2_E, reduced
from shardir.backends.cpu.native.vector.pieces import chosen
from shardir.backends.cpu.native.vector.tables import has_registers, looked_up

END = 10.0
"""From here on tanh is 1 in f32."""
END_DOUBLE = 22.0
"""From here on tanh is 1 in f64."""
LEAST = 0x3D800000
"""The bits of 1/16. Smaller numbers belong to the same piece."""
SHIFT = 22
BASES = (
    2.5003089904785156, 3.5000295639038086, 5.00009822845459, 7.0, 10.0, 11.003813743591309, 0.0,
    0.10937631875276566, 0.15625424683094025, 0.21875740587711334, 0.3125048875808716,
    0.43750306963920593, 0.6250293254852295, 0.875001847743988, 1.2500032186508179,
    1.7500572204589844,
)  # fmt: skip
"""A number of each piece whose tanh is within a tenth of an ulp of an f32 number.

The index consists of the four lowest bits of the exponent and the first one of the fraction: first
the pieces from 2 on, of which the last is beyond saturation, then those up to 2.
"""


def tanh(x: Value, grade: str) -> Value:
    if is_single(x) and has_registers():
        return _by_pieces(x)
    return _by_exponential(x, grade)


def _by_pieces(x: Value) -> Value:
    """Return tanh(base) + d P(d) with d = |x| - base."""
    a = at_most(size(x), END)
    bits = bits_of(a)
    index = x.function.intrinsic("smax", bits, x.function.value(LEAST, bits.type)) >> SHIFT
    d = a - looked_up(index, "shardir_tanh_bases", BASES)
    value = looked_up(index, "shardir_tanh_values", [math.tanh(base) for base in BASES])
    return signed_as(fma(d, chosen(d, index, "tanh"), value), x)


def _by_exponential(x: Value, grade: str) -> Value:
    """Return E / (E + 2) with E = e^2|x| - 1 below tanh(x) = 1/2, and 1 - 2 / (E + 2) above.

    The rounding error of the sum E + 2 in the first quotient is corrected as if the sum were 2,
    which it is where the error matters most.
    """
    a = size(x)
    if is_single(x):
        r, k = reduced(2.0 * at_most(a, END))
        p = fma(r * r, polynomial(r, "exp", grade), r)
    else:
        r, k = _reduced_down(2.0 * at_most(a, END_DOUBLE))
        p = fma(r * r, polynomial(r, "exp_right", grade), r)
    power = power_of_two(k)
    part = fma(power, p, power - 1.0)
    below = part + 2.0
    is_large = a.is_("ogt", 0.55)
    ratio = where(is_large, -2.0, part) / below
    lost = part - (below - 2.0)
    near = fma(ratio * lost, -0.5, ratio)
    return signed_as(where(is_large, 1.0 + ratio, near), x)


def _reduced_down(x: Value) -> tuple[Value, Value]:
    """Return x = k ln 2 + r with r from -0.007 to 0.687, so that 2^k e^r - 1 has no
    cancellation."""
    high, rest = LN2[False]
    k, integer = nearest_product(x - 0.34, LOG2_E)
    return fma(k, -rest, fma(k, -high, x)), integer


FUNCTIONS: Functions = {"tanh": (1, tanh)}
