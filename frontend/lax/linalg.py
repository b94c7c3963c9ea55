"""Matrix decompositions and solvers: the namespace `shardir.lax.linalg`.

Matrices are the last two dimensions; the dimensions before are batch dimensions.
"""

from shardir.errors import OperationTypeError
from shardir.frontend.argument_checks import check_flag, check_least_rank
from shardir.frontend.arrays.array_types import ArrayLike
from shardir.frontend.dispatch.eager import public
from shardir.frontend.errors import ArgumentError, ShapeError
from shardir.frontend.numpy.creation import array_conversion, diagonal_matrices
from shardir.frontend.numpy.linear_algebra import householder
from shardir.frontend.numpy.linear_algebra.contraction import exact_matmul
from shardir.frontend.numpy.linear_algebra.factorizations import left_eigenvectors, svd as numpy_svd
from shardir.frontend.numpy.linear_algebra.matrix_helpers import (
    check_not_pivoting,
    conjugate_transpose,
    hermitian_part,
    identity_like,
    lu_factor_and_solve,
    permutation_from_pivots,
    promote_square_matrices,
    require_square,
    scale_matrix_axis,
    transpose_matrices,
    triangular_solve as solve_triangular,
)
from shardir.frontend.numpy.shaping import rolling
from shardir.frontend.numpy.tracer_helpers.elementwise_emission import common_kind, emit_conjugate
from shardir.frontend.pytree_types import PyTree
from shardir.frontend.source_locations import with_location
from shardir.frontend.tracing import promotion
from shardir.frontend.tracing.operands import as_tracer, promote_to
from shardir.frontend.tracing.trace import emit, emit_results
from shardir.frontend.tracing.tracer import Tracer

__all__ = [
    "cholesky", "cholesky_update", "eig", "eigh", "hessenberg", "householder_product", "lu",
    "lu_pivots_to_permutation", "ormqr", "qdwh", "qr", "schur", "svd", "symmetric_product",
    "triangular_solve", "tridiagonal", "tridiagonal_solve",
]  # fmt: skip


@public(static=("symmetrize_input",))
def cholesky(x: ArrayLike, *, symmetrize_input: bool = True) -> Tracer:
    """Return the lower triangular L of Hermitian positive definite matrices L L^H; NaN for others.

    Without `symmetrize_input` only the lower triangle is read.
    """
    v = as_tracer(x)
    require_square("cholesky", v)
    return emit("cholesky", hermitian_part(v) if symmetrize_input else v)


@public()
def cholesky_update(r_matrix: object, w_vector: object) -> Tracer:
    """Return the upper triangular factor of R^T R + w w^T for upper triangular R and a vector w."""
    r, w = as_tracer(r_matrix), as_tracer(w_vector)
    require_square("cholesky_update", r)
    column = w[:, None]
    return conjugate_transpose(
        emit(
            "cholesky",
            hermitian_part(as_tracer(exact_matmul(conjugate_transpose(r), r) + column * column.T)),
        )
    )


@public(static=("full_matrices", "pivoting", "use_magma"))
def qr(
    x: ArrayLike,
    *,
    pivoting: bool = False,
    full_matrices: bool = True,
    use_magma: bool | None = None,
) -> tuple[Tracer, ...]:
    """Return Q with orthonormal columns and upper triangular R; `use_magma` is ignored."""
    check_not_pivoting(pivoting)
    return emit_results("qr", as_tracer(x), full=full_matrices)


@public(static=("full_matrices", "compute_uv", "subset_by_index", "algorithm"))
def svd(
    x: ArrayLike, *, full_matrices: bool = True, compute_uv: bool = True,
    subset_by_index: tuple[int, int] | None = None, algorithm: object = None,
) -> PyTree:  # fmt: skip
    """Return U, the singular values in descending order, and V^H; `algorithm` is ignored.

    Without `compute_uv`, return only the singular values.
    """

    v = as_tracer(x)
    result = numpy_svd(v, full_matrices, compute_uv, False, subset_by_index)
    return tuple(result) if compute_uv else result


@public(static=("lower", "symmetrize_input", "sort_eigenvalues", "subset_by_index",
                "implementation"))  # fmt: skip
def eigh(
    x: ArrayLike, *, lower: bool = True, symmetrize_input: bool = True,
    sort_eigenvalues: bool = True, subset_by_index: tuple[int, int] | None = None,
    implementation: object = None,
) -> tuple[Tracer, Tracer]:  # fmt: skip
    """Return eigenvectors of Hermitian matrices as columns, and the eigenvalues in ascending order.

    Without `symmetrize_input` one triangle is read, the lower one if `lower`.
    """
    v = as_tracer(x)
    require_square("eigh", v)
    read = hermitian_part(v) if symmetrize_input else v if lower else conjugate_transpose(v)
    values, vectors = emit_results("eigh", read, vectors=True)
    if subset_by_index is not None:
        kept = slice(*subset_by_index)
        return vectors[..., kept], values[..., kept]
    return vectors, values


@public(static=("compute_left_eigenvectors", "compute_right_eigenvectors", "implementation",
                "use_magma"))  # fmt: skip
