"""Polynomials from roots and through points: `poly`, `roots`, `polydiv`, `polyfit`."""

from operator import index
from typing import Any

import numpy as np

from shardir.frontend.argument_checks import check_flag
from shardir.frontend.argument_errors import with_argument_errors
from shardir.frontend.arrays.array import Array
from shardir.frontend.arrays.array_types import ArrayLike
from shardir.frontend.dispatch.eager import public
from shardir.frontend.errors import ArgumentError, ShapeError
from shardir.frontend.numpy import dtypes
from shardir.frontend.numpy.creation import array_conversion, diagonal_matrices, filling, grids
from shardir.frontend.numpy.elementwise import complex_parts, math_functions
from shardir.frontend.numpy.linear_algebra import linalg
from shardir.frontend.numpy.linear_algebra.linalg import eigvals, lstsq
from shardir.frontend.numpy.linear_algebra.matrix_helpers import promote_matrices
from shardir.frontend.numpy.shaping import concatenation, padding
from shardir.frontend.numpy.tracer_helpers.concrete_values import (
    is_concrete,
    require_concrete,
    to_concrete_array,
)
from shardir.frontend.pytree_types import PyTree
from shardir.frontend.scipy.special_functions.bessel import i0 as of_order_zero
from shardir.frontend.source_locations import with_location
from shardir.frontend.tracing.operands import as_tracer, promote_inexact
from shardir.frontend.tracing.tracer import Tracer
from shardir.frontend.tracing.weak_types import strip_weak_type


def _as_vector(name: str, x: ArrayLike) -> Tracer:
    vector = as_tracer(x)
    if vector.ndim > 1:
        raise ShapeError(with_location(f"{name} takes vectors, got shape {vector.shape}"))
    return as_tracer(vector.reshape(-1))


@public()
def poly(seq_of_zeros: object) -> Tracer:
    """Return the polynomial with the given roots and a leading coefficient of 1.

    For a square matrix, the roots are its eigenvalues.
    """

    (zeros,) = promote_inexact(seq_of_zeros)
    if zeros.ndim == 2:
        zeros = as_tracer(eigvals(zeros))
    if zeros.ndim > 1:
        raise ShapeError(
            with_location(f"poly takes a vector or a square matrix, got shape {zeros.shape}")
        )
    result = filling.ones((1,), zeros.dtype)
    for i in range(zeros.size):
        zero = zeros if not zeros.ndim else zeros[i]
        result = padding.pad(result, (0, 1)) - padding.pad(zero * result, (1, 0))
    return result


@with_argument_errors
def roots(p: ArrayLike, *, strip_zeros: bool = True) -> Tracer:
    """Return the complex roots of a polynomial, in no particular order.

    Coefficients of 0 at both ends are removed first. Their number depends on the values, so that
    traced functions require `strip_zeros=False`.
    """
    if not check_flag("strip_zeros of roots", strip_zeros):
        return _roots(p, 0)
    if not is_concrete(p):
        raise ArgumentError(
            with_location(
                "roots of traced coefficients needs strip_zeros=False; the first coefficient must "
                "then be nonzero"
            )
        )
    line = np.atleast_1d(to_concrete_array(p, "argument p of roots"))
    if line.ndim == 1 and line.size and line[0] != 0 and line[-1] != 0:
        return _roots(p if type(p) is Array else line, 0)
    nonzero = np.flatnonzero(line)
    if not nonzero.size:
        return _roots(line[:0], 0)
    return _roots(line[nonzero[0] : nonzero[-1] + 1], len(line) - 1 - int(nonzero[-1]))


@public(static=("more",), name="roots")
def _roots(p: ArrayLike, more: int) -> Tracer:

    (line,) = promote_inexact(_as_vector("roots", p))
    kind = dtypes.complex128 if line.value.type.dtype in ("f64", "c128") else dtypes.complex64
    if line.size < 2:
        return filling.zeros((more,), kind)
    first = -line[1:] / line[0]
    below = diagonal_matrices.eye(line.size - 2, line.size - 1, dtype=first.dtype)
    return padding.pad(eigvals(concatenation.concatenate([first[None], below])), (0, more))


