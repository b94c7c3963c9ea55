"""Owen's T function by Gauss-Legendre quadrature.

For |a| up to 1 its integral is over a smooth function; larger a are exchanged with 1/a
(D. Owen, Tables for computing bivariate normal probabilities, 1956).
"""

from math import pi, sqrt

import numpy as np

from shardir.frontend.arrays.array_types import ArrayLike
from shardir.frontend.dispatch.eager import public
from shardir.frontend.numpy.elementwise import complex_parts, math_functions, selection
from shardir.frontend.numpy.reductions import basic_reductions
from shardir.frontend.numpy.tracer_helpers.elementwise_emission import (
    apply_elementwise,
    constant_like,
    promote_args_inexact,
    require_real,
)
from shardir.frontend.pytree_types import PyTree
from shardir.frontend.scipy.special_functions.double_double import compute_in_double
from shardir.frontend.tracing.operands import align
from shardir.frontend.tracing.tracer import Tracer
from shardir.frontend.tracing.weak_types import strip_weak_types
from shardir.frontend.transforms.custom_jvp import custom_jvp

QUADRATURE_POINTS = 40
INTEGRAND_WIDTH = 9.0
"""Where h t exceeds it, the integrand is below the precision of f64."""


def _owens_t_of_double(h: Tracer, a: Tracer) -> Tracer:
    h, size = complex_parts.abs(h), complex_parts.abs(a)
    is_large = size > 1
    safe = selection.where(is_large, size, constant_like(size, 1))
    small = selection.where(is_large, 1 / safe, size)
    # Infinite h has the limit 0, and an infinite a leaves the probabilities alone.
    h = selection.minimum(h, 1e6)
    scaled = selection.where(is_large, h * selection.minimum(safe, 1e12), h)
    total = _quadrature(scaled, small)
    tail, other = _upper_tail(h), _upper_tail(scaled)
    exchanged = 0.5 * (tail + other) - tail * other - total
    return selection.where(is_large, exchanged, total) * complex_parts.sign(a)


def _upper_tail(h: Tracer) -> Tracer:
    """Return the probability that a standard normal number exceeds h."""
    return 0.5 * apply_elementwise("erfc", h / sqrt(2))


def _quadrature(h: Tracer, a: Tracer) -> Tracer:
    """Return T(h, a) for h at least 0 and a from 0 to 1."""
    nodes, weights = np.polynomial.legendre.leggauss(QUADRATURE_POINTS)
    end = selection.minimum(a, INTEGRAND_WIDTH / selection.maximum(h, 1e-3))
    t = end[..., None] * ((nodes + 1) / 2)
    square = t * t
    values = math_functions.exp(-0.5 * h[..., None] * h[..., None] * square) / (1 + square)
    integral = basic_reductions.sum(values * (weights / 2), axis=-1) * end
    return math_functions.exp(-0.5 * h * h) / (2 * pi) * integral


@custom_jvp
def _owens_t(h: Tracer, a: Tracer) -> Tracer:
    return compute_in_double(_owens_t_of_double)(h, a)


@_owens_t.defjvp
def _owens_t_rule(primals: PyTree, tangents: PyTree) -> tuple[Tracer, ...]:
    h, a = primals
    along_h = (
        -math_functions.exp(-0.5 * h * h)
        * apply_elementwise("erf", a * h / sqrt(2))
        / (2 * sqrt(2 * pi))
    )
    along_a = math_functions.exp(-0.5 * h * h * (1 + a * a)) / (2 * pi * (1 + a * a))
    return _owens_t(h, a), along_h * tangents[0] + along_a * tangents[1]


@public()
@strip_weak_types
def owens_t(h: ArrayLike, a: ArrayLike) -> Tracer:
    """Return the probability that X > h and 0 < Y < a X for independent standard normal numbers X
    and Y, elementwise.
    """
    h, a = align(*promote_args_inexact(*require_real("owens_t", h, a)))
    return _owens_t(h, a)
