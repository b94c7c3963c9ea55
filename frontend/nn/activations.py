"""Elementwise activation functions. Integers become floats."""

from math import log, pi, sqrt

from shardir.frontend.arrays.array_types import ArrayLike
from shardir.frontend.dispatch.eager import public
from shardir.frontend.errors import ShapeError
from shardir.frontend.numpy.elementwise import math_functions, selection
from shardir.frontend.numpy.tracer_helpers.axes import canonicalize_axis
from shardir.frontend.numpy.tracer_helpers.axis_slices import slice_dim
from shardir.frontend.numpy.tracer_helpers.elementwise_emission import (
    common_kind,
    constant_like,
    emit_elementwise,
    emit_select,
    inexact_kind,
    is_complex,
)
from shardir.frontend.source_locations import with_location
from shardir.frontend.tracing.operands import as_tracer, operand_dtype, promote_to
from shardir.frontend.tracing.tracer import Tracer
from shardir.frontend.tracing.weak_types import strip_weak_type, strip_weak_types


def promote_to_float(x: ArrayLike) -> Tracer:
    """Promote `x` to a floating type: integers and bools become floats."""
    return promote_to(inexact_kind(x), x)[0]


def _promote_bools_weakly(x: ArrayLike) -> Tracer:
    """Promote `x` to a floating type; bools become weakly typed floats, as beside a number."""
    dtype, is_weak = inexact_kind(x)
    return promote_to((dtype, is_weak or operand_dtype(x)[0] == "bool"), x)[0]


def promote_to_weak_float(x: ArrayLike, *others: object) -> Tracer:
    """Promote `x` with a Python float (or with `others`); integers become weakly typed floats."""
    return promote_to(common_kind(x, *(others or (1.0,))), x)[0]


tanh = math_functions.tanh


@public()
def identity(x: ArrayLike) -> Tracer:
    """Return x."""
    return as_tracer(x)


@public()
def relu(x: ArrayLike) -> Tracer:
    """Return max(x, 0), elementwise; the derivative at 0 is 0."""
    x = promote_to_weak_float(x, 0)
    zero = constant_like(x, 0)
    return emit_elementwise("select", emit_elementwise("le", x, zero), zero, x)


@public()
def relu6(x: ArrayLike) -> Tracer:
    """Return x clamped to [0, 6], elementwise; the derivative at both bounds is 0."""
    return _relu6(promote_to_weak_float(x))


def _relu6(x: Tracer) -> Tracer:
    below, above = (
        emit_elementwise("le", x, constant_like(x, 0)),
        emit_elementwise("ge", x, constant_like(x, 6)),
    )
    return emit_elementwise(
        "select",
        below,
        constant_like(x, 0),
        emit_elementwise("select", above, constant_like(x, 6), x),
    )


@public()
def leaky_relu(x: ArrayLike, negative_slope: ArrayLike = 0.01) -> Tracer:
    """Return x if it is not negative, else negative_slope * x, elementwise."""
    x = promote_to_weak_float(x, negative_slope)
    return emit_select(x >= 0, x, x * as_tracer(negative_slope))


@public()
def sigmoid(x: ArrayLike) -> Tracer:
    """Return 1 / (1 + exp(-x)), elementwise."""
    return emit_elementwise("logistic", promote_to_float(x))


@public()
def silu(x: ArrayLike) -> Tracer:
    """Return x * sigmoid(x), elementwise."""
    x = promote_to_float(x)
    return x * emit_elementwise("logistic", x)


swish = silu


@public()
def softplus(x: ArrayLike) -> Tracer:
    """Return log(1 + exp(x)), elementwise, without overflow."""
    return _softplus(_promote_bools_weakly(x))


def _softplus(x: Tracer) -> Tracer:
    if is_complex(x):
        return strip_weak_type(math_functions.logaddexp(x, 0))
    # At 0, where the derivative of |x| is 1, x is included, so that the sum has the derivative 1/2.
    rest = emit_elementwise(
        "log1p", emit_elementwise("exp", emit_elementwise("neg", emit_elementwise("abs", x)))
    )
    return emit_elementwise(
        "add",
        emit_elementwise(
            "select", emit_elementwise("lt", x, constant_like(x, 0)), constant_like(x, 0), x
        ),
        rest,
    )


@public()
def log_sigmoid(x: ArrayLike) -> Tracer:
    """Return log(sigmoid(x)), elementwise, without underflow."""
    return emit_elementwise("neg", _softplus(emit_elementwise("neg", promote_to_float(x))))


@public(static=("approximate",))
@strip_weak_types
def gelu(x: ArrayLike, approximate: bool = True) -> Tracer:
    """Return x times the standard normal distribution function; `approximate` uses tanh for erf."""
    x = promote_to_float(x)
    if not approximate:
        return x * 0.5 * emit_elementwise("erfc", x * -sqrt(0.5))
    inner = (x + x * x * x * 0.044715) * sqrt(2 / pi)
    return x * 0.5 * (emit_elementwise("tanh", inner) + 1)


