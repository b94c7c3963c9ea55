"""Elementwise arithmetic by NumPy's rules: sums, products, quotients and powers.

Integers wrap. An integer divided by zero gives JAX's result on CPUs: all bits set for unsigned
types, and for signed types -1 for 0 and -2 for other dividends. The remainder of such a division is
0.
"""

from typing import Any

import numpy as np

from shardir.errors import OperationTypeError
from shardir.frontend.composing import composed
from shardir.frontend.eager import public
from shardir.frontend.locations import point
from shardir.frontend.numpy.pointwise import common, inexact, like, ordered, pointwise, same
from shardir.frontend.operands import align, as_tracer, convert, is_number
from shardir.frontend.tracer import Tracer
from shardir.types import FLOATS, INEXACT, INTEGERS, UNSIGNED

UNROLLED = 64
"""The largest concrete integer exponent for which a power is computed by multiplications."""


@public()
def add(x: Any, y: Any, /) -> Any:
    """Return x + y, elementwise; logical or of bools."""
    return pointwise("add", x, y)


@public()
def subtract(x: Any, y: Any, /) -> Any:
    """Return x - y, elementwise. Raise `OperationTypeError` for bools."""
    kind = common(x, y)
    if kind[0] == "bool":
        raise OperationTypeError(
            point("subtract does not take bools; use logical_xor, or .astype(int)")
        )
    return pointwise("sub", x, y)


@public()
def multiply(x: Any, y: Any, /) -> Any:
    """Return x * y, elementwise; logical and of bools."""
    return pointwise("mul", x, y)


@public()
def divide(x: Any, y: Any, /) -> Any:
    """Return x / y, elementwise; the quotient of integers is a float."""
    return pointwise("div", x, y, kind=inexact(x, y))


true_divide = divide


@public()
def negative(x: Any, /) -> Any:
    """Return -x, elementwise. Raise `OperationTypeError` for bools."""
    if common(x)[0] == "bool":
        raise OperationTypeError(
            point("negative does not take bools; use logical_not, or .astype(int)")
        )
    return pointwise("neg", x)


@public()
def positive(x: Any, /) -> Any:
    """Return x."""
    return as_tracer(x)


@public()
def floor_divide(x: Any, y: Any, /) -> Any:
    """Return the largest integral value not above x / y, elementwise."""
    return _quotient(*_pair("floor_divide", x, y))


@public()
def remainder(x: Any, y: Any, /) -> Any:
    """Return x - floor_divide(x, y) * y, elementwise; the result has the sign of `y`."""
    return _rest(*_pair("remainder", x, y))


mod = remainder


@public()
def divmod(x: Any, y: Any, /) -> Any:
    """Return (floor_divide(x, y), remainder(x, y)), elementwise."""
    first, divisor, number = _pair("divmod", x, y)
    quotient = _quotient(first, divisor, number)
    if divisor.value.type.dtype in INTEGERS:
        rest = same("sub", first, same("mul", quotient, divisor))
        return quotient, _unless_zero(divisor, number, rest)
    return quotient, _rest(first, divisor, number)


@public()
def fmod(x: Any, y: Any, /) -> Any:
    """Return the remainder of the truncated quotient, which has the sign of `x`, elementwise."""
    first, divisor, number = _pair("fmod", x, y)
    return _unless_zero(divisor, number, same("rem", first, divisor))


Number = int | float | None


def _pair(name: str, x: Any, y: Any) -> tuple[Tracer, Tracer, Number]:
    """Return two operands of one real type, bools as integers, and the value of a scalar
    divisor.
    """
    dtype, weak = common(*ordered(name, x, y))
    first, second = align(x, y, kind=("i32", False) if dtype == "bool" else (dtype, weak))
    number = np.asarray(y).astype(second.value.type.numpy).item() if is_number(y) else None
    return first, second, number


def _unless_zero(divisor: Tracer, number: Number, result: Tracer) -> Tracer:
    """Return `result`, with 0 where the divisor is an integer zero."""
    if divisor.value.type.dtype not in INTEGERS or number:
        return result
    zero = like(divisor, 0)
    return same("select", same("eq", divisor, zero), zero, result)


def _crosses(rest: Tracer, divisor: Tracer, number: Number) -> Tracer:
    """Return where truncation differs from rounding down: the signs of rest and divisor differ."""
    zero = like(divisor, 0)
    below = same("lt", rest, zero)
    if number is not None and number > 0:
        return below
    other = same("ne", below, same("lt", divisor, zero))
    return same("and", same("ne", rest, zero), other)


def _rest(x: Tracer, divisor: Tracer, number: Number) -> Tracer:
    dtype = x.value.type.dtype
    if dtype in INTEGERS and dtype not in UNSIGNED and not (number and number > 0):
        rest = same("sub", x, same("mul", _floored(x, divisor, number), divisor))
        return _unless_zero(divisor, number, rest)
    rest = same("rem", x, divisor)
    if dtype not in UNSIGNED:
        rest = same("select", _crosses(rest, divisor, number), same("add", rest, divisor), rest)
    if dtype in FLOATS:
        rest = _with_sign_of(divisor, number, rest)
    return _unless_zero(divisor, number, rest)


