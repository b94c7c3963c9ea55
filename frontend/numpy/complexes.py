"""Elementwise functions of complex numbers and their parts. A real number is its own real part."""

from math import pi
from typing import Any

from shardir.errors import OperationTypeError
from shardir.frontend.array import Array
from shardir.frontend.composing import composed
from shardir.frontend.eager import public
from shardir.frontend.locations import point
from shardir.frontend.numpy.creation import zeros_like
from shardir.frontend.numpy.pointwise import like, same, usual_float
from shardir.frontend.operands import align, as_tracer, convert, splat
from shardir.frontend.tracer import Tracer
from shardir.types import COMPLEX, FLOATS, UNSIGNED


def is_complex(x: Tracer) -> bool:
    """Return whether the element type is complex."""
    return x.value.type.dtype in COMPLEX


@public()
def real(x: Any, /) -> Any:
    """Return the real part, elementwise. The result of complex numbers has the matching real
    type.
    """
    x = as_tracer(x)
    return same("real", x) if is_complex(x) else x


@public()
def imag(x: Any, /) -> Any:
    """Return the imaginary part, elementwise; 0 for real numbers."""
    x = as_tracer(x)
    return same("imag", x) if is_complex(x) else like(x, 0)


@public()
def conjugate(x: Any, /) -> Any:
    """Return the complex conjugate, elementwise; real numbers are returned unchanged."""
    return conjugate_of(as_tracer(x))


conj = conjugate


def conjugate_of(x: Tracer) -> Tracer:
    """Emit the complex conjugate; return real operands unchanged."""
    return same("conj", x) if is_complex(x) else x


@public()
def absolute(x: Any, /) -> Any:
    """Return the absolute value, elementwise. The result of complex numbers has the matching real
    type.
    """
    x = as_tracer(x)
    if x.value.type.dtype == "bool" or x.value.type.dtype in UNSIGNED:
        return x
    return same("abs", x)


abs = absolute


@public()
def sign(x: Any, /) -> Any:
    """Return -1, 0 or 1 by the sign of x, elementwise; of a complex number x / |x|, 0 of 0.

    Raise `OperationTypeError` for bools.
    """
    x = as_tracer(x)
    if x.value.type.dtype == "bool":
        raise OperationTypeError(point("sign does not take bools; use .astype(int)"))
    result = same("sign", x)
    # NumPy returns 0 for -0; the operation keeps the sign, so that 0 is added.
    return same("add", result, like(result, 0)) if x.value.type.dtype in FLOATS else result


@public()
def square(x: Any, /) -> Any:
    """Return x * x, elementwise; bools are converted to int32."""
    x = as_tracer(x)
    if x.value.type.dtype == "bool":
        x = convert(x, "i32")
    return same("mul", x, x)


@public(static=("deg",))
def angle(z: Any, deg: bool = False) -> Any:
    """Return the angle of a complex number from the real axis, elementwise.

    The result is a float in radians, or in degrees if `deg` is true.
    """
    (z,) = align(z, kind=(usual_float(z)[0], False))
    parts = (same("imag", z), same("real", z)) if is_complex(z) else (like(z, 0), z)
    result = same("atan2", *parts)
    return same("mul", result, like(result, 180 / pi)) if deg else result


@composed(unused=True)
def iscomplex(x: Any) -> Any:
    """Return whether the imaginary part is not 0, elementwise, as bools."""
    real = isinstance(x, Array) and x.type.dtype not in COMPLEX
    return zeros_like(x, bool) if real else _iscomplex(x)


@public(name="iscomplex")
def _iscomplex(x: Any) -> Any:
    return _imaginary(as_tracer(x), "ne")


@public()
def isreal(x: Any) -> Any:
    """Return whether the imaginary part is 0, elementwise, as bools."""
    return _imaginary(as_tracer(x), "eq")


def _imaginary(x: Tracer, op: str) -> Tracer:
    if not is_complex(x):
        return splat(op == "eq", x.value.type.with_dtype("bool"))
    part = same("imag", x)
    return same(op, part, like(part, 0))
