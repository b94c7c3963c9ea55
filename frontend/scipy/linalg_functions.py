"""Functions of matrices: exponential, square root, polar factors, Sylvester's equation."""

import numpy as np

from shardir.frontend.argument_checks import check_integer
from shardir.frontend.arrays.array_types import ArrayLike
from shardir.frontend.dispatch.eager import public
from shardir.frontend.errors import ArgumentError, ShapeError
from shardir.frontend.numpy import dtypes
from shardir.frontend.numpy.creation import filling
from shardir.frontend.numpy.elementwise import math_functions, rounding, selection
from shardir.frontend.numpy.linear_algebra import contraction
from shardir.frontend.numpy.linear_algebra.contraction import exact_matmul
from shardir.frontend.numpy.linear_algebra.matrix_helpers import (
    conjugate_transpose,
    identity_like,
    lu_factor_and_solve,
    promote_matrices,
    promote_square_matrices,
    real_dtype,
    scale_matrix_axis,
)
from shardir.frontend.numpy.shaping import concatenation
from shardir.frontend.pytree_types import PyTree
from shardir.frontend.source_locations import with_location
from shardir.frontend.tracing.operands import as_tracer
from shardir.frontend.tracing.trace import emit_results
from shardir.frontend.tracing.tracer import Tracer
from shardir.frontend.tracing.weak_types import strip_weak_types
from shardir.ir.types import NUMPY_DTYPES

# N. J. Higham, "The scaling and squaring method for the matrix exponential revisited" (2005)
PADE_COEFFICIENTS = (
    64764752532480000.0, 32382376266240000.0, 7771770303897600.0, 1187353796428800.0,
    129060195264000.0, 10559470521600.0, 670442572800.0, 33522128640.0, 1323241920.0, 40840800.0,
    960960.0, 16380.0, 182.0, 1.0,
)  # fmt: skip
PADE_RADIUS = {"f32": 3.925724783138660, "f64": 5.371920351148152}
"""The largest 1-norm for which the approximation has the precision of the type."""


@public(static=("upper_triangular", "max_squarings"))
def expm(A: ArrayLike, *, upper_triangular: bool = False, max_squarings: int = 16) -> Tracer:
    """Return the exponential of square matrices; NaN if it needs more than `max_squarings`
    squarings.
    """

    (x,) = promote_square_matrices("expm", A)
    size = abs(x).sum(-2).max(-1) if x.shape[-1] else filling.zeros(x.shape[:-2])
    radius = PADE_RADIUS[real_dtype(x)]
    max_count = check_integer("max_squarings of expm", max_squarings, 0)
    squarings = selection.maximum(rounding.ceil(math_functions.log2(size / radius)), 0)
    x = as_tracer(x / math_functions.exp2(squarings)[..., None, None])
    result = _pade_approximant(x)
    for i in range(min(max_count, np.finfo(NUMPY_DTYPES[real_dtype(x)]).maxexp)):
        squares_again = (squarings > i)[..., None, None]
        result = selection.where(squares_again, exact_matmul(result, result), result)
    return selection.where((squarings > float(max_count))[..., None, None], dtypes.nan, result)


def _pade_approximant(x: Tracer) -> Tracer:
    """Return the quotient of two polynomials of degree 13, with few matrix products."""
    eye = identity_like(x, x.shape[-1])
    second = exact_matmul(x, x)
    fourth = exact_matmul(second, second)
    sixth = exact_matmul(fourth, second)
    b = PADE_COEFFICIENTS
    odd = exact_matmul(sixth, b[13] * sixth + b[11] * fourth + b[9] * second)
    odd = exact_matmul(x, odd + b[7] * sixth + b[5] * fourth + b[3] * second + b[1] * eye)
    even = exact_matmul(sixth, b[12] * sixth + b[10] * fourth + b[8] * second)
    even = even + b[6] * sixth + b[4] * fourth + b[2] * second + b[0] * eye
    return lu_factor_and_solve(as_tracer(even - odd), as_tracer(even + odd))


@public(static=("method", "compute_expm"))
def expm_frechet(
    A: ArrayLike, E: ArrayLike, *, method: str | None = None, compute_expm: bool = True
) -> PyTree:
    """Return the exponential, and its derivative in the direction `E`."""

    x, direction = promote_square_matrices("expm_frechet", A, E)
    if x.shape != direction.shape:
        raise ShapeError(
            with_location(
                f"expm_frechet takes matrices of one shape, got {x.shape}, {direction.shape}"
            )
        )
    rows = x.shape[-1]
    top = concatenation.concatenate([x, direction], axis=-1)
    bottom = concatenation.concatenate([filling.zeros_like(x), x], axis=-1)
    both = expm(concatenation.concatenate([top, bottom], axis=-2))
    derivative = both[..., :rows, rows:]
    return (both[..., :rows, :rows], derivative) if compute_expm else derivative


@public(static=("blocksize",))
def sqrtm(A: ArrayLike, blocksize: int = 1) -> Tracer:
    """Return the principal square root of diagonalizable matrices, complex, from their
    eigenvalues.
    """

    (x,) = promote_square_matrices("sqrtm", A)
    values, vectors = emit_results("eig", x, vectors=True)
    root = scale_matrix_axis(vectors, as_tracer(math_functions.sqrt(values)), -1)
    return conjugate_transpose(
        lu_factor_and_solve(conjugate_transpose(vectors), conjugate_transpose(root))
    )


@public(static=("side", "method", "eps", "max_iterations"))
@strip_weak_types
def polar(
    a: ArrayLike, side: str = "right", *, method: str = "svd", eps: float | None = None,
    max_iterations: int | None = None,
) -> tuple[Tracer, Tracer]:  # fmt: skip
    """Return the polar factors: a matrix with orthonormal columns (or rows) and a semidefinite one.

    Their product is `a`, with the positive semidefinite factor on the `side` "right" or "left".
    """
    if side not in ("right", "left"):
        raise ArgumentError(with_location(f"polar has the sides 'right' and 'left', not {side!r}"))
    (x,) = promote_matrices("polar", a)
    u, values, vh = emit_results("svd", x, full=False, vectors=True)
    if side == "right":
        scaled = conjugate_transpose(scale_matrix_axis(vh, values, -2))
        return exact_matmul(u, vh), exact_matmul(scaled, vh)
    scaled = scale_matrix_axis(u, values, -1)
    return exact_matmul(u, vh), exact_matmul(scaled, conjugate_transpose(u))


@public(static=("method", "tol"))
def solve_sylvester(
    A: ArrayLike, B: ArrayLike, C: object, *, method: str = "schur", tol: float = 1e-8
) -> Tracer:
    """Return the solution x of A x + x B = C, by one system of linear equations."""

    a, b, c = promote_square_matrices("solve_sylvester", A, B, C)
    if any(x.ndim != 2 for x in (a, b, c)) or c.shape != (a.shape[0], b.shape[0]):
        shapes = ", ".join(str(x.shape) for x in (a, b, c))
        raise ShapeError(
            with_location(f"solve_sylvester takes matrices (m, m), (n, n), (m, n), got {shapes}")
        )
    rows, columns = c.shape
    system = contraction.kron(a, identity_like(b, columns)) + contraction.kron(
        identity_like(a, rows), b.T
    )
    result = lu_factor_and_solve(as_tracer(system), as_tracer(c.reshape(rows * columns, 1)))
    return result.reshape(rows, columns)
