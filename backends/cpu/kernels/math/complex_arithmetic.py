"""Arithmetic and absolute values of complex numbers, as pairs of vectors.

The absolute value of a c64 number is a square root, corrected by the residual of its square.
"""

from collections.abc import Callable

from shardir.backends.cpu.codegen.llvm_text import LLVMValue
from shardir.backends.cpu.kernels.math import basic_rules
from shardir.backends.cpu.kernels.math.application import OpApplication, VectorRule, apply_to_parts
from shardir.backends.cpu.kernels.math.registers import VectorValue, parts, real_vector
from shardir.backends.cpu.kernels.math.vector_arithmetic import (
    absolute_value,
    bits_of,
    fast_two_sum,
    float_of,
    fma,
    select_rare,
    square_root,
    where,
)

ComplexPair = tuple[LLVMValue, LLVMValue]


def multiply_complex(x: ComplexPair, y: ComplexPair) -> ComplexPair:
    (a, b), (c, d) = x, y
    return a * c - b * d, a * d + b * c


def divide_complex(x: ComplexPair, y: ComplexPair) -> ComplexPair:
    """Divide by Smith's algorithm (Comm. ACM 5, 1962), like NumPy: no product overflows."""
    (a, b), (c, d) = x, y
    f = a.function
    real_magnitude, imag_magnitude = f.intrinsic("fabs", c), f.intrinsic("fabs", d)
    real_dominates = real_magnitude.is_("oge", imag_magnitude)
    long, short = f.select(real_dominates, c, d), f.select(real_dominates, d, c)
    ratio = short / long
    scale = 1.0 / (long + short * ratio)
    first, second = f.select(real_dominates, a, b), f.select(real_dominates, b, a)
    real = (first + second * ratio) * scale
    crossed = second - first * ratio
    imag = f.select(real_dominates, crossed, -crossed) * scale
    is_zero = real_magnitude.is_("oeq", 0.0) & imag_magnitude.is_("oeq", 0.0)
    return f.select(is_zero, a / real_magnitude, real), f.select(is_zero, b / real_magnitude, imag)


def _multiply(a: OpApplication) -> VectorValue:
    return multiply_complex(*a.pairs)


def _divide(a: OpApplication) -> VectorValue:
    return divide_complex(*a.pairs)


def _equal(a: OpApplication) -> VectorValue:
    (ar, ai), (br, bi) = _fenced_pairs(a)
    return ar.is_("oeq", br) & ai.is_("oeq", bi)


def _unequal(a: OpApplication) -> VectorValue:
    (ar, ai), (br, bi) = _fenced_pairs(a)
    return ar.is_("une", br) | ai.is_("une", bi)


def _fenced_pairs(a: OpApplication) -> tuple[ComplexPair, ComplexPair]:
    """Return both operands with a fence, so that LLVM compares separate parts.

    Without it LLVM compares the interleaved memory, and separates the bits of the result one by
    one.
    """
    first, second = a.pairs
    fence = a.function.intrinsic
    return (fence("arithmetic.fence", first[0]), fence("arithmetic.fence", first[1])), second


def _is_finite(a: OpApplication) -> VectorValue:
    real, imag = a.pairs[0]
    f, infinity = a.function, float("inf")
    return f.intrinsic("fabs", real).is_("olt", infinity) & f.intrinsic("fabs", imag).is_(
        "olt", infinity
    )


def _select(a: OpApplication) -> VectorValue:
    condition = real_vector(a.operands[0])
    (ar, ai), (br, bi) = parts(a.operands[1]), parts(a.operands[2])
    return a.function.select(condition, ar, br), a.function.select(condition, ai, bi)


def _complex(a: OpApplication) -> VectorValue:
    real, imag = a.values
    return real, imag


def _conjugate(a: OpApplication) -> VectorValue:
    real, imag = a.pairs[0]
    return real, -imag


COMPLEX_FROM_REAL_OPS = ("complex",)
"""Operations with operands that are not complex, and a complex result."""

RULES: dict[str, VectorRule] = {
    "add": apply_to_parts(basic_rules.add),
    "sub": apply_to_parts(basic_rules.sub),
    "neg": apply_to_parts(basic_rules.neg),
    "mul": _multiply,
    "div": _divide,
    "eq": _equal,
    "ne": _unequal,
    "is_finite": _is_finite,
    "select": _select,
    "complex": _complex,
    "conj": _conjugate,
    "real": lambda a: a.pairs[0][0],
    "imag": lambda a: a.pairs[0][1],
}
"""Rules for complex operands."""


MIN_SAFE_BITS, MAX_SAFE_BITS = 0x24000000, 0x5E800000
"""The bits of 2^-55 and 2^62: squares in between neither overflow nor underflow."""
HALF_INVERSE_ROOT_MAGIC = 0x5EB759DF
"""Minus half of the bits of s, these are the bits of 1 / (2 sqrt(s)) to 1/30 (C. Lomont, 2003)."""


def abs_of_single(z: ComplexPair, elsewhere: Callable[[], LLVMValue]) -> LLVMValue:
    """Return the root of the sum of squares; use `elsewhere` for magnitudes that are not ordinary.

    The squares and their sum are computed in two parts. The root is accurate to half an ulp, and
    the residual of its square divided by 2 sqrt(s) is a fraction of an ulp, which need not be
    exact.
    """
    a, b = absolute_value(z[0]), absolute_value(z[1])
    larger = a.is_("ogt", b)
    high, low = where(larger, a, b), where(larger, b, a)
    p, q = high * high, low * low
    lost = fma(high, high, -p) + fma(low, low, -q)
    s, rest = fast_two_sum(p, q)
    near = square_root(s)
    correction = fma(-near, near, s) + (rest + lost)
    value = fma(correction, float_of(HALF_INVERSE_ROOT_MAGIC - (bits_of(s) >> 1)), near)
    return select_rare(
        (bits_of(high) - MIN_SAFE_BITS).is_("ugt", MAX_SAFE_BITS - MIN_SAFE_BITS), value, elsewhere
    )
