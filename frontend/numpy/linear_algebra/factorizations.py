"""Factorizations with NumPy's names: Cholesky, QR, singular values, eigenvalues."""

from shardir.frontend.argument_checks import check_flag
from shardir.frontend.arrays.array_types import ArrayLike
from shardir.frontend.dispatch.eager import public
from shardir.frontend.errors import ArgumentError
from shardir.frontend.numpy.indexing import take
from shardir.frontend.numpy.linear_algebra.matrix_helpers import (
    EighResult,
    EigResult,
    QRResult,
    SVDResult,
    conjugate_transpose,
    hermitian_part,
    identity_like,
    lu_factor_and_solve,
    machine_epsilon,
    promote_matrices,
    promote_square_matrices,
    real_dtype,
    scale_matrix_axis,
    transpose_matrices,
)
from shardir.frontend.numpy.linear_algebra.norms import vector_norm
from shardir.frontend.numpy.shaping.reshaping import flip
from shardir.frontend.numpy.sorting import sort_functions
from shardir.frontend.numpy.tracer_helpers.elementwise_emission import (
    emit_conjugate,
    emit_elementwise,
)
from shardir.frontend.pytree_types import PyTree
from shardir.frontend.source_locations import with_location
from shardir.frontend.tracing.operands import as_tracer, broadcast, convert
from shardir.frontend.tracing.trace import emit, emit_results
from shardir.frontend.tracing.tracer import Tracer


@public(static=("upper", "symmetrize_input"))
def cholesky(a: ArrayLike, *, upper: bool = False, symmetrize_input: bool = True) -> Tracer:
    """Return the lower triangular L of Hermitian positive definite matrices L L^H.

    With `upper`, return the conjugate transpose of L. The result is NaN for a matrix that is not
    positive definite. Without `symmetrize_input` only the corresponding triangle is read.
    """
    (x,) = promote_square_matrices("cholesky", a)
    x = hermitian_part(x) if symmetrize_input else conjugate_transpose(x) if upper else x
    factor: Tracer = emit("cholesky", x)
    return conjugate_transpose(factor) if upper else factor


@public(static=("mode",))
def qr(a: ArrayLike, mode: str = "reduced") -> PyTree:
    """Return Q with orthonormal columns and upper triangular R, with Q R equal to the matrix.

    `mode` is "reduced", "complete" (Q is square) or "r" (only R).
    """
    if mode not in ("reduced", "complete", "r"):
        hint = "; JAX's and NumPy's raw factors are not kept" if mode == "raw" else ""
        raise ArgumentError(
            with_location(f"qr has the modes 'reduced', 'complete' and 'r', not {mode!r}{hint}")
        )
    (x,) = promote_matrices("qr", a)
    q, r = emit_results("qr", x, full=mode == "complete")
    return r if mode == "r" else QRResult(q, r)


@public(static=("full_matrices", "compute_uv", "hermitian", "subset_by_index"))
def svd(
    a: ArrayLike, full_matrices: bool = True, compute_uv: bool = True, hermitian: bool = False,
    subset_by_index: tuple[int, int] | None = None,
) -> PyTree:  # fmt: skip
    """Return U, the singular values in descending order, and V^H, whose product is the matrix.

    `hermitian` states that the matrices are Hermitian; `subset_by_index` (first, stop) selects
    singular values. Without `compute_uv`, return only the singular values.
    """
    (x,) = promote_matrices("svd", a)
    if hermitian:
        return _hermitian_svd(x, compute_uv)
    if not compute_uv:
        values: Tracer = emit("svd", x, full=False, vectors=False)
        return values if subset_by_index is None else values[..., slice(*subset_by_index)]
    full_matrices = check_flag("full_matrices of svd", full_matrices)
    u, values, vh = emit_results("svd", x, full=full_matrices, vectors=True)
    if subset_by_index is not None:
        if full_matrices and subset_by_index != (0, min(x.shape[-2:])):
            raise ArgumentError(with_location("svd with full_matrices=True has no subset_by_index"))
        kept = slice(*subset_by_index)
        return SVDResult(u[..., kept], values[..., kept], vh[..., kept, :])
    return SVDResult(u, values, vh)


