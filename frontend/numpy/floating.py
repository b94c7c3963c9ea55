"""Elementwise functions on the representation of floats: sign bit, mantissa, exponent, NaN, next
float.

Integers are finite; functions that return floats convert integers to floats.
"""

from typing import Any

import numpy as np

from shardir.errors import OperationTypeError
from shardir.frontend.eager import public
from shardir.frontend.locations import point
from shardir.frontend.numpy.pointwise import fitted, inexact, like, no_out, ordered, same
from shardir.frontend.numpy.rounding import WIDE, toward_zero
from shardir.frontend.operands import align, as_tracer, broadcast, broadcast_shapes, convert, splat
from shardir.frontend.trace import emit
from shardir.frontend.tracer import Tracer
from shardir.types import COMPLEX, FLOATS, INEXACT, INTEGERS, UNSIGNED

MANTISSA = {"f32": 23, "f64": 52}
"""The number of mantissa bits of each type."""


def _everywhere(x: Tracer, answer: bool) -> Tracer:
    return splat(answer, x.value.type.with_dtype("bool"))


@public()
def isnan(x: Any, /) -> Any:
    """Return whether each element is NaN, as bools."""
    x = as_tracer(x)
    if x.value.type.dtype not in INEXACT:
        return _everywhere(x, False)
    return is_nan(x)


def is_nan(x: Tracer) -> Tracer:
    """Emit x != x, which is true only for NaN."""
    return same("ne", x, x)


@public()
def isfinite(x: Any, /) -> Any:
    """Return whether each element is neither infinite nor NaN, as bools."""
    x = as_tracer(x)
    return same("is_finite", x) if x.value.type.dtype in INEXACT else _everywhere(x, True)


@public()
def isinf(x: Any, /) -> Any:
    """Return whether each element is infinite, as bools."""
    x = as_tracer(x)
    if x.value.type.dtype not in INEXACT:
        return _everywhere(x, False)
    size = same("abs", x)
    return same("eq", size, like(size, np.inf))


@public()
def isposinf(x: Any, /, out: None = None) -> Any:
    """Return whether each element is positive infinity, as bools."""
    no_out("isposinf", out)
    return _is("isposinf", x, np.inf)


@public()
def isneginf(x: Any, /, out: None = None) -> Any:
    """Return whether each element is negative infinity, as bools."""
    no_out("isneginf", out)
    return _is("isneginf", x, -np.inf)


def _is(name: str, x: Any, extreme: float) -> Tracer:
    x = as_tracer(ordered(name, x)[0])
    if x.value.type.dtype not in INEXACT:
        return _everywhere(x, False)
    return same("eq", x, like(x, extreme))


@public()
def signbit(x: Any, /) -> Any:
    """Return whether the sign bit of each element is set, as bools; also for -0.0 and NaN."""
    x = as_tracer(x)
    dtype = x.value.type.dtype
    if dtype == "bool" or dtype in UNSIGNED:
        return _everywhere(x, False)
    return has_minus(x)


def has_minus(x: Tracer) -> Tracer:
    """Return whether the highest bit is set, tested as the sign of an integer of the same bits."""
    if x.value.type.dtype not in INTEGERS:
        width = x.value.type.numpy.itemsize * 8
        x = emit("bitcast", x, result=x.value.type.with_dtype(f"i{width}"))
    return same("lt", x, like(x, 0))


@public()
def copysign(x: Any, y: Any, /) -> Any:
    """Return `x` with the sign of `y`, elementwise. Integers become floats."""
    x, y = align(x, y, kind=inexact(x, y))
    size = same("abs", x)
    result: Tracer = emit("select", has_minus(y), same("neg", size), size, weak=x.weak_type)
    return result


@public()
def nextafter(x: Any, y: Any, /) -> Any:
    """Return the next representable number after `x` towards `y`, elementwise."""
    return same("nextafter", *align(x, y, kind=inexact(x, y)))


@public()
def spacing(x: Any, /) -> Any:
    """Return the distance to the next representable number away from zero, elementwise."""
    (x,) = align(x, kind=inexact(x))
    size = same("abs", x)
    gap = same("sub", same("nextafter", size, like(size, np.inf)), size)
    return same("select", same("lt", x, like(x, 0)), same("neg", gap), gap)


@public()
def modf(x: Any, /, out: None = None) -> Any:
    """Return (fractional part, integral part), elementwise, both with the sign of `x`."""
    no_out("modf", out)
    (x,) = align(x, kind=inexact(x))
    integral = toward_zero(x)
    infinite = same("eq", same("abs", x), like(x, np.inf))
    fraction = same("select", infinite, like(x, 0), same("sub", x, integral))
    return fraction, integral


@public()
def ldexp(x1: Any, x2: Any, /) -> Any:
    """Return x1 * 2**x2 for an integer `x2`, elementwise.

    Raise `OperationTypeError` for an exponent that is not an integer.
    """
    exponent = as_tracer(x2)
    name = exponent.value.type.dtype
    if name not in INTEGERS and name != "bool":
        raise OperationTypeError(
            point(f"ldexp takes an integer exponent, got {exponent.value.type}")
        )
    if name in ("u32", "u64"):
        # This limit exceeds every exponent of a float and fits into i32.
        exponent = same("minimum", exponent, like(exponent, 1 << 20))
    if name != "i64":
        exponent = convert(exponent, "i32")
    kind = inexact(*ordered("ldexp", x1))
    shape = broadcast_shapes(as_tracer(x1).shape, exponent.shape)
    (x,) = fitted(shape, (WIDE.get(kind[0], kind[0]), kind[1]), x1)
    return convert(scaled(x, broadcast(exponent, shape)), kind[0])


