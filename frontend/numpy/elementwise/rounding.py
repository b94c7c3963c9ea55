"""Rounding to integral values and decimals. Bools and integers are integral already."""

import numpy as np

from shardir.frontend.arrays.array_types import ArrayLike
from shardir.frontend.dispatch.eager import public
from shardir.frontend.errors import ArgumentError
from shardir.frontend.numpy.tracer_helpers.elementwise_emission import (
    Unary,
    check_no_out,
    common_kind,
    constant_like,
    default_float_kind,
    emit_elementwise,
    require_real,
)
from shardir.frontend.source_locations import with_location
from shardir.frontend.tracing.operands import align, as_tracer, convert
from shardir.frontend.tracing.tracer import Tracer
from shardir.ir.dtypes import COMPUTE_DTYPES, DTYPE_INFO
from shardir.ir.types import COMPLEX, FLOATS, INTEGERS


def widen_half_floats(x: Tracer) -> Tracer:
    """Convert half-precision floats to f32."""
    name = x.value.type.dtype
    return convert(x, COMPUTE_DTYPES[name], x.weak_type)


def _define_rounding(name: str, op: str, meaning: str) -> Unary:
    def function(x: ArrayLike, /) -> Tracer:
        x = as_tracer(require_real(name, x)[0])
        return emit_elementwise(op, x) if x.value.type.dtype in FLOATS else x

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"{meaning}, elementwise. Integers are returned unchanged."
    return public()(function)


floor = _define_rounding("floor", "floor", "Return the largest integral value not above x")
ceil = _define_rounding("ceil", "ceil", "Return the smallest integral value not below x")


@public()
def trunc(x: ArrayLike, /) -> Tracer:
    """Round towards 0, elementwise. Integers are returned unchanged."""
    x = as_tracer(require_real("trunc", x)[0])
    return emit_truncation(x) if x.value.type.dtype in FLOATS else x


fix = trunc


def emit_truncation(x: Tracer) -> Tracer:
    """Remove the fractional part of floats."""
    return emit_elementwise(
        "mul", emit_elementwise("sign", x), emit_elementwise("floor", emit_elementwise("abs", x))
    )


@public()
def rint(x: ArrayLike, /) -> Tracer:
    """Round to the nearest integral value, ties to even, elementwise. Integers become floats."""
    kind = default_float_kind(x)
    (x,) = align(x, kind=kind if kind == common_kind(x) else (kind[0], False))
    return _round_decimals(x, 0)


@public(static=("decimals",))
def round(a: ArrayLike, decimals: int = 0, out: None = None) -> Tracer:
    """Round to `decimals` decimals, ties to even, elementwise.

    Negative `decimals` round to tens, hundreds and so on. Floats are scaled, rounded and scaled
    back, half-precision floats in float32. Raise `ArgumentError` if `decimals` is not an integer.
    """
    check_no_out("round", out)
    if isinstance(decimals, bool) or not isinstance(decimals, (int, np.integer)):
        raise ArgumentError(
            with_location(f"decimals of round must be an integer, got {decimals!r}")
        )
    x, places = as_tracer(a), int(decimals)
    dtype = x.value.type.dtype
    if dtype == "bool" or (dtype in INTEGERS and places >= 0):
        return x
    return _round_to_multiple(x, 10**-places) if dtype in INTEGERS else _round_decimals(x, places)


around = round


def _round_decimals(x: Tracer, places: int) -> Tracer:
    if x.value.type.dtype in COMPLEX:
        parts = [_round_decimals(emit_elementwise(part, x), places) for part in ("real", "imag")]
        return emit_elementwise("complex", *parts)
    if not places:
        return emit_elementwise("round", x)
    wide = widen_half_floats(x)
    up, down = ("mul", "div") if places > 0 else ("div", "mul")
    factor = constant_like(wide, 10.0 ** abs(places))
    rounded = emit_elementwise(
        down, emit_elementwise("round", emit_elementwise(up, wide, factor)), factor
    )
    return convert(rounded, x.value.type.dtype)


def _round_to_multiple(x: Tracer, unit: int) -> Tracer:
    """Round integers to the nearest multiple of `unit`, ties to even, in integer arithmetic.

    A remainder of more than half the unit moves the multiple away from zero.
    """
    if unit > DTYPE_INFO[x.value.type.dtype].max_integer:
        return constant_like(x, 0)
    count, rest = (
        emit_elementwise("div", x, constant_like(x, unit)),
        emit_elementwise("rem", x, constant_like(x, unit)),
    )
    size, half = emit_elementwise("abs", rest), constant_like(x, unit // 2)
    odd = emit_elementwise(
        "ne", emit_elementwise("rem", count, constant_like(x, 2)), constant_like(x, 0)
    )
    beyond = emit_elementwise(
        "or",
        emit_elementwise("gt", size, half),
        emit_elementwise("and", odd, emit_elementwise("eq", size, half)),
    )
    away = emit_elementwise("add", count, emit_elementwise("sign", x))
    return emit_elementwise(
        "mul", emit_elementwise("select", beyond, away, count), constant_like(x, unit)
    )
