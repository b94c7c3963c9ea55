"""Powers of f32 with a positive normal base: logarithms by a table, in two parts."""

from math import log2

from shardir.backends.cpu.codegen.llvm_text import LLVMValue
from shardir.backends.cpu.kernels.math.logarithm import (
    LOG2_E_SINGLE,
    THREE_QUARTERS_BITS,
    is_ordinary,
)
from shardir.backends.cpu.kernels.math.lookup_tables import has_register_tables, lookup
from shardir.backends.cpu.kernels.math.piecewise import split_with_avx512
from shardir.backends.cpu.kernels.math.vector_arithmetic import (
    absolute_value,
    bits_of,
    float_of,
    fma,
    polynomial,
    round_product_to_integer,
    to_float,
    two_product,
)

TABLE_STEPS = 32
"""Steps of m from 3/4 to 3/2: half of them below 1, where floats are twice as dense. The first five
bits of the fraction are the index."""


def _inverses() -> list[float]:
    """Return a number near 1 / m for each step, so short that its product with m, minus 1, is
    exact.

    m below 1 has bits down to 2^-24, above down to 2^-23; with 5 or 6 more they end at 2^-29, and
    the difference is below 2^-5. The steps on either side of 1 have the inverse 1.
    """
    found = []
    for step in range(TABLE_STEPS):
        unit, parts = (1.0, 64) if step < TABLE_STEPS / 2 else (0.5, 32)
        low, high = (unit * (1 + end / TABLE_STEPS) for end in (step, step + 1))
        found.append(1.0 if 1.0 in (low, high) else round(2 / (low + high) * parts) / parts)
    return found


TABLE_INVERSES = _inverses()
TABLE_LOG2 = [round(-log2(inverse) * 2**15) / 2**15 for inverse in TABLE_INVERSES]
"""-log2 of the inverses to 15 bits, so that sums with k are exact."""
TABLE_LOG2_RESTS = [-log2(i) - high for i, high in zip(TABLE_INVERSES, TABLE_LOG2, strict=True)]


def power_of_ordinary(x: LLVMValue, y: LLVMValue) -> tuple[LLVMValue, LLVMValue]:
    """Return 2^(y log2 x), and where it is valid: for x positive and finite, |y log2 x| up to 124.

    log2 x = k - log2 c + log2(1 + f) for c of the table and f = c m - 1, of which f - f^2 / 2 is
    computed in two parts, and so is the product with y. Subnormal x are valid with AVX-512 only.
    """
    m, exponent, unit = _split_and_exponent(x)
    index = bits_of(m) >> 18
    f = fma(lookup(index, "shardir_inverses", TABLE_INVERSES), m, -1.0)
    square, square_low = two_product(f, f)
    h = fma(square, -0.5, f)
    tail = fma(square_low, -0.5, fma(square, -0.5, f - h))
    tail = fma(f * square, polynomial(f, "log_near", "f32"), tail)
    whole, part = LOG2_E_SINGLE
    p, p_low = two_product(h, x.function.value(whole, h.type))
    p_low = fma(tail, whole, fma(h, part, p_low))
    base = fma(exponent, unit, lookup(index, "shardir_logarithms", TABLE_LOG2))
    high = base + p
    low = (p - (high - base)) + (p_low + lookup(index, "shardir_rests", TABLE_LOG2_RESTS))
    k, integer = round_product_to_integer(y, high + low)
    z = y * high
    r = (z - k) + fma(y, low, fma(y, high, -z))
    value = fma(r, polynomial(r, "exp2", "f32"), 1.0)
    ordinary = absolute_value(k).is_("olt", 125.0)
    if not has_register_tables():
        ordinary = ordinary & is_ordinary(x)
    return float_of(bits_of(value) + (integer << 23)), ordinary


def _split_and_exponent(x: LLVMValue) -> tuple[LLVMValue, LLVMValue, float]:
    """Return m from 3/4 to 3/2, k, and the unit of k, for x = m 2^k.

    AVX-512 instructions give NaN or an infinity if x is not positive and finite, and then the
    exponent is not valid.
    """
    if has_register_tables():
        return *split_with_avx512(x), 1.0
    exponent = (bits_of(x) - THREE_QUARTERS_BITS) & -(1 << 23)
    return float_of(bits_of(x) - exponent), to_float(exponent), 2.0**-23
