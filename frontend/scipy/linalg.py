"""The namespace `shardir.scipy.linalg`: linear algebra with the names of SciPy.

Arguments that permit SciPy to overwrite operands or to skip checks are accepted and ignored.
"""

from typing import TypeVar

from shardir.frontend.argument_checks import check_least_rank
from shardir.frontend.argument_errors import with_argument_errors
from shardir.frontend.arrays.array_types import ArrayLike
from shardir.frontend.dispatch.eager import public
from shardir.frontend.errors import ArgumentError, ShapeError
from shardir.frontend.numpy import dtypes
from shardir.frontend.numpy.creation import diagonal_matrices, ranges
from shardir.frontend.numpy.linear_algebra.contraction import exact_matmul
from shardir.frontend.numpy.linear_algebra.linalg import (
    det as _det,
    inv as _inv,
    solve as _solve,
    svd as _svd,
)
from shardir.frontend.numpy.linear_algebra.matrix_helpers import (
    check_not_pivoting,
    conjugate_transpose,
    emit_lu as factored,
    hermitian_part,
    identity_like,
    lu_solve as lu_solved,
    permutation_from_pivots,
    promote_matrices,
    promote_square_matrices,
    scale_matrix_axis,
    triangular_solve,
)
from shardir.frontend.numpy.shaping import padding, rolling
from shardir.frontend.pytree_types import PyTree
from shardir.frontend.quoting import brief
from shardir.frontend.scipy.linalg_functions import (
    expm as expm,
    expm_frechet as expm_frechet,
    polar as polar,
    solve_sylvester as solve_sylvester,
    sqrtm as sqrtm,
)
from shardir.frontend.scipy.special_matrices import (
    block_diag as block_diag,
    circulant as circulant,
    companion as companion,
    convolution_matrix as convolution_matrix,
    dft as dft,
    fiedler as fiedler,
    fiedler_companion as fiedler_companion,
    hadamard as hadamard,
    hankel as hankel,
    helmert as helmert,
    hilbert as hilbert,
    invhilbert as invhilbert,
    invpascal as invpascal,
    leslie as leslie,
    pascal as pascal,
    toeplitz as toeplitz,
)
from shardir.frontend.source_locations import with_location
from shardir.frontend.tracing.operands import as_tracer, reshape
from shardir.frontend.tracing.trace import emit, emit_results
from shardir.frontend.tracing.tracer import Tracer

__all__ = [
    "block_diag", "cho_factor", "cho_solve", "cholesky", "circulant", "companion",
    "convolution_matrix", "det", "dft", "eigh", "eigh_tridiagonal", "expm", "expm_frechet",
    "fiedler", "fiedler_companion", "hadamard", "hankel", "helmert", "hilbert", "inv",
    "invhilbert", "invpascal", "leslie", "lu", "lu_factor", "lu_solve", "pascal", "polar",
    "qr", "solve", "solve_sylvester", "solve_triangular", "sqrtm", "svd", "toeplitz",
]  # fmt: skip

IGNORED_PARAMETERS = ("overwrite_a", "overwrite_b", "check_finite")
TRANSPOSE_CODES = {
    0: "no",
    "N": "no",
    1: "transpose",
    "T": "transpose",
    2: "adjoint",
    "C": "adjoint",
}


@public(static=("lower", "overwrite_a", "check_finite"))
def cholesky(
    a: ArrayLike, lower: bool = False, overwrite_a: bool = False, check_finite: bool = True
) -> Tracer:
    """Return the triangular factor of Hermitian positive definite matrices: upper, or `lower`."""
    (x,) = promote_square_matrices("cholesky", a)
    factor: Tracer = emit("cholesky", hermitian_part(x))
    return factor if lower else conjugate_transpose(factor)


@with_argument_errors
def cho_factor(
    a: ArrayLike, lower: bool = False, overwrite_a: bool = False, check_finite: bool = True
) -> tuple[Tracer, bool]:
    """Return the operand of `cho_solve`: the factor of `cholesky`, and whether it is lower."""
    return cholesky(a, lower), lower


