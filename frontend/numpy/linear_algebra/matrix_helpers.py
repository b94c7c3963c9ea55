"""Helpers of the linear algebra of all namespaces: matrices, factorizations, solvers.

All functions work on traced values; the last two dimensions are rows and columns, the dimensions
before are batch dimensions.
"""

from typing import NamedTuple

from shardir.frontend.errors import ArgumentError, ShapeError
from shardir.frontend.numpy.indexing.take import take_along_axis
from shardir.frontend.numpy.reductions.basic_reductions import emit_reduction
from shardir.frontend.numpy.tracer_helpers.axis_slices import broadcast_in_dim, transpose_dims
from shardir.frontend.numpy.tracer_helpers.elementwise_emission import (
    common_kind,
    compare_row_column,
    constant_like,
    emit_conjugate,
    emit_elementwise,
)
from shardir.frontend.source_locations import with_location
from shardir.frontend.tracing import promotion
from shardir.frontend.tracing.operands import (
    as_tracer,
    broadcast,
    broadcast_shapes,
    convert,
    promote_to,
)
from shardir.frontend.tracing.trace import emit, emit_results
from shardir.frontend.tracing.tracer import Tracer
from shardir.ir.operation import Symbol
from shardir.ir.types import REAL_OF, TensorType


class EigResult(NamedTuple):
    """Eigenvalues, and eigenvectors as columns."""

    eigenvalues: Tracer
    eigenvectors: Tracer


class EighResult(NamedTuple):
    """Eigenvalues of Hermitian matrices, and eigenvectors as columns."""

    eigenvalues: Tracer
    eigenvectors: Tracer


class SVDResult(NamedTuple):
    """The singular value decomposition of a matrix: U, the singular values, V^H."""

    U: Tracer
    S: Tracer
    Vh: Tracer


class QRResult(NamedTuple):
    """The QR decomposition of a matrix: Q with orthonormal columns, triangular R."""

    Q: Tracer
    R: Tracer


def promote_matrices(name: str, *xs: object) -> list[Tracer]:
    """Promote the operands to one floating or complex type; raise `ShapeError` unless all are
    matrices.
    """
    dtype, weak = common_kind(*xs)
    operands = list(promote_to((promotion.inexact_dtype(dtype), weak), *xs))
    for x in operands:
        if x.ndim < 2:
            raise ShapeError(with_location(f"{name} takes matrices, got shape {x.shape}"))
    return operands


def promote_square_matrices(name: str, *xs: object) -> list[Tracer]:
    """Promote the operands as `matrices` does; raise `ShapeError` unless the first is square."""
    operands = promote_matrices(name, *xs)
    require_square(name, operands[0])
    return operands


def require_square(name: str, x: Tracer) -> None:
    """Raise `ShapeError` unless `x` consists of square matrices."""
    if x.ndim < 2 or x.shape[-1] != x.shape[-2]:
        raise ShapeError(with_location(f"{name} takes square matrices, got shape {x.shape}"))


def transpose_matrices(x: Tracer) -> Tracer:
    """Transpose the last two dimensions."""
    return transpose_dims(x, (*range(x.ndim - 2), x.ndim - 1, x.ndim - 2))


def conjugate_transpose(x: Tracer) -> Tracer:
    """Return the conjugate transpose."""
    return emit_conjugate(transpose_matrices(x))


def hermitian_part(x: Tracer) -> Tracer:
    """Return the mean of `x` and its adjoint."""
    summed = emit_elementwise("add", x, conjugate_transpose(x))
    return emit_elementwise("mul", summed, constant_like(summed, 0.5))


def identity_like(x: Tracer, size: int) -> Tracer:
    """Return identity matrices of `size` rows with the element type and batch dimensions of `x`."""
    ones = convert(compare_row_column("eq", (size, size), 0), x.value.type.dtype)
    return broadcast_in_dim(ones, (*x.shape[:-2], size, size), (x.ndim - 2, x.ndim - 1))


def square_diagonal(x: Tracer) -> Tracer:
    """Return the diagonal of square matrices."""
    masked = emit_elementwise(
        "select", compare_row_column("eq", x.shape, 0), x, constant_like(x, 0)
    )
    return emit_reduction("sum", masked, (x.ndim - 1,), False)


def real_dtype(x: Tracer) -> str:
    """Return the element type of absolute values of `x`."""
    return REAL_OF.get(x.value.type.dtype, x.value.type.dtype)


def scale_matrix_axis(x: Tracer, by: Tracer, axis: int) -> Tracer:
    """Multiply the columns (axis -1) or rows (axis -2) of matrices by vectors."""
    factors = convert(by, x.value.type.dtype)
    dims = (*range(x.ndim - 2), x.ndim + axis)
    return emit_elementwise("mul", x, broadcast_in_dim(factors, x.shape, dims))


