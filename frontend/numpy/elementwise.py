"""Elementwise functions of floats. The tables are the documentation.

Integers become floats, complex numbers stay complex where the function is defined for them.
"""

from math import factorial, log as log_of, pi
from typing import Any

from shardir.frontend.eager import public
from shardir.frontend.numpy.pointwise import Unary, floats, inexact, like, ordered, pointwise, same
from shardir.frontend.operands import convert
from shardir.frontend.tracer import Tracer
from shardir.ops.numerics import NARROW


def _floating(name: str, op: str, meaning: str) -> Unary:
    """The function `name` that is the operation `op` on floats."""

    def function(x: Any, /) -> Any:
        return pointwise(op, x, kind=inexact(x))

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"{meaning}, elementwise. Integers become floats."
    return public()(function)


# fmt: off
exp     = _floating("exp",     "exp",   "e to the power x")
exp2    = _floating("exp2",    "exp2",  "2 to the power x")
expm1   = _floating("expm1",   "expm1", "exp(x) - 1, exact for small x")
log     = _floating("log",     "log",   "The natural logarithm")
log2    = _floating("log2",    "log2",  "The logarithm to base 2")
log1p   = _floating("log1p",   "log1p", "log(1 + x), exact for small x")
sqrt    = _floating("sqrt",    "sqrt",  "The square root; NaN of negative floats")
cbrt    = _floating("cbrt",    "cbrt",  "The real cube root")
sin     = _floating("sin",     "sin",   "The sine")
cos     = _floating("cos",     "cos",   "The cosine")
tan     = _floating("tan",     "tan",   "The tangent")
arcsin  = _floating("arcsin",  "asin",  "The angle in [-pi/2, pi/2] whose sine is x")
arccos  = _floating("arccos",  "acos",  "The angle in [0, pi] whose cosine is x")
arctan  = _floating("arctan",  "atan",  "The angle in [-pi/2, pi/2] whose tangent is x")
sinh    = _floating("sinh",    "sinh",  "The hyperbolic sine")
cosh    = _floating("cosh",    "cosh",  "The hyperbolic cosine")
tanh    = _floating("tanh",    "tanh",  "The hyperbolic tangent")
arcsinh = _floating("arcsinh", "asinh", "The inverse of sinh")
arccosh = _floating("arccosh", "acosh", "The inverse of cosh; NaN of floats below 1")
arctanh = _floating("arctanh", "atanh", "The inverse of tanh; NaN of floats outside of [-1, 1]")
# fmt: on

asin, acos, atan = arcsin, arccos, arctan
asinh, acosh, atanh = arcsinh, arccosh, arctanh


@public()
def fabs(x: Any, /) -> Any:
    """The size of a number, elementwise. Integers become floats."""
    return same("abs", *floats(*ordered("fabs", x)))


@public()
def log10(x: Any, /) -> Any:
    """The logarithm to base 10, elementwise. Integers become floats."""
    (x,) = floats(x)
    if x.value.type.dtype == "f64":  # the product would be off for most powers of ten
        return same("div", same("log", x), like(x, log_of(10)))
    if x.value.type.dtype in NARROW:  # a logarithm rounded in between would be off by more
        wide = log10(convert(x, "f32"))
        return convert(wide, x.value.type.dtype, x.weak_type)
    return same("mul", same("log", x), like(x, 1 / log_of(10)))


@public()
def deg2rad(x: Any, /) -> Any:
    """Degrees as radians, elementwise."""
    (x,) = floats(x)
    return same("mul", x, like(x, pi / 180))


@public()
def rad2deg(x: Any, /) -> Any:
    """Radians as degrees, elementwise."""
    (x,) = floats(x)
    return same("mul", x, like(x, 180 / pi))


radians, degrees = deg2rad, rad2deg


@public()
def reciprocal(x: Any, /) -> Any:
    """1 / x, elementwise. Integers become floats."""
    (x,) = floats(x)
    return same("div", like(x, 1), x)


@public()
def sinc(x: Any, /) -> Any:
    """sin(pi x) / (pi x), elementwise, and 1 at 0."""
    (x,) = floats(x)
    angle = same("mul", x, like(x, pi))
    at_zero = same("eq", angle, like(angle, 0))
    # The quotient is taken away from 0, so that its derivatives are no NaN there; those at 0 are
    # of the Taylor series.
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
    """The angle in [-pi, pi] of the point (x, y), elementwise."""
    return same("atan2", *floats(*ordered("arctan2", y, x)))


atan2 = arctan2


@public()
def hypot(x: Any, y: Any, /) -> Any:
    """sqrt(x**2 + y**2), elementwise, where the squares may be too large or small for the type."""
    x, y = floats(*ordered("hypot", x, y))
    name, weak = x.value.type.dtype, x.weak_type
    wide = "f64" if name == "f64" else "f32"
    whole = same("complex", convert(x, wide, weak), convert(y, wide, weak))
    return convert(same("abs", whole), name, weak)


def _joined(x: Tracer, y: Tracer, power: str) -> tuple[Tracer, Tracer]:
    """One of two numbers, and log(1 + `power` of the other less it), which is not above 0.

    The two are joined by one choice, so that their derivatives of every order add up to those of
    the whole, which is smooth: a maximum and -|x - y| have none where both are the same.
    """
    lower = same("lt", x, y)
    gap = same("select", lower, same("sub", x, y), same("sub", y, x))
    # The same infinities; NaN stays what it is.
    lost = same("and", same("eq", x, y), same("ne", gap, gap))
    safe = same("select", lost, like(gap, 0), gap)
    return same("select", lower, y, x), same("log1p", same(power, safe))


@public()
def logaddexp(x: Any, y: Any, /) -> Any:
    """log(exp(x) + exp(y)), elementwise, where the exponentials may be too large."""
    x, y = floats(*ordered("logaddexp", x, y))
    most, rest = _joined(x, y, "exp")
    return same("add", most, rest)


@public()
def logaddexp2(x: Any, y: Any, /) -> Any:
    """log2(2**x + 2**y), elementwise, where the powers may be too large."""
    x, y = floats(*ordered("logaddexp2", x, y))
    most, rest = _joined(x, y, "exp2")
    return same("add", most, same("div", rest, like(rest, log_of(2))))


@public()
def heaviside(x: Any, y: Any, /) -> Any:
    """0 where `x` is negative, 1 where it is positive, `y` where it is 0, elementwise."""
    x, y = floats(*ordered("heaviside", x, y))
    step = same("mul", same("add", same("sign", x), like(x, 1)), like(x, 0.5))
    return same("select", same("eq", x, like(x, 0)), y, step)
