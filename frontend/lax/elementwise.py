"""Elementwise operations with the names of `jax.lax`.

Unlike the functions of `shardir.numpy` they do not promote element types: arrays must have one
type, and Python scalars adopt it. Shapes broadcast.
"""

import builtins
from collections.abc import Sequence
from enum import IntEnum
from typing import Any

from shardir.errors import OperationTypeError, suggest_name
from shardir.frontend.argument_errors import with_argument_errors
from shardir.frontend.arrays.array_types import ArrayLike
from shardir.frontend.arrays.numpy_conversion import is_number
from shardir.frontend.dispatch.eager import public
from shardir.frontend.lax.result_accuracy import Accuracy, check_accuracy
from shardir.frontend.numpy.tracer_helpers.bitcasts import emit_bitcast
from shardir.frontend.numpy.tracer_helpers.elementwise_emission import emit_elementwise
from shardir.frontend.pytree import tree
from shardir.frontend.pytree_types import PyTree, UserFunction
from shardir.frontend.quoting import brief
from shardir.frontend.shardings.traced_constraints import check_cases
from shardir.frontend.source_locations import with_location
from shardir.frontend.tracing.operands import (
    align,
    as_tracer,
    broadcast,
    convert,
    operand_dtype,
    splat,
)
from shardir.frontend.tracing.promotion import check_keys_mix, dtype_of
from shardir.frontend.tracing.trace import emit, emit_results
from shardir.frontend.tracing.tracer import Tracer
from shardir.ir.dtypes import DTYPE_INFO
from shardir.ir.operation import OPS
from shardir.ir.signature import signature_of
from shardir.ir.types import COMPLEX, FLOATS, INTEGERS, TensorType
from shardir.plugins.entry_points import PluginError


def _align_one_dtype(name: str, *xs: object) -> tuple[Tracer, ...]:
    kinds = {operand_dtype(x)[0] for x in xs if not is_number(x)}
    if len(kinds) > 1:
        check_keys_mix(*sorted(kinds))
        raise OperationTypeError(
            with_location(
                f"lax.{name} takes operands of one element type, got "
                f"{' and '.join(sorted(kinds))}; convert one with .astype, "
                "or use shardir.numpy, which promotes"
            )
        )
    return align(*xs)


def _define_unary(name: str, meaning: str, core: str = "") -> UserFunction:
    core = core or name

    def unary(x: ArrayLike) -> Tracer:
        tracer = as_tracer(x)
        return emit(core, tracer, weak=tracer.weak_type)

    return _document_public(name, meaning, unary)


def _define_elementary(name: str, meaning: str) -> UserFunction:
    """Return a function whose results are rounded, which takes `accuracy`."""

    def elementary(x: ArrayLike, accuracy: Accuracy = None) -> Tracer:
        tracer = as_tracer(x)
        check_accuracy(name, tracer.value.type, accuracy)
        return emit(name, tracer, weak=tracer.weak_type)

    meaning = f"{meaning}; an error if its error bound exceeds `accuracy`"
    return _document_public(name, meaning, elementary, static=("accuracy",))


def _define_binary(name: str, meaning: str, core: str = "") -> UserFunction:
    core = core or name

    def binary(x: ArrayLike, y: ArrayLike) -> Tracer:
        first, second = _align_one_dtype(name, x, y)
        return emit(core, first, second, weak=first.weak_type and second.weak_type)

    return _document_public(name, f"{meaning}; of one element type", binary)


@with_argument_errors
def elementwise_function(name: str, description: str) -> UserFunction:
    """Return the function on arrays of a pointwise operation, which other packages may define.

    Its operands have one element type and broadcast. `description` completes the docstring "Return,
    elementwise, ...".
    """

    def function(*xs: object) -> Tracer:
        tracers = _align_one_dtype(name, *xs) if len(xs) > 1 else (as_tracer(*xs),)
        return emit(name, *tracers, weak=all(tracer.weak_type for tracer in tracers))

    return _document_public(name, description, function)


