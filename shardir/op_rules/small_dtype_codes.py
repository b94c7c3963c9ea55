"""Conversions of small dtypes, written as operations on their bit patterns.

A bit pattern (code) is a u8 whose unused upper bits are 0. All conversions follow from the format
in `DTYPE_INFO`; they are bit-equal to those of `ml_dtypes` from version 0.7 on: floats round to
nearest, ties to even (up if the dtype has no mantissa).
"""

from shardir.ir.builder import Builder
from shardir.ir.dtypes import DTYPE_INFO, FLOATS, INTEGERS, REAL_OF, SMALL_DTYPES, SMALL_FLOATS
from shardir.ir.operation import Value

_F32 = DTYPE_INFO["f32"]
_INFINITY_BITS = 0x7F800000
_QUIET_NAN_BITS = 0x7FC00000


def number_of_code(b: Builder, code: Value, dtype: str, to: str) -> Value:
    """Return the numbers of codes of the small dtype `dtype`, converted to another dtype."""
    if to in SMALL_DTYPES:
        through = "f32" if dtype in SMALL_FLOATS else "i8"
        return code_of_number(b, number_of_code(b, code, dtype, through), to)
    number = _decode_float(b, code, dtype) if dtype in SMALL_FLOATS else _decode(b, code, dtype)
    if number.type.dtype == to:
        return number
    converted: Value = b.convert(number, result=code.type.with_dtype(to))
    return converted


def code_of_number(b: Builder, x: Value, to: str) -> Value:
    """Return the codes of numbers converted to the small dtype `to`."""
    if x.type.dtype in REAL_OF:
        x = b.real(x)
    if to in SMALL_FLOATS:
        if x.type.dtype == "f64":
            x = _round_to_odd(b, x)
        elif x.type.dtype != "f32":
            x = b.convert(x, result=x.type.with_dtype("f32"))
        return _encode_float(b, x, to)
    info, word = DTYPE_INFO[to], x.type.with_dtype("u8")
    if x.type.dtype in FLOATS:
        limits = x.type.with_dtype("i32")
        whole = b.convert(x, result=limits)
        x = b.clamp(b.full(info.min_integer, limits), whole, b.full(info.max_integer, limits))
    code: Value = x if x.type.dtype == "u8" else b.convert(x, result=word)
    return b.and_(code, b.full((1 << info.bits) - 1, word)) if info.bits < 8 else code


def _decode(b: Builder, code: Value, dtype: str) -> Value:
    """Return integers: unsigned as they are, signed with the highest bit extended."""
    if dtype not in INTEGERS or DTYPE_INFO[dtype].kind == "unsigned":
        return code
    sign = b.full(1 << DTYPE_INFO[dtype].bits - 1, code.type)
    extended = b.sub(b.xor(code, sign), sign)
    number: Value = b.bitcast(extended, result=code.type.with_dtype("i8"))
    return number


def _decode_float(b: Builder, code: Value, dtype: str) -> Value:
    """Return the codes of a small float as f32, exactly."""
    info = DTYPE_INFO[dtype]
    word, single = code.type.with_dtype("u32"), code.type.with_dtype("f32")
    bits = b.convert(code, result=word)
    has_sign = info.specials != "fnu"
    size_bits = info.exponent_bits + info.mantissa_bits
    size = b.and_(bits, b.full((1 << size_bits) - 1, word)) if has_sign else bits
    shift = _F32.mantissa_bits - info.mantissa_bits
    shifted = b.shift_left(size, b.full(shift, word)) if shift else size
    number = b.add(shifted, b.full((_F32.bias - info.bias) << _F32.mantissa_bits, word))
    if info.has_zero:
        scale = 2.0 ** (1 - info.bias - info.mantissa_bits)
        scaled = b.mul(b.convert(size, result=single), b.full(scale, single))
        is_subnormal = b.lt(size, b.full(1 << info.mantissa_bits, word))
        number = b.select(is_subnormal, b.bitcast(scaled, result=word), number)
    else:
        # The code 0 is a subnormal number of f32.
        lowest = b.full(1 << _F32.mantissa_bits - 1, word)
        number = b.select(b.eq(size, b.full(0, word)), lowest, number)
    ones = (1 << size_bits) - 1
    infinity = ones >> info.mantissa_bits << info.mantissa_bits
    if info.specials == "ieee":
        inf_bits, nan_bits = b.full(_INFINITY_BITS, word), b.full(_QUIET_NAN_BITS, word)
        number = b.select(b.eq(size, b.full(infinity, word)), inf_bits, number)
        number = b.select(b.gt(size, b.full(infinity, word)), nan_bits, number)
    elif info.specials in ("fn", "fnu"):
        is_nan = b.eq(size, b.full(ones, word))
        number = b.select(is_nan, b.full(_QUIET_NAN_BITS, word), number)
    if has_sign:
        sign = b.sub(bits, size)
        number = b.or_(number, b.shift_left(sign, b.full(_F32.bits - info.bits, word)))
    if info.specials == "fnuz":
        is_nan = b.eq(bits, b.full(1 << size_bits, word))
        number = b.select(is_nan, b.full(_QUIET_NAN_BITS | 1 << 31, word), number)
    result: Value = b.bitcast(number, result=single)
    return result