def eig(
    x: ArrayLike, *, compute_left_eigenvectors: bool = True,
    compute_right_eigenvectors: bool = True, implementation: object = None,
    use_magma: bool | None = None,
) -> list[Tracer]:  # fmt: skip
    """Return the eigenvalues, then the requested left and right eigenvectors."""
    v = as_tracer(x)
    require_square("eig", v)
    if not compute_left_eigenvectors and not compute_right_eigenvectors:
        return [emit("eig", v, vectors=False)]
    values, vectors = emit_results("eig", v, vectors=True)
    result = [values]
    if compute_left_eigenvectors:
        result.append(left_eigenvectors(v, vectors))
    if compute_right_eigenvectors:
        result.append(vectors)
    return result


@public()
def lu(x: ArrayLike) -> list[Tracer]:
    """Return L and U in one matrix, the pivots, and the corresponding permutation of the rows."""
    return list(emit_results("lu", as_tracer(x)))


@public(static=("permutation_size",))
def lu_pivots_to_permutation(pivots: ArrayLike, permutation_size: int) -> Tracer:
    """Return the permutation that results from exchanging row i with row `pivots[i]` in
    sequence.
    """
    x = as_tracer(pivots)
    check_least_rank("pivots of lu_pivots_to_permutation", x, 1)
    return permutation_from_pivots(x, permutation_size)


@public(static=("left_side", "lower", "transpose_a", "conjugate_a", "unit_diagonal"))
def triangular_solve(
    a: ArrayLike, b: ArrayLike, *, left_side: bool = False, lower: bool = False,
    transpose_a: bool = False, conjugate_a: bool = False, unit_diagonal: bool = False,
) -> Tracer:  # fmt: skip
    """Return the solution x of op(a) x = b (`left_side`) or x op(a) = b for triangular `a`.

    op transposes and conjugates as requested; with `unit_diagonal` the diagonal counts as ones.
    """
    x, y = as_tracer(a), as_tracer(b)
    if y.ndim == x.ndim - 1:
        # As in JAX, `b` is one vector per matrix.
        result = triangular_solve(
            x, y[..., None] if left_side else y[..., None, :], left_side=left_side, lower=lower,
            transpose_a=transpose_a, conjugate_a=conjugate_a, unit_diagonal=unit_diagonal,
        )  # fmt: skip
        return result[..., 0] if left_side else result[..., 0, :]
    if x.value.type.dtype != y.value.type.dtype:
        raise OperationTypeError(
            with_location(
                f"triangular_solve takes one element type, got {x.value.type}, {y.value.type}"
            )
        )
    if conjugate_a:
        x = emit_conjugate(x)
    transpose = "transpose" if transpose_a == left_side else "no"
    if left_side:
        return solve_triangular(x, y, lower=lower, transpose=transpose, unit=unit_diagonal)
    result = solve_triangular(
        x, transpose_matrices(y), lower=lower, transpose=transpose, unit=unit_diagonal
    )
    return transpose_matrices(result)


@public()
def householder_product(a: ArrayLike, taus: ArrayLike) -> Tracer:
    """Return the first columns of the product of the reflections 1 - tau v v^H.

    The vectors v are the columns of `a` below its diagonal, with a 1 on the diagonal.
    """
    x, factors = as_tracer(a), as_tracer(taus)
    check_least_rank("a of householder_product", x, 2)
    check_least_rank("taus of householder_product", factors, 1)
    rows, columns = x.shape[-2:]
    vectors = as_tracer(
        diagonal_matrices.tril(x, -1) + diagonal_matrices.eye(rows, columns, dtype=x.dtype)
    )
    result = identity_like(x, rows)[..., :columns]
    for i in reversed(range(factors.shape[-1])):
        v = vectors[..., i : i + 1]
        product = exact_matmul(conjugate_transpose(v), result)
        result = result - exact_matmul(factors[..., i, None, None] * v, product)
    return result


@public()
def hessenberg(a: ArrayLike) -> list[Tracer]:
    """Return the Hessenberg form of square matrices with the vectors of the reflections below it.

    The second result has the scales of the reflections, as those of `householder_product`. The
    matrix is Q H Q^H; H is zero below the first diagonal below the main one.
    """
    (x,) = promote_square_matrices("hessenberg", a)
    return list(householder.reduce_to_hessenberg(x))


@public(static=("lower",))
def tridiagonal(a: ArrayLike, *, lower: bool = True) -> list[Tracer]:
    """Return the tridiagonal form of Hermitian matrices with the vectors of the reflections.

    Only one triangle is read, the lower one if `lower`. The other results are the real diagonal,
    the real diagonal beside it, and the scales of the reflections, as in LAPACK's `hetrd`.
    """
    (x,) = promote_square_matrices("tridiagonal", a)
    parts = householder.reduce_to_tridiagonal(x, check_flag("lower of tridiagonal", lower))
    return list(parts)