def _hermitian_svd(x: Tracer, compute_uv: bool) -> PyTree:
    """Compute the singular value decomposition from the eigenvalues, by descending magnitude."""

    if not compute_uv:
        return flip(sort_functions.sort(abs(_eigenvalues(x)), axis=-1), axis=-1)
    values, vectors = emit_results("eigh", _symmetrize(x), vectors=True)
    order = flip(sort_functions.argsort(abs(values), axis=-1), axis=-1)
    values = take.take_along_axis(values, order, axis=-1)
    u = take.take_along_axis(vectors, order[..., None, :], axis=-1)
    vh = conjugate_transpose(scale_matrix_axis(u, emit_elementwise("sign", values), -1))
    return SVDResult(u, abs(values), vh)


def _symmetrize(x: Tracer) -> Tracer:
    return hermitian_part(x)


def _eigenvalues(x: Tracer) -> Tracer:
    values: Tracer = emit("eigh", _symmetrize(x), vectors=False)
    return values


@public()
def svdvals(x: ArrayLike, /) -> Tracer:
    """Return the singular values in descending order."""
    (v,) = promote_matrices("svdvals", x)
    return emit("svd", v, full=False, vectors=False)


@public(static=("UPLO", "symmetrize_input"))
def eigh(a: ArrayLike, UPLO: str | None = None, symmetrize_input: bool = True) -> EighResult:
    """Return the eigenvalues of Hermitian matrices in ascending order, and eigenvectors as columns.

    Without `symmetrize_input` only the triangle `UPLO` is read, "L" by default.
    """
    (x,) = promote_square_matrices("eigh", a)
    values, vectors = emit_results(
        "eigh", _select_triangle("eigh", x, UPLO, symmetrize_input), vectors=True
    )
    return EighResult(values, vectors)


@public(static=("UPLO", "symmetrize_input"))
def eigvalsh(a: ArrayLike, UPLO: str | None = "L", *, symmetrize_input: bool = True) -> Tracer:
    """Return the eigenvalues of Hermitian matrices in ascending order."""
    (x,) = promote_square_matrices("eigvalsh", a)
    return emit("eigh", _select_triangle("eigvalsh", x, UPLO, symmetrize_input), vectors=False)


def _select_triangle(name: str, x: Tracer, UPLO: str | None, symmetrize: bool) -> Tracer:
    if UPLO not in (None, "L", "U"):
        raise ArgumentError(with_location(f"{name} reads the triangle 'L' or 'U', not {UPLO!r}"))
    if symmetrize:
        return hermitian_part(x)
    return conjugate_transpose(x) if UPLO == "U" else x


@public()
def eig(a: ArrayLike) -> EigResult:
    """Return the eigenvalues of square matrices, and eigenvectors of norm 1 as columns, all
    complex.
    """
    (x,) = promote_square_matrices("eig", a)
    values, vectors = emit_results("eig", x, vectors=True)
    return EigResult(values, vectors)


@public()
def eigvals(a: ArrayLike) -> Tracer:
    """Return the eigenvalues of square matrices, complex, in no particular order."""
    (x,) = promote_square_matrices("eigvals", a)
    return emit("eig", x, vectors=False)


@public(static=("hermitian",))
def pinv(
    a: ArrayLike, rtol: object = None, hermitian: bool = False, *, rcond: object = None
) -> Tracer:
    """Return the pseudo-inverse; singular values of at most `rtol` times the largest count as 0.

    By default, `rtol` is ten times the larger of the numbers of rows and columns, times the machine
    epsilon. `rcond` is another name of `rtol`.
    """
    (x,) = promote_matrices("pinv", a)
    given = rcond if rtol is None else rtol
    if given is None:
        given = 10.0 * max(x.shape[-2:]) * float(machine_epsilon(x))
    return emit_pinv(x, as_tracer(given))


def emit_pinv(x: Tracer, rtol: Tracer) -> Tracer:
    """Emit `pinv` with one relative tolerance per matrix."""
    limit = broadcast(convert(rtol, real_dtype(x)), x.shape[:-2])
    result: Tracer = emit("pinv", x, limit)
    return result


def left_eigenvectors(x: Tracer, vectors: Tracer) -> Tracer:
    """Return the vectors v with v^H x = value v^H, of norm 1, in the order of the right ones."""
    inverse = emit_conjugate(
        transpose_matrices(lu_factor_and_solve(vectors, identity_like(vectors, x.shape[-1])))
    )
    size = vector_norm(inverse, axis=-2, keepdims=True)
    return as_tracer(inverse / size)
