"""Solutions of linear equations, and determinants, inverses and ranks."""

from collections.abc import Sequence
from math import prod
from typing import NamedTuple

from shardir.frontend.arrays.array_types import ArrayLike
from shardir.frontend.dispatch.eager import public
from shardir.frontend.errors import ArgumentError, ShapeError
from shardir.frontend.numpy.linear_algebra.contraction import exact_matmul
from shardir.frontend.numpy.linear_algebra.matrix_helpers import (
    emit_lu,
    identity_like,
    lu_factor_and_solve as solved,
    lu_solve,
    machine_epsilon,
    promote_matrices,
    promote_square_matrices,
    require_square,
    square_diagonal,
    transpose_matrices,
)
from shardir.frontend.numpy.linear_algebra.norms import norm
from shardir.frontend.numpy.reductions.basic_reductions import emit_reduction
from shardir.frontend.numpy.shaping.reshaping import moveaxis
from shardir.frontend.numpy.tracer_helpers.axis_slices import broadcast_in_dim
from shardir.frontend.numpy.tracer_helpers.elementwise_emission import (
    compare_row_column,
    constant_like,
    emit_elementwise,
)
from shardir.frontend.pytree_types import PyTree
from shardir.frontend.source_locations import with_location
from shardir.frontend.tracing.operands import as_tracer, convert, reshape
from shardir.frontend.tracing.promotion import canonical_dtype
from shardir.frontend.tracing.trace import emit, emit_results
from shardir.frontend.tracing.tracer import Tracer
from shardir.frontend.transforms.custom_jvp import custom_jvp
from shardir.ir.types import REAL_OF


class SlogdetResult(NamedTuple):
    """A determinant as its sign (or complex phase) and the logarithm of its absolute value."""

    sign: Tracer
    logabsdet: Tracer


@public()
def solve(a: ArrayLike, b: ArrayLike) -> Tracer:
    """Return the solution x of a x = b for square `a`.

    `b` is a vector, or a matrix of columns of right-hand sides. Batch dimensions broadcast.
    """
    x, y = _promote_system("solve", a, b)
    vector = y.ndim == 1
    columns = reshape(y, (*y.shape, 1)) if vector else y
    if columns.shape[-2] != x.shape[-1]:
        raise ShapeError(
            with_location(
                f"solve of {x.shape[-1]} equations takes right-hand sides with as many rows, got "
                f"shape {y.shape}"
            )
        )
    found = solved(x, columns)
    return reshape(found, found.shape[:-1]) if vector else found


def _promote_system(name: str, a: ArrayLike, b: ArrayLike) -> tuple[Tracer, Tracer]:
    """Promote square matrices and right-hand sides to one element type."""
    y = as_tracer(b)
    if not y.ndim:
        raise ShapeError(with_location(f"{name} takes vectors or matrices, got a scalar"))
    lifted = reshape(y, (*y.shape, 1)) if y.ndim == 1 else y
    x, right = promote_square_matrices(name, a, lifted)
    return x, reshape(right, y.shape)


@public()
def inv(a: ArrayLike) -> Tracer:
    """Return the inverse of square matrices."""
    (x,) = promote_square_matrices("inv", a)
    return solved(x, identity_like(x, x.shape[-1]))


def is_odd_permutation(pivots: Tracer) -> Tracer:
    """Return whether the number of row exchanges is odd."""
    positions: Tracer = emit("iota", dim=pivots.ndim - 1, result=pivots.value.type)
    is_swapped = convert(emit_elementwise("ne", pivots, positions), "i32")
    count = emit_reduction("sum", is_swapped, (pivots.ndim - 1,), False)
    return emit_elementwise(
        "ne", emit_elementwise("and", count, constant_like(count, 1)), constant_like(count, 0)
    )


@public()
def det(a: ArrayLike) -> Tracer:
    """Return the determinant of square matrices; the derivative exists for singular
    matrices, too.
    """
    (x,) = promote_square_matrices("det", a)
    if x.shape[-1] <= 3:
        return _small_det(x)
    result = custom_jvp(lambda x: _det_from_lu(*emit_lu(x)[:2]))
    result.defjvp(_det_jvp)
    return result(x)


def _det_from_lu(packed: Tracer, pivots: Tracer) -> Tracer:
    """Return the determinant from the LU factors."""
    product = emit_reduction("prod", square_diagonal(packed), (pivots.ndim - 1,), False)
    return emit_elementwise(
        "select", is_odd_permutation(pivots), emit_elementwise("neg", product), product
    )