@public(static=("left", "transpose"))
def ormqr(
    a: ArrayLike, taus: ArrayLike, c: ArrayLike, *, left: bool = True, transpose: bool = False
) -> Tracer:
    """Return Q c, or with `left=False` c Q, for the product Q of reflections.

    `a` and `taus` have the vectors and scales of the reflections, as in `householder_product`. With
    `transpose`, Q^H takes the place of Q. Raise `ShapeError` unless `c` has as many rows, or
    columns, as `a` has rows.
    """
    packed, scales, x = promote_to(
        (promotion.inexact_dtype(common_kind(a, taus, c)[0]), False), a, taus, c
    )
    if (
        min(packed.ndim, x.ndim) < 2
        or scales.shape[:-1] != packed.shape[:-2]
        or scales.ndim < 1
        or scales.shape[-1] > min(packed.shape[-2:])
        or x.shape[-2 if left else -1] != packed.shape[-2]
        or x.shape[:-2] != packed.shape[:-2]
    ):
        raise ShapeError(
            with_location(
                f"ormqr takes reflections (m, n), at most min(m, n) scales, and c with m "
                f"{'rows' if left else 'columns'}, all with the same batch dimensions; got shapes "
                f"{packed.shape}, {scales.shape} and {x.shape}"
            )
        )
    return householder.apply_reflections(packed, scales, x, left=left, adjoint=transpose)


@public(static=("compute_schur_vectors", "sort_eig_vals", "select_callable"))
def schur(
    x: ArrayLike, *, compute_schur_vectors: bool = True, sort_eig_vals: bool = False,
    select_callable: object = None,
) -> list[Tracer]:  # fmt: skip
    """Return T, and with `compute_schur_vectors` unitary Z, with Z T Z^H = x.

    T is upper triangular; of a real matrix it is real, with blocks of two rows for pairs of complex
    eigenvalues. There is no derivative. Raise `ArgumentError` for `sort_eig_vals` and
    `select_callable`: the eigenvalues are in no particular order.
    """
    if sort_eig_vals or select_callable is not None:
        raise ArgumentError(
            with_location("schur does not sort eigenvalues; leave out sort_eig_vals and "
                          "select_callable")
        )  # fmt: skip
    (v,) = promote_square_matrices("schur", x)
    if compute_schur_vectors:
        return list(emit_results("schur", v, vectors=True))
    return [emit("schur", v, vectors=False)]


@public(static=("symmetrize_output",))
def symmetric_product(
    a_matrix: ArrayLike, c_matrix: ArrayLike, *, alpha: ArrayLike = 1.0, beta: ArrayLike = 0.0,
    symmetrize_output: bool = False,
) -> Tracer:  # fmt: skip
    """Return alpha a a^T + beta c for symmetric `c`."""
    a, c = as_tracer(a_matrix), as_tracer(c_matrix)
    del symmetrize_output  # The complete matrix is computed in any case.
    product = exact_matmul(a, transpose_matrices(a))
    return as_tracer(alpha) * product + as_tracer(beta) * c


@public()
def tridiagonal_solve(dl: ArrayLike, d: ArrayLike, du: ArrayLike, b: ArrayLike) -> Tracer:
    """Return the solution x of a x = b for tridiagonal matrices.

    `dl`, `d` and `du` are the diagonals below, on and above the main one. The first element of `dl`
    and the last of `du` are not used.
    """
    low, middle, high, y = map(as_tracer, (dl, d, du, b))
    check_least_rank("d of tridiagonal_solve", middle, 1)
    size = middle.shape[-1]
    eye = identity_like(as_tracer(middle[..., None]), size)
    below = as_tracer(
        rolling.roll(eye, -1, axis=-1) * diagonal_matrices.tri(size, k=-1, dtype=eye.dtype)
    )
    above = as_tracer(
        rolling.roll(eye, 1, axis=-1) * diagonal_matrices.tri(size, k=-1, dtype=eye.dtype).T
    )
    matrix = (
        scale_matrix_axis(below, low, -2)
        + scale_matrix_axis(eye, middle, -2)
        + scale_matrix_axis(above, high, -2)
    )
    return lu_factor_and_solve(as_tracer(matrix), y)


@public(static=("is_hermitian", "max_iterations", "eps", "dynamic_shape"))
def qdwh(
    x: ArrayLike, *, is_hermitian: bool = False, max_iterations: int | None = None,
    eps: float | None = None, dynamic_shape: object = None,
) -> tuple[Tracer, Tracer, Tracer, Tracer]:  # fmt: skip
    """Return the unitary and the Hermitian polar factor of a matrix, computed by its SVD.

    Return also the number of iterations, which is 0, and whether the computation converged, which
    is true.
    """

    v = as_tracer(x)
    u, values, vh = emit_results("svd", v, full=False, vectors=True)
    positive: Tracer = exact_matmul(conjugate_transpose(scale_rows(vh, values)), vh)
    return (
        exact_matmul(u, vh),
        positive,
        array_conversion.asarray(0),
        array_conversion.asarray(True),
    )


def scale_rows(x: Tracer, by: Tracer) -> Tracer:
    """Multiply the rows of matrices by vectors."""
    return scale_matrix_axis(x, by, -2)
