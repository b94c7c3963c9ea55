"""Elementwise activation functions. Integers become floats."""

from math import log, pi, sqrt
from typing import Any

from shardir.frontend import numpy as snp
from shardir.frontend.eager import public
from shardir.frontend.errors import ShapeError
from shardir.frontend.locations import point
from shardir.frontend.numpy.along import piece
from shardir.frontend.numpy.axes import axis_of
from shardir.frontend.numpy.pointwise import choose, common, inexact, like, same
from shardir.frontend.operands import as_tracer, promote_to
from shardir.frontend.tracer import Tracer


def floating(x: Any) -> Tracer:
    """Promote `x` to a floating type: integers and bools become floats."""
    return promote_to(inexact(x), x)[0]


def weakly_floating(x: Any, *others: Any) -> Tracer:
    """Promote `x` with a Python float (or with `others`); integers become weakly typed floats."""
    return promote_to(common(x, *(others or (1.0,))), x)[0]


tanh = snp.tanh


@public()
def identity(x: Any) -> Any:
    """Return x."""
    return as_tracer(x)


@public()
def relu(x: Any) -> Any:
    """Return max(x, 0), elementwise; the derivative at 0 is 0."""
    x = weakly_floating(x, 0)
    zero = like(x, 0)
    return same("select", same("le", x, zero), zero, x)


@public()
def relu6(x: Any) -> Any:
    """Return x clamped to [0, 6], elementwise; the derivative at both bounds is 0."""
    return _relu6(weakly_floating(x))


def _relu6(x: Tracer) -> Tracer:
    below, above = same("le", x, like(x, 0)), same("ge", x, like(x, 6))
    return same("select", below, like(x, 0), same("select", above, like(x, 6), x))


@public()
def leaky_relu(x: Any, negative_slope: Any = 0.01) -> Any:
    """Return x if it is not negative, else negative_slope * x, elementwise."""
    x = weakly_floating(x, negative_slope)
    return choose(x >= 0, x, x * negative_slope)


@public()
def sigmoid(x: Any) -> Any:
    """Return 1 / (1 + exp(-x)), elementwise."""
    return same("logistic", floating(x))


@public()
def silu(x: Any) -> Any:
    """Return x * sigmoid(x), elementwise."""
    x = floating(x)
    return x * same("logistic", x)


swish = silu


@public()
def softplus(x: Any) -> Any:
    """Return log(1 + exp(x)), elementwise, without overflow."""
    return _softplus(floating(x))


def _softplus(x: Tracer) -> Tracer:
    # At 0, where the derivative of |x| is 1, x is included, so that the sum has the derivative 1/2.
    rest = same("log1p", same("exp", same("neg", same("abs", x))))
    return same("add", same("select", same("lt", x, like(x, 0)), like(x, 0), x), rest)


@public()
def log_sigmoid(x: Any) -> Any:
    """Return log(sigmoid(x)), elementwise, without underflow."""
    return same("neg", _softplus(same("neg", floating(x))))


@public(static=("approximate",))
def gelu(x: Any, approximate: bool = True) -> Any:
    """Return x times the standard normal distribution function; `approximate` uses tanh for erf."""
    x = floating(x)
    if not approximate:
        return x * 0.5 * same("erfc", x * -sqrt(0.5))
    inner = (x + x * x * x * 0.044715) * sqrt(2 / pi)
    return x * 0.5 * (same("tanh", inner) + 1)


@public()
def elu(x: Any, alpha: Any = 1.0) -> Any:
    """Return x if it is positive, else alpha * (exp(x) - 1), elementwise."""
    return _elu(weakly_floating(x), alpha)


def _elu(x: Tracer, alpha: Any) -> Tracer:
    # The exponential is evaluated only for x <= 0, so that its derivative is never infinite.
    positive = same("gt", x, like(x, 0))
    below = same("expm1", same("select", positive, like(x, 0), x))
    return choose(positive, x, below * alpha)


@public()
def selu(x: Any) -> Any:
    """Return `elu` scaled so that normal numbers keep mean 0 and variance 1."""
    return (
        _elu(weakly_floating(x), 1.6732632423543772848170429916717)
        * 1.0507009873554804934193349852946
    )


@public()
def celu(x: Any, alpha: Any = 1.0) -> Any:
    """Return max(x, 0) + min(alpha * (exp(x / alpha) - 1), 0), elementwise."""
    return _elu(weakly_floating(x) / alpha, 1.0) * alpha


@public()
def mish(x: Any) -> Any:
    """Return x * tanh(softplus(x)), elementwise."""
    x = floating(x)
    return x * same("tanh", _softplus(x))


@public()
def soft_sign(x: Any) -> Any:
    """Return x / (|x| + 1), elementwise."""
    x = floating(x)
    return x / (same("abs", x) + 1)


@public()
def squareplus(x: Any, b: Any = 4) -> Any:
    """Return (x + sqrt(x**2 + b)) / 2, elementwise."""
    x = floating(x)
    return (x + snp.sqrt(x * x + b)) * 0.5


@public()
def sparse_plus(x: Any) -> Any:
    """Return 0 below -1, x above 1, and (x + 1)**2 / 4 in between, elementwise."""
    x = weakly_floating(x)
    middle = choose(x >= 1, x, (x + 1) * (x + 1) * 0.25)
    return choose(x <= -1, 0, middle)


@public()
def sparse_sigmoid(x: Any) -> Any:
    """Return (x + 1) / 2 clamped to [0, 1], elementwise: the derivative of `sparse_plus`."""
    return snp.clip(weakly_floating(x) + 1, 0, 2) * 0.5


@public()
def log1mexp(x: Any) -> Any:
    """Return log(1 - exp(-x)) of positive numbers, elementwise, accurate for small and large
    ones.
    """
    x = floating(x)
    is_small = same("lt", x, like(x, log(2)))
    # Each formula is evaluated only in its own range, so that the other derivative is never
    # infinite.
    small = choose(is_small, x, log(2))
    large = choose(is_small, log(2), x)
    for_small = same("log", same("neg", same("expm1", same("neg", small))))
    for_large = same("log1p", same("neg", same("exp", same("neg", large))))
    return same("select", is_small, for_small, for_large)


@public()
def hard_tanh(x: Any) -> Any:
    """Return x clamped to [-1, 1], elementwise; the derivative at both bounds is 1."""
    x = weakly_floating(x, 1)
    return choose(x > 1, 1, choose(x < -1, -1, x))


@public()
def hard_sigmoid(x: Any) -> Any:
    """Return x / 6 + 0.5 clamped to [0, 1], elementwise."""
    return _relu6(weakly_floating(x) + 3) / 6


@public()
def hard_silu(x: Any) -> Any:
    """Return x * hard_sigmoid(x), elementwise."""
    x = weakly_floating(x)
    return x * (_relu6(x + 3) / 6)


hard_swish = hard_silu


@public(static=("axis",))
def glu(x: Any, axis: int = -1) -> Any:
    """Return the first half along `axis` times the sigmoid of the second half.

    Raise `ShapeError` if the size of the axis is odd.
    """
    x = floating(x)
    dim = axis_of(axis, x.ndim)
    size = x.shape[dim]
    if size % 2:
        raise ShapeError(point(f"glu halves axis {axis}, whose size {size} is odd"))
    gate = same("logistic", piece(x, dim, size // 2, size))
    return same("mul", piece(x, dim, 0, size // 2), gate)
