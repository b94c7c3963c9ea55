"""Elementwise functions of one operand that are one operation. The tables are the documentation.

Functions of the first table take numbers as they are, those of the second make integers floats.
"""

from typing import Any

from shardir.frontend.eager import public
from shardir.frontend.numpy.pointwise import Unary, inexact, pointwise


def _floating(name: str, op: str, meaning: str) -> Unary:
    """The function `name` of floats and complex numbers; integers become floats."""

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
