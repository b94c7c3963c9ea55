"""Elementwise functions of complex numbers and their parts. A real number is its own real part."""

from math import pi

from shardir.errors import OperationTypeError
from shardir.frontend.arrays.array_types import ArrayLike
from shardir.frontend.dispatch.eager import public
from shardir.frontend.numpy.tracer_helpers.elementwise_emission import (
    constant_like,
    default_float_kind,
    emit_conjugate,
    emit_elementwise,
    is_complex,
)
from shardir.frontend.source_locations import with_location
from shardir.frontend.tracing.operands import align, as_tracer, convert, operand_dtype
from shardir.frontend.tracing.tracer import Tracer
from shardir.ir.dtypes import DTYPE_INFO
from shardir.ir.types import FLOATS, INEXACT, UNSIGNED


@public()
def real(x: ArrayLike, /) -> Tracer:
    """Return the real part, elementwise. The result of complex numbers has the matching real
    type.
    """
    x = as_tracer(x)
    return emit_elementwise("real", x) if is_complex(x) else x


@public()
def imag(x: ArrayLike, /) -> Tracer:
    """Return the imaginary part, elementwise; 0 for real numbers."""
    x = as_tracer(x)
    return emit_elementwise("imag", x) if is_complex(x) else constant_like(x, 0)


@public()
def conjugate(x: ArrayLike, /) -> Tracer:
    """Return the complex conjugate, elementwise; real numbers are returned unchanged."""
    return emit_conjugate(as_tracer(x))


conj = conjugate


@public()
def absolute(x: ArrayLike, /) -> Tracer:
    """Return the absolute value, elementwise. The result of complex numbers has the matching real
    type.
    """
    x = as_tracer(x)
    if x.value.type.dtype == "bool" or x.value.type.dtype in UNSIGNED:
        return x
    return emit_elementwise("abs", x)


abs = absolute


@public()
def sign(x: ArrayLike, /) -> Tracer:
    """Return -1, 0 or 1 by the sign of x, elementwise; of a complex number x / |x|, 0 of 0.

    Raise `OperationTypeError` for bools.
    """
    x = as_tracer(x)
    if x.value.type.dtype == "bool":
        raise OperationTypeError(with_location("sign does not take bools; use .astype(int)"))
    result = emit_elementwise("sign", x)
    # NumPy returns 0 for -0; the operation keeps the sign, so that 0 is added.
    return (
        emit_elementwise("add", result, constant_like(result, 0))
        if x.value.type.dtype in FLOATS and DTYPE_INFO[x.value.type.dtype].has_zero
        else result
    )


@public()
def square(x: ArrayLike, /) -> Tracer:
    """Return x * x, elementwise; bools are converted to int32."""
    x = as_tracer(x)
    if x.value.type.dtype == "bool":
        x = convert(x, "i32")
    return emit_elementwise("mul", x, x)


@public(static=("deg",))
def angle(z: ArrayLike, deg: bool = False) -> Tracer:
    """Return the angle of a complex number from the real axis, elementwise.

    The result is a float in radians, or in degrees if `deg` is true.
    """
    dtype, is_weak = default_float_kind(z)
    # As in JAX, integers become floats that are not weakly typed.
    is_weak = is_weak and operand_dtype(z)[0] in INEXACT
    (z,) = align(z, kind=(dtype, is_weak))
    parts = (
        (emit_elementwise("imag", z), emit_elementwise("real", z))
        if is_complex(z)
        else (constant_like(z, 0), z)
    )
    result = emit_elementwise("atan2", *parts)
    return emit_elementwise("mul", result, constant_like(result, 180 / pi)) if deg else result
