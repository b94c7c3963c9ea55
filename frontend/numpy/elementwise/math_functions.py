"""Elementwise mathematical functions of floats: exponentials, logarithms, trigonometry.

Integers become floats; complex numbers stay complex if the function is defined for them.
"""

from math import factorial, log as log_of, pi

from shardir.frontend.arrays.array_types import ArrayLike
from shardir.frontend.dispatch.eager import public
from shardir.frontend.numpy.tracer_helpers.elementwise_emission import (
    Unary,
    apply_elementwise,
    constant_like,
    emit_elementwise,
    inexact_kind,
    is_complex,
    promote_args_inexact,
    require_real,
)
from shardir.frontend.tracing.operands import convert
from shardir.frontend.tracing.trace import emit
from shardir.frontend.tracing.tracer import Tracer
from shardir.frontend.tracing.weak_types import (
    strip_weak_type,
    strip_weak_types,
    strip_weak_types_of_arrays,
)
from shardir.ir.dtypes import NARROW_FLOATS, SMALL_FLOATS


def _define_float_function(name: str, op: str, meaning: str, is_weak: bool = True) -> Unary:
    """Define the function `name`, which emits the operation `op` on floats.

    `is_weak` states whether its results of weakly typed operands are weakly typed.
    """

    def function(x: ArrayLike, /) -> Tracer:
        return apply_elementwise(op, x, kind=inexact_kind(x))

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"Return {meaning}, elementwise. Integers become floats."
    return public()(function if is_weak else strip_weak_types(function))


exp = _define_float_function("exp", "exp", "e to the power x")
exp2 = _define_float_function("exp2", "exp2", "2 to the power x")
expm1 = _define_float_function("expm1", "expm1", "exp(x) - 1, exact for small x")
log = _define_float_function("log", "log", "the natural logarithm")
log2 = _define_float_function("log2", "log2", "the logarithm to base 2", is_weak=False)
log1p = _define_float_function("log1p", "log1p", "log(1 + x), exact for small x")
sqrt = _define_float_function("sqrt", "sqrt", "the square root; NaN of negative floats")
cbrt = _define_float_function("cbrt", "cbrt", "the real cube root")
sin = _define_float_function("sin", "sin", "the sine")
cos = _define_float_function("cos", "cos", "the cosine")
tan = _define_float_function("tan", "tan", "the tangent")
arcsin = _define_float_function("arcsin", "asin", "the angle in [-pi/2, pi/2] whose sine is x")
arccos = _define_float_function("arccos", "acos", "the angle in [0, pi] whose cosine is x")
arctan = _define_float_function("arctan", "atan", "the angle in [-pi/2, pi/2] whose tangent is x")
sinh = _define_float_function("sinh", "sinh", "the hyperbolic sine")
cosh = _define_float_function("cosh", "cosh", "the hyperbolic cosine")
tanh = _define_float_function("tanh", "tanh", "the hyperbolic tangent")
arcsinh = _define_float_function("arcsinh", "asinh", "the inverse of sinh")
arccosh = _define_float_function("arccosh", "acosh", "the inverse of cosh; NaN of floats below 1")
arctanh = _define_float_function(
    "arctanh", "atanh", "the inverse of tanh; NaN of floats outside of [-1, 1]"
)

asin, acos, atan = arcsin, arccos, arctan
asinh, acosh, atanh = arcsinh, arccosh, arctanh


@public()
def fabs(x: ArrayLike, /) -> Tracer:
    """Return the absolute value, elementwise. Integers become floats."""
    return emit_elementwise("abs", *promote_args_inexact(*require_real("fabs", x)))


@public()
@strip_weak_types
def log10(x: ArrayLike, /) -> Tracer:
    """Return the logarithm to base 10, elementwise. Integers become floats."""
    (x,) = promote_args_inexact(x)
    if is_complex(x):  # The product of infinity and a real number as a complex one has NaN.
        log = emit_elementwise("log", x)
        radius, angle = (emit_elementwise(part, log) for part in ("real", "imag"))
        scale = constant_like(angle, 1 / log_of(10))
        decadic = emit_elementwise("div", radius, constant_like(radius, log_of(10)))
        return emit_elementwise("complex", decadic, emit_elementwise("mul", angle, scale))
    if x.value.type.dtype == "f64":  # The product would be inexact for most powers of ten.
        return emit_elementwise("div", emit_elementwise("log", x), constant_like(x, log_of(10)))
    if (
        x.value.type.dtype in NARROW_FLOATS
    ):  # A rounded intermediate logarithm would increase the error.
        wide = log10(convert(x, "f32"))
        return convert(wide, x.value.type.dtype, x.weak_type)
    return emit_elementwise("mul", emit_elementwise("log", x), constant_like(x, 1 / log_of(10)))


@public()
@strip_weak_types_of_arrays
def deg2rad(x: ArrayLike, /) -> Tracer:
    """Convert degrees to radians, elementwise."""
    (x,) = promote_args_inexact(x)
    return emit_elementwise("mul", x, constant_like(x, pi / 180))


@public()
@strip_weak_types_of_arrays
def rad2deg(x: ArrayLike, /) -> Tracer:
    """Convert radians to degrees, elementwise."""
    (x,) = promote_args_inexact(x)
    return emit_elementwise("mul", x, constant_like(x, 180 / pi))


radians, degrees = deg2rad, rad2deg


@public()
def reciprocal(x: ArrayLike, /) -> Tracer:
    """Return 1 / x, elementwise. Integers become floats."""
    (x,) = promote_args_inexact(x)
    return emit_elementwise("div", constant_like(x, 1), x)


