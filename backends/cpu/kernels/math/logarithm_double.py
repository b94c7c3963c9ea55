"""Logarithms of f64 without a division, by a table of short inverses.

x = 2^k m, and f = c m - 1 for a table entry c near 1 / m, with |f| below 2^-4.8. Entries have so
few bits that f is exact, so log x = k log 2 - log c + log(1 + f), where the table's logarithms are
in two parts, the first so short that its sum with k log 2 is exact. (The idea is that of P. Tang,
1990; the table is our own.)
"""

from shardir.backends.cpu.codegen.llvm_text import LLVMValue
from shardir.backends.cpu.kernels.math.lookup_tables import lookup
from shardir.backends.cpu.kernels.math.vector_arithmetic import (
    bits_of,
    fast_two_sum,
    float_of,
    fma,
    polynomial,
    to_float,
    two_sum,
)

ONE_BITS = 0x3FF0000000000000
FIRST_STEP_BITS = ONE_BITS - (607 << 42)
"""The bits of the least m. There are 16 steps up to 2 m, one of which contains 1; this start allows
a short inverse for each step."""
EXPONENT_UNIT = 2.0**-52
"""The unit of exponents, which are used at their position in the bits."""
INVERSES = (
    1.375, 1.34375, 1.28125, 1.21875, 1.1875, 1.15625, 1.09375, 1.0625, 1.03125, 1.0, 0.9375,
    0.890625, 0.84375, 0.796875, 0.765625, 0.71875,
)  # fmt: skip
NATURAL_LOGS = (
    -0.31845373111855224, -0.2954642128938758, -0.2478361639045943, -0.19782574332998593,
    -0.17185025692674571, -0.14518200984457508, -0.08961215868976069, -0.06062462181648698,
    -0.03077165866670839, 0.0, 0.0645385211375924, 0.11583181552509814, 0.16989903679541385,
    0.22705745063535687, 0.2670627852489815, 0.33024168687052224,
)  # fmt: skip
"""-log of the inverses, in multiples of 2^-42."""
NATURAL_RESTS = (
    1.7625431312172662e-14, 3.993416384387844e-14, 1.3029797173308663e-14,
    6.604544877082384e-14, 8.649239607212071e-14, 7.718001336828099e-14, 7.355770219435029e-14,
    5.213620639136504e-14, -4.529814257790929e-14, 0.0, -2.1225608044809997e-14,
    2.3568822182038756e-14, -1.6376276414097503e-14, -1.078736749871691e-14,
    6.371947269815667e-14, 5.4612144489920215e-14,
)  # fmt: skip
BINARY_LOGS = (
    -0.4594316186373817, -0.4262647547020606, -0.3575520046181282, -0.2854022188621457,
    -0.24792751344352837, -0.2094533656288604, -0.12928301694500988, -0.0874628412502716,
    -0.04439411935845783, 0.0, 0.09310940439149817, 0.16710998583516812, 0.2451124978365442,
    0.3275746580284249, 0.3852901558848316, 0.47643804394306244,
)  # fmt: skip
"""-log2 of the inverses, in multiples of 2^-42."""
BINARY_RESTS = (
    8.443284155858175e-14, -3.733907276649932e-14, 4.450095846656107e-14, -1.02668366941445e-13,
    -5.712484083531846e-14, -8.937120568078598e-14, 4.3421195976986995e-14,
    -6.781363655020842e-14, 4.390985973169353e-15, 0.0, -1.6703260328550802e-14,
    9.02069790225012e-14, -1.275189131300513e-14, 7.951818330761124e-14, -3.983479855974919e-14,
    -7.531150579247643e-14,
)  # fmt: skip
LN2_PARTS = (0.6931471805598903, 5.497923018708371e-14)
"""ln 2 in two parts, the first a multiple of 2^-42."""
LOG2_E_PARTS = (1.4426950408889634, 2.0355273740931033e-17)
"""1 / ln 2 in two parts."""


def split_and_index(x: LLVMValue) -> tuple[LLVMValue, LLVMValue, LLVMValue]:
    """Return m, the bits of 2^k minus those of 1, and the table index; x is positive and normal."""
    place = bits_of(x) - FIRST_STEP_BITS
    exponent = place & -(1 << 52)
    return float_of(bits_of(x) - exponent), exponent, place >> 48


def _lookup_inverse(place: LLVMValue) -> LLVMValue:
    return lookup(place, "shardir_inverses_double", INVERSES)


