"""tanh of f32: by pieces where lanes choose from tables in registers, by e^2x elsewhere."""

import math

from shardir.backends.cpu.native.llvm.text import Value
from shardir.backends.cpu.native.vector.arithmetic import (
    Functions,
    at_most,
    bits_of,
    fma,
    is_single,
    polynomial,
    power_of_two,
    signed_as,
    size,
    where,
)
from shardir.backends.cpu.native.vector.exponential import reduced, tanh_double
from shardir.backends.cpu.native.vector.pieces import chosen
from shardir.backends.cpu.native.vector.tables import has_registers, looked_up

END = 10.0
"""tanh is 1 here, in f32."""
LEAST = 0x3D800000
"""The bits of 1/16. Numbers below are of the same piece as it."""
SHIFT = 22
BASES = (
    2.5003089904785156, 3.5000295639038086, 5.00009822845459, 7.0, 10.0, 11.003813743591309, 0.0,
    0.10937631875276566, 0.15625424683094025, 0.21875740587711334, 0.3125048875808716,
    0.43750306963920593, 0.6250293254852295, 0.875001847743988, 1.2500032186508179,
    1.7500572204589844,
)  # fmt: skip
"""A number of each piece whose tanh is one of f32 but for a tenth of its ulp.

By the four lowest bits of the exponent and the first of the fraction: from 2 on, of which the last
is beyond the end, and then up to 2.
"""


def tanh(x: Value, grade: str) -> Value:
    if not is_single(x):
        return tanh_double(x, grade)
    return _by_pieces(x) if has_registers() else _by_exponential(x)


def _by_pieces(x: Value) -> Value:
    """tanh(base) + d P(d) of d = |x| - base."""
    a = at_most(size(x), END)
    bits = bits_of(a)
    index = x.function.intrinsic("smax", bits, x.function.value(LEAST, bits.type)) >> SHIFT
    d = a - looked_up(index, "shardir_tanh_bases", BASES)
    value = looked_up(index, "shardir_tanh_values", [math.tanh(base) for base in BASES])
    return signed_as(fma(d, chosen(d, index, "tanh"), value), x)


def _by_exponential(x: Value) -> Value:
    """E / (E + 2) of E = e^2|x| - 1 below tanh(x) = 1/2, and 1 - 2 / (E + 2) beyond.

    What the first quotient lacks by the rounding of the sum is made good, as if the sum were 2:
    it matters most where it is.
    """
    a = size(x)
    r, k = reduced(2.0 * at_most(a, END))
    power = power_of_two(k)
    part = fma(power, fma(r * r, polynomial(r, "exp", "f32"), r), power - 1.0)
    below = part + 2.0
    far = a.is_("ogt", 0.55)
    ratio = where(far, -2.0, part) / below
    lost = part - (below - 2.0)
    near = fma(ratio * lost, -0.5, ratio)
    return signed_as(where(far, 1.0 + ratio, near), x)


FUNCTIONS: Functions = {"tanh": (1, tanh)}
