"""Arithmetic of complex numbers, as pairs of vectors."""

from shardir.backends.cpu.native.llvm.text import Value
from shardir.backends.cpu.native.vector import exact
from shardir.backends.cpu.native.vector.application import Application, Rule, each_part
from shardir.backends.cpu.native.vector.registers import Held, parts, single

Pair = tuple[Value, Value]


def multiplied(x: Pair, y: Pair) -> Pair:
    (a, b), (c, d) = x, y
    return a * c - b * d, a * d + b * c


def divided(x: Pair, y: Pair) -> Pair:
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


def _multiply(a: Application) -> Held:
    return multiplied(*a.pairs)


def _divide(a: Application) -> Held:
    return divided(*a.pairs)


def _equal(a: Application) -> Held:
    (ar, ai), (br, bi) = _apart(a)
    return ar.is_("oeq", br) & ai.is_("oeq", bi)


def _unequal(a: Application) -> Held:
    (ar, ai), (br, bi) = _apart(a)
    return ar.is_("une", br) | ai.is_("une", bi)


def _apart(a: Application) -> tuple[Pair, Pair]:
    """Return both operands with a fence, so that LLVM compares separate parts.

    Without it LLVM compares the interleaved memory, and separates the bits of the result one by
    one.
    """
    first, second = a.pairs
    fence = a.function.intrinsic
    return (fence("arithmetic.fence", first[0]), fence("arithmetic.fence", first[1])), second


def _is_finite(a: Application) -> Held:
    real, imag = a.pairs[0]
    f, infinity = a.function, float("inf")
    return f.intrinsic("fabs", real).is_("olt", infinity) & f.intrinsic("fabs", imag).is_(
        "olt", infinity
    )


def _select(a: Application) -> Held:
    condition = single(a.operands[0])
    (ar, ai), (br, bi) = parts(a.operands[1]), parts(a.operands[2])
    return a.function.select(condition, ar, br), a.function.select(condition, ai, bi)


def _complex(a: Application) -> Held:
    real, imag = a.values
    return real, imag


def _conjugate(a: Application) -> Held:
    real, imag = a.pairs[0]
    return real, -imag


MIXED = ("complex",)
"""Operations with operands that are not complex, and a complex result."""

RULES: dict[str, Rule] = {
    "add": each_part(exact.add), "sub": each_part(exact.sub), "neg": each_part(exact.neg),
    "mul": _multiply, "div": _divide, "eq": _equal, "ne": _unequal, "is_finite": _is_finite,
    "select": _select, "complex": _complex, "conj": _conjugate,
    "real": lambda a: a.pairs[0][0], "imag": lambda a: a.pairs[0][1],
}  # fmt: skip
"""Rules for complex operands."""