def scaled(x: Tracer, exponent: Tracer) -> Tracer:
    """Return x * 2**exponent, rounded once.

    The power is a product of three factors that are normal numbers of the type: no factor is 0 or
    infinite, so that no NaN arises, and only the last multiplication may give a subnormal result.
    """
    dtype = x.value.type.dtype
    bits, max_exponent = MANTISSA[dtype], int(np.finfo(x.value.type.numpy).maxexp) - 1
    word = f"i{x.value.type.numpy.itemsize * 8}"
    limit = 2 * max_exponent + bits + 1

    def within(e: Tracer, low: int, high: int) -> Tracer:
        scalar = e.value.type.with_shape(())
        return same("clamp", splat(low, scalar), e, splat(high, scalar))

    rest = within(convert(exponent, word), -limit, limit)
    parts = []
    for _ in range(2):
        parts.append(within(rest, 1 - max_exponent, max_exponent))
        rest = same("sub", rest, parts[-1])
    for part in (rest, *reversed(parts)):
        raised = same("shift_left", same("add", part, like(part, max_exponent)), like(part, bits))
        power: Tracer = emit("bitcast", raised, result=x.value.type)
        x = emit("mul", x, power, weak=x.weak_type)
    return x


@public()
def frexp(x: Any, /) -> Any:
    """Return (mantissa, exponent) with x = mantissa * 2**exponent and 0.5 <= |mantissa| < 1,
    elementwise.

    0, infinities and NaN are their own mantissa and have exponent 0. The exponent is int32.
    """
    from shardir.frontend.custom_jvp import custom_jvp

    (x,) = align(x, kind=inexact(x))
    name = x.value.type.dtype
    if name in COMPLEX:
        raise OperationTypeError(point(f"frexp takes real numbers, got {name}"))
    wide = convert(x, WIDE.get(name, name))
    exponent = _parts(wide)[1]
    mantissa = custom_jvp(lambda x: _parts(x)[0])
    mantissa.defjvp(
        lambda primals, tangents: (
            _parts(primals[0])[0],
            scaled(as_tracer(tangents[0]), same("neg", _parts(primals[0])[1])),
        )
    )
    return convert(as_tracer(mantissa(wide)), name), convert(exponent, "i32")


def _parts(x: Tracer) -> tuple[Tracer, Tracer]:
    """Return the mantissa and the exponent, computed from the bits in one pass over the
    elements.
    """
    bits, width = MANTISSA[x.value.type.dtype], x.value.type.numpy.itemsize * 8
    bias = (1 << width - bits - 2) - 1
    word: Tracer = emit("bitcast", x, result=x.value.type.with_dtype(f"i{width}"))
    size = same("and", word, like(word, (1 << width - 1) - 1))
    # A subnormal number has no implicit leading bit; it is shifted until one exists.
    small = same("lt", size, like(size, 1 << bits))
    shift = same("sub", same("clz", size), like(size, width - 1 - bits))
    raised = same("select", small, same("shift_left", size, shift), size)
    up = same("shift_right_logical", size, like(size, bits))
    field = same("select", small, same("sub", like(shift, 1), shift), up)
    infinite = same("ge", size, like(size, 2 * bias + 1 << bits))
    is_special = same("or", infinite, same("eq", size, like(size, 0)))
    kept = same("and", raised, like(raised, (1 << bits) - 1))
    half = same("or", same("xor", word, size), same("or", kept, like(kept, bias - 1 << bits)))
    mantissa: Tracer = emit("bitcast", same("select", is_special, word, half), result=x.value.type)
    exponent = same("sub", field, like(field, bias - 1))
    return mantissa, same("select", is_special, like(exponent, 0), exponent)


@public(static=("copy",))
def nan_to_num(
    x: Any, copy: bool = True, nan: Any = 0.0, posinf: Any = None, neginf: Any = None
) -> Any:
    """Replace NaN by `nan` and infinities by the largest and smallest numbers (or the given
    ones).
    """
    x = as_tracer(x)
    dtype = x.value.type.dtype
    if dtype not in INEXACT:
        return x
    if dtype not in FLOATS:
        parts = [nan_to_num(same(p, x), copy, nan, posinf, neginf) for p in ("real", "imag")]
        return same("complex", *parts)
    limits = np.finfo(np.float32) if dtype == "bf16" else np.finfo(x.value.type.numpy)
    largest = 3.3895313892515355e38 if dtype == "bf16" else float(limits.max)
    above = largest if posinf is None else posinf
    below = -largest if neginf is None else neginf
    kind = (dtype, x.weak_type)
    for_nan, for_posinf, for_neginf = fitted(x.shape, kind, nan, above, below)
    cleaned = same("select", is_nan(x), for_nan, x)
    cleaned = same("select", same("eq", x, like(x, np.inf)), for_posinf, cleaned)
    return same("select", same("eq", x, like(x, -np.inf)), for_neginf, cleaned)
