"""Elementwise functions on the representation of floats: sign bit, mantissa, exponent, NaN, next
float; tests of elements (`isnan`, `isfinite`, `isreal`).

Integers are finite; functions that return floats convert integers to floats.
"""

import numpy as np

from shardir.errors import OperationTypeError
from shardir.frontend.arrays.array import Array
from shardir.frontend.arrays.array_types import ArrayLike
from shardir.frontend.dispatch.composed import composed_function
from shardir.frontend.dispatch.eager import public
from shardir.frontend.numpy.creation.filling import zeros_like
from shardir.frontend.numpy.elementwise.rounding import emit_truncation
from shardir.frontend.numpy.tracer_helpers.elementwise_emission import (
    check_no_out,
    constant_like,
    convert_and_broadcast,
    emit_elementwise,
    emit_isnan,
    inexact_kind,
    is_complex,
    require_real,
)
from shardir.frontend.source_locations import with_location
from shardir.frontend.tracing.operands import (
    align,
    as_tracer,
    broadcast,
    broadcast_shapes,
    convert,
    splat,
)
from shardir.frontend.tracing.trace import emit
from shardir.frontend.tracing.tracer import Tracer
from shardir.frontend.tracing.weak_types import strip_weak_type, strip_weak_types
from shardir.frontend.transforms.custom_jvp import custom_jvp
from shardir.ir.dtypes import COMPUTE_DTYPES, DTYPE_INFO, SIGNED_BY_BITS
from shardir.ir.types import COMPLEX, FLOATS, INEXACT, INTEGERS, UNSIGNED


def _constant_bools(x: Tracer, answer: bool) -> Tracer:
    return splat(answer, x.value.type.with_dtype("bool"))


@public()
def isnan(x: ArrayLike, /) -> Tracer:
    """Return whether each element is NaN, as bools."""
    x = as_tracer(x)
    if x.value.type.dtype not in INEXACT:
        return _constant_bools(x, False)
    return emit_isnan(x)


@public()
def isfinite(x: object, /) -> Tracer:
    """Return whether each element is neither infinite nor NaN, as bools."""
    x = as_tracer(x)
    return (
        emit_elementwise("is_finite", x)
        if x.value.type.dtype in INEXACT
        else _constant_bools(x, True)
    )


@public()
def isinf(x: ArrayLike, /) -> Tracer:
    """Return whether each element is infinite, as bools."""
    x = as_tracer(x)
    if x.value.type.dtype not in INEXACT:
        return _constant_bools(x, False)
    size = emit_elementwise("abs", x)
    return emit_elementwise("eq", size, constant_like(size, np.inf))


@public()
def isposinf(x: ArrayLike, /, out: None = None) -> Tracer:
    """Return whether each element is positive infinity, as bools."""
    check_no_out("isposinf", out)
    return _equals_infinity("isposinf", x, np.inf)


@public()
def isneginf(x: ArrayLike, /, out: None = None) -> Tracer:
    """Return whether each element is negative infinity, as bools."""
    check_no_out("isneginf", out)
    return _equals_infinity("isneginf", x, -np.inf)


def _equals_infinity(name: str, x: ArrayLike, extreme: float) -> Tracer:
    x = as_tracer(require_real(name, x)[0])
    if x.value.type.dtype not in INEXACT:
        return _constant_bools(x, False)
    return emit_elementwise("eq", x, constant_like(x, extreme))


@public()
def signbit(x: ArrayLike, /) -> Tracer:
    """Return whether the sign bit of each element is set, as bools; also for -0.0 and NaN."""
    x = as_tracer(x)
    dtype = x.value.type.dtype
    if dtype == "bool" or dtype in UNSIGNED:
        return _constant_bools(x, False)
    return emit_signbit(x)


def emit_signbit(x: Tracer) -> Tracer:
    """Return whether the highest bit is set, tested as the sign of an integer of the same bits."""
    if x.value.type.dtype not in INTEGERS:
        width = DTYPE_INFO[x.value.type.dtype].bits
        x = emit("bitcast", x, result=x.value.type.with_dtype(SIGNED_BY_BITS[width]))
    return emit_elementwise("lt", x, constant_like(x, 0))


@public()
def copysign(x: ArrayLike, y: ArrayLike, /) -> Tracer:
    """Return `x` with the sign of `y`, elementwise. Integers become floats."""
    x, y = align(x, y, kind=inexact_kind(x, y))
    size = emit_elementwise("abs", x)
    result: Tracer = emit(
        "select", emit_signbit(y), emit_elementwise("neg", size), size, weak=x.weak_type
    )
    return result