def _det_jvp(primals: PyTree, tangents: PyTree) -> tuple[PyTree, PyTree]:
    """Differentiate the determinant by cofactors: the determinant times the transposed inverse.

    A pivot of zero is replaced by a value so small that the cofactors change only by rounding.
    """
    (x,), (tangent,) = primals, tangents
    packed, pivots, order = emit_lu(as_tracer(x))
    replacement = emit_reduction(
        "max", emit_elementwise("abs", packed), (packed.ndim - 2, packed.ndim - 1), False
    )
    replacement = emit_elementwise(
        "select",
        emit_elementwise("eq", replacement, constant_like(replacement, 0)),
        constant_like(replacement, 1),
        replacement,
    )
    replacement = convert(
        emit_elementwise("mul", replacement, constant_like(replacement, machine_epsilon(packed))),
        packed.value.type.dtype,
    )
    missing = emit_elementwise(
        "and",
        emit_elementwise("eq", packed, constant_like(packed, 0)),
        compare_row_column("eq", packed.shape, 0),
    )
    filled = broadcast_in_dim(replacement, packed.shape, tuple(range(packed.ndim - 2)))
    regular = emit_elementwise("select", missing, filled, packed)
    inverse = lu_solve(regular, order, identity_like(regular, regular.shape[-1]))
    weight = emit_elementwise("mul", transpose_matrices(inverse), as_tracer(tangent))
    total = emit_reduction("sum", weight, (packed.ndim - 2, packed.ndim - 1), False)
    return _det_from_lu(packed, pivots), emit_elementwise(
        "mul", _det_from_lu(regular, pivots), total
    )


def _small_det(x: Tracer) -> Tracer:
    """Compute the determinant by its formula, so that singular matrices have derivatives."""
    size = x.shape[-1]
    if not size:
        return constant_like(as_tracer(x[..., :0].sum((-1, -2)) if x.ndim > 2 else x.sum()), 1)
    if size == 1:
        return as_tracer(x[..., 0, 0])

    def minor(i: int, j: int) -> Tracer:
        return x[..., -2, i] * x[..., -1, j] - x[..., -2, j] * x[..., -1, i]

    if size == 2:
        return as_tracer(minor(0, 1))
    first = x[..., 0, :]
    return as_tracer(
        first[..., 0] * minor(1, 2) - first[..., 1] * minor(0, 2) + first[..., 2] * minor(0, 1)
    )


@public(static=("method",))
def slogdet(a: ArrayLike, *, method: str | None = None) -> SlogdetResult:
    """Return the sign (of complex matrices, the phase) and the logarithm of |det|."""
    if method not in (None, "lu", "qr"):
        raise ArgumentError(with_location(f"slogdet has the methods 'lu' and 'qr', not {method!r}"))
    (x,) = promote_square_matrices("slogdet", a)
    packed, pivots, _ = emit_lu(x)
    values = square_diagonal(packed)
    dim = (x.ndim - 2,)
    sign = emit_reduction("prod", emit_elementwise("sign", values), dim, False)
    sign = emit_elementwise(
        "select", is_odd_permutation(pivots), emit_elementwise("neg", sign), sign
    )
    size = emit_reduction(
        "sum", emit_elementwise("log", emit_elementwise("abs", values)), dim, False
    )
    return SlogdetResult(sign, size)


@public(static=("numpy_resid",))
def lstsq(
    a: ArrayLike, b: ArrayLike, rcond: object = None, *, numpy_resid: bool = False
) -> tuple[Tracer, Tracer, Tracer, Tracer]:
    """Return the x that minimizes |a x - b|, the residuals, the rank, and the singular values.

    If several x are minimal, the one of smallest norm is returned. Residuals are squared, one per
    column of `b`. With `numpy_resid` they are empty if the rank is not full or there are not more
    equations than unknowns, as in NumPy; the rank is concrete only outside of traces.
    """
    y = as_tracer(b)
    if y.ndim not in (1, 2):
        raise ShapeError(
            with_location(f"lstsq takes a vector or a matrix as b, got shape {y.shape}")
        )
    lifted = reshape(y, (y.shape[0], 1)) if y.ndim == 1 else y
    x, right = promote_matrices("lstsq", a, lifted)
    if x.ndim != 2:
        raise ShapeError(with_location(f"lstsq takes one matrix, got shape {x.shape}"))
    if x.shape[0] != right.shape[0]:
        raise ShapeError(
            with_location(
                f"lstsq takes one row of b for each of a, got shapes {x.shape} and {y.shape}"
            )
        )
    limit = as_tracer(machine_epsilon(x) * max(x.shape) if rcond is None else rcond)
    limit = convert(limit, REAL_OF.get(x.value.type.dtype, x.value.type.dtype))
    result, values = emit_results("least_squares", x, right, limit)
    rank = _count_true(values > limit * values[0])
    residual = as_tracer(right - exact_matmul(x, result))
    squared_residuals = as_tracer((abs(residual) * abs(residual)).sum(0))
    if numpy_resid and x.shape[0] <= x.shape[1]:
        squared_residuals = squared_residuals[:0]
    if y.ndim == 1:
        result = reshape(result, (x.shape[1],))
    values = convert(values, values.value.type.dtype, x.weak_type)
    return result, squared_residuals, rank, values


