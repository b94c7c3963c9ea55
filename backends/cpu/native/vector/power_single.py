"""Powers of f32 whose base is positive and normal: logarithms by a table, in two parts."""

from math import log2

from shardir.backends.cpu.native.llvm.text import Value
from shardir.backends.cpu.native.vector.arithmetic import (
    bits_of,
    float_of,
    fma,
    nearest,
    polynomial,
    size,
    to_float,
    two_product,
)
from shardir.backends.cpu.native.vector.logarithm import LOG2_E_SINGLE
from shardir.backends.cpu.native.vector.tables import looked_up

COUNT = 32
STEP = 1 << 18
LEAST = 0x3F800000 - 18 * STEP - 0x2AAAA
"""The bits of the least m of x = m 2^k. There are 32 steps to 2 m, of which one has 1 in it, with
two thirds of it below, where numbers are twice as dense."""


def _inverses() -> list[float]:
    """A number near 1 / m for each step, of so few bits that its product with m, less 1, is exact.

    m below 1 has bits down to 2^-24, above to 2^-23; with 5 and 6 more they end at 2^-29, and the
    difference is below 2^-5.
    """
    found = []
    for step in range(COUNT):
        first, last = LEAST + step * STEP, LEAST + (step + 1) * STEP - 1
        if first <= 0x3F800000 <= last:
            found.append(1.0)
            continue
        low, high = (2.0 ** (-1 if b < 0x3F800000 else 0) * (1 + (b & 0x7FFFFF) / 2**23)
                     for b in (first, last))  # fmt: skip
        parts = 64 if low >= 1 else 32
        found.append(round(2 / (low + high) * parts) / parts)
    return found


INVERSES = _inverses()
LOGARITHMS = [round(-log2(inverse) * 2**15) / 2**15 for inverse in INVERSES]
"""-log2 of the inverses to 15 bits, so that sums with k are exact."""
RESTS = [-log2(i) - high for i, high in zip(INVERSES, LOGARITHMS, strict=True)]


def power_of_ordinary(x: Value, y: Value) -> tuple[Value, Value]:
    """2^(y log2 x), and where that is right: x positive, normal and finite, |y log2 x| below 125.

    log2 x = k - log2 c + log2(1 + f) for c of the table and f = c m - 1, of which f - f^2 / 2 is
    taken in two parts, and so is the product with y.
    """
    place = bits_of(x) - LEAST
    exponent = place & -(1 << 23)
    index = place >> 18
    f = fma(looked_up(index, "shardir_inverses", INVERSES), float_of(bits_of(x) - exponent), -1.0)
    square, square_low = two_product(f, f)
    h = fma(square, -0.5, f)
    tail = fma(square_low, -0.5, fma(square, -0.5, f - h))
    tail = fma(f * square, polynomial(f, "log_near", "f32"), tail)
    whole, part = LOG2_E_SINGLE
    p, p_low = two_product(h, x.function.value(whole, h.type))
    p_low = fma(tail, whole, fma(h, part, p_low))
    base = fma(to_float(exponent), 2.0**-23, looked_up(index, "shardir_logarithms", LOGARITHMS))
    high = base + p
    low = (p - (high - base)) + (p_low + looked_up(index, "shardir_rests", RESTS))
    z = y * high
    rest = fma(y, low, fma(y, high, -z))
    k, integer = nearest(z + rest)
    r = (z - k) + rest
    value = fma(r, polynomial(r, "exp2", "f32"), 1.0)
    ordinary = (bits_of(x) - 0x00800000).is_("ult", 0x7F000000) & size(z).is_("olt", 125.0)
    return float_of(bits_of(value) + (integer << 23)), ordinary