@with_argument_errors
def operation_function(name: str, description: str) -> UserFunction:
    """Return the function on arrays of an operation, which takes its attributes by keyword.

    The operands must have the types that the operation accepts; several results are a tuple.
    `description` completes the docstring "Return ...". Raises `PluginError` if the operation
    is not defined.
    """
    spec = OPS.find(name)
    if spec is None:
        # The name of an entry point is known before its module defines the operation.
        others = (other for other in OPS.names() if other != name)
        similar = suggest_name(name, others) if isinstance(name, str) else ""
        hint = similar or "define it before with define_op"
        raise PluginError(f"no operation is called {name!r}; {hint}")

    def function(*xs: PyTree, **attributes: Any) -> Tracer | tuple[Tracer, ...]:
        results = emit_results(spec, *map(as_tracer, xs), **attributes)
        return results[0] if len(results) == 1 else results

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"Return {description}."
    return public(static=signature_of(spec).attrs or ())(function)


def _document_public(
    name: str, meaning: str, function: UserFunction, static: Sequence[str] = ()
) -> UserFunction:
    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"Return, elementwise, {meaning}."
    return public(static=static)(function)


abs = _define_unary("abs", "|x|; of a complex number its magnitude")
neg = _define_unary("neg", "-x")
sign = _define_unary("sign", "-1, 0 or 1 as x is below, at or above 0; x / |x| of complex numbers")
floor = _define_unary("floor", "the largest integral value at or below x")
ceil = _define_unary("ceil", "the smallest integral value at or above x")
is_finite = _define_unary("is_finite", "whether x is neither infinite nor NaN")
exp = _define_elementary("exp", "e to the power of x")
exp2 = _define_elementary("exp2", "2 to the power of x")
expm1 = _define_elementary("expm1", "exp(x) - 1, exact for small x")
log = _define_elementary("log", "the natural logarithm of x")
log1p = _define_elementary("log1p", "log(1 + x), exact for small x")
sqrt = _define_elementary("sqrt", "the square root of x")
rsqrt = _define_elementary("rsqrt", "1 / sqrt(x)")
cbrt = _define_elementary("cbrt", "the cube root of x")
logistic = _define_elementary("logistic", "1 / (1 + exp(-x))")
sin = _define_elementary("sin", "the sine of x, in radians")
cos = _define_elementary("cos", "the cosine of x, in radians")
tan = _define_elementary("tan", "the tangent of x, in radians")
asin = _define_unary("asin", "the angle in [-pi/2, pi/2] whose sine is x")
acos = _define_unary("acos", "the angle in [0, pi] whose cosine is x")
atan = _define_unary("atan", "the angle in [-pi/2, pi/2] whose tangent is x")
sinh = _define_unary("sinh", "(exp(x) - exp(-x)) / 2")
cosh = _define_unary("cosh", "(exp(x) + exp(-x)) / 2")
tanh = _define_elementary("tanh", "sinh(x) / cosh(x)")
asinh = _define_unary("asinh", "the inverse of sinh")
acosh = _define_unary("acosh", "the inverse of cosh; NaN of floats below 1")
atanh = _define_unary("atanh", "the inverse of tanh; NaN of floats beyond -1 and 1")
erf = _define_unary("erf", "the error function of x")
erfc = _define_unary("erfc", "1 - erf(x), exact for large x")
erf_inv = _define_unary("erf_inv", "the inverse of erf")
lgamma = _define_unary("lgamma", "log(|gamma(x)|)")
digamma = _define_unary("digamma", "the derivative of lgamma")
real = _define_unary("real", "the real part of x")
imag = _define_unary("imag", "the imaginary part of x")
bitwise_not = _define_unary("bitwise_not", "the bitwise complement of x; of a bool, not x", "not")
population_count = _define_unary("population_count", "the number of set bits of x", "popcnt")
clz = _define_unary("clz", "the number of leading zero bits of x")