@public()
def elu(x: ArrayLike, alpha: ArrayLike = 1.0) -> Tracer:
    """Return x if it is positive, else alpha * (exp(x) - 1), elementwise."""
    return _elu(promote_to_weak_float(x), as_tracer(alpha))


def _elu(x: Tracer, alpha: ArrayLike) -> Tracer:
    # The exponential is evaluated only for x <= 0, so that its derivative is never infinite.
    positive = emit_elementwise("gt", x, constant_like(x, 0))
    below = emit_elementwise("expm1", emit_elementwise("select", positive, constant_like(x, 0), x))
    return emit_select(positive, x, below * alpha)


@public()
def selu(x: ArrayLike) -> Tracer:
    """Return `elu` scaled so that normal numbers keep mean 0 and variance 1."""
    return (
        _elu(promote_to_weak_float(x), 1.6732632423543772848170429916717)
        * 1.0507009873554804934193349852946
    )


@public()
def celu(x: ArrayLike, alpha: ArrayLike = 1.0) -> Tracer:
    """Return max(x, 0) + min(alpha * (exp(x / alpha) - 1), 0), elementwise."""
    scale = as_tracer(alpha)
    return _elu(promote_to_weak_float(x) / scale, 1.0) * scale


@public()
def mish(x: ArrayLike) -> Tracer:
    """Return x * tanh(softplus(x)), elementwise."""
    x = _promote_bools_weakly(x)
    return x * emit_elementwise("tanh", _softplus(x))


@public()
def soft_sign(x: ArrayLike) -> Tracer:
    """Return x / (|x| + 1), elementwise."""
    x = _promote_bools_weakly(x)
    return x / (emit_elementwise("abs", x) + 1)


@public()
def squareplus(x: ArrayLike, b: ArrayLike = 4) -> Tracer:
    """Return (x + sqrt(x**2 + b)) / 2, elementwise."""
    x = promote_to(inexact_kind(x, b), x)[0]
    return (x + math_functions.sqrt(x * x + as_tracer(b))) * 0.5


@public()
def sparse_plus(x: ArrayLike) -> Tracer:
    """Return 0 below -1, x above 1, and (x + 1)**2 / 4 in between, elementwise."""
    x = promote_to_weak_float(x)
    middle = emit_select(x >= 1, x, (x + 1) * (x + 1) * 0.25)
    return emit_select(x <= -1, 0, middle)


@public()
def sparse_sigmoid(x: ArrayLike) -> Tracer:
    """Return (x + 1) / 2 clamped to [0, 1], elementwise: the derivative of `sparse_plus`."""
    return selection.clip(promote_to_weak_float(x) + 1, 0, 2) * 0.5


@public()
def log1mexp(x: ArrayLike) -> Tracer:
    """Return log(1 - exp(-x)) of positive numbers, elementwise, accurate for small and large
    ones.
    """
    x = promote_to_float(x)
    is_small = emit_elementwise("lt", x, constant_like(x, log(2)))
    # Each formula is evaluated only in its own range, so that the other derivative is never
    # infinite.
    small = emit_select(is_small, x, log(2))
    large = emit_select(is_small, log(2), x)
    for_small = emit_elementwise(
        "log", emit_elementwise("neg", emit_elementwise("expm1", emit_elementwise("neg", small)))
    )
    for_large = emit_elementwise(
        "log1p", emit_elementwise("neg", emit_elementwise("exp", emit_elementwise("neg", large)))
    )
    return emit_elementwise("select", is_small, for_small, for_large)


@public()
def hard_tanh(x: ArrayLike) -> Tracer:
    """Return x clamped to [-1, 1], elementwise; the derivative at both bounds is 1."""
    x = promote_to_weak_float(x, 1)
    return emit_select(x > 1, 1, emit_select(x < -1, -1, x))


@public()
def hard_sigmoid(x: ArrayLike) -> Tracer:
    """Return x / 6 + 0.5 clamped to [0, 1], elementwise."""
    return _relu6(promote_to_weak_float(x) + 3) / 6


@public()
def hard_silu(x: ArrayLike) -> Tracer:
    """Return x * hard_sigmoid(x), elementwise."""
    x = promote_to_weak_float(x)
    return x * (_relu6(x + 3) / 6)


hard_swish = hard_silu


@public(static=("axis",))
def glu(x: ArrayLike, axis: int = -1) -> Tracer:
    """Return the first half along `axis` times the sigmoid of the second half.

    Raise `ShapeError` if the size of the axis is odd.
    """
    x = promote_to_float(x)
    dim = canonicalize_axis(axis, x.ndim)
    size = x.shape[dim]
    if size % 2:
        raise ShapeError(with_location(f"glu halves axis {axis}, whose size {size} is odd"))
    gate = emit_elementwise("logistic", slice_dim(x, dim, size // 2, size))
    return emit_elementwise("mul", slice_dim(x, dim, 0, size // 2), gate)
