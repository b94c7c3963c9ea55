"""The namespace `shardir.numpy.linalg`: products, powers and norms of matrices.

Factorizations and solvers are in other files of this folder.
"""

from collections.abc import Sequence
from functools import cache, reduce
from operator import index
from string import ascii_letters
from typing import Any

import numpy as np

from shardir.frontend.dispatch.eager import public
from shardir.frontend.errors import ArgumentError, ShapeError
from shardir.frontend.numpy.creation.diagonal_matrices import compare_row_column
from shardir.frontend.numpy.elementwise.complex_parts import is_complex
from shardir.frontend.numpy.linear_algebra.contraction import (
    contract,
    matmul as matmul,
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
from shardir.frontend.numpy.reductions.basic_reductions import (
    emit_reduction,
    is_empty_reduction,
    restore_reduced_dims,
)
from shardir.frontend.numpy.shaping.reshaping import matrix_transpose as matrix_transpose, moveaxis
from shardir.frontend.numpy.tracer_helpers.axes import canonicalize_axes, canonicalize_axis
from shardir.frontend.numpy.tracer_helpers.dimension_order import broadcast_in_dim
from shardir.frontend.numpy.tracer_helpers.elementwise_emission import (
    as_bool,
    constant_like,
    default_float_kind,
    emit_elementwise,
    inexact_kind,
)
from shardir.frontend.source_locations import with_location
from shardir.frontend.tracing.operands import as_tracer, convert, promote, promote_to
from shardir.frontend.tracing.trace import emit
from shardir.frontend.tracing.tracer import Tracer
from shardir.ir.types import REAL_OF

__all__ = [
    "cholesky", "cond", "cross", "det", "diagonal", "eig", "eigh", "eigvals", "eigvalsh", "inv",
    "lstsq", "matmul", "matrix_norm", "matrix_power", "matrix_rank", "matrix_transpose",
    "multi_dot", "norm", "outer", "pinv", "qr", "slogdet", "solve", "svd", "svdvals", "tensordot",
    "tensorinv", "tensorsolve", "trace", "vecdot", "vector_norm",
]  # fmt: skip


@public(static=("ord", "axis", "keepdims"))
def norm(x: Any, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Any:
    """Return the norm of vectors along one axis, of matrices along two, or of all elements.

    `ord` is a number for vectors, and "fro", "nuc", 1, -1, 2, -2, inf or -inf for matrices. Without
    it, the square root of the sum of squares. `keepdims` keeps the axes with size 1.
    """
    (v,) = promote_to(inexact_kind(x), x)
    if axis is None and (ord is None or v.ndim not in (1, 2)):
        if ord is not None:
            raise ShapeError(
                with_location(f"norm of ord={ord!r} of an array of rank {v.ndim} needs axis=")
            )
        return _vector_norm(v, tuple(range(v.ndim)), 2, keepdims)
    dims = canonicalize_axes(axis, v.ndim)
    if len(dims) == 1:
        return _vector_norm(v, dims, 2 if ord is None else ord, keepdims)
    if len(dims) != 2:
        raise ShapeError(with_location(f"norm takes one axis or two, got axis={axis}"))
    return _matrix_norm(v, (dims[0], dims[1]), "fro" if ord is None else ord, keepdims)


@public(static=("axis", "keepdims", "ord"))
def vector_norm(x: Any, /, *, axis: Any = None, keepdims: bool = False, ord: Any = 2) -> Any:
    """Return the norm of vectors along some axes, or of all elements; `ord` is a number."""
    name, weak = default_float_kind(x) if ord in (2, None) else inexact_kind(x)
    (v,) = promote_to((name, weak), x)
    return _vector_norm(v, canonicalize_axes(axis, v.ndim), 2 if ord is None else ord, keepdims)


@public(static=("keepdims", "ord"))
def matrix_norm(x: Any, /, *, keepdims: bool = False, ord: Any = "fro") -> Any:
    """Return the norm of matrices in the last two axes: "fro", "nuc", 1, -1, 2, -2, inf or -inf."""
    (v,) = promote_to(inexact_kind(x), x)
    if v.ndim < 2:
        raise ShapeError(with_location(f"matrix_norm takes matrices, got shape {v.shape}"))
    return _matrix_norm(v, (v.ndim - 2, v.ndim - 1), ord, keepdims)


def _vector_norm(x: Tracer, dims: tuple[int, ...], order: Any, keepdims: bool) -> Tracer:
    if isinstance(order, str):
        raise ArgumentError(with_location(f"norm of vectors takes a number as ord, got {order!r}"))
    if order == 0:
        return emit_reduction(
            "sum",
            convert(as_bool(x), REAL_OF.get(x.value.type.dtype, x.value.type.dtype)),
            dims,
            keepdims,
        )
    if order == 2 and len(dims) == x.ndim and not is_complex(x):
        letters = ascii_letters[: x.ndim]
        found = emit_elementwise("sqrt", contract(x, x, f"{letters},{letters}->"))
        return restore_reduced_dims(found, x, dims) if keepdims else found
    if order == 2:
        return emit_elementwise("sqrt", emit_reduction("sum", _squares(x), dims, keepdims))
    sizes = emit_elementwise("abs", x)
    if abs(order) == np.inf:
        return _reduce_extreme("max" if order > 0 else "min", sizes, dims, keepdims)
    if order == 1:
        return emit_reduction("sum", sizes, dims, keepdims)
    summed = emit_reduction(
        "sum", emit_elementwise("pow", sizes, constant_like(sizes, order)), dims, keepdims
    )
    return emit_elementwise("pow", summed, constant_like(summed, 1 / order))


def _squares(x: Tracer) -> Tracer:
    parts = [emit_elementwise("real", x), emit_elementwise("imag", x)] if is_complex(x) else [x]
    return reduce(
        lambda a, b: emit_elementwise("add", a, b),
        [emit_elementwise("mul", part, part) for part in parts],
    )


def _reduce_extreme(op: str, x: Tracer, dims: tuple[int, ...], keepdims: bool) -> Tracer:
    if is_empty_reduction(x, dims):
        raise ShapeError(with_location(f"norm of no elements, shape {x.shape}, has no extreme"))
    return emit_reduction(op, x, dims, keepdims)


def _matrix_norm(x: Tracer, dims: tuple[int, int], order: Any, keepdims: bool) -> Tracer:
    if order == "fro":
        return _vector_norm(x, dims, 2, keepdims)
    if order in (1, -1, np.inf, -np.inf):
        along, other = dims if abs(order) == 1 else dims[::-1]
        sums = emit_reduction("sum", emit_elementwise("abs", x), (along,), False)
        found = _reduce_extreme(
            "max" if order > 0 else "min", sums, (other - (along < other),), False
        )
        return restore_reduced_dims(found, x, dims) if keepdims else found
    if order in ("nuc", 2, -2):
        values = emit("svd", as_tracer(moveaxis(x, dims, (-2, -1))), full=False, vectors=False)
        last = (values.ndim - 1,)
        if order == "nuc":
            found = emit_reduction("sum", values, last, False)
        else:
            found = _reduce_extreme("max" if order > 0 else "min", values, last, False)
        return restore_reduced_dims(found, x, dims) if keepdims else found
    raise ArgumentError(
        with_location(
            f"norm of matrices of ord={order!r} is not known; the norms are 'fro', 'nuc', 1, -1, "
            "2, -2, inf, -inf"
        )
    )


@public(static=("axis",))
def cross(x1: Any, x2: Any, /, *, axis: int = -1) -> Any:
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
def outer(x1: Any, x2: Any, /) -> Any:
    """Return the products of each element of one vector with each of another as a matrix."""
    x, y = promote(x1, x2)
    if x.ndim != 1 or y.ndim != 1:
        raise ShapeError(
            with_location(f"linalg.outer takes vectors, got shapes {x.shape}, {y.shape}")
        )
    if x.value.type.dtype == "bool":
        return contract(x, y, "b,h->bh")
    # Without a sum, products keep the sign of zero.
    shape = (x.shape[0], y.shape[0])
    return emit_elementwise(
        "mul", broadcast_in_dim(x, shape, (0,)), broadcast_in_dim(y, shape, (1,))
    )


@public(static=("offset",))
def diagonal(x: Any, /, *, offset: int = 0) -> Any:
    """Return diagonal `offset` of matrices in the last two axes."""
    return _diagonal(x, offset, -2, -1)


@public(static=("offset", "dtype"))
def trace(x: Any, /, *, offset: int = 0, dtype: Any = None) -> Any:
    """Return the sum of diagonal `offset` of matrices in the last two axes."""
    return _trace(x, offset, -2, -1, dtype)


@public(static=("n",))
def matrix_power(a: Any, n: int) -> Any:
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
    result: Any = None
    while True:
        if count & 1:
            result = x if result is None else matmul(result, x)
        count >>= 1
        if not count:
            return result
        x = matmul(x, x)


@public()
def multi_dot(arrays: Sequence[Any]) -> Any:
    """Return the product of two or more matrices in the order with the fewest multiplications.

    The first may be a row and the last a column, given as vectors.
    """
    matrices = promote(*arrays)
    shapes = [x.shape for x in matrices]
    inner = [
        len(s) == 2 or (len(s) == 1 and i in (0, len(shapes) - 1)) for i, s in enumerate(shapes)
    ]
    if len(shapes) < 2 or not all(inner):
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
        return as_tracer(matmul(product(i, split), product(split + 1, j)))

    return product(0, len(shapes) - 1)