@public()
def conj(x: ArrayLike) -> Tracer:
    """Return the complex conjugate, elementwise; real numbers become complex."""
    tracer = as_tracer(x)
    if tracer.value.type.dtype in FLOATS:
        wide = "c128" if tracer.value.type.dtype == "f64" else "c64"
        return convert(tracer, wide, tracer.weak_type)
    return emit("conj", tracer, weak=tracer.weak_type)


add = _define_binary("add", "x + y; the logical or of bools")
sub = _define_binary("sub", "x - y")


@public(static=("out_dtype",))
def mul(x: ArrayLike, y: ArrayLike, *, out_dtype: object = None) -> Tracer:
    """Return, elementwise, x * y; the logical and of bools.

    With `out_dtype` both operands, whose types may differ, are converted to that type first.
    """
    if out_dtype is not None:
        x, y = (convert(as_tracer(each), dtype_of(out_dtype)) for each in (x, y))
    first, second = _align_one_dtype("mul", x, y)
    return emit("mul", first, second, weak=first.weak_type and second.weak_type)


@public()
def mulhi(x: ArrayLike, y: ArrayLike) -> Tracer:
    """Return, elementwise, the high half of the bits of the exact product of two integers."""
    first, second = _align_one_dtype("mulhi", x, y)
    dtype = first.value.type.dtype
    if dtype not in INTEGERS:
        raise OperationTypeError(
            with_location(f"lax.mulhi takes integers, got {first.dtype}; convert with .astype")
        )
    bits = DTYPE_INFO[dtype].bits
    if bits < 64:
        wide = "i64" if dtype.startswith("i") else "u64"
        product = convert(first, wide) * convert(second, wide)
        return convert(product >> bits, dtype, first.weak_type)
    one, other = convert(first, "u64"), convert(second, "u64")
    mask = 0xFFFFFFFF
    high, low, other_high, other_low = one >> 32, one & mask, other >> 32, other & mask
    # The three carries of schoolbook multiplication with digits of 32 bits.
    middle = high * other_low + (low * other_low >> 32)
    carry = (middle & mask) + low * other_high
    result = convert(high * other_high + (middle >> 32) + (carry >> 32), dtype)
    if dtype == "u64":
        return result
    # A negative factor counts as itself plus 2^64.
    return result - ((first >> 63) & second) - ((second >> 63) & first)


@public()
def stage(x: ArrayLike) -> Tracer:
    """Return `x` as an array: a traced one inside of a trace."""
    return as_tracer(x)


div = _define_binary("div", "x / y; the truncated quotient of integers")
rem = _define_binary("rem", "the remainder of x / y, with the sign of x")


def _pow(x: ArrayLike, y: ArrayLike) -> Tracer:
    if not is_number(x) and not is_number(y) and operand_dtype(y)[0] in INTEGERS:
        kind, _ = operand_dtype(x)
        y = convert(as_tracer(y), kind) if kind in FLOATS or kind in COMPLEX else y
    first, second = _align_one_dtype("pow", x, y)
    return emit("pow", first, second, weak=first.weak_type and second.weak_type)


pow = _document_public(
    "pow", "x to the power of y; of one element type, or an integer type for y alone", _pow
)
atan2 = _define_binary("atan2", "the angle in [-pi, pi] of the point (y, x)")
shift_left = _define_binary("shift_left", "x shifted left by y; 0 for y beyond the type's bits")
shift_right_logical = _define_binary(
    "shift_right_logical", "x shifted right by y, filled with zeros"
)
shift_right_arithmetic = _define_binary(
    "shift_right_arithmetic", "x shifted right by y, filled with its sign"
)


@public()
def nextafter(x1: ArrayLike, x2: ArrayLike) -> Tracer:
    """Return, elementwise, the next representable number after x1 towards x2; of one element
    type.
    """
    first, second = _align_one_dtype("nextafter", x1, x2)
    return emit("nextafter", first, second, weak=first.weak_type and second.weak_type)