@with_argument_errors
def cho_solve(
    c_and_lower: tuple[ArrayLike, bool],
    b: ArrayLike,
    overwrite_b: bool = False,
    check_finite: bool = True,
) -> Tracer:
    """Return the solution x of a x = b from the factor of `a`; `b` is a vector or a matrix of
    columns.
    """
    factor, lower = _check_pair("cho_solve", "c_and_lower", "cho_factor", c_and_lower)
    if getattr(lower, "shape", ()) != ():
        raise ArgumentError(
            with_location(f"lower of cho_solve is True or False, got {brief(lower)}")
        )
    return _cho_solve(factor, b, bool(lower))


@public(static=("lower",), name="cho_solve")
def _cho_solve(factor: ArrayLike, b: ArrayLike, lower: bool) -> Tracer:
    x, y, vector = _promote_system("cho_solve", factor, b)
    first, second = ("no", "adjoint") if lower else ("adjoint", "no")
    half = triangular_solve(x, y, lower=lower, transpose=first)
    return _restore_rank(triangular_solve(x, half, lower=lower, transpose=second), vector)


def _promote_system(name: str, a: ArrayLike, b: ArrayLike) -> tuple[Tracer, Tracer, bool]:
    """Return square matrices, right-hand sides as columns, and whether `b` is a vector."""
    y = as_tracer(b)
    vector = y.ndim == 1
    x, right = promote_square_matrices(name, a, reshape(y, (*y.shape, 1)) if vector else y)
    if right.shape[-2] != x.shape[-1]:
        raise ShapeError(
            with_location(
                f"{name} of {x.shape[-1]} equations takes right-hand sides with as many rows, got "
                f"shape {y.shape}"
            )
        )
    return x, right, vector


def _restore_rank(found: Tracer, vector: bool) -> Tracer:
    return reshape(found, found.shape[:-1]) if vector else found


@public(static=("full_matrices", "compute_uv", *IGNORED_PARAMETERS[::2], "lapack_driver"))
def svd(
    a: ArrayLike, full_matrices: bool = True, compute_uv: bool = True, overwrite_a: bool = False,
    check_finite: bool = True, lapack_driver: str = "gesdd",
) -> PyTree:  # fmt: skip
    """Return U, the singular values in descending order, and V^H.

    Without `compute_uv`, return only the singular values.
    """
    result = _svd(a, full_matrices, compute_uv)
    return tuple(result) if compute_uv else result


@public(static=("overwrite_a", "check_finite"))
def det(a: ArrayLike, overwrite_a: bool = False, check_finite: bool = True) -> Tracer:
    """Return the determinant of square matrices."""
    return _det(a)


@public(static=("overwrite_a", "check_finite"))
def inv(a: ArrayLike, overwrite_a: bool = False, check_finite: bool = True) -> Tracer:
    """Return the inverse of square matrices."""
    return _inv(a)


@public(static=("lower", "eigvals_only", *IGNORED_PARAMETERS, "turbo", "eigvals", "type"))
def eigh(
    a: ArrayLike, b: ArrayLike | None = None, lower: bool = True, eigvals_only: bool = False,
    overwrite_a: bool = False, overwrite_b: bool = False, turbo: bool = True,
    eigvals: object = None, type: int = 1, check_finite: bool = True,
) -> PyTree:  # fmt: skip
    """Return the eigenvalues of Hermitian matrices in ascending order, and eigenvectors as columns.

    With a positive definite `b`, solve a v = value b v. One triangle of `a` is read, the lower one
    if `lower`.
    """
    if eigvals is not None or type != 1:
        raise ArgumentError(
            with_location("eigh supports only eigvals=None and type=1; leave them out")
        )
    (x,) = promote_square_matrices("eigh", a)
    x = x if lower else conjugate_transpose(x)
    if b is None:
        result = emit_results("eigh", x, vectors=not eigvals_only)
        return result[0] if eigvals_only else result
    (weight,) = promote_square_matrices("eigh", b)
    factor: Tracer = emit("cholesky", hermitian_part(weight))
    half = triangular_solve(factor, _hermitian_from_lower(x), lower=True)
    inner = conjugate_transpose(triangular_solve(factor, conjugate_transpose(half), lower=True))
    if eigvals_only:
        return emit("eigh", hermitian_part(inner), vectors=False)
    values, vectors = emit_results("eigh", hermitian_part(inner), vectors=True)
    return values, triangular_solve(factor, vectors, lower=True, transpose="adjoint")