@public()
@strip_weak_types_of_arrays
def sinc(x: ArrayLike, /) -> Tracer:
    """Return sin(pi x) / (pi x), elementwise, and 1 at 0."""
    (x,) = promote_args_inexact(x)
    angle = emit_elementwise("mul", x, constant_like(x, pi))
    at_zero = emit_elementwise("eq", angle, constant_like(angle, 0))
    # The quotient is evaluated away from 0, so that its derivatives are not NaN; at 0 the
    # derivatives are those of the Taylor series.
    safe = emit_elementwise("select", at_zero, constant_like(angle, 1), angle)
    quotient = emit_elementwise("div", emit_elementwise("sin", safe), safe)
    small = emit_elementwise("select", at_zero, angle, constant_like(angle, 0))
    square, series = emit_elementwise("mul", small, small), constant_like(angle, 0)
    for power in range(10, -1, -2):
        term = constant_like(angle, (-1) ** (power // 2) / factorial(power + 1))
        series = emit_elementwise("add", emit_elementwise("mul", series, square), term)
    return emit_elementwise("select", at_zero, series, quotient)


@public()
def arctan2(y: ArrayLike, x: ArrayLike, /) -> Tracer:
    """Return the angle in [-pi, pi] of the point (x, y), elementwise."""
    return emit_elementwise("atan2", *promote_args_inexact(*require_real("arctan2", y, x)))


atan2 = arctan2


@public()
@strip_weak_types_of_arrays
def hypot(x: ArrayLike, y: ArrayLike, /) -> Tracer:
    """Return sqrt(x**2 + y**2), elementwise, without overflow or underflow of the squares."""
    x, y = promote_args_inexact(*require_real("hypot", x, y))
    name, weak = x.value.type.dtype, x.weak_type
    wide = "f64" if name == "f64" else "f32"
    as_complex = emit_elementwise("complex", convert(x, wide, weak), convert(y, wide, weak))
    return convert(emit_elementwise("abs", as_complex), name, weak)


def _widen_small_floats(x: Tracer, y: Tracer) -> tuple[Tracer, Tracer]:
    """Return operands of at most 8 bits in f32, in which their difference is finite, and others as
    they are."""
    if x.value.type.dtype not in SMALL_FLOATS:
        return x, y
    return convert(x, "f32", x.weak_type), convert(y, "f32", y.weak_type)


def _larger_and_log1p(x: Tracer, y: Tracer, power: str) -> tuple[Tracer, Tracer]:
    """Return the larger operand, and log(1 + `power`(smaller - larger)).

    Both results depend on one select, so that their derivatives of every order add up to those of
    the whole, which is smooth: a maximum and -|x - y| have no derivative where both operands are
    equal.
    """
    lower = emit_elementwise("lt", x, y)
    gap = emit_elementwise(
        "select", lower, emit_elementwise("sub", x, y), emit_elementwise("sub", y, x)
    )
    # The difference of equal infinities is NaN; a NaN operand stays NaN.
    equal_infinities = emit_elementwise(
        "and", emit_elementwise("eq", x, y), emit_elementwise("ne", gap, gap)
    )
    safe = emit_elementwise("select", equal_infinities, constant_like(gap, 0), gap)
    return emit_elementwise("select", lower, y, x), emit_elementwise(
        "log1p", emit_elementwise(power, safe)
    )


def _wrap_phase(x: Tracer, bound: float) -> Tracer:
    """Return complex numbers with imaginary parts in [-bound, bound), and real ones unchanged."""
    if not is_complex(x):
        return x
    phase = emit_elementwise("imag", x)
    period = constant_like(phase, 2 * bound)
    turns = emit_elementwise(
        "floor",
        emit_elementwise(
            "div", emit_elementwise("add", phase, constant_like(phase, bound)), period
        ),
    )
    turns = emit("stop_gradient", turns)
    wrapped = emit_elementwise("sub", phase, emit_elementwise("mul", turns, period))
    result = emit_elementwise("complex", emit_elementwise("real", x), wrapped)
    return strip_weak_type(result) if x.ndim else result


@public()
def logaddexp(x: ArrayLike, y: ArrayLike, /) -> Tracer:
    """Return log(exp(x) + exp(y)), elementwise, without overflow of the exponentials."""
    x, y = promote_args_inexact(x, y)
    larger, rest = _larger_and_log1p(*_widen_small_floats(x, y), "exp")
    result = _wrap_phase(emit_elementwise("add", larger, rest), pi)
    return convert(result, x.value.type.dtype, result.weak_type)


@public()
@strip_weak_types_of_arrays
def logaddexp2(x: ArrayLike, y: ArrayLike, /) -> Tracer:
    """Return log2(2**x + 2**y), elementwise, without overflow of the powers."""
    x, y = promote_args_inexact(x, y)
    larger, rest = _larger_and_log1p(*_widen_small_floats(x, y), "exp2")
    result = emit_elementwise(
        "add", larger, emit_elementwise("div", rest, constant_like(rest, log_of(2)))
    )
    result = _wrap_phase(result, pi / log_of(2))
    return convert(result, x.value.type.dtype, x.weak_type)


@public()
@strip_weak_types_of_arrays
def heaviside(x: ArrayLike, y: ArrayLike, /) -> Tracer:
    """Return 0 if `x` is negative, 1 if it is positive, `y` if it is 0, elementwise."""
    x, y = promote_args_inexact(*require_real("heaviside", x, y))
    step = emit_elementwise(
        "mul",
        emit_elementwise("add", emit_elementwise("sign", x), constant_like(x, 1)),
        constant_like(x, 0.5),
    )
    return emit_elementwise("select", emit_elementwise("eq", x, constant_like(x, 0)), y, step)