def _with_sign_of(divisor: Tracer, number: Number, rest: Tracer) -> Tracer:
    """Give a zero remainder the sign of the divisor, as NumPy and the Array API standard do."""
    zero = like(rest, 0)
    above = same("add", rest, zero)
    if number is not None and number > 0:
        return above
    return same("select", same("lt", divisor, zero), same("neg", same("sub", zero, rest)), above)


def _floored(x: Tracer, divisor: Tracer, number: Number) -> Tracer:
    """Return the floored quotient of signed integers, by an unsigned division of magnitudes.

    If the signs differ, the dividend is 1 less, because floor(-a / b) is -1 - (a - 1) / b. The
    result for a divisor of zero is undefined.
    """
    dtype = x.value.type.dtype
    last = like(x, x.value.type.numpy.itemsize * 8 - 1)
    if number is not None and number > 0:
        size, sign_mask = divisor, same("shift_right_arithmetic", x, last)
        dividend = same("xor", x, sign_mask)
    else:
        sign = same("shift_right_arithmetic", divisor, last)
        differ = same("lt", same("xor", x, sign), sign)
        sign_mask = same("select", differ, like(x, -1), like(x, 0))
        size, dividend = same("abs", divisor), same("add", same("abs", x), sign_mask)
    unsigned = f"u{dtype[1:]}"
    quotient = same("div", convert(dividend, unsigned), convert(size, unsigned))
    return same("xor", convert(quotient, dtype, x.weak_type), sign_mask)


def _quotient(x: Tracer, divisor: Tracer, number: Number) -> Tracer:
    """Return the floored quotient.

    The quotient of floats is computed exactly from the remainder, as in NumPy, unless the divisor
    is zero.
    """
    dtype = x.value.type.dtype
    if dtype in UNSIGNED:
        return same("div", x, divisor)  # All bits are set if the divisor is zero.
    if dtype in INTEGERS and number:
        return _floored(x, divisor, number)
    if dtype in INTEGERS:
        zero = like(divisor, 0)
        # The result is -1 for a dividend of 0 and -2 otherwise.
        by_zero = same("select", same("eq", x, zero), like(x, -1), like(x, -2))
        floored = _floored(x, divisor, number)
        return same("select", same("eq", divisor, zero), by_zero, floored)
    rest = same("rem", x, divisor)
    quotient = same("round", same("div", same("sub", x, rest), divisor))
    lower = same("sub", quotient, like(quotient, 1))
    quotient = same("select", _crosses(rest, divisor, number), lower, quotient)
    # A quotient of zero has the sign of x / y.
    signed_zero = same("mul", same("div", x, divisor), like(x, 0))
    quotient = same("select", same("eq", quotient, like(x, 0)), signed_zero, quotient)
    if number:
        return quotient
    ratio = same("div", x, divisor)
    by_zero = same("eq", divisor, like(divisor, 0))
    return same("select", by_zero, ratio, quotient)


@composed()
def power(x: Any, y: Any, /) -> Any:
    """Return x to the power y, elementwise.

    An integer exponent that is a Python scalar is computed by multiplications, so that `x ** 2` is
    `x * x`, and keeps the element type of `x`. A negative exponent of integers gives 0 (or 1 and -1
    for those); a negative Python integer raises `OperationTypeError`.
    """
    if type(y) is int and abs(y) <= UNROLLED:
        return _whole_power(x, y)
    if type(y) is float and y == 0.5:
        return _half_power(x)
    return _power(x, y)


@public(name="power")
def _half_power(x: Any) -> Any:
    """Return the square root, with 0 for -0 and inf for -inf, as a power of 0.5 gives."""
    kind = common(x, 0.5)
    if kind[0] not in FLOATS:
        return _power(x, 0.5)
    (x,) = align(x, kind=kind)
    root = same("sqrt", same("add", x, like(x, 0)))
    return same("select", same("eq", x, like(x, -np.inf)), like(x, np.inf), root)


@public(static=("exponent",))
def _whole_power(x: Any, exponent: int) -> Any:
    x = as_tracer(x)
    dtype = x.value.type.dtype
    if dtype == "bool":
        x, dtype = convert(x, "i32"), "i32"
    if exponent < 0 and dtype in INTEGERS:
        raise OperationTypeError(
            point(f"integers have no power {exponent}; use float_power, or .astype(float)")
        )
    if exponent < 0:
        return same("div", like(x, 1), _product(x, -exponent))
    return _product(x, exponent) if exponent else like(x, 1)


def _product(x: Tracer, exponent: int) -> Tracer:
    """Multiply by repeated squaring; `exponent` is at least 1."""
    result = None
    while True:
        if exponent & 1:
            result = x if result is None else same("mul", result, x)
        exponent >>= 1
        if not exponent:
            assert result is not None
            return result
        x = same("mul", x, x)


@public()
def _power(x: Any, y: Any) -> Any:
    (dtype, weak), (exponent, is_weak) = common(x, y), common(y)
    kind = ("i32", False) if dtype == "bool" else (dtype, weak)
    if dtype in INEXACT and exponent in INTEGERS and not is_weak:
        kind = kind[0], False  # JAX computes such a power without promotion of the exponent.
    return pointwise("pow", x, y, kind=kind)


@public()
def float_power(x: Any, y: Any, /) -> Any:
    """Return x to the power y, elementwise, computed in a floating type."""
    return pointwise("pow", x, y, kind=inexact(x, y))
