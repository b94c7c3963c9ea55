"""Complex numbers and their parts. Real numbers are their own real part."""

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
    return x.value.type.dtype in COMPLEX


@public()
def real(x: Any, /) -> Any:
    """The real part, elementwise."""
    x = as_tracer(x)
    return same("real", x) if is_complex(x) else x


@public()
def imag(x: Any, /) -> Any:
    """The imaginary part, elementwise; 0 of real numbers."""
    x = as_tracer(x)
    return same("imag", x) if is_complex(x) else like(x, 0)


@public()
def conjugate(x: Any, /) -> Any:
    """The number with its imaginary part negated, elementwise."""
    return conjugate_of(as_tracer(x))


conj = conjugate


def conjugate_of(x: Tracer) -> Tracer:
    return same("conj", x) if is_complex(x) else x


@public()
def absolute(x: Any, /) -> Any:
    """The size of a number, elementwise; of a complex one its distance from 0."""
    x = as_tracer(x)
    if x.value.type.dtype == "bool" or x.value.type.dtype in UNSIGNED:
        return x
    return same("abs", x)


abs = absolute


@public()
def sign(x: Any, /) -> Any:
    """-1, 0 or 1, elementwise; a complex number is divided by its size."""
    x = as_tracer(x)
    if x.value.type.dtype == "bool":
        raise OperationTypeError(point("sign does not take bools; use .astype(int)"))
    made = same("sign", x)
    # Of -0 it is 0, as NumPy has it; the operation keeps the sign.
    return same("add", made, like(made, 0)) if x.value.type.dtype in FLOATS else made


@public()
def square(x: Any, /) -> Any:
    """x * x, elementwise; bools count as integers."""
    x = as_tracer(x)
    if x.value.type.dtype == "bool":
        x = convert(x, "i32")
    return same("mul", x, x)


@public(static=("deg",))
def angle(z: Any, deg: bool = False) -> Any:
    """The angle of a complex number from the real axis, elementwise, in radians (or degrees)."""
    (z,) = align(z, kind=(usual_float(z)[0], False))
    parts = (same("imag", z), same("real", z)) if is_complex(z) else (like(z, 0), z)
    found = same("atan2", *parts)
    return same("mul", found, like(found, 180 / pi)) if deg else found


@composed(unused=True)
def iscomplex(x: Any) -> Any:
    """Whether the imaginary part is not 0, elementwise."""
    real = isinstance(x, Array) and x.type.dtype not in COMPLEX
    return zeros_like(x, bool) if real else _iscomplex(x)


@public(name="iscomplex")
def _iscomplex(x: Any) -> Any:
    return _imaginary(as_tracer(x), "ne")


@public()
def isreal(x: Any) -> Any:
    """Whether the imaginary part is 0, elementwise."""
    return _imaginary(as_tracer(x), "eq")


def _imaginary(x: Tracer, op: str) -> Tracer:
    if not is_complex(x):
        return splat(op == "eq", x.value.type.with_dtype("bool"))
    part = same("imag", x)
    return same(op, part, like(part, 0))