def log_of_ordinary(x: LLVMValue, lift: LLVMValue | None, grade: str) -> LLVMValue:
    """Return the natural logarithm of x / 2^lift; x is positive and normal."""
    m, exponent, place = split_and_index(x)
    f = fma(m, _lookup_inverse(place), -1.0)
    return _natural_log(f, _unscaled_exponent(exponent, lift), place, None, grade)


def _natural_log(
    f: LLVMValue, k: LLVMValue, place: LLVMValue, extra: LLVMValue | None, grade: str
) -> LLVMValue:
    """Return log(1 + f + extra) - log c + k ln 2 for k in units; `extra` is the rounding error of
    f."""
    whole, part = LN2_PARTS
    base = fma(k, whole * EXPONENT_UNIT, lookup(place, "shardir_natural", NATURAL_LOGS))
    rest = fma(k, part * EXPONENT_UNIT, lookup(place, "shardir_natural_rests", NATURAL_RESTS))
    rest = rest if extra is None else rest + extra
    return base + (f + fma(f * f, polynomial(f, "log_piece", grade), rest))


def log_parts(x: LLVMValue) -> tuple[LLVMValue, LLVMValue]:
    """Return the natural logarithm as a sum of two, accurate to about 2^-58; x is positive and
    normal."""
    m, exponent, place = split_and_index(x)
    f, k, (whole, part) = fma(m, _lookup_inverse(place), -1.0), to_float(exponent), LN2_PARTS
    base = fma(k, whole * EXPONENT_UNIT, lookup(place, "shardir_natural", NATURAL_LOGS))
    rest = fma(k, part * EXPONENT_UNIT, lookup(place, "shardir_natural_rests", NATURAL_RESTS))
    near, low = fast_two_sum(f, fma(f * f, polynomial(f, "log_piece", "f64"), rest))
    high, lost = two_sum(base, near)
    return high, lost + low


def log2_of_ordinary(x: LLVMValue, lift: LLVMValue | None) -> LLVMValue:
    """Return the logarithm to base 2 of x / 2^lift; x is positive and normal."""
    m, exponent, place = split_and_index(x)
    f = fma(m, _lookup_inverse(place), -1.0)
    k = _unscaled_exponent(exponent, lift)
    base = fma(k, EXPONENT_UNIT, lookup(place, "shardir_binary", BINARY_LOGS))
    rest = lookup(place, "shardir_binary_rests", BINARY_RESTS)
    rest = fma(f, LOG2_E_PARTS[1], fma(f * f, polynomial(f, "log2_piece", "f64"), rest))
    return base + fma(f, LOG2_E_PARTS[0], rest)


def _unscaled_exponent(exponent: LLVMValue, lift: LLVMValue | None) -> LLVMValue:
    return to_float(exponent if lift is None else exponent - (lift << 52))


def log1p_of_ordinary(x: LLVMValue, low: LLVMValue | None, grade: str) -> LLVMValue:
    """Return log(1 + x + low) for a sum that is positive, normal and below 2^1021; +0 for -0.

    1 + x only determines k and c: f = (1 + x) c / 2^k - 1 is rounded once.
    """
    _, exponent, place = split_and_index(1.0 + x)
    scale = _lookup_inverse(place) * float_of(ONE_BITS - exponent)
    f = fma(x, scale, scale - 1.0)
    if low is None:
        return _natural_log(f, to_float(exponent), place, None, grade)
    whole = fma(low, scale, f)
    return _natural_log(whole, to_float(exponent), place, fma(low, scale, f - whole), grade)


def log2_parts(x: LLVMValue, lift: LLVMValue | None) -> tuple[LLVMValue, LLVMValue]:
    """Return log2 of x / 2^lift as a sum of two, accurate to about 2^-64; x is positive and normal.

    f - f^2 / 2 is computed in two parts, and so is its product with log2 e.
    """
    m, exponent, place = split_and_index(x)
    f = fma(m, _lookup_inverse(place), -1.0)
    square = f * f
    h = fma(square, -0.5, f)
    tail = fma(fma(f, f, -square), -0.5, fma(square, -0.5, f - h))
    tail = fma(f * square, polynomial(f, "log_near", "f64"), tail)
    p = h * LOG2_E_PARTS[0]
    p_low = fma(tail, LOG2_E_PARTS[0], fma(h, LOG2_E_PARTS[1], fma(h, LOG2_E_PARTS[0], -p)))
    base = fma(
        _unscaled_exponent(exponent, lift),
        EXPONENT_UNIT,
        lookup(place, "shardir_binary", BINARY_LOGS),
    )
    high = base + p
    rest = lookup(place, "shardir_binary_rests", BINARY_RESTS)
    return high, (p - (high - base)) + (p_low + rest)