def _hermitian_from_lower(x: Tracer) -> Tracer:
    """Return Hermitian matrices from their lower triangles."""

    return as_tracer(
        diagonal_matrices.tril(x) + conjugate_transpose(as_tracer(diagonal_matrices.tril(x, -1)))
    )


@public(static=("overwrite_a", "check_finite"))
def lu_factor(
    a: ArrayLike, overwrite_a: bool = False, check_finite: bool = True
) -> tuple[Tracer, Tracer]:
    """Return the operand of `lu_solve`: L and U in one matrix, and the pivots."""
    (x,) = promote_matrices("lu_factor", a)
    packed, pivots, _ = factored(x)
    return packed, pivots


@with_argument_errors
def lu_solve(
    lu_and_piv: tuple[ArrayLike, ArrayLike],
    b: ArrayLike,
    trans: object = 0,
    overwrite_b: bool = False,
    check_finite: bool = True,
) -> Tracer:
    """Return the solution x of op(a) x = b from the factors of `a`.

    `trans` 1 transposes, 2 takes the conjugate transpose.
    """
    packed, pivots = _check_pair("lu_solve", "lu_and_piv", "lu_factor", lu_and_piv)
    return _lu_solve(packed, pivots, b, _parse_transpose("lu_solve", trans))


First = TypeVar("First")
Second = TypeVar("Second")


def _check_pair(
    name: str, parameter: str, maker: str, given: tuple[First, Second]
) -> tuple[First, Second]:
    """Return both parts of a factorization; raise `ArgumentError` for another object."""
    if not isinstance(given, (list, tuple)) or len(given) != 2:
        raise ArgumentError(
            with_location(
                f"{name} takes as {parameter} the pair that {maker} returns, got {brief(given)}"
            )
        )
    return given[0], given[1]


def _parse_transpose(name: str, trans: object) -> str:
    if not isinstance(trans, (int, str)) or trans not in TRANSPOSE_CODES:
        accepted = ", ".join(map(repr, TRANSPOSE_CODES))
        raise ArgumentError(
            with_location(f"{name} takes as trans one of {accepted}, got {trans!r}")
        )
    return TRANSPOSE_CODES[trans]


@public(static=("transpose",), name="lu_solve")
def _lu_solve(packed: ArrayLike, pivots: ArrayLike, b: ArrayLike, transpose: str) -> Tracer:
    x, y, vector = _promote_system("lu_solve", packed, b)
    order = permutation_from_pivots(as_tracer(pivots), x.shape[-1])
    return _restore_rank(lu_solved(x, order, y, transpose), vector)


@public(static=("permute_l", "overwrite_a", "check_finite"))
def lu(
    a: ArrayLike, permute_l: bool = False, overwrite_a: bool = False, check_finite: bool = True
) -> tuple[Tracer, ...]:
    """Return P, L and U, whose product is the matrix; with `permute_l` return P L and U."""

    (x,) = promote_matrices("lu", a)
    packed, _, order = factored(x)
    rows, columns = x.shape[-2:]
    size = min(rows, columns)
    lower = diagonal_matrices.tril(packed, -1)[..., :size] + diagonal_matrices.eye(
        rows, size, dtype=packed.dtype
    )
    upper = diagonal_matrices.triu(packed)[..., :size, :]
    positions = ranges.arange(rows, dtype=order.dtype)
    exchange = as_tracer(
        dtypes.astype(positions[:, None] == order[..., None, :], packed.real.dtype)
    )
    return (exact_matmul(exchange, lower), upper) if permute_l else (exchange, lower, upper)