@public()
def nextafter(x: ArrayLike, y: ArrayLike, /) -> Tracer:
    """Return the next representable number after `x` towards `y`, elementwise."""
    return emit_elementwise("nextafter", *align(x, y, kind=inexact_kind(x, y)))


@public()
@strip_weak_types
def spacing(x: ArrayLike, /) -> Tracer:
    """Return the distance to the next representable number away from zero, elementwise."""
    (x,) = align(*require_real("spacing", x), kind=inexact_kind(x))
    size = emit_elementwise("abs", x)
    gap = emit_elementwise(
        "sub", emit_elementwise("nextafter", size, constant_like(size, np.inf)), size
    )
    return emit_elementwise(
        "select", emit_elementwise("lt", x, constant_like(x, 0)), emit_elementwise("neg", gap), gap
    )


@public()
def modf(x: ArrayLike, /, out: None = None) -> tuple[Tracer, Tracer]:
    """Return (fractional part, integral part), elementwise, both with the sign of `x`."""
    check_no_out("modf", out)
    (x,) = align(x, kind=inexact_kind(x))
    integral = emit_truncation(x)
    infinite = emit_elementwise("eq", emit_elementwise("abs", x), constant_like(x, np.inf))
    fraction = emit_elementwise(
        "select", infinite, constant_like(x, 0), emit_elementwise("sub", x, integral)
    )
    return fraction, integral


@public()
def ldexp(x1: ArrayLike, x2: ArrayLike, /) -> Tracer:
    """Return x1 * 2**x2 for an integer `x2`, elementwise.

    Raise `OperationTypeError` for an exponent that is not an integer.
    """
    exponent = as_tracer(x2)
    name = exponent.value.type.dtype
    if name not in INTEGERS and name != "bool":
        raise OperationTypeError(
            with_location(f"ldexp takes an integer exponent, got {exponent.value.type}")
        )
    if name in ("u32", "u64"):
        # This limit exceeds every exponent of a float and fits into i32.
        exponent = emit_elementwise("minimum", exponent, constant_like(exponent, 1 << 20))
    if name != "i64":
        exponent = convert(exponent, "i32")
    kind = inexact_kind(*require_real("ldexp", x1))
    shape = broadcast_shapes(as_tracer(x1).shape, exponent.shape)
    (x,) = convert_and_broadcast(shape, (COMPUTE_DTYPES[kind[0]], kind[1]), x1)
    return convert(scale_by_power_of_two(x, broadcast(exponent, shape)), kind[0])


def scale_by_power_of_two(x: Tracer, exponent: Tracer) -> Tracer:
    """Return x * 2**exponent, rounded once.

    The power is a product of three factors that are normal numbers of the type: no factor is 0 or
    infinite, so that no NaN arises, and only the last multiplication may give a subnormal result.
    """
    dtype = x.value.type.dtype
    info = DTYPE_INFO[dtype]
    bits, max_exponent = info.mantissa_bits, info.max_exponent
    word = SIGNED_BY_BITS[info.bits]
    limit = 2 * max_exponent + bits + 1

    def within(e: Tracer, low: int, high: int) -> Tracer:
        scalar = e.value.type.with_shape(())
        return emit_elementwise("clamp", splat(low, scalar), e, splat(high, scalar))

    rest = within(convert(exponent, word), -limit, limit)
    parts = []
    for _ in range(2):
        parts.append(within(rest, 1 - max_exponent, max_exponent))
        rest = emit_elementwise("sub", rest, parts[-1])
    for part in (rest, *reversed(parts)):
        raised = emit_elementwise(
            "shift_left",
            emit_elementwise("add", part, constant_like(part, max_exponent)),
            constant_like(part, bits),
        )
        power: Tracer = emit("bitcast", raised, result=x.value.type)
        x = emit("mul", x, power, weak=x.weak_type)
    return x


@public()
def frexp(x: ArrayLike, /) -> tuple[Tracer, Tracer]:
    """Return (mantissa, exponent) with x = mantissa * 2**exponent and 0.5 <= |mantissa| < 1,
    elementwise.

    0, infinities and NaN are their own mantissa and have exponent 0. The exponent is int32. Raises
    `OperationTypeError` for complex numbers and `float4_e2m1fn`.
    """
    (x,) = align(x, kind=inexact_kind(x))
    name = x.value.type.dtype
    if name in COMPLEX:
        raise OperationTypeError(with_location(f"frexp takes real numbers, got {name}"))
    if DTYPE_INFO[name].bias < 2:
        raise OperationTypeError(
            with_location(
                f"frexp takes floats with at least 8 bits, got {name}, in which 0.75 is no number; "
                "convert with .astype"
            )
        )
    wide = convert(x, COMPUTE_DTYPES[name])
    exponent = _mantissa_and_exponent(wide)[1]
    mantissa = custom_jvp(lambda x: _mantissa_and_exponent(x)[0])
    mantissa.defjvp(
        lambda primals, tangents: (
            _mantissa_and_exponent(primals[0])[0],
            scale_by_power_of_two(
                as_tracer(tangents[0]),
                emit_elementwise("neg", _mantissa_and_exponent(primals[0])[1]),
            ),
        )
    )
    return convert(as_tracer(mantissa(wide)), name), convert(exponent, "i32")


