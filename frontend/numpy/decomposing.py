"""What the linear algebra of all namespaces shares: matrices, their factors, equations.

Everything here is done to traced values; the last two dimensions are rows and columns, those
before are a stack.
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
    """Eigenvalues, and their vectors as columns."""

    eigenvalues: Any
    eigenvectors: Any


class Singular(NamedTuple):
    """The factors of a matrix: U, the singular values, V^H."""

    U: Any
    S: Any
    Vh: Any


class Orthogonal(NamedTuple):
    """The factors of a matrix: Q with orthonormal columns, triangular R."""

    Q: Any
    R: Any


def matrices(name: str, *xs: Any) -> list[Tracer]:
    """The operands in one floating or complex type; raises `ShapeError` unless matrices."""
    dtype, _ = common(*xs)
    found = list(promote_to((promotion.inexact(dtype), False), *xs))
    for x in found:
        if x.ndim < 2:
            raise ShapeError(point(f"{name} takes matrices, got shape {x.shape}"))
    return found


def square(name: str, *xs: Any) -> list[Tracer]:
    """The same, of which the first is to be square."""
    found = matrices(name, *xs)
    require_square(name, found[0])
    return found


def require_square(name: str, x: Tracer) -> None:
    """Raise `ShapeError` unless `x` has square matrices."""
    if x.ndim < 2 or x.shape[-1] != x.shape[-2]:
        raise ShapeError(point(f"{name} takes square matrices, got shape {x.shape}"))


def turned(x: Tracer) -> Tracer:
    """Rows as columns."""
    return transposed(x, (*range(x.ndim - 2), x.ndim - 1, x.ndim - 2))


def adjoint(x: Tracer) -> Tracer:
    """Rows as columns, conjugated."""
    return conjugate_of(turned(x))


def hermitian(x: Tracer) -> Tracer:
    """The mean of `x` and its adjoint."""
    summed = same("add", x, adjoint(x))
    return same("mul", summed, like(summed, 0.5))


def identity_like(x: Tracer, size: int) -> Tracer:
    """Identity matrices of `size` rows in the type of `x`, one for each of its stack."""
    ones = convert(compared("eq", (size, size), 0), x.value.type.dtype)
    return spread(ones, (*x.shape[:-2], size, size), (x.ndim - 2, x.ndim - 1))


def diagonal(x: Tracer) -> Tracer:
    """The diagonal of square matrices."""
    kept = same("select", compared("eq", x.shape, 0), x, like(x, 0))
    return reduced("sum", kept, (x.ndim - 1,), False)


def real_dtype(x: Tracer) -> str:
    """The element type of absolute values."""
    return REAL_OF.get(x.value.type.dtype, x.value.type.dtype)


def scaled(x: Tracer, by: Tracer, axis: int) -> Tracer:
    """Matrices with their columns (-1) or rows (-2) multiplied by vectors."""
    factors = convert(by, x.value.type.dtype)
    dims = (*range(x.ndim - 2), x.ndim + axis)
    return same("mul", x, spread(factors, x.shape, dims))


def stacked(*xs: Tracer) -> list[Tracer]:
    """Matrices with their stacks broadcast to one."""
    stack = broadcast_shapes(*(x.shape[:-2] for x in xs))
    return [broadcast(x, (*stack, *x.shape[-2:])) for x in xs]


def triangular_solve(
    a: Tracer, y: Tracer, *, lower: bool, transpose: str = "no", unit: bool = False
) -> Tracer:
    """The x of a x = y for triangular `a`; stacks broadcast."""
    left, right = stacked(a, y)
    made: Tracer = emit(
        "triangular_solve", left, right, lower=lower, transpose=Symbol(transpose), unit=unit
    )
    return made


def lu(x: Tracer) -> tuple[Tracer, Tracer, Tracer]:
    """L and U in one matrix, pivots, and the permutation of the rows."""
    packed, pivots, permutation = emit("lu", x)
    return packed, pivots, permutation


def lu_solve(packed: Tracer, permutation: Tracer, y: Tracer, transpose: str = "no") -> Tracer:
    """The x of a x = y from the factors of `a`; `y` holds columns, and stacks broadcast."""
    stack = broadcast_shapes(packed.shape[:-2], y.shape[:-2])
    packed = broadcast(packed, (*stack, *packed.shape[-2:]))
    y = broadcast(y, (*stack, *y.shape[-2:]))
    permutation = broadcast(permutation, (*stack, permutation.shape[-1]))
    if transpose == "no":
        lower = triangular_solve(packed, _rows(y, permutation), lower=True, unit=True)
        return triangular_solve(packed, lower, lower=False)
    upper = triangular_solve(packed, y, lower=False, transpose=transpose)
    lower = triangular_solve(packed, upper, lower=True, unit=True, transpose=transpose)
    places: Tracer = emit("iota", dim=permutation.ndim - 1, result=permutation.value.type)
    _, back = emit("sort", permutation, places, dim=permutation.ndim - 1, keys=1, stable=True)
    return _rows(lower, back)


def _rows(x: Tracer, places: Tracer) -> Tracer:
    """The rows of matrices at some places."""
    index = spread(places, x.shape, tuple(range(x.ndim - 1)))
    return as_tracer(take_along_axis(x, index, axis=-2))


def solve(a: Tracer, y: Tracer) -> Tracer:
    """The x of a x = y; `y` holds columns."""
    packed, _, permutation = lu(a)
    return lu_solve(packed, permutation, y)


def permutation_of(pivots: Tracer, size: int) -> Tracer:
    """The permutation that exchanging row i with row `pivots[i]`, one after the other, makes."""
    *stack, count = pivots.shape
    kind = TensorType((*stack, size), "i32")
    order: Tracer = emit("iota", dim=len(stack), result=kind)
    place = order
    for i in range(count):
        with_row = spread(_one(pivots, i), kind.shape, tuple(range(len(stack))))
        row = like(place, i)
        here, there = same("eq", place, row), same("eq", place, with_row)
        first = spread(_one(order, i), kind.shape, tuple(range(len(stack))))
        chosen = same("select", there, order, like(order, 0))
        second = spread(
            reduced("sum", chosen, (len(stack),), False), kind.shape, tuple(range(len(stack)))
        )
        order = same("select", here, second, same("select", there, first, order))
    return order


def _one(x: Tracer, i: int) -> Tracer:
    """Element `i` of the last dimension."""
    rank = x.ndim
    piece = emit(
        "slice",
        x,
        starts=(*[0] * (rank - 1), i),
        strides=(1,) * rank,
        result=x.value.type.with_shape((*x.shape[:-1], 1)),
    )
    made: Tracer = emit("reshape", piece, result=x.value.type.with_shape(x.shape[:-1]))
    return made
