"""Rounding to integral values and decimals. Bools and integers are integral already."""

from typing import Any

import numpy as np

from shardir.frontend.eager import public
from shardir.frontend.errors import ArgumentError
from shardir.frontend.locations import point
from shardir.frontend.numpy.pointwise import (
    Unary,
    like,
    no_out,
    ordered,
    same,
    usual_float,
)
from shardir.frontend.operands import align, as_tracer, convert
from shardir.frontend.tracer import Tracer
from shardir.types import COMPLEX, FLOATS, INTEGERS

WIDE = {"f16": "f32", "bf16": "f32"}
"""The wider computation types of types that cannot represent intermediate results."""


def widened(x: Tracer) -> Tracer:
    """Convert half-precision floats to f32."""
    name = x.value.type.dtype
    return convert(x, WIDE.get(name, name), x.weak_type)


def _whole(name: str, op: str, meaning: str) -> Unary:
    def function(x: Any, /) -> Any:
        x = as_tracer(ordered(name, x)[0])
        return same(op, x) if x.value.type.dtype in FLOATS else x

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"{meaning}, elementwise. Integers are returned unchanged."
    return public()(function)


floor = _whole("floor", "floor", "Return the largest integral value not above x")
ceil = _whole("ceil", "ceil", "Return the smallest integral value not below x")


@public()
def trunc(x: Any, /) -> Any:
    """Round towards 0, elementwise. Integers are returned unchanged."""
    x = as_tracer(ordered("trunc", x)[0])
    return toward_zero(x) if x.value.type.dtype in FLOATS else x


fix = trunc


def toward_zero(x: Tracer) -> Tracer:
    """Remove the fractional part of floats."""
    return same("mul", same("sign", x), same("floor", same("abs", x)))


@public()
def rint(x: Any, /) -> Any:
    """Round to the nearest integral value, ties to even, elementwise. Integers become floats."""
    (x,) = align(x, kind=usual_float(x))
    return _scaled(x, 0)


@public(static=("decimals",))
def round(a: Any, decimals: int = 0, out: None = None) -> Any:
    """Round to `decimals` decimals, ties to even, elementwise.

    Negative `decimals` round to tens, hundreds and so on. Floats are scaled, rounded and scaled
    back, half-precision floats in float32. Raise `ArgumentError` if `decimals` is not an integer.
    """
    no_out("round", out)
    if isinstance(decimals, bool) or not isinstance(decimals, (int, np.integer)):
        raise ArgumentError(point(f"decimals of round is a whole number, got {decimals!r}"))
    x, places = as_tracer(a), int(decimals)
    dtype = x.value.type.dtype
    if dtype == "bool" or (dtype in INTEGERS and places >= 0):
        return x
    return _tens(x, 10**-places) if dtype in INTEGERS else _scaled(x, places)


around = round


def _scaled(x: Tracer, places: int) -> Tracer:
    if x.value.type.dtype in COMPLEX:
        parts = [_scaled(same(part, x), places) for part in ("real", "imag")]
        return same("complex", *parts)
    if not places:
        return same("round", x)
    wide = widened(x)
    up, down = ("mul", "div") if places > 0 else ("div", "mul")
    factor = like(wide, 10.0 ** abs(places))
    rounded = same(down, same("round", same(up, wide, factor)), factor)
    return convert(rounded, x.value.type.dtype, x.weak_type)


def _tens(x: Tracer, unit: int) -> Tracer:
    """Round integers to the nearest multiple of `unit`, ties to even, in integer arithmetic.

    A remainder of more than half the unit moves the multiple away from zero.
    """
    if unit > np.iinfo(x.value.type.numpy).max:
        return like(x, 0)
    count, rest = same("div", x, like(x, unit)), same("rem", x, like(x, unit))
    size, half = same("abs", rest), like(x, unit // 2)
    odd = same("ne", same("rem", count, like(x, 2)), like(x, 0))
    beyond = same("or", same("gt", size, half), same("and", odd, same("eq", size, half)))
    away = same("add", count, same("sign", x))
    return same("mul", same("select", beyond, away, count), like(x, unit))
