"""Elementwise arithmetic by NumPy's rules: sums, products, quotients and powers.

Integers wrap. An integer divided by zero gives JAX's result on CPUs: all bits set for unsigned
types, and for signed types -1 for 0 and -2 for other dividends. The remainder of such a division is
0.
"""

import numpy as np

from shardir.errors import OperationTypeError
from shardir.frontend.arrays.array_types import ArrayLike
from shardir.frontend.arrays.numpy_conversion import is_number
from shardir.frontend.dispatch.composed import composed_function
from shardir.frontend.dispatch.eager import public
from shardir.frontend.numpy.tracer_helpers.elementwise_emission import (
    apply_elementwise,
    check_not_bool,
    common_kind,
    constant_like,
    emit_elementwise,
    inexact_kind,
    require_real,
)
from shardir.frontend.source_locations import with_location
from shardir.frontend.tracing.operands import align, as_tracer, convert, operand_dtype
from shardir.frontend.tracing.tracer import Tracer
from shardir.ir.dtypes import DTYPE_INFO, UNSIGNED_BY_BITS
from shardir.ir.types import FLOATS, INEXACT, INTEGERS, UNSIGNED

MAX_UNROLLED_EXPONENT = 64
"""The largest concrete integer exponent for which a power is computed by multiplications."""


@public()
def add(x: ArrayLike, y: ArrayLike, /) -> Tracer:
    """Return x + y, elementwise; logical or of bools."""
    return apply_elementwise("add", x, y)


@public()
def subtract(x: ArrayLike, y: ArrayLike, /) -> Tracer:
    """Return x - y, elementwise. Raise `OperationTypeError` for bools."""
    check_not_bool("subtract", common_kind(x, y)[0], "logical_xor")
    return apply_elementwise("sub", x, y)


@public()
def multiply(x: ArrayLike, y: ArrayLike, /) -> Tracer:
    """Return x * y, elementwise; logical and of bools."""
    return apply_elementwise("mul", x, y)


@public()
def divide(x: ArrayLike, y: ArrayLike, /) -> Tracer:
    """Return x / y, elementwise; the quotient of integers is a float."""
    return apply_elementwise("div", x, y, kind=inexact_kind(x, y))


true_divide = divide


@public()
def negative(x: ArrayLike, /) -> Tracer:
    """Return -x, elementwise. Raise `OperationTypeError` for bools."""
    check_not_bool("negative", common_kind(x)[0], "logical_not")
    return apply_elementwise("neg", x)


@public()
def positive(x: ArrayLike, /) -> Tracer:
    """Return x."""
    return as_tracer(x)


@public()
def floor_divide(x: ArrayLike, y: ArrayLike, /) -> Tracer:
    """Return the largest integral value not above x / y, elementwise."""
    return _floored_quotient(*_align_division_operands("floor_divide", x, y))


@public()
def remainder(x: ArrayLike, y: ArrayLike, /) -> Tracer:
    """Return x - floor_divide(x, y) * y, elementwise; the result has the sign of `y`."""
    return _floored_remainder(*_align_division_operands("remainder", x, y))


mod = remainder


@public()
def divmod(x: ArrayLike, y: ArrayLike, /) -> tuple[Tracer, Tracer]:
    """Return (floor_divide(x, y), remainder(x, y)), elementwise."""
    first, divisor, number = _align_division_operands("divmod", x, y)
    quotient = _floored_quotient(first, divisor, number)
    if divisor.value.type.dtype in INTEGERS:
        rest = emit_elementwise("sub", first, emit_elementwise("mul", quotient, divisor))
        return quotient, _zero_for_zero_divisor(divisor, number, rest)
    return quotient, _floored_remainder(first, divisor, number)


@public()
def fmod(x: ArrayLike, y: ArrayLike, /) -> Tracer:
    """Return the remainder of the truncated quotient, which has the sign of `x`, elementwise."""
    first, divisor, number = _align_division_operands("fmod", x, y)
    return _zero_for_zero_divisor(divisor, number, emit_elementwise("rem", first, divisor))


ScalarOrNone = int | float | None


def _align_division_operands(
    name: str, x: ArrayLike, y: ArrayLike
) -> tuple[Tracer, Tracer, ScalarOrNone]:
    """Return two operands of one real type, bools as integers, and the value of a scalar
    divisor.
    """
    dtype, weak = common_kind(*require_real(name, x, y))
    first, second = align(x, y, kind=("i32", False) if dtype == "bool" else (dtype, weak))
    number = np.asarray(y).astype(second.value.type.numpy).item() if is_number(y) else None
    return first, second, number