def _count_true(flags: Tracer) -> Tracer:
    """Return the number of true elements along the last dimension."""
    found = convert(as_tracer(flags), canonical_dtype("i64"))
    return emit_reduction("sum", found, (found.ndim - 1,), False)


@public(static=("hermitian",))
def matrix_rank(
    M: ArrayLike, rtol: object = None, *, hermitian: bool = False, tol: object = None
) -> Tracer:
    """Return the number of singular values that exceed `rtol` times the largest.

    `hermitian` states that the matrices are Hermitian; their eigenvalues are then computed from
    the lower triangles.
    """
    v = as_tracer(M)
    if v.ndim < 2:
        return convert(as_tracer((v != 0).any()), canonical_dtype("i64"))
    (x,) = promote_matrices("matrix_rank", v)
    if hermitian:
        require_square("matrix_rank", x)
        (eigenvalues,) = emit_results("eigh", x, vectors=False)
        values = emit_elementwise("abs", eigenvalues)
    else:
        values = emit("svd", x, full=False, vectors=False)
    largest = emit_reduction("max", values, (values.ndim - 1,), False)
    given = rtol if tol is None else tol
    if given is None:
        given = max(x.shape[-2:]) * machine_epsilon(x)
    given = as_tracer(given)
    least = reshape(largest, (*largest.shape, 1)) * reshape(given, (*given.shape, 1))
    large = values > least
    return _count_true(large)


@public(static=("p",))
def cond(x: ArrayLike, p: float | str | None = None) -> Tracer:
    """Return the condition number in the norm `p`, by default 2."""
    (v,) = promote_matrices("cond", x)
    if p in (None, 2, -2):
        values = emit("svd", v, full=False, vectors=False)
        largest, smallest = values[..., 0], values[..., -1]
        return smallest / largest if p == -2 else largest / smallest
    require_square("cond", v)
    return norm(v, ord=p, axis=(-2, -1)) * norm(inv(v), ord=p, axis=(-2, -1))


@public(static=("ind",))
def tensorinv(a: ArrayLike, ind: int = 2) -> Tracer:
    """Return the inverse of `a` as a linear map from the axes from `ind` on to those before."""
    x = as_tracer(a)
    if ind <= 0 or prod(x.shape[:ind]) != prod(x.shape[ind:]):
        raise ShapeError(
            with_location(f"tensorinv with ind={ind} needs equal numbers of elements before and "
                  f"from axis {ind} on, got shape {x.shape}")
        )  # fmt: skip
    size = prod(x.shape[:ind])
    return reshape(as_tracer(inv(reshape(x, (size, size)))), (*x.shape[ind:], *x.shape[:ind]))


@public(static=("axes",))
def tensorsolve(a: ArrayLike, b: ArrayLike, axes: Sequence[int] | None = None) -> Tracer:
    """Return x with tensordot(a, x, x.ndim) = b; `axes` of `a` are first moved to the end."""
    x, y = as_tracer(a), as_tracer(b)
    if axes is not None:
        x = as_tracer(moveaxis(x, axes, tuple(range(x.ndim - len(axes), x.ndim))))
    shape = x.shape[y.ndim :]
    if prod(shape) != y.size or x.shape[: y.ndim] != y.shape:
        raise ShapeError(
            with_location(
                f"tensorsolve takes as many unknowns as equations, got shapes {x.shape}, {y.shape}"
            )
        )
    found = solve(reshape(x, (y.size, y.size)), reshape(y, (y.size,)))
    return reshape(as_tracer(found), shape)