def _mantissa_and_exponent(x: Tracer) -> tuple[Tracer, Tracer]:
    """Return the mantissa and the exponent, computed from the bits in one pass over the
    elements.
    """
    info = DTYPE_INFO[x.value.type.dtype]
    bits, width = info.mantissa_bits, info.bits
    bias = (1 << width - bits - 2) - 1
    word: Tracer = emit("bitcast", x, result=x.value.type.with_dtype(SIGNED_BY_BITS[width]))
    size = emit_elementwise("and", word, constant_like(word, (1 << width - 1) - 1))
    # A subnormal number has no implicit leading bit; it is shifted until one exists.
    small = emit_elementwise("lt", size, constant_like(size, 1 << bits))
    shift = emit_elementwise(
        "sub", emit_elementwise("clz", size), constant_like(size, width - 1 - bits)
    )
    raised = emit_elementwise("select", small, emit_elementwise("shift_left", size, shift), size)
    up = emit_elementwise("shift_right_logical", size, constant_like(size, bits))
    field = emit_elementwise(
        "select", small, emit_elementwise("sub", constant_like(shift, 1), shift), up
    )
    infinite = emit_elementwise("ge", size, constant_like(size, 2 * bias + 1 << bits))
    is_special = emit_elementwise(
        "or", infinite, emit_elementwise("eq", size, constant_like(size, 0))
    )
    kept = emit_elementwise("and", raised, constant_like(raised, (1 << bits) - 1))
    half = emit_elementwise(
        "or",
        emit_elementwise("xor", word, size),
        emit_elementwise("or", kept, constant_like(kept, bias - 1 << bits)),
    )
    mantissa: Tracer = emit(
        "bitcast", emit_elementwise("select", is_special, word, half), result=x.value.type
    )
    exponent = emit_elementwise("sub", field, constant_like(field, bias - 1))
    return mantissa, emit_elementwise("select", is_special, constant_like(exponent, 0), exponent)


@public(static=("copy",))
def nan_to_num(
    x: ArrayLike, copy: bool = True, nan: object = 0.0, posinf: object = None, neginf: object = None
) -> Tracer:
    """Replace NaN by `nan` and infinities by the largest and smallest numbers (or the given
    ones).
    """
    x = as_tracer(x)
    dtype = x.value.type.dtype
    if dtype not in INEXACT:
        return x
    if dtype not in FLOATS:
        parts = [
            nan_to_num(emit_elementwise(p, x), copy, nan, posinf, neginf) for p in ("real", "imag")
        ]
        return emit_elementwise("complex", *parts)
    largest = DTYPE_INFO[dtype].max_finite
    above = largest if posinf is None else posinf
    below = -largest if neginf is None else neginf
    kind = (dtype, x.weak_type)
    for_nan, for_posinf, for_neginf = convert_and_broadcast(x.shape, kind, nan, above, below)
    cleaned = emit_elementwise("select", emit_isnan(x), for_nan, x)
    cleaned = emit_elementwise(
        "select", emit_elementwise("eq", x, constant_like(x, np.inf)), for_posinf, cleaned
    )
    cleaned = emit_elementwise(
        "select", emit_elementwise("eq", x, constant_like(x, -np.inf)), for_neginf, cleaned
    )
    return strip_weak_type(cleaned)


@composed_function(unused=True)
def iscomplex(x: ArrayLike) -> Tracer:
    """Return whether the imaginary part is not 0, elementwise, as bools."""
    real = isinstance(x, Array) and x.type.dtype not in COMPLEX
    return zeros_like(x, bool) if real else _iscomplex(x)


@public(name="iscomplex")
def _iscomplex(x: ArrayLike) -> Tracer:
    return _imaginary(as_tracer(x), "ne")


@public()
def isreal(x: ArrayLike) -> Tracer:
    """Return whether the imaginary part is 0, elementwise, as bools."""
    return _imaginary(as_tracer(x), "eq")


def _imaginary(x: Tracer, op: str) -> Tracer:
    if not is_complex(x):
        return splat(op == "eq", x.value.type.with_dtype("bool"))
    part = emit_elementwise("imag", x)
    return emit_elementwise(op, part, constant_like(part, 0))
