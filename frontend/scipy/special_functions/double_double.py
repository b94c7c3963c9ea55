"""Sums, products and powers of f64 with their rounding errors.

A number in two parts is an unevaluated sum whose second part is below one ulp of the first.

`compute_in_single` and `compute_in_double` compute narrow floats in wider types.
"""

from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from shardir.frontend.config import config
from shardir.frontend.numpy.tracer_helpers.elementwise_emission import apply_elementwise
from shardir.frontend.pytree_types import PyTree, UserFunction
from shardir.frontend.tracing.operands import convert
from shardir.frontend.tracing.tracer import Tracer

DoubleDouble: TypeAlias = tuple[Tracer, Tracer]

TwoParts: TypeAlias = tuple[Tracer | float, Tracer | float]
"""A number in two parts that may be constants."""

DEKKER_SPLIT_F64 = 2.0**27 + 1
"""The factor of Dekker's split into halves (1971)."""


def two_sum(a: Tracer, b: Tracer) -> DoubleDouble:
    """Return a + b and its exact rounding error (D. Knuth, 1969)."""
    total = a + b
    of_b = total - a
    return total, (a - (total - of_b)) + (b - of_b)


def two_product(a: Tracer, b: Tracer | float) -> DoubleDouble:
    """Return a b and its exact rounding error, for numbers below 2^996 (T. Dekker, 1971)."""
    (high, low), (other_high, other_low) = _split_halves(a), _split_halves(b)
    product = a * b
    rest = (high * other_high - product) + high * other_low + low * other_high
    return product, rest + low * other_low


def _split_halves(x: Tracer | float) -> TwoParts:
    scaled = x * DEKKER_SPLIT_F64
    high = scaled - (scaled - x)
    return high, x - high


def power_of_quotient(
    top: tuple[Tracer, Tracer | float], bottom: TwoParts, y: Tracer
) -> DoubleDouble:
    """Return (top / bottom)^y over e^c, and c: y times the relative error of the quotient."""
    quotient = top[0] / bottom[0]
    product, rest = two_product(quotient, bottom[0])
    quotient_error = ((top[0] - product) - rest) + (top[1] - quotient * bottom[1])
    return apply_elementwise("pow", quotient, y), quotient_error / top[0] * y


def compute_in_single(function: Callable[[PyTree], PyTree]) -> Callable[[Tracer], Tracer]:
    """Extend a function of f32 and f64 to narrower floats: compute in f32, round once."""

    def compute(x: Tracer) -> Tracer:
        wide = x.dtype.itemsize >= 4
        result: Tracer = function(x if wide else x.astype(np.float32))
        return result if wide else result.astype(x.dtype)

    return compute


def compute_in_double(function: UserFunction) -> Callable[..., Tracer]:
    """Extend a function of f64 to narrower floats: compute in f64, round once.

    The computation and its derivatives are f64 independent of `enable_x64`.
    """

    def compute(*xs: Tracer) -> Tracer:
        first = xs[0]
        with config(enable_x64=True):
            result: Tracer = function(*(convert(x, "f64") for x in xs))
        return convert(result, first.value.type.dtype, first.weak_type)

    return compute