def _zero_for_zero_divisor(divisor: Tracer, number: ScalarOrNone, result: Tracer) -> Tracer:
    """Return `result`, with 0 where the divisor is an integer zero."""
    if divisor.value.type.dtype not in INTEGERS or number:
        return result
    zero = constant_like(divisor, 0)
    return emit_elementwise("select", emit_elementwise("eq", divisor, zero), zero, result)


def _needs_floor_correction(rest: Tracer, divisor: Tracer, number: ScalarOrNone) -> Tracer:
    """Return where truncation differs from rounding down: the signs of rest and divisor differ."""
    zero = constant_like(divisor, 0)
    below = emit_elementwise("lt", rest, zero)
    if number is not None and number > 0:
        return below
    other = emit_elementwise("ne", below, emit_elementwise("lt", divisor, zero))
    return emit_elementwise("and", emit_elementwise("ne", rest, zero), other)


def _floored_remainder(x: Tracer, divisor: Tracer, number: ScalarOrNone) -> Tracer:
    dtype = x.value.type.dtype
    if dtype in INTEGERS and dtype not in UNSIGNED and not (number and number > 0):
        rest = emit_elementwise(
            "sub", x, emit_elementwise("mul", _floor_divide_signed(x, divisor, number), divisor)
        )
        return _zero_for_zero_divisor(divisor, number, rest)
    rest = emit_elementwise("rem", x, divisor)
    if dtype not in UNSIGNED:
        rest = emit_elementwise(
            "select",
            _needs_floor_correction(rest, divisor, number),
            emit_elementwise("add", rest, divisor),
            rest,
        )
    if dtype in FLOATS:
        rest = _sign_zero_like_divisor(divisor, number, rest)
    return _zero_for_zero_divisor(divisor, number, rest)


def _sign_zero_like_divisor(divisor: Tracer, number: ScalarOrNone, rest: Tracer) -> Tracer:
    """Give a zero remainder the sign of the divisor, as NumPy and the Array API standard do."""
    zero = constant_like(rest, 0)
    above = emit_elementwise("add", rest, zero)
    if number is not None and number > 0:
        return above
    return emit_elementwise(
        "select",
        emit_elementwise("lt", divisor, zero),
        emit_elementwise("neg", emit_elementwise("sub", zero, rest)),
        above,
    )


def _floor_divide_signed(x: Tracer, divisor: Tracer, number: ScalarOrNone) -> Tracer:
    """Return the floored quotient of signed integers, by an unsigned division of magnitudes.

    If the signs differ, the dividend is 1 less, because floor(-a / b) is -1 - (a - 1) / b. The
    result for a divisor of zero is undefined.
    """
    dtype = x.value.type.dtype
    last = constant_like(x, DTYPE_INFO[dtype].bits - 1)
    if number is not None and number > 0:
        size, sign_mask = divisor, emit_elementwise("shift_right_arithmetic", x, last)
        dividend = emit_elementwise("xor", x, sign_mask)
    else:
        sign = emit_elementwise("shift_right_arithmetic", divisor, last)
        differ = emit_elementwise("lt", emit_elementwise("xor", x, sign), sign)
        sign_mask = emit_elementwise("select", differ, constant_like(x, -1), constant_like(x, 0))
        size, dividend = (
            emit_elementwise("abs", divisor),
            emit_elementwise("add", emit_elementwise("abs", x), sign_mask),
        )
    unsigned = UNSIGNED_BY_BITS[DTYPE_INFO[dtype].bits]
    quotient = emit_elementwise("div", convert(dividend, unsigned), convert(size, unsigned))
    return emit_elementwise("xor", convert(quotient, dtype, x.weak_type), sign_mask)


