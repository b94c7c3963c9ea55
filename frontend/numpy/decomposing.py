"""Helpers of the linear algebra of all namespaces: matrices, factorizations, solvers.

All functions work on traced values; the last two dimensions are rows and columns, the dimensions
before are batch dimensions.
"""

from typing import Any, NamedTuple

from shardir.frontend import promotion
from shardir.frontend.errors import ShapeError
from shardir.frontend.locations import point
from shardir.frontend.numpy.complexes import conjugate_of
from shardir.frontend.numpy.layout import spread, transposed
from shardir.frontend.numpy.pointwise import common, like, same
from shardir.frontend.numpy.reductions import reduced
from shardir.frontend.numpy.taking import take_along_axis
from shardir.frontend.numpy.triangles import compared
from shardir.frontend.operands import as_tracer, broadcast, broadcast_shapes, convert, promote_to
from shardir.frontend.trace import emit
from shardir.frontend.tracer import Tracer
from shardir.opset import Symbol
from shardir.types import REAL_OF, TensorType


class Eigen(NamedTuple):
    """Eigenvalues, and eigenvectors as columns."""

    eigenvalues: Any
    eigenvectors: Any


class Singular(NamedTuple):
    """The singular value decomposition of a matrix: U, the singular values, V^H."""

    U: Any
    S: Any
    Vh: Any


class Orthogonal(NamedTuple):
    """The QR decomposition of a matrix: Q with orthonormal columns, triangular R."""

    Q: Any
    R: Any


def matrices(name: str, *xs: Any) -> list[Tracer]:
    """Promote the operands to one floating or complex type; raise `ShapeError` unless all are
    matrices.
    """
    dtype, _ = common(*xs)
    operands = list(promote_to((promotion.inexact(dtype), False), *xs))
    for x in operands:
        if x.ndim < 2:
            raise ShapeError(point(f"{name} takes matrices, got shape {x.shape}"))
    return operands


def square(name: str, *xs: Any) -> list[Tracer]:
    """Promote the operands as `matrices` does; raise `ShapeError` unless the first is square."""
    operands = matrices(name, *xs)
    require_square(name, operands[0])
    return operands


def require_square(name: str, x: Tracer) -> None:
    """Raise `ShapeError` unless `x` consists of square matrices."""
    if x.ndim < 2 or x.shape[-1] != x.shape[-2]:
        raise ShapeError(point(f"{name} takes square matrices, got shape {x.shape}"))


def turned(x: Tracer) -> Tracer:
    """Transpose the last two dimensions."""
    return transposed(x, (*range(x.ndim - 2), x.ndim - 1, x.ndim - 2))


def adjoint(x: Tracer) -> Tracer:
    """Return the conjugate transpose."""
    return conjugate_of(turned(x))


def hermitian(x: Tracer) -> Tracer:
    """Return the mean of `x` and its adjoint."""
    summed = same("add", x, adjoint(x))
    return same("mul", summed, like(summed, 0.5))


def identity_like(x: Tracer, size: int) -> Tracer:
    """Return identity matrices of `size` rows with the element type and batch dimensions of `x`."""
    ones = convert(compared("eq", (size, size), 0), x.value.type.dtype)
    return spread(ones, (*x.shape[:-2], size, size), (x.ndim - 2, x.ndim - 1))


def diagonal(x: Tracer) -> Tracer:
    """Return the diagonal of square matrices."""
    masked = same("select", compared("eq", x.shape, 0), x, like(x, 0))
    return reduced("sum", masked, (x.ndim - 1,), False)


def real_dtype(x: Tracer) -> str:
    """Return the element type of absolute values of `x`."""
    return REAL_OF.get(x.value.type.dtype, x.value.type.dtype)


def scaled(x: Tracer, by: Tracer, axis: int) -> Tracer:
    """Multiply the columns (axis -1) or rows (axis -2) of matrices by vectors."""
    factors = convert(by, x.value.type.dtype)
    dims = (*range(x.ndim - 2), x.ndim + axis)
    return same("mul", x, spread(factors, x.shape, dims))


def stacked(*xs: Tracer) -> list[Tracer]:
    """Broadcast the batch dimensions of matrices to one shape."""
    batch = broadcast_shapes(*(x.shape[:-2] for x in xs))
    return [broadcast(x, (*batch, *x.shape[-2:])) for x in xs]


def triangular_solve(
    a: Tracer, y: Tracer, *, lower: bool, transpose: str = "no", unit: bool = False
) -> Tracer:
    """Return the solution x of a x = y for triangular `a`; batch dimensions broadcast."""
    left, right = stacked(a, y)
    result: Tracer = emit(
        "triangular_solve", left, right, lower=lower, transpose=Symbol(transpose), unit=unit
    )
    return result


def lu(x: Tracer) -> tuple[Tracer, Tracer, Tracer]:
    """Return L and U in one matrix, the pivots, and the permutation of the rows."""
    packed, pivots, permutation = emit("lu", x)
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
        lower = triangular_solve(packed, _rows(y, permutation), lower=True, unit=True)
        return triangular_solve(packed, lower, lower=False)
    upper = triangular_solve(packed, y, lower=False, transpose=transpose)
    lower = triangular_solve(packed, upper, lower=True, unit=True, transpose=transpose)
    positions: Tracer = emit("iota", dim=permutation.ndim - 1, result=permutation.value.type)
    _, back = emit("sort", permutation, positions, dim=permutation.ndim - 1, keys=1, stable=True)
    return _rows(lower, back)


def _rows(x: Tracer, positions: Tracer) -> Tracer:
    """Return the rows of matrices at the given indices."""
    index = spread(positions, x.shape, tuple(range(x.ndim - 1)))
    return as_tracer(take_along_axis(x, index, axis=-2))


def solve(a: Tracer, y: Tracer) -> Tracer:
    """Return the solution x of a x = y by LU decomposition; `y` has columns of right-hand sides."""
    packed, _, permutation = lu(a)
    return lu_solve(packed, permutation, y)


def permutation_of(pivots: Tracer, size: int) -> Tracer:
    """Return the permutation that results from exchanging row i with row `pivots[i]` in
    sequence.
    """
    *stack, count = pivots.shape
    kind = TensorType((*stack, size), "i32")
    order: Tracer = emit("iota", dim=len(stack), result=kind)
    position = order
    for i in range(count):
        with_row = spread(_one(pivots, i), kind.shape, tuple(range(len(stack))))
        row = like(position, i)
        is_row, is_pivot = same("eq", position, row), same("eq", position, with_row)
        first = spread(_one(order, i), kind.shape, tuple(range(len(stack))))
        chosen = same("select", is_pivot, order, like(order, 0))
        second = spread(
            reduced("sum", chosen, (len(stack),), False), kind.shape, tuple(range(len(stack)))
        )
        order = same("select", is_row, second, same("select", is_pivot, first, order))
    return order


def _one(x: Tracer, i: int) -> Tracer:
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
