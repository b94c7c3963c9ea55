"""Spherical harmonics by the recurrence of normalized Legendre functions (DLMF 14.10.3)."""

from math import pi, sqrt

import numpy as np

from shardir.frontend.argument_checks import check_integer
from shardir.frontend.argument_errors import with_argument_errors
from shardir.frontend.arrays.array_types import ArrayLike
from shardir.frontend.dispatch.eager import public
from shardir.frontend.errors import ArgumentError
from shardir.frontend.numpy.elementwise import complex_parts, math_functions, selection
from shardir.frontend.numpy.tracer_helpers.concrete_values import require_concrete
from shardir.frontend.numpy.tracer_helpers.elementwise_emission import (
    constant_like,
    emit_elementwise,
    promote_args_inexact,
    require_real,
)
from shardir.frontend.quoting import brief
from shardir.frontend.source_locations import with_location
from shardir.frontend.tracing.operands import as_tracer, broadcast, broadcast_shapes
from shardir.frontend.tracing.tracer import Tracer

MAX_DEGREE = 4096
"""Maximum degree of spherical harmonics: a program has about 20 operations for each degree."""


def _normalized_legendre(n: Tracer, m: Tracer, theta: Tracer, last: int) -> Tracer:
    """Return the Legendre function of degree n and order m at cos(theta), as in Y_n^m, for m >= 0.

    All orders advance together: at degree l the recurrence of order l begins.
    """
    # As in SciPy, the sine is the positive root of 1 - x^2, also outside of [0, pi].
    x, sine = math_functions.cos(theta), complex_parts.abs(math_functions.sin(theta))
    zero = constant_like(x, 0)
    start = constant_like(x, 1 / sqrt(4 * pi))
    result, before, current = zero, zero, zero
    for degree in range(last + 1):
        if degree:
            start = -sqrt((2 * degree + 1) / (2 * degree)) * sine * start
        square = selection.minimum(m * m, max(degree * degree - 1, 0)).astype(x.dtype)
        gap = selection.maximum(degree * degree - square, 1)
        scale = math_functions.sqrt((4 * degree * degree - 1) / gap) if degree else zero
        if degree > 1:
            rest = selection.maximum((degree - 1) ** 2 - square, 0) / (4 * (degree - 1) ** 2 - 1)
            advanced = scale * (x * current - math_functions.sqrt(rest) * before)
        else:
            advanced = scale * x * current
        advanced = selection.where(m == degree, start, selection.where(m < degree, advanced, zero))
        before, current = current, advanced
        result = selection.where(n == degree, current, result)
    return result


@public(static=("last",), name="sph_harm_y")
def _sph_harm_y(n: ArrayLike, m: ArrayLike, theta: ArrayLike, phi: ArrayLike, last: int) -> Tracer:
    theta, phi = promote_args_inexact(*require_real("sph_harm_y", theta, phi))
    shape = broadcast_shapes(*(as_tracer(x).shape for x in (n, m, theta, phi)))
    n, m, theta, phi = (broadcast(as_tracer(x), shape) for x in (n, m, theta, phi))
    size = complex_parts.abs(m)
    kind = theta.dtype
    legendre = _normalized_legendre(n, size, theta, last)
    angle = size.astype(kind) * phi
    real = legendre * math_functions.cos(angle)
    imaginary = legendre * math_functions.sin(angle)
    # Y_n^-m is (-1)^m times the conjugate of Y_n^m.
    is_negative = m < 0
    sign = selection.where(is_negative & (size % 2 == 1), -1.0, 1.0).astype(kind)
    turned = selection.where(is_negative, -imaginary, imaginary)
    return emit_elementwise("complex", sign * real, sign * turned)


@with_argument_errors
def sph_harm_y(
    n: ArrayLike, m: ArrayLike, theta: ArrayLike, phi: ArrayLike, diff_n: int | None = None,
    n_max: int | None = None,
) -> Tracer:  # fmt: skip
    """Return the spherical harmonic of degree n and order m, elementwise, as complex numbers.

    `theta` is the polar angle, whose sine counts as positive, `phi` the azimuth. `n_max` is the
    highest degree; without it, n must not be traced. `diff_n` is refused.
    """
    if diff_n is not None:
        raise ArgumentError(
            with_location(
                f"sph_harm_y has diff_n={brief(diff_n)}, and returns no derivatives; leave diff_n "
                "out, and differentiate the function with jacfwd"
            )
        )
    if n_max is None:
        known = require_concrete(n, "n", "sph_harm_y needs the degrees", "pass n_max")
        if not np.all(np.isfinite(known)):
            raise ArgumentError(with_location(f"n of sph_harm_y is finite, got {brief(n)}"))
        n_max = int(np.max(known, initial=0))
    return _sph_harm_y(n, m, theta, phi, check_integer("n_max of sph_harm_y", n_max, 0, MAX_DEGREE))