def _round_to_odd(b: Builder, x: Value) -> Value:
    """Return f64 numbers as f32, rounded to odd: rounding them again gives the result of rounding
    the f64.

    S. Boldo, G. Melquiond, "Emulation of a FMA and correctly rounded sums: proved algorithms using
    rounding to odd", IEEE Transactions on Computers 57 (2008).
    """
    single, word = x.type.with_dtype("f32"), x.type.with_dtype("u32")
    near = b.convert(x, result=single)
    back, bits, one = b.convert(near, result=x.type), b.bitcast(near, result=word), b.full(1, word)
    inward = b.select(b.gt(b.abs_(back), b.abs_(x)), b.sub(bits, one), bits)
    is_inexact = b.or_(b.lt(back, x), b.gt(back, x))
    result: Value = b.bitcast(b.select(is_inexact, b.or_(inward, one), bits), result=single)
    return result


def _encode_float(b: Builder, x: Value, to: str) -> Value:
    """Return the codes of f32 numbers rounded to a small float."""
    info = DTYPE_INFO[to]
    word = x.type.with_dtype("u32")

    def full(number: int) -> Value:
        return b.full(number, word)

    bits = b.bitcast(x, result=word)
    size = b.and_(bits, full((1 << 31) - 1))
    sign = b.shift_right_logical(bits, full(31))
    if info.has_zero:
        code = _round_size(b, size, to)
    else:
        # This dtype has the exponents of f32 and no mantissa; ml_dtypes rounds ties up.
        half = full(1 << _F32.mantissa_bits - 1)
        rounded = b.shift_right_logical(b.add(size, half), full(_F32.mantissa_bits))
        # The code 0 is 2^-127, a subnormal number of f32, and 1.5 times that is rounded up.
        middle = full(3 << _F32.mantissa_bits - 2)
        subnormal = b.select(b.ge(size, middle), full(1), full(0))
        code = b.select(b.lt(size, full(1 << _F32.mantissa_bits)), subnormal, rounded)
    code = _replace_specials(b, code, size, sign, to)
    return b.convert(code, result=x.type.with_dtype("u8"))


def _round_size(b: Builder, size: Value, to: str) -> Value:
    """Return the codes of magnitudes, in u32, without regard to overflow and NaN."""
    info, word = DTYPE_INFO[to], size.type
    single = word.with_dtype("f32")
    shift = b.full(_F32.mantissa_bits - info.mantissa_bits, word)
    is_odd = b.and_(b.shift_right_logical(size, shift), b.full(1, word))
    half = (1 << _F32.mantissa_bits - info.mantissa_bits - 1) - 1
    rounded = b.add(size, b.add(b.full(half, word), is_odd))
    rounded = b.sub(rounded, b.full((_F32.bias - info.bias) << _F32.mantissa_bits, word))
    normal = b.shift_right_logical(rounded, shift)
    # The sum aligns a small number to the least subnormal one, and rounds it.
    alignment = 1 + _F32.mantissa_bits - info.bias - info.mantissa_bits
    total = b.add(b.bitcast(size, result=single), b.full(2.0**alignment, single))
    aligned = b.full((alignment + _F32.bias) << _F32.mantissa_bits, word)
    subnormal = b.sub(b.bitcast(total, result=word), aligned)
    least_normal = b.full((_F32.bias - info.bias + 1) << _F32.mantissa_bits, word)
    code: Value = b.select(b.lt(size, least_normal), subnormal, normal)
    return code


def _replace_specials(b: Builder, code: Value, size: Value, sign: Value, to: str) -> Value:
    """Return codes with signs, and with the codes for overflow and NaN."""
    info, word = DTYPE_INFO[to], code.type
    size_bits = info.exponent_bits + info.mantissa_bits

    def full(number: int) -> Value:
        return b.full(number, word)

    largest = info.largest_bits if not info.has_infinity else info.largest_bits - 1
    beyond = b.or_(b.gt(code, full(largest)), b.ge(size, full(_INFINITY_BITS)))
    is_nan = b.gt(size, full(_INFINITY_BITS))
    nan_size = info.nan_bits & ((1 << size_bits) - 1)
    signed = b.shift_left(sign, full(size_bits))
    result: Value
    if info.specials == "ieee":
        code = b.select(beyond, full(info.largest_bits), code)
        return b.or_(b.select(is_nan, full(nan_size), code), signed)
    if info.specials == "fn":
        return b.or_(b.select(beyond, full(nan_size), code), signed)
    if info.specials == "finite":
        code = b.or_(b.select(beyond, full(largest), code), signed)
        # NaN becomes a zero of the other sign, as in ml_dtypes.
        return b.select(is_nan, b.xor(signed, full(1 << size_bits)), code)
    if info.specials == "fnuz":
        signed = b.select(b.eq(code, full(0)), full(0), signed)
        return b.select(beyond, full(info.nan_bits), b.or_(code, signed))
    is_invalid = b.or_(b.or_(beyond, b.ne(sign, full(0))), b.eq(size, full(0)))
    result = b.select(is_invalid, full(info.nan_bits), code)
    return result
