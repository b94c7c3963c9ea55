"""Elementwise mathematical functions of floats: exponentials, logarithms, trigonometry.

Integers become floats; complex numbers stay complex if the function is defined for them.
"""

from math import factorial, log as log_of, pi
from typing import Any

from shardir.frontend.eager import public
from shardir.frontend.numpy.pointwise import Unary, floats, inexact, like, ordered, pointwise, same
from shardir.frontend.operands import convert
from shardir.frontend.tracer import Tracer
from shardir.ops.numerics import NARROW


def _floating(name: str, op: str, meaning: str) -> Unary:
    """Define the function `name`, which emits the operation `op` on floats."""

    def function(x: Any, /) -> Any:
        return pointwise(op, x, kind=inexact(x))

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"Return {meaning}, elementwise. Integers become floats."
    return public()(function)


# fmt: off
exp     = _floating("exp",     "exp",   "e to the power x")
exp2    = _floating("exp2",    "exp2",  "2 to the power x")
expm1   = _floating("expm1",   "expm1", "exp(x) - 1, exact for small x")
log     = _floating("log",     "log",   "the natural logarithm")
log2    = _floating("log2",    "log2",  "the logarithm to base 2")
log1p   = _floating("log1p",   "log1p", "log(1 + x), exact for small x")
sqrt    = _floating("sqrt",    "sqrt",  "the square root; NaN of negative floats")
cbrt    = _floating("cbrt",    "cbrt",  "the real cube root")
sin     = _floating("sin",     "sin",   "the sine")
cos     = _floating("cos",     "cos",   "the cosine")
tan     = _floating("tan",     "tan",   "the tangent")
arcsin  = _floating("arcsin",  "asin",  "the angle in [-pi/2, pi/2] whose sine is x")
arccos  = _floating("arccos",  "acos",  "the angle in [0, pi] whose cosine is x")
arctan  = _floating("arctan",  "atan",  "the angle in [-pi/2, pi/2] whose tangent is x")
sinh    = _floating("sinh",    "sinh",  "the hyperbolic sine")
cosh    = _floating("cosh",    "cosh",  "the hyperbolic cosine")
tanh    = _floating("tanh",    "tanh",  "the hyperbolic tangent")
arcsinh = _floating("arcsinh", "asinh", "the inverse of sinh")
arccosh = _floating("arccosh", "acosh", "the inverse of cosh; NaN of floats below 1")
arctanh = _floating("arctanh", "atanh", "the inverse of tanh; NaN of floats outside of [-1, 1]")
# fmt: on

asin, acos, atan = arcsin, arccos, arctan
asinh, acosh, atanh = arcsinh, arccosh, arctanh


@public()
def fabs(x: Any, /) -> Any:
    """Return the absolute value, elementwise. Integers become floats."""
    return same("abs", *floats(*ordered("fabs", x)))


@public()
def log10(x: Any, /) -> Any:
    """Return the logarithm to base 10, elementwise. Integers become floats."""
    (x,) = floats(x)
    if x.value.type.dtype == "f64":  # The product would be inexact for most powers of ten.
        return same("div", same("log", x), like(x, log_of(10)))
    if x.value.type.dtype in NARROW:  # A rounded intermediate logarithm would increase the error.
        wide = log10(convert(x, "f32"))
        return convert(wide, x.value.type.dtype, x.weak_type)
    return same("mul", same("log", x), like(x, 1 / log_of(10)))


@public()
def deg2rad(x: Any, /) -> Any:
    """Convert degrees to radians, elementwise."""
    (x,) = floats(x)
    return same("mul", x, like(x, pi / 180))


@public()
def rad2deg(x: Any, /) -> Any:
    """Convert radians to degrees, elementwise."""
    (x,) = floats(x)
    return same("mul", x, like(x, 180 / pi))


radians, degrees = deg2rad, rad2deg


@public()
def reciprocal(x: Any, /) -> Any:
    """Return 1 / x, elementwise. Integers become floats."""
    (x,) = floats(x)
    return same("div", like(x, 1), x)


@public()
def sinc(x: Any, /) -> Any:
    """Return sin(pi x) / (pi x), elementwise, and 1 at 0."""
    (x,) = floats(x)
    angle = same("mul", x, like(x, pi))
    at_zero = same("eq", angle, like(angle, 0))
    # The quotient is evaluated away from 0, so that its derivatives are not NaN; at 0 the
    # derivatives are those of the Taylor series.
    safe = same("select", at_zero, like(angle, 1), angle)
    quotient = same("div", same("sin", safe), safe)
    small = same("select", at_zero, angle, like(angle, 0))
    square, series = same("mul", small, small), like(angle, 0)
    for power in range(10, -1, -2):
        term = like(angle, (-1) ** (power // 2) / factorial(power + 1))
        series = same("add", same("mul", series, square), term)
    return same("select", at_zero, series, quotient)


@public()
def arctan2(y: Any, x: Any, /) -> Any:
    """Return the angle in [-pi, pi] of the point (x, y), elementwise."""
    return same("atan2", *floats(*ordered("arctan2", y, x)))


atan2 = arctan2


@public()
def hypot(x: Any, y: Any, /) -> Any:
    """Return sqrt(x**2 + y**2), elementwise, without overflow or underflow of the squares."""
    x, y = floats(*ordered("hypot", x, y))
    name, weak = x.value.type.dtype, x.weak_type
    wide = "f64" if name == "f64" else "f32"
    as_complex = same("complex", convert(x, wide, weak), convert(y, wide, weak))
    return convert(same("abs", as_complex), name, weak)


def _joined(x: Tracer, y: Tracer, power: str) -> tuple[Tracer, Tracer]:
    """Return the larger operand, and log(1 + `power`(smaller - larger)).

    Both results depend on one select, so that their derivatives of every order add up to those of
    the whole, which is smooth: a maximum and -|x - y| have no derivative where both operands are
    equal.
    """
    lower = same("lt", x, y)
    gap = same("select", lower, same("sub", x, y), same("sub", y, x))
    # The difference of equal infinities is NaN; a NaN operand stays NaN.
    equal_infinities = same("and", same("eq", x, y), same("ne", gap, gap))
    safe = same("select", equal_infinities, like(gap, 0), gap)
    return same("select", lower, y, x), same("log1p", same(power, safe))


@public()
def logaddexp(x: Any, y: Any, /) -> Any:
    """Return log(exp(x) + exp(y)), elementwise, without overflow of the exponentials."""
    x, y = floats(*ordered("logaddexp", x, y))
    larger, rest = _joined(x, y, "exp")
    return same("add", larger, rest)


@public()
def logaddexp2(x: Any, y: Any, /) -> Any:
    """Return log2(2**x + 2**y), elementwise, without overflow of the powers."""
    x, y = floats(*ordered("logaddexp2", x, y))
    larger, rest = _joined(x, y, "exp2")
    return same("add", larger, same("div", rest, like(rest, log_of(2))))


@public()
def heaviside(x: Any, y: Any, /) -> Any:
    """Return 0 if `x` is negative, 1 if it is positive, `y` if it is 0, elementwise."""
    x, y = floats(*ordered("heaviside", x, y))
    step = same("mul", same("add", same("sign", x), like(x, 1)), like(x, 0.5))
    return same("select", same("eq", x, like(x, 0)), y, step)