complex = _define_binary("complex", "x + iy, of two floats")
eq = _define_binary("eq", "x == y")
ne = _define_binary("ne", "x != y")
lt = _define_binary("lt", "x < y")
le = _define_binary("le", "x <= y")
gt = _define_binary("gt", "x > y")
ge = _define_binary("ge", "x >= y")


def _define_extreme(name: str, meaning: str, core: str) -> UserFunction:
    def extreme(x: ArrayLike, y: ArrayLike) -> Tracer:
        return emit_elementwise(core, *_align_one_dtype(name, x, y))

    return _document_public(name, f"{meaning}; NaN if one is NaN", extreme)


max = _define_extreme("max", "the larger one of x and y", "maximum")
min = _define_extreme("min", "the smaller one of x and y", "minimum")
bitwise_and = _define_binary(
    "bitwise_and", "the bitwise and of x and y; the logical and of bools", "and"
)
bitwise_or = _define_binary(
    "bitwise_or", "the bitwise or of x and y; the logical or of bools", "or"
)
bitwise_xor = _define_binary("bitwise_xor", "the bitwise exclusive or of x and y", "xor")


class RoundingMethod(IntEnum):
    """The direction in which `round` rounds values halfway between two integers."""

    AWAY_FROM_ZERO = 0
    """Round a halfway value to the integer that is farther from zero."""
    TO_NEAREST_EVEN = 1
    """Round a halfway value to the even integer."""


@public()
def square(x: ArrayLike) -> Tracer:
    """Return x * x, elementwise."""
    tracer = as_tracer(x)
    return emit("mul", tracer, tracer, weak=tracer.weak_type)


@public(static=("y",))
def integer_pow(x: ArrayLike, y: int) -> Tracer:
    """Return x to a concrete integer power, by repeated multiplication."""
    base = as_tracer(x)
    result: Tracer | None = None
    power = -y if y < 0 else y
    while power:
        if power & 1:
            result = base if result is None else emit("mul", result, base, weak=base.weak_type)
        power >>= 1
        if power:
            base = emit("mul", base, base, weak=base.weak_type)
    if result is None:
        return splat(1, base.value.type, base.weak_type)
    return div(1, result) if y < 0 else result


@with_argument_errors
def reciprocal(x: ArrayLike) -> Tracer:
    """Return 1 / x, elementwise."""
    return integer_pow(x, -1)


@public(static=("rounding_method",))
def round(x: ArrayLike, rounding_method: RoundingMethod = RoundingMethod.AWAY_FROM_ZERO) -> Tracer:
    """Return the nearest integral value; ties are rounded away from zero, or to even."""
    tracer = as_tracer(x)
    weak = tracer.weak_type
    # An array has no truth value as the result of a comparison.
    method = rounding_method if isinstance(rounding_method, (int, RoundingMethod)) else None
    if method == RoundingMethod.TO_NEAREST_EVEN:
        return emit("round", tracer, weak=weak)
    if method != RoundingMethod.AWAY_FROM_ZERO:
        raise OperationTypeError(
            with_location(
                f"{brief(rounding_method)} is not a rounding method; see lax.RoundingMethod"
            )
        )
    size = emit("abs", tracer)
    floor_of_size = emit("floor", size)
    half = splat(0.5, size.value.type)
    rounds_up = emit("ge", emit("sub", size, floor_of_size), half)
    ceil_of_size = emit("add", floor_of_size, splat(1.0, size.value.type))
    return emit(
        "mul",
        emit("sign", tracer),
        emit("select", rounds_up, ceil_of_size, floor_of_size),
        weak=weak,
    )