@public(static=("overwrite_a", "lwork", "mode", "pivoting", "check_finite"))
def qr(
    a: ArrayLike, overwrite_a: bool = False, lwork: object = None, mode: str = "full",
    pivoting: bool = False, check_finite: bool = True,
) -> tuple[Tracer, ...]:  # fmt: skip
    """Return Q and R, whose product is the matrix; `mode` is "full", "economic" or "r" (only R)."""
    if mode not in ("full", "economic", "r"):
        raise ArgumentError(
            with_location(f"qr has the modes 'full', 'economic' and 'r', not {mode!r}")
        )
    check_not_pivoting(pivoting)
    (x,) = promote_matrices("qr", a)
    q, r = emit_results("qr", x, full=mode != "economic")
    return (r,) if mode == "r" else (q, r)


@public(static=("lower", *IGNORED_PARAMETERS, "debug", "assume_a"))
def solve(
    a: ArrayLike, b: ArrayLike, lower: bool = False, overwrite_a: bool = False,
    overwrite_b: bool = False, debug: bool = False, check_finite: bool = True,
    assume_a: str = "gen",
) -> Tracer:  # fmt: skip
    """Return the solution x of a x = b; `assume_a` "pos" states that `a` is positive definite."""
    if assume_a not in ("gen", "sym", "her", "pos"):
        raise ArgumentError(
            with_location(
                f"solve assumes 'gen', 'sym', 'her' or 'pos' of a matrix, not {assume_a!r}"
            )
        )
    if assume_a != "pos":
        return _solve(a, b)
    x, y, vector = _promote_system("solve", a, b)
    factor: Tracer = emit("cholesky", x if lower else conjugate_transpose(x))
    half = triangular_solve(factor, y, lower=True)
    return _restore_rank(triangular_solve(factor, half, lower=True, transpose="adjoint"), vector)


@public(static=("trans", "lower", "unit_diagonal", "overwrite_b", "debug", "check_finite"))
def solve_triangular(
    a: ArrayLike, b: ArrayLike, trans: object = 0, lower: bool = False, unit_diagonal: bool = False,
    overwrite_b: bool = False, debug: object = None, check_finite: bool = True,
) -> Tracer:  # fmt: skip
    """Return the solution x of op(a) x = b for triangular `a`.

    `trans` 1 transposes, 2 takes the conjugate transpose.
    """
    transpose = _parse_transpose("solve_triangular", trans)
    x, y, vector = _promote_system("solve_triangular", a, b)
    found = triangular_solve(x, y, lower=lower, transpose=transpose, unit=unit_diagonal)
    return _restore_rank(found, vector)


@public(static=("eigvals_only", "select", "select_range", "tol"))
def eigh_tridiagonal(
    d: ArrayLike, e: ArrayLike, *, eigvals_only: bool = False, select: str = "a",
    select_range: object = None, tol: float | None = None, key: ArrayLike | None = None,
) -> PyTree:  # fmt: skip
    """Return the eigenvalues, ascending, of symmetric tridiagonal matrices, and eigenvectors.

    `d` is the diagonal, `e` the diagonal beside it. `key` has no effect: the algorithm uses no
    random numbers.
    """
    if select != "a" or select_range is not None:
        raise ArgumentError(
            with_location("eigh_tridiagonal finds all eigenvalues; pass select='a'")
        )

    main, side = as_tracer(d), as_tracer(e)
    check_least_rank("d of eigh_tridiagonal", main, 1)
    check_least_rank("e of eigh_tridiagonal", side, 1)
    size = main.shape[-1]
    (eye,) = promote_matrices("eigh_tridiagonal", identity_like(as_tracer(main[..., None]), size))
    below = as_tracer(padding.pad(side, [(0, 0)] * (side.ndim - 1) + [(1, 0)]))
    under = as_tracer(
        rolling.roll(eye, -1, axis=-1) * diagonal_matrices.tri(size, k=-1, dtype=eye.dtype)
    )
    result = emit_results(
        "eigh",
        as_tracer(scale_matrix_axis(eye, main, -2) + scale_matrix_axis(under, below, -2)),
        vectors=not eigvals_only,
    )
    return result[0] if eigvals_only else result
