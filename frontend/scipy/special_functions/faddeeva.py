"""The scaled complementary error function w(z) = exp(-z^2) erfc(-i z), and functions related to it.

In the upper half-plane w is a polynomial of degree 39 in (L + i z) / (L - i z), divided by
(L - i z)^2, plus a simple pole (J. Weideman, Computation of the complex error function, 1994); its
coefficients are Fourier coefficients. The relative error is a few ulps of f64.
"""

from functools import cache
from math import pi, sqrt

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
from shardir.frontend.scipy.special_functions.double_double import compute_in_double
from shardir.frontend.tracing.operands import convert
from shardir.frontend.tracing.tracer import Tracer
from shardir.frontend.tracing.weak_types import strip_weak_types
from shardir.frontend.transforms.custom_jvp import custom_jvp

POLYNOMIAL_TERMS = 40
"""The number of terms of the polynomial: more do not reduce the error in f64."""
SERIES_LIMIT, SERIES_TERMS = 1.0, 24
"""Below the limit, the power series of Dawson's integral has a smaller relative error."""
MAX_SQUARED_ARGUMENT = 2.0**500
"""Arguments are limited to it, so that their squares are finite."""


@cache
def _weideman_coefficients() -> tuple[float, tuple[float, ...]]:
    """Return L and the coefficients of the polynomial, the highest power first."""
    terms = POLYNOMIAL_TERMS
    scale = sqrt(terms / sqrt(2))
    angles = np.arange(1 - 2 * terms, 2 * terms) * (pi / (2 * terms))
    points = scale * np.tan(angles / 2)
    values = np.concatenate([[0.0], np.exp(-points * points) * (scale**2 + points**2)])
    coefficients = np.fft.fft(np.fft.fftshift(values)).real / (4 * terms)
    return scale, tuple(map(float, coefficients[terms:0:-1]))


def upper_faddeeva(numerator: Tracer, denominator: Tracer) -> Tracer:
    """Return w(z) for z in the upper half-plane, from L + i z and L - i z."""
    quotient = numerator / denominator
    total: Tracer | float = 0.0
    for coefficient in _weideman_coefficients()[1]:
        total = total * quotient + coefficient
    return (2 * total / denominator + 1 / sqrt(pi)) / denominator


def faddeeva_scale() -> float:
    """Return L."""
    return _weideman_coefficients()[0]


def _clip_to_finite(x: Tracer) -> Tracer:
    """Return finite numbers; larger ones give the same results."""
    return selection.clip(x, -MAX_SQUARED_ARGUMENT, MAX_SQUARED_ARGUMENT)


def _erfcx_of_double(x: Tracer) -> Tracer:
    size = complex_parts.abs(_clip_to_finite(x))
    scale = faddeeva_scale()
    right = upper_faddeeva(scale - size, scale + size)
    left = 2 * math_functions.exp(size * size) - right
    return selection.where(x < 0, left, selection.where(x == dtypes.inf, 0.0, right))


def _dawsn_of_double(x: Tracer) -> Tracer:
    bounded = _clip_to_finite(x)
    square = selection.minimum(bounded * bounded, SERIES_LIMIT)
    near = constant_like(x, 1)
    for k in range(SERIES_TERMS, 0, -1):
        near = 1 - 2 * square / (2 * k + 1) * near
    scale = faddeeva_scale()
    upward = emit_elementwise("complex", constant_like(x, scale), bounded)
    far = complex_parts.imag(upper_faddeeva(upward, complex_parts.conj(upward)))
    result = selection.where(bounded * bounded < SERIES_LIMIT, bounded * near, far * (sqrt(pi) / 2))
    return selection.where(complex_parts.abs(x) == dtypes.inf, 0 / x, result)


def wofz_of_double(z: Tracer) -> Tracer:
    """Return w(z) for complex numbers of f64; in the lower half-plane it is 2 exp(-z^2) - w(-z)."""
    is_low = complex_parts.imag(z) < 0
    upper = selection.where(is_low, -z, z)
    turned = 1j * upper
    scale = faddeeva_scale()
    right = upper_faddeeva(scale + turned, scale - turned)
    safe = selection.where(is_low, z, constant_like(z, 0))
    return selection.where(is_low, 2 * math_functions.exp(-safe * safe) - right, right)


@custom_jvp
def _erfcx(x: Tracer) -> Tracer:
    return compute_in_double(_erfcx_of_double)(x)


@_erfcx.defjvp
def _erfcx_rule(primals: PyTree, tangents: PyTree) -> PyTree:
    (x,) = primals
    value = _erfcx(x)
    return value, (2 * x * value - 2 / sqrt(pi)) * tangents[0]


@custom_jvp
def _dawsn(x: Tracer) -> Tracer:
    return compute_in_double(_dawsn_of_double)(x)


@_dawsn.defjvp
def _dawsn_rule(primals: PyTree, tangents: PyTree) -> PyTree:
    (x,) = primals
    value = _dawsn(x)
    return value, (1 - 2 * x * value) * tangents[0]


@custom_jvp
def _wofz(z: Tracer) -> Tracer:
    kind = z.value.type.dtype
    with config(enable_x64=True):
        result = wofz_of_double(convert(z, "c128"))
    return convert(result, kind, z.weak_type)


@_wofz.defjvp
def _wofz_rule(primals: PyTree, tangents: PyTree) -> PyTree:
    (z,) = primals
    value = _wofz(z)
    return value, (-2 * z * value + 2j / sqrt(pi)) * tangents[0]


def _as_complex(x: Tracer) -> Tracer:
    return convert(x, "c128" if x.value.type.dtype == "f64" else "c64", x.weak_type)


@public()
@strip_weak_types
def wofz(z: ArrayLike) -> Tracer:
    """Return the Faddeeva function w(z) = exp(-z^2) erfc(-i z), elementwise, as complex numbers."""
    (z,) = promote_args_inexact(z)
    return _wofz(z if z.dtype.kind == "c" else _as_complex(z))


@public()
@strip_weak_types
def erfcx(x: ArrayLike) -> Tracer:
    """Return exp(x^2) erfc(x), elementwise; x is real or complex."""
    (x,) = promote_args_inexact(x)
    return _wofz(1j * x) if x.dtype.kind == "c" else _erfcx(x)


@public()
@strip_weak_types
def dawsn(x: ArrayLike) -> Tracer:
    """Return exp(-x^2) times the integral of exp(t^2) from 0 to x (Dawson's), elementwise."""
    return _dawsn(*promote_args_inexact(*require_real("dawsn", x)))
