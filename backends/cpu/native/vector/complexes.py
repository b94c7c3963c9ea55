"""Arithmetic of complex numbers, held as pairs of vectors."""

from shardir.backends.cpu.native.llvm.text import Value
from shardir.backends.cpu.native.vector import exact
from shardir.backends.cpu.native.vector.application import Application, Rule, each_part
from shardir.backends.cpu.native.vector.registers import Held, parts, single

Pair = tuple[Value, Value]


def multiplied(x: Pair, y: Pair) -> Pair:
    (a, b), (c, d) = x, y
    return a * c - b * d, a * d + b * c


def divided(x: Pair, y: Pair) -> Pair:
    """Smith's algorithm (Comm. ACM 5, 1962), as NumPy has it: no product overflows."""
    (a, b), (c, d) = x, y
    f = a.function
    wide, high = f.intrinsic("fabs", c), f.intrinsic("fabs", d)
    flat = wide.is_("oge", high)
    long, short = f.select(flat, c, d), f.select(flat, d, c)
    ratio = short / long
    scale = 1.0 / (long + short * ratio)
    first, second = f.select(flat, a, b), f.select(flat, b, a)
    real = (first + second * ratio) * scale
    crossed = second - first * ratio
    imag = f.select(flat, crossed, -crossed) * scale
    nothing = wide.is_("oeq", 0.0) & high.is_("oeq", 0.0)
    return f.select(nothing, a / wide, real), f.select(nothing, b / wide, imag)


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
    """Both operands, so that LLVM compares parts that are apart: else it compares what lies in
    memory, and takes the bits of that apart one by one."""
    first, second = a.pairs
    fence = a.function.intrinsic
    return (fence("arithmetic.fence", first[0]), fence("arithmetic.fence", first[1])), second


def _is_finite(a: Application) -> Held:
    real, imag = a.pairs[0]
    f, endless = a.function, float("inf")
    return f.intrinsic("fabs", real).is_("olt", endless) & f.intrinsic("fabs", imag).is_(
        "olt", endless
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
"""Operations whose operands are not complex, and whose result is."""

RULES: dict[str, Rule] = {
    "add": each_part(exact.add), "sub": each_part(exact.sub), "neg": each_part(exact.neg),
    "mul": _multiply, "div": _divide, "eq": _equal, "ne": _unequal, "is_finite": _is_finite,
    "select": _select, "complex": _complex, "conj": _conjugate,
    "real": lambda a: a.pairs[0][0], "imag": lambda a: a.pairs[0][1],
}  # fmt: skip
"""Rules for complex operands."""
