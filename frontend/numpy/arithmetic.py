"""Arithmetic: sums, products, quotients and powers, by NumPy's rules.

Integers wrap. An integer divided by zero is what JAX says on CPUs: all bits set without a sign, and
with one -1 for 0 and -2 for other numbers. The remainder of such a division is 0.
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
"""Powers up to this one with a known whole exponent are products."""


@public()
def add(x: Any, y: Any, /) -> Any:
    """x + y, elementwise; of bools, or."""
    return pointwise("add", x, y)


@public()
def subtract(x: Any, y: Any, /) -> Any:
    """x - y, elementwise. Bools have no difference."""
    kind = common(x, y)
    if kind[0] == "bool":
        raise OperationTypeError(
            point("subtract does not take bools; use logical_xor, or .astype(int)")
        )
    return pointwise("sub", x, y)


@public()
def multiply(x: Any, y: Any, /) -> Any:
    """x * y, elementwise; of bools, and."""
    return pointwise("mul", x, y)


@public()
def divide(x: Any, y: Any, /) -> Any:
    """x / y, elementwise; the quotient of integers is a float."""
    return pointwise("div", x, y, kind=inexact(x, y))


true_divide = divide


@public()
def negative(x: Any, /) -> Any:
    """-x, elementwise. Bools have none."""
    if common(x)[0] == "bool":
        raise OperationTypeError(
            point("negative does not take bools; use logical_not, or .astype(int)")
        )
    return pointwise("neg", x)


@public()
def positive(x: Any, /) -> Any:
    """x itself."""
    return as_tracer(x)


@public()
def floor_divide(x: Any, y: Any, /) -> Any:
    """The largest whole number not above x / y, elementwise."""
    return _quotient(*_pair("floor_divide", x, y))


@public()
def remainder(x: Any, y: Any, /) -> Any:
    """x - floor_divide(x, y) * y, elementwise: it has the sign of `y`."""
    return _rest(*_pair("remainder", x, y))


mod = remainder


@public()
def divmod(x: Any, y: Any, /) -> Any:
    """(floor_divide(x, y), remainder(x, y)), elementwise."""
    first, divisor, number = _pair("divmod", x, y)
    quotient = _quotient(first, divisor, number)
    if divisor.value.type.dtype in INTEGERS:
        rest = same("sub", first, same("mul", quotient, divisor))
        return quotient, _unless_zero(divisor, number, rest)
    return quotient, _rest(first, divisor, number)


@public()
def fmod(x: Any, y: Any, /) -> Any:
    """The remainder with the sign of `x`, elementwise."""
    first, divisor, number = _pair("fmod", x, y)
    return _unless_zero(divisor, number, same("rem", first, divisor))


Number = int | float | None


def _pair(name: str, x: Any, y: Any) -> tuple[Tracer, Tracer, Number]:
    """Two operands of one real type, bools as integers, and the number the second is, if known."""
    dtype, weak = common(*ordered(name, x, y))
    first, second = align(x, y, kind=("i32", False) if dtype == "bool" else (dtype, weak))
    number = np.asarray(y).astype(second.value.type.numpy).item() if is_number(y) else None
    return first, second, number


def _unless_zero(divisor: Tracer, number: Number, result: Tracer) -> Tracer:
    """`result`, 0 where an integer would be divided by zero."""
    if divisor.value.type.dtype not in INTEGERS or number:
        return result
    zero = like(divisor, 0)
    return same("select", same("eq", divisor, zero), zero, result)


def _crosses(rest: Tracer, divisor: Tracer, number: Number) -> Tracer:
    """Where truncating went the other way than down: the rest has not the divisor's sign."""
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
    """The rest with a zero of the divisor's sign, as NumPy and the Array API standard have it."""
    zero = like(rest, 0)
    above = same("add", rest, zero)
    if number is not None and number > 0:
        return above
    return same("select", same("lt", divisor, zero), same("neg", same("sub", zero, rest)), above)


def _floored(x: Tracer, divisor: Tracer, number: Number) -> Tracer:
    """Integers with signs, by a division of their sizes: of 1 less where the signs differ, since
    -a / b, rounded down, is -1 - (a - 1) / b. Nothing is said of a divisor of zero.
    """
    dtype = x.value.type.dtype
    last = like(x, x.value.type.numpy.itemsize * 8 - 1)
    if number is not None and number > 0:
        size, turned = divisor, same("shift_right_arithmetic", x, last)
        whole = same("xor", x, turned)
    else:
        sign = same("shift_right_arithmetic", divisor, last)
        differ = same("lt", same("xor", x, sign), sign)
        turned = same("select", differ, like(x, -1), like(x, 0))
        size, whole = same("abs", divisor), same("add", same("abs", x), turned)
    unsigned = f"u{dtype[1:]}"
    made = same("div", convert(whole, unsigned), convert(size, unsigned))
    return same("xor", convert(made, dtype, x.weak_type), turned)


def _quotient(x: Tracer, divisor: Tracer, number: Number) -> Tracer:
    """Floats exactly, from the rest as NumPy does, unless the divisor is zero."""
    dtype = x.value.type.dtype
    if dtype in UNSIGNED:
        return same("div", x, divisor)  # all bits are set where the divisor is zero
    if dtype in INTEGERS and number:
        return _floored(x, divisor, number)
    if dtype in INTEGERS:
        zero = like(divisor, 0)
        # Truncating gives -1, and one less where the signs differ, which are 0 for the divisor.
        by_zero = same("select", same("eq", x, zero), like(x, -1), like(x, -2))
        floored = _floored(x, divisor, number)
        return same("select", same("eq", divisor, zero), by_zero, floored)
    rest = same("rem", x, divisor)
    quotient = same("round", same("div", same("sub", x, rest), divisor))
    lower = same("sub", quotient, like(quotient, 1))
    quotient = same("select", _crosses(rest, divisor, number), lower, quotient)
    # A quotient of zero has the sign of the ratio.
    flat = same("mul", same("div", x, divisor), like(x, 0))
    quotient = same("select", same("eq", quotient, like(x, 0)), flat, quotient)
    if number:
        return quotient
    ratio = same("div", x, divisor)
    by_zero = same("eq", divisor, like(divisor, 0))
    return same("select", by_zero, ratio, quotient)


@composed()
def power(x: Any, y: Any, /) -> Any:
    """x to the power y, elementwise.

    A whole exponent that is a Python number makes products, so `x ** 2` is `x * x`, and keeps the
    element type of `x`. Integers have no negative powers: a negative exponent gives 0 (or 1 and -1
    for those), one that is a Python number raises `OperationTypeError`.
    """
    if type(y) is int and abs(y) <= UNROLLED:
        return _whole_power(x, y)
    if type(y) is float and y == 0.5:
        return _half_power(x)
    return _power(x, y)


@public(name="power")
def _half_power(x: Any) -> Any:
    """The square root, but that of -0 is 0 and that of -inf is inf."""
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
    """By squaring; `exponent` is at least 1."""
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
    (dtype, weak), (exponent, gives_way) = common(x, y), common(y)
    kind = ("i32", False) if dtype == "bool" else (dtype, weak)
    if dtype in INEXACT and exponent in INTEGERS and not gives_way:
        kind = kind[0], False  # JAX takes such a power without promotion
    return pointwise("pow", x, y, kind=kind)


@public()
def float_power(x: Any, y: Any, /) -> Any:
    """x to the power y as floats, elementwise."""
    return pointwise("pow", x, y, kind=inexact(x, y))