@public()
def select(pred: ArrayLike, on_true: object, on_false: object) -> Tracer:
    """Return the elements of `on_true` where `pred` is true, else those of `on_false`.

    `pred`, of bools or integers, may be a scalar.
    """
    which = as_tracer(pred)
    if which.value.type.dtype not in ("bool", *INTEGERS):
        raise OperationTypeError(
            with_location(
                f"select takes a condition of bools, got {which.value.type}; compare it, as x > 0"
            )
        )
    first, second = _align_one_dtype("select", on_true, on_false)
    which = convert(which, "bool")
    check_cases(which, first, second)
    return emit("select", which, first, second, weak=first.weak_type and second.weak_type)


@public()
def select_n(which: ArrayLike, *cases: ArrayLike) -> Tracer:
    """Return the elements of `cases[which]`; `which` is bool (for two cases) or i32, or a
    scalar.
    """
    index = as_tracer(which)
    dtype = index.value.type.dtype
    if not cases or dtype not in ("bool", "i32") or (dtype == "bool" and len(cases) > 2):
        raise OperationTypeError(
            with_location(
                f"select_n takes a bool for two cases or an i32 for any number, got "
                f"{index.value.type} for {len(cases)}"
            )
        )
    aligned = _align_one_dtype("select_n", *cases)
    check_cases(index, *aligned)
    weak = builtins.all(case.weak_type for case in aligned)
    if dtype == "bool":
        return emit("select", index, aligned[-1], aligned[0], weak=weak)
    result = aligned[-1]
    for number in reversed(range(len(aligned) - 1)):
        is_at_most = emit("le", index, splat(number, index.value.type))
        result = emit("select", is_at_most, aligned[number], result, weak=weak)
    return result


@public()
def clamp(min: ArrayLike, x: ArrayLike, max: ArrayLike) -> Tracer:
    """Clamp `x` to the range from `min` to `max`, which may be scalars."""
    value = as_tracer(x)
    name = value.value.type.dtype
    low, high = (_convert_bound(bound, name) for bound in (min, max))
    if low.shape != high.shape:
        low, high = (broadcast(bound, value.shape) for bound in (low, high))
    return emit("clamp", low, value, high)


def _convert_bound(bound: ArrayLike, name: str) -> Tracer:
    if is_number(bound):
        return splat(bound, TensorType((), name), weak=True)
    tracer = as_tracer(bound)
    if tracer.value.type.dtype != name:
        if not tracer.weak_type:
            raise OperationTypeError(
                with_location(
                    f"lax.clamp takes operands of one element type, got {name} and "
                    f"{tracer.value.type.dtype}; convert one with .astype, or use snp.clip"
                )
            )
        tracer = convert(tracer, name, weak=True)
    return tracer


@with_argument_errors
def convert_element_type(operand: ArrayLike, new_dtype: object) -> Tracer:
    """Convert `operand` to another element type by the rules of C."""
    if type(operand) is int and dtype_of(new_dtype) in FLOATS:
        # A float represents larger integral values than the default integer type.
        operand = float(operand)
    return _convert_traced(operand, new_dtype)


@public(static=("new_dtype",), name="convert_element_type")
def _convert_traced(operand: ArrayLike, new_dtype: object) -> Tracer:
    name = dtype_of(new_dtype)
    if type(operand) is int and name in INTEGERS:
        return splat(operand, TensorType((), name))
    return convert(as_tracer(operand), name)


@public(static=("new_dtype",))
def bitcast_convert_type(operand: ArrayLike, new_dtype: object) -> Tracer:
    """Reinterpret the bits as elements of another type.

    A narrower type adds a last dimension of parts, a wider one removes the last dimension.
    """
    return emit_bitcast(as_tracer(operand), dtype_of(new_dtype))


@public()
def stop_gradient(x: PyTree) -> PyTree:
    """Return the same values without derivatives; accepts containers."""

    def stop(leaf: object) -> Tracer:
        tracer = as_tracer(leaf)
        return emit("stop_gradient", tracer, weak=tracer.weak_type)

    return tree.map(stop, x)