@with_argument_errors
def polydiv(
    u: ArrayLike, v: ArrayLike, *, trim_leading_zeros: bool = False
) -> tuple[Tracer, Tracer]:
    """Return the quotient and the remainder of two polynomials.

    The remainder keeps its leading zeros, because their number depends on the values.
    `trim_leading_zeros` removes them, and coefficients below the square root of the machine
    epsilon; the polynomials must be concrete.
    """
    quotient, rest = _polydiv(u, v)
    if not check_flag("trim_leading_zeros", trim_leading_zeros):
        return quotient, rest
    tolerance = float(np.sqrt(dtypes.finfo(rest.dtype).eps))
    numbers = require_concrete(
        rest,
        "the remainder of polydiv",
        "the size of a remainder without leading zeros depends on the values",
        "call polydiv outside of jit",
    )
    found = np.flatnonzero(~(np.abs(numbers) < tolerance))  # NaN is not small.
    return quotient, rest[int(found[0]) if found.size else rest.size :]


@public(name="polydiv")
def _polydiv(u: ArrayLike, v: ArrayLike) -> tuple[Tracer, Tracer]:
    rest, divisor = promote_inexact(_as_vector("polydiv", u), _as_vector("polydiv", v))
    if not divisor.size:
        raise ShapeError(
            with_location("the divisor of polydiv is empty; pass at least one coefficient")
        )
    count = rest.size - divisor.size + 1
    if count < 1:
        return filling.zeros((1,), rest.dtype), rest
    quotient = []
    for i in range(count):
        factor = rest[i] / divisor[0]
        quotient.append(factor)
        rest = as_tracer(rest - padding.pad(factor * divisor, (i, count - 1 - i)))
    return strip_weak_type(concatenation.stack(quotient)), rest


@public(static=("deg", "full", "cov"))
def polyfit(
    x: ArrayLike,
    y: ArrayLike,
    deg: int,
    rcond: ArrayLike | None = None,
    full: bool = False,
    w: ArrayLike | None = None,
    cov: bool | str = False,
) -> PyTree:
    """Return the polynomial of degree `deg` that fits points by least squares.

    `w` are weights. With `full`, return also the residuals, the rank, the singular values and the
    relative tolerance below which those count as 0; with `cov`, the covariance matrix of the
    coefficients ("unscaled" omits its scale).
    """

    order = index(deg)
    points, values = promote_inexact(_as_vector("polyfit", x), y)
    if order < 0 or not points.size or values.shape[:1] != points.shape or values.ndim > 2:
        raise ShapeError(
            with_location(f"polyfit of degree {order} takes as many values as points, got shapes "
                  f"{values.shape} and {points.shape}")
        )  # fmt: skip
    design = as_tracer(grids.vander(points, order + 1))
    if w is not None:
        weights = as_tracer(w)
        design = as_tracer(design * weights[:, None])
        values = as_tracer(values * (weights[:, None] if values.ndim == 2 else weights))
    (design,) = promote_matrices("polyfit", design)
    limit = points.size * float(dtypes.finfo(design.dtype).eps) if rcond is None else rcond
    scale = math_functions.sqrt((abs(design) ** 2).sum(0))
    result, residuals, rank, singular = lstsq(design / scale, values, limit)
    result = (result.T / scale).T
    if full:
        return result, residuals, rank, singular, array_conversion.asarray(limit)
    if not cov:
        return result
    inner = linalg.inv(complex_parts.conj(design.T) @ design)
    if isinstance(cov, str) and cov == "unscaled":
        factor = filling.ones(())
    elif points.size <= order + 1:
        raise ArgumentError(
            with_location(
                f"polyfit of {points.size} points and degree {order} has no covariance to scale; "
                "cov='unscaled' leaves it as it is"
            )
        )
    else:
        factor = residuals / (points.size - order - 1)
    if values.ndim == 1:
        return result, inner * factor.reshape(())
    return result, inner[:, :, None] * factor


@with_argument_errors
def iterable(y: Any) -> bool:
    """Return whether `iter` accepts the object."""
    try:
        iter(y)
    except TypeError:
        return False
    return True


@public()
def i0(x: ArrayLike) -> Tracer:
    """Return the modified Bessel function of order 0, elementwise."""
    return of_order_zero(x)
