"""Fresnel integrals, and sine and cosine integrals.

Both have power series for small arguments (DLMF 7.6.4, 7.6.6 and 6.6.5, 6.6.6). Beyond, the Fresnel
integrals follow from the Faddeeva function (DLMF 7.5.8), the others from the continued fraction of
E_1 at imaginary arguments (DLMF 6.5.5).
"""

from collections.abc import Callable
from math import factorial, pi, sqrt

import numpy as np

from shardir.frontend.arrays.array_types import ArrayLike
from shardir.frontend.config import config
from shardir.frontend.dispatch.eager import public
from shardir.frontend.numpy import dtypes
from shardir.frontend.numpy.elementwise import complex_parts, math_functions, selection
from shardir.frontend.numpy.tracer_helpers.elementwise_emission import (
    constant_like,
    emit_elementwise,
    promote_args_inexact,
    require_real,
)
from shardir.frontend.pytree_types import PyTree
from shardir.frontend.scipy.special_functions.continued_fractions import continued_fraction_of_e
from shardir.frontend.scipy.special_functions.faddeeva import wofz_of_double
from shardir.frontend.tracing.operands import convert
from shardir.frontend.tracing.tracer import Tracer
from shardir.frontend.tracing.weak_types import strip_weak_types
from shardir.frontend.transforms.custom_jvp import custom_jvp

FRESNEL_SERIES_END, FRESNEL_TERMS = 1.5, 18
SICI_SERIES_END, SICI_TERMS, SICI_FRACTION_TERMS = 4.0, 18, 60
MAX_FRESNEL_ARGUMENT = 2.0**100
"""Larger arguments have the limits of the Fresnel integrals in f64."""

Pair = tuple[Tracer, Tracer]


def _pair_in_double(function: Callable[[Tracer], Pair], x: Tracer) -> Pair:
    """Return both results of a function of f64, rounded to the element type of x."""
    kind, weak = x.value.type.dtype, x.weak_type
    with config(enable_x64=True):
        first, second = function(convert(x, "f64"))
    return convert(first, kind, weak), convert(second, kind, weak)


def _even_series(square: Tracer, coefficients: list[float]) -> Tracer:
    *lower, last = coefficients
    total = 0.0 * square + last
    for coefficient in reversed(lower):
        total = total * square + coefficient
    return total


def _fresnel_of_double(x: Tracer) -> Pair:
    size = complex_parts.abs(x)
    small = selection.minimum(size, FRESNEL_SERIES_END)
    phase = pi / 2 * small * small
    square = -phase * phase
    near_cosine = small * _even_series(
        square, [1 / (factorial(2 * k) * (4 * k + 1)) for k in range(FRESNEL_TERMS)]
    )
    near_sine = (
        small
        * phase
        * _even_series(
            square, [1 / (factorial(2 * k + 1) * (4 * k + 3)) for k in range(FRESNEL_TERMS)]
        )
    )
    large = selection.clip(size, FRESNEL_SERIES_END, MAX_FRESNEL_ARGUMENT)
    scaled = sqrt(pi) / 2 * large
    w = wofz_of_double(emit_elementwise("complex", scaled, scaled))
    angle = pi / 2 * large * large
    cosine, sine = math_functions.cos(angle), math_functions.sin(angle)
    real, imaginary = complex_parts.real(w), complex_parts.imag(w)
    # (1 + i) / 2 times 1 - exp(i angle) w.
    first = 1 - (cosine * real - sine * imaginary)
    second = -(cosine * imaginary + sine * real)
    is_near = size < FRESNEL_SERIES_END
    sign = complex_parts.sign(x)
    s = selection.where(is_near, near_sine, (first + second) / 2)
    c = selection.where(is_near, near_cosine, (first - second) / 2)
    is_limit = size == dtypes.inf
    s, c = (selection.where(is_limit, 0.5, part) * sign for part in (s, c))
    return s, c


def _sici_of_double(x: Tracer) -> Pair:
    size = complex_parts.abs(x)
    small = selection.clip(size, np.finfo(np.float64).tiny, SICI_SERIES_END)
    square = -small * small
    near_sine = small * _even_series(
        square, [1 / ((2 * k + 1) * factorial(2 * k + 1)) for k in range(SICI_TERMS)]
    )
    near_cosine = math_functions.log(small) + (
        float(np.euler_gamma)
        + square
        * _even_series(square, [1 / (2 * k * factorial(2 * k)) for k in range(1, SICI_TERMS)])
    )
    is_limit = size == dtypes.inf
    large = selection.where(
        is_limit, constant_like(size, SICI_SERIES_END), selection.maximum(size, SICI_SERIES_END)
    )
    turned = emit_elementwise("complex", constant_like(large, 0), large)
    e = continued_fraction_of_e(1.0, turned, SICI_FRACTION_TERMS)
    cosine, sine = math_functions.cos(large), math_functions.sin(large)
    real, imaginary = complex_parts.real(e), complex_parts.imag(e)
    far_cosine = -(cosine * real + sine * imaginary)
    far_sine = pi / 2 + (cosine * imaginary - sine * real)
    is_near = size < SICI_SERIES_END
    si = selection.where(is_near, near_sine, selection.where(is_limit, pi / 2, far_sine))
    ci = selection.where(is_near, near_cosine, selection.where(is_limit, 0.0, far_cosine))
    ci = selection.where(x == 0, -dtypes.inf, selection.where(x == -dtypes.inf, dtypes.nan, ci))
    is_nan = x != x
    return selection.where(is_nan, x, si * complex_parts.sign(x)), selection.where(is_nan, x, ci)


@custom_jvp
def _fresnel(x: Tracer) -> Pair:
    return _pair_in_double(_fresnel_of_double, x)


@_fresnel.defjvp
def _fresnel_rule(primals: PyTree, tangents: PyTree) -> PyTree:
    (x,), (step,) = primals, tangents
    angle = pi / 2 * x * x
    return _fresnel(x), (math_functions.sin(angle) * step, math_functions.cos(angle) * step)


@custom_jvp
def _sici(x: Tracer) -> Pair:
    return _pair_in_double(_sici_of_double, x)


@_sici.defjvp
def _sici_rule(primals: PyTree, tangents: PyTree) -> PyTree:
    (x,), (step,) = primals, tangents
    safe = selection.where(x == 0, constant_like(x, 1), x)
    slope = selection.where(x == 0, constant_like(x, 1), math_functions.sin(safe) / safe)
    return _sici(x), (slope * step, math_functions.cos(x) / x * step)


@public()
@strip_weak_types
def fresnel(x: ArrayLike) -> Pair:
    """Return the Fresnel integrals S(x) and C(x), elementwise: the integrals of sin(pi t^2 / 2) and
    of cos(pi t^2 / 2) from 0 to x.
    """
    made: Pair = _fresnel(*promote_args_inexact(*require_real("fresnel", x)))
    return made


@public()
@strip_weak_types
def sici(x: ArrayLike) -> Pair:
    """Return the sine integral and the cosine integral, elementwise.

    The first is the integral of sin(t) / t from 0 to x, the second of cos(t) / t from infinity.
    """
    made: Pair = _sici(*promote_args_inexact(*require_real("sici", x)))
    return made