def broadcast_batch_dims(*xs: Tracer) -> list[Tracer]:
    """Broadcast the batch dimensions of matrices to one shape."""
    batch = broadcast_shapes(*(x.shape[:-2] for x in xs))
    return [broadcast(x, (*batch, *x.shape[-2:])) for x in xs]


def triangular_solve(
    a: Tracer, y: Tracer, *, lower: bool, transpose: str = "no", unit: bool = False
) -> Tracer:
    """Return the solution x of a x = y for triangular `a`; batch dimensions broadcast."""
    left, right = broadcast_batch_dims(a, y)
    result: Tracer = emit(
        "triangular_solve", left, right, lower=lower, transpose=Symbol(transpose), unit=unit
    )
    return result


def emit_lu(x: Tracer) -> tuple[Tracer, Tracer, Tracer]:
    """Return L and U in one matrix, the pivots, and the permutation of the rows."""
    packed, pivots, permutation = emit_results("lu", x)
    return packed, pivots, permutation


def lu_solve(packed: Tracer, permutation: Tracer, y: Tracer, transpose: str = "no") -> Tracer:
    """Return the solution x of a x = y from the LU factors of `a`.

    `y` has columns of right-hand sides; batch dimensions broadcast.
    """
    batch = broadcast_shapes(packed.shape[:-2], y.shape[:-2])
    packed = broadcast(packed, (*batch, *packed.shape[-2:]))
    y = broadcast(y, (*batch, *y.shape[-2:]))
    permutation = broadcast(permutation, (*batch, permutation.shape[-1]))
    if transpose == "no":
        lower = triangular_solve(packed, _take_rows(y, permutation), lower=True, unit=True)
        return triangular_solve(packed, lower, lower=False)
    upper = triangular_solve(packed, y, lower=False, transpose=transpose)
    lower = triangular_solve(packed, upper, lower=True, unit=True, transpose=transpose)
    positions: Tracer = emit("iota", dim=permutation.ndim - 1, result=permutation.value.type)
    _, back = emit_results(
        "sort", permutation, positions, dim=permutation.ndim - 1, keys=1, stable=True
    )
    return _take_rows(lower, back)


def _take_rows(x: Tracer, positions: Tracer) -> Tracer:
    """Return the rows of matrices at the given indices."""
    index = broadcast_in_dim(positions, x.shape, tuple(range(x.ndim - 1)))
    return as_tracer(take_along_axis(x, index, axis=-2))


def lu_factor_and_solve(a: Tracer, y: Tracer) -> Tracer:
    """Return the solution x of a x = y by LU decomposition; `y` has columns of right-hand sides."""
    packed, _, permutation = emit_lu(a)
    return lu_solve(packed, permutation, y)


def permutation_from_pivots(pivots: Tracer, size: int) -> Tracer:
    """Return the permutation that results from exchanging row i with row `pivots[i]` in
    sequence.
    """
    *stack, count = pivots.shape
    kind = TensorType((*stack, size), "i32")
    order: Tracer = emit("iota", dim=len(stack), result=kind)
    position = order
    for i in range(count):
        with_row = broadcast_in_dim(_take_last(pivots, i), kind.shape, tuple(range(len(stack))))
        row = constant_like(position, i)
        is_row, is_pivot = (
            emit_elementwise("eq", position, row),
            emit_elementwise("eq", position, with_row),
        )
        first = broadcast_in_dim(_take_last(order, i), kind.shape, tuple(range(len(stack))))
        chosen = emit_elementwise("select", is_pivot, order, constant_like(order, 0))
        second = broadcast_in_dim(
            emit_reduction("sum", chosen, (len(stack),), False),
            kind.shape,
            tuple(range(len(stack))),
        )
        order = emit_elementwise(
            "select", is_row, second, emit_elementwise("select", is_pivot, first, order)
        )
    return order


def _take_last(x: Tracer, i: int) -> Tracer:
    """Return element `i` of the last dimension."""
    rank = x.ndim
    piece = emit(
        "slice",
        x,
        starts=(*[0] * (rank - 1), i),
        strides=(1,) * rank,
        result=x.value.type.with_shape((*x.shape[:-1], 1)),
    )
    result: Tracer = emit("reshape", piece, result=x.value.type.with_shape(x.shape[:-1]))
    return result


def machine_epsilon(x: Tracer) -> float:
    """Return the machine epsilon of the element type of `x`."""
    return {"f32": 2.0**-23, "f64": 2.0**-52}[real_dtype(x)]


def check_not_pivoting(pivoting: bool) -> None:
    """Raise `ArgumentError` for a QR decomposition with column pivoting."""
    if pivoting:
        raise ArgumentError(
            with_location("qr does not pivot columns; use svd for rank-deficient matrices")
        )