def _floored_quotient(x: Tracer, divisor: Tracer, number: ScalarOrNone) -> Tracer:
    """Return the floored quotient.

    The quotient of floats is computed exactly from the remainder, as in NumPy, unless the divisor
    is zero.
    """
    dtype = x.value.type.dtype
    if dtype in UNSIGNED:
        return emit_elementwise("div", x, divisor)  # All bits are set if the divisor is zero.
    if dtype in INTEGERS and number:
        return _floor_divide_signed(x, divisor, number)
    if dtype in INTEGERS:
        zero = constant_like(divisor, 0)
        # The result is -1 for a dividend of 0 and -2 otherwise.
        by_zero = emit_elementwise(
            "select", emit_elementwise("eq", x, zero), constant_like(x, -1), constant_like(x, -2)
        )
        floored = _floor_divide_signed(x, divisor, number)
        return emit_elementwise("select", emit_elementwise("eq", divisor, zero), by_zero, floored)
    rest = emit_elementwise("rem", x, divisor)
    quotient = emit_elementwise(
        "round", emit_elementwise("div", emit_elementwise("sub", x, rest), divisor)
    )
    lower = emit_elementwise("sub", quotient, constant_like(quotient, 1))
    quotient = emit_elementwise(
        "select", _needs_floor_correction(rest, divisor, number), lower, quotient
    )
    # A quotient of zero has the sign of x / y. Rounding keeps this sign, infinities and NaN, and
    # makes the derivative zero also where x / y has none.
    ratio = emit_elementwise("round", emit_elementwise("div", x, divisor))
    signed_zero = emit_elementwise("mul", ratio, constant_like(x, 0))
    quotient = emit_elementwise(
        "select", emit_elementwise("eq", quotient, constant_like(x, 0)), signed_zero, quotient
    )
    if number:
        return quotient
    by_zero = emit_elementwise("eq", divisor, constant_like(divisor, 0))
    return emit_elementwise("select", by_zero, ratio, quotient)


@composed_function()
def power(x: ArrayLike, y: ArrayLike, /) -> Tracer:
    """Return x to the power y, elementwise.

    An integer exponent that is a Python scalar is computed by multiplications, so that `x ** 2` is
    `x * x`, and keeps the element type of `x`. A negative exponent of integers gives 0 (or 1 and -1
    for those); a negative Python integer raises `OperationTypeError`.
    """
    if type(y) is int and (abs(y) <= MAX_UNROLLED_EXPONENT or _exceeds_range(x, y)):
        return _integer_power(x, y)
    if type(y) is float and y == 0.5:
        return _sqrt_power(x)
    return _emit_power(x, y)


def _exceeds_range(x: ArrayLike, exponent: int) -> bool:
    """Return whether `x` has an integer type and the exponent is negative or not in its range."""
    if not hasattr(x, "dtype"):
        return False
    dtype, _ = operand_dtype(x)
    return dtype in INTEGERS and not 0 <= exponent <= DTYPE_INFO[dtype].max_integer


@public(name="power")
def _sqrt_power(x: ArrayLike) -> Tracer:
    """Return the square root, with 0 for -0 and inf for -inf, as a power of 0.5 gives."""
    kind = common_kind(x, 0.5)
    if kind[0] not in FLOATS:
        return _emit_power(x, 0.5)
    (x,) = align(x, kind=kind)
    root = emit_elementwise("sqrt", emit_elementwise("add", x, constant_like(x, 0)))
    return emit_elementwise(
        "select",
        emit_elementwise("eq", x, constant_like(x, -np.inf)),
        constant_like(x, np.inf),
        root,
    )


@public(static=("exponent",))
def _integer_power(x: ArrayLike, exponent: int) -> Tracer:
    x = as_tracer(x)
    dtype = x.value.type.dtype
    if dtype == "bool":
        x, dtype = convert(x, "i32"), "i32"
    if exponent < 0 and dtype in INTEGERS:
        raise OperationTypeError(
            with_location(
                f"integers cannot be raised to the power {exponent}; use float_power, or "
                ".astype(float)"
            )
        )
    if exponent < 0:
        return emit_elementwise("div", constant_like(x, 1), _power_by_squaring(x, -exponent))
    return _power_by_squaring(x, exponent) if exponent else constant_like(x, 1)


def _power_by_squaring(x: Tracer, exponent: int) -> Tracer:
    """Multiply by repeated squaring; `exponent` is at least 1."""
    result = None
    while True:
        if exponent & 1:
            result = x if result is None else emit_elementwise("mul", result, x)
        exponent >>= 1
        if not exponent:
            assert result is not None
            return result
        x = emit_elementwise("mul", x, x)


@public()
def _emit_power(x: ArrayLike, y: ArrayLike) -> Tracer:
    (dtype, weak), (exponent, is_weak) = common_kind(x, y), common_kind(y)
    kind = ("i32", False) if dtype == "bool" else (dtype, weak)
    if dtype in INTEGERS or (dtype in INEXACT and exponent in INTEGERS and not is_weak):
        kind = kind[0], False  # JAX computes such a power without promotion of the exponent.
    return apply_elementwise("pow", x, y, kind=kind)


@public()
def float_power(x: ArrayLike, y: ArrayLike, /) -> Tracer:
    """Return x to the power y, elementwise, computed in a floating type."""
    return apply_elementwise("pow", x, y, kind=inexact_kind(x, y))
