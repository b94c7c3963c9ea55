"""The namespace `shardir.numpy.linalg`: products and powers of matrices.

Norms, factorizations and solvers are in other files of this folder.
"""

from functools import cache
from operator import index

from shardir.frontend.arrays.array_types import ArrayLike, DTypeLike
from shardir.frontend.dispatch.eager import public
from shardir.frontend.errors import ShapeError
from shardir.frontend.numpy.linear_algebra.contraction import (
    matmul as matmul,
    outer_product,
    tensordot as tensordot,
    vecdot as vecdot,
)
from shardir.frontend.numpy.linear_algebra.cross_and_trace import cross as _cross, trace as _trace
from shardir.frontend.numpy.linear_algebra.diagonals import diagonal as _diagonal
from shardir.frontend.numpy.linear_algebra.factorizations import (
    cholesky as cholesky,
    eig as eig,
    eigh as eigh,
    eigvals as eigvals,
    eigvalsh as eigvalsh,
    pinv as pinv,
    qr as qr,
    svd as svd,
    svdvals as svdvals,
)
from shardir.frontend.numpy.linear_algebra.norms import (
    matrix_norm as matrix_norm,
    norm as norm,
    vector_norm as vector_norm,
)
from shardir.frontend.numpy.linear_algebra.solvers import (
    cond as cond,
    det as det,
    inv as inv,
    lstsq as lstsq,
    matrix_rank as matrix_rank,
    slogdet as slogdet,
    solve as solve,
    tensorinv as tensorinv,
    tensorsolve as tensorsolve,
)
from shardir.frontend.numpy.shaping.reshaping import matrix_transpose as matrix_transpose
from shardir.frontend.numpy.tracer_helpers.array_annotations import ArraySequence
from shardir.frontend.numpy.tracer_helpers.axes import canonicalize_axis
from shardir.frontend.numpy.tracer_helpers.axis_slices import broadcast_in_dim
from shardir.frontend.numpy.tracer_helpers.elementwise_emission import (
    compare_row_column,
)
from shardir.frontend.source_locations import with_location
from shardir.frontend.tracing.operands import as_tracer, convert, promote
from shardir.frontend.tracing.tracer import Tracer

__all__ = [
    "cholesky", "cond", "cross", "det", "diagonal", "eig", "eigh", "eigvals", "eigvalsh", "inv",
    "lstsq", "matmul", "matrix_norm", "matrix_power", "matrix_rank", "matrix_transpose",
    "multi_dot", "norm", "outer", "pinv", "qr", "slogdet", "solve", "svd", "svdvals", "tensordot",
    "tensorinv", "tensorsolve", "trace", "vecdot", "vector_norm",
]  # fmt: skip


@public(static=("axis",))
def cross(x1: ArrayLike, x2: ArrayLike, /, *, axis: int = -1) -> Tracer:
    """Return the cross product of vectors of 3 elements along an axis; other axes broadcast."""
    x, y = promote(x1, x2)
    for v in (x, y):
        if v.shape[canonicalize_axis(axis, v.ndim)] != 3:
            raise ShapeError(
                with_location(
                    f"linalg.cross takes vectors of 3 elements, got shapes {x.shape}, {y.shape}"
                )
            )
    return _cross(x, y, axis=axis)


@public()
def outer(x1: ArrayLike, x2: ArrayLike, /) -> Tracer:
    """Return the products of each element of one vector with each of another as a matrix."""
    x, y = promote(x1, x2)
    if x.ndim != 1 or y.ndim != 1:
        raise ShapeError(
            with_location(f"linalg.outer takes vectors, got shapes {x.shape}, {y.shape}")
        )
    return outer_product(x, y)


@public(static=("offset",))
def diagonal(x: ArrayLike, /, *, offset: int = 0) -> Tracer:
    """Return diagonal `offset` of matrices in the last two axes."""
    return _diagonal(x, offset, -2, -1)


@public(static=("offset", "dtype"))
def trace(x: ArrayLike, /, *, offset: int = 0, dtype: DTypeLike | None = None) -> Tracer:
    """Return the sum of diagonal `offset` of matrices in the last two axes."""
    return _trace(x, offset, -2, -1, dtype)


@public(static=("n",))
def matrix_power(a: ArrayLike, n: int) -> Tracer:
    """Return the `n`-th power of square matrices; the identity for n = 0.

    A negative `n` inverts the matrices first.
    """
    x = as_tracer(a)
    count = index(n)
    if x.ndim < 2 or x.shape[-1] != x.shape[-2]:
        raise ShapeError(with_location(f"matrix_power takes square matrices, got shape {x.shape}"))
    if count < 0:
        x, count = as_tracer(inv(x)), -count
    if not count:
        ones = convert(compare_row_column("eq", x.shape[-2:], 0), x.value.type.dtype)
        return broadcast_in_dim(ones, x.shape, (x.ndim - 2, x.ndim - 1))
    result: Tracer | None = None
    while True:
        if count & 1:
            result = x if result is None else matmul(result, x)
            if count == 1:
                return result
        count >>= 1
        x = matmul(x, x)


@public(static=("precision",))
def multi_dot(arrays: ArraySequence, *, precision: object = None) -> Tracer:
    """Return the product of two or more matrices in the order with the fewest multiplications.

    The first may be a row and the last a column, given as vectors.
    """
    count = len(arrays) if getattr(arrays, "ndim", 1) else 1
    if count < 2:
        raise ShapeError(with_location(f"multi_dot takes two or more matrices, got {count}"))
    matrices = promote(*arrays)
    shapes = [x.shape for x in matrices]
    inner = [
        len(s) == 2 or (len(s) == 1 and i in (0, len(shapes) - 1)) for i, s in enumerate(shapes)
    ]
    if not all(inner):
        described = " and ".join(map(str, shapes))
        raise ShapeError(
            with_location(f"multi_dot takes two or more matrices, got shapes {described}")
        )
    first = 1 if len(shapes[0]) == 1 else shapes[0][0]
    sizes = [first, *(s[0] for s in shapes[1:]), 1 if len(shapes[-1]) == 1 else shapes[-1][1]]

    @cache
    def best(i: int, j: int) -> tuple[int, int]:
        """Return the cost of the product of matrices i to j, and the index after which to split."""
        if i == j:
            return 0, i
        return min(
            (best(i, k)[0] + best(k + 1, j)[0] + sizes[i] * sizes[k + 1] * sizes[j + 1], k)
            for k in range(i, j)
        )

    def product(i: int, j: int) -> Tracer:
        if i == j:
            return matrices[i]
        split = best(i, j)[1]
        return as_tracer(matmul(product(i, split), product(split + 1, j), precision=precision))

    return product(0, len(shapes) - 1)
