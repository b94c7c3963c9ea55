"""Quotients and remainders of integers, for which there are no vector instructions."""

from shardir.backends.cpu.codegen.llvm_text import LLVMValue, element_type, lane_count, vector_type
from shardir.backends.cpu.kernels.math.application import Divisor, OpApplication
from shardir.backends.cpu.kernels.math.registers import VectorValue
from shardir.ir.types import SIGNED

TYPE_BITS = {"i1": 1, "i8": 8, "i16": 16, "i32": 32, "i64": 64, "float": 32, "double": 64}


def prepare_divisor(y: LLVMValue, dtype: str) -> Divisor:
    """Precompute divisors; short integers are divided as floats of twice their bits, times 1 / y.

    The inverse is enlarged by more than all rounding errors, so that no exact quotient is missed;
    an inexact quotient is further from the next integer than that, by at least 1 / x.
    """
    f, signed = y.function, dtype in SIGNED
    none = y.is_("eq", 0)
    turning = y.is_("eq", -1) if signed else None
    safe = f.select(none if turning is None else none | turning, 1, y)
    width, count = TYPE_BITS[element_type(y.type)], lane_count(y.type)
    if width == 64:
        return Divisor(none, turning, safe, None)
    wide = vector_type("float" if width <= 16 else "double", count)
    number = safe.to(wide, "sitofp" if signed else "uitofp")
    above = 1 + (2.0**-20 if width <= 16 else 2.0**-48)
    return Divisor(none, turning, safe, f.value(above, wide) / number)


def prepare_invariant_divisor(y: LLVMValue, dtype: str) -> Divisor:
    """Precompute divisors that are equal in all lanes, for many quotients.

    Unsigned ones become multipliers. For bytes these are 2^16 / y, rounded up, whose error is less
    than 1 / 255 of 2^16 / y for each. For words of N bits, 16 or 32, they are the fraction of 2^(N
    + n) / y, rounded up, with 2^n the first power of 2 that is at least y: T. Granlund and P.
    Montgomery, "Division by invariant integers using multiplication" (1994).
    """
    f, count = y.function, lane_count(y.type)
    by = prepare_divisor(y, dtype)
    if dtype not in ("u8", "u16", "u32") or count == 1:
        return by
    first = f.emit(f"extractelement {by.safe.type} {by.safe}, i64 0", element_type(y.type))
    number = first.to("i64", "zext")
    number = f.select(number.is_("eq", 1), 2, number)
    one = by.safe.is_("eq", 1)
    if dtype == "u8":
        scale = (f.value(65535, "i64") // number + 1).to("i16", "trunc")
        return by._replace(inverse=f.splat(scale, count // 2), is_one=one)
    defined = LLVMValue("false", "i1", f)
    digits = 64 - f.intrinsic("ctlz", number - 1, defined)
    word = element_type(by.safe.type)
    fraction = ((f.value(1, "i64") << digits) - number) << TYPE_BITS[word]
    scale, shift = (each.to(word, "trunc") for each in (fraction // number + 1, digits - 1))
    return by._replace(inverse=f.splat(scale, count), is_one=one, shift=f.splat(shift, count))


def divide_rule(a: OpApplication) -> VectorValue:
    """Return the quotient rounded towards zero; -1 for a divisor of 0."""
    x, y = a.values
    by = a.divisor or prepare_divisor(y, a.dtype)
    result = _quotient(x, by, a.is_signed)
    if by.is_minus_one is not None:
        result = a.function.select(by.is_minus_one, -x, result)
    return a.function.select(by.is_zero, -1, result)


def remainder_rule(a: OpApplication) -> VectorValue:
    """Return x - (x / y) y, which is 0 for a divisor of -1; the library computes that of floats."""
    x, y = a.values
    by = a.divisor or prepare_divisor(y, a.dtype)
    return a.function.select(by.is_zero, x, x - _quotient(x, by, a.is_signed) * by.safe)


def _quotient(x: LLVMValue, by: Divisor, signed: bool) -> LLVMValue:
    if by.inverse is None:
        return x / by.safe if signed else x // by.safe
    if by.is_one is not None:
        many = (
            _byte_quotient(x, by.inverse)
            if by.shift is None
            else _word_quotient(x, by.inverse, by.shift)
        )
        return x.function.select(by.is_one, x, many)
    into, back = ("sitofp", "fptosi") if signed else ("uitofp", "fptoui")
    return (x.to(by.inverse.type, into) * by.inverse).to(x.type, back)


def _byte_quotient(x: LLVMValue, inverse: LLVMValue) -> LLVMValue:
    """Divide the low and the high byte of each word in place, without unpacking."""
    words = x.to(inverse.type, "bitcast")
    low, high = _upper_half(words & 0xFF, inverse), _upper_half(words & -256, inverse)
    return (low | (high & -256)).to(x.type, "bitcast")


def _word_quotient(x: LLVMValue, inverse: LLVMValue, shift: LLVMValue) -> LLVMValue:
    part = _upper_half(x, inverse)
    return (part + ((x - part) >> 1)) >> shift


def _upper_half(x: LLVMValue, y: LLVMValue) -> LLVMValue:
    """Return the upper half of a product of words."""
    width = TYPE_BITS[element_type(x.type)]
    double = vector_type(f"i{2 * width}", lane_count(x.type))
    return ((x.to(double, "zext") * y.to(double, "zext")) >> width).to(x.type, "trunc")
