"""Identity, diagonal and triangular matrices."""

from operator import index

import numpy as np

from shardir.errors import OperationTypeError, count_noun
from shardir.frontend.argument_errors import with_argument_errors
from shardir.frontend.arrays.array_types import ArrayLike, DTypeLike
from shardir.frontend.arrays.device_transfer import device_put
from shardir.frontend.dispatch.eager import public
from shardir.frontend.errors import ShapeError
from shardir.frontend.numpy.linear_algebra.diagonals import diagonal
from shardir.frontend.numpy.tracer_helpers.axis_slices import broadcast_in_dim, flatten
from shardir.frontend.numpy.tracer_helpers.elementwise_emission import (
    compare_row_column,
    constant_like,
    emit_elementwise,
)
from shardir.frontend.quoting import brief
from shardir.frontend.shardings.requested_sharding import ShardingRequest
from shardir.frontend.source_locations import with_location
from shardir.frontend.tracing.operands import as_tracer, convert, splat
from shardir.frontend.tracing.promotion import dtype_of
from shardir.frontend.tracing.trace import emit
from shardir.frontend.tracing.tracer import Tracer
from shardir.frontend.tracing.weak_types import strip_weak_types
from shardir.ir.dtypes import DTYPE_INFO
from shardir.ir.types import INTEGERS


@with_argument_errors
def eye(
    N: int,
    M: int | None = None,
    k: int | Tracer = 0,
    dtype: DTypeLike | None = None,
    *,
    device: ShardingRequest = None,
) -> Tracer:
    """Return a matrix of N rows and M (or N) columns with ones on diagonal `k`, zeros elsewhere."""
    result = _eye(N, M, k, dtype)
    return result if device is None else device_put(result, device)


@public(static=("N", "M", "k", "dtype"))
def _eye(N: int, M: int | None, k: int | Tracer, dtype: DTypeLike | None) -> Tracer:
    rows, columns = _matrix_sizes(N, M)
    offset = _diagonal_number("eye", k)
    if isinstance(offset, int):
        offset = max(min(offset, columns), -rows)
    return convert(compare_row_column("eq", (rows, columns), offset), dtype_of(dtype or float))


def _diagonal_number(name: str, k: int | Tracer) -> int | Tracer:
    """Return the number of a diagonal, which may be traced, as a Python or an i32 integer."""
    if isinstance(k, np.ndarray) and k.ndim:
        raise OperationTypeError(
            with_location(f"{name} takes one integer as the diagonal k, got {brief(k)}")
        )
    if not isinstance(k, Tracer):
        return index(k)
    dtype = k.value.type.dtype
    if k.ndim or dtype not in INTEGERS:
        raise OperationTypeError(
            with_location(f"{name} takes one integer as the diagonal k, got {k.value.type}")
        )
    limits, wide = DTYPE_INFO["i32"], DTYPE_INFO[dtype]
    if wide.max_integer > limits.max_integer:
        low, high = (
            splat(max(n, wide.min_integer), k.value.type)
            for n in (limits.min_integer // 2, limits.max_integer // 2)
        )
        k = emit("clamp", low, k, high)
    return convert(k, "i32")


def _matrix_sizes(N: int, M: int | None) -> tuple[int, int]:
    rows, columns = index(N), index(N if M is None else M)
    if rows < 0 or columns < 0:
        raise ShapeError(
            with_location(
                f"a matrix cannot have {count_noun(rows, 'row')} and "
                f"{count_noun(columns, 'column')}"
            )
        )
    return rows, columns


@with_argument_errors
def identity(n: int, dtype: DTypeLike | None = None) -> Tracer:
    """Return the n x n identity matrix."""
    return eye(n, dtype=dtype)


@public(static=("N", "M", "k", "dtype"))
def tri(
    N: int, M: int | None = None, k: int | Tracer = 0, dtype: DTypeLike | None = None
) -> Tracer:
    """Return a matrix with ones on and below diagonal `k` and zeros above, float32 unless `dtype`
    is given.
    """
    below = compare_row_column("ge", _matrix_sizes(N, M), _diagonal_number("tri", k))
    return convert(below, dtype_of(dtype or "float32"))


@public(static=("k",))
def tril(m: ArrayLike, k: int | Tracer = 0) -> Tracer:
    """Return the matrices with the elements above diagonal `k` replaced by zeros."""
    x = _as_matrices("tril", m)
    kept = compare_row_column("ge", x.shape, _diagonal_number("tril", k))
    return emit_elementwise("select", kept, x, constant_like(x, 0))


@public(static=("k",))
def triu(m: ArrayLike, k: int | Tracer = 0) -> Tracer:
    """Return the matrices with the elements below diagonal `k` replaced by zeros."""
    x = _as_matrices("triu", m)
    kept = compare_row_column("le", x.shape, _diagonal_number("triu", k))
    return emit_elementwise("select", kept, x, constant_like(x, 0))


def _as_matrices(name: str, x: ArrayLike) -> Tracer:
    matrix = as_tracer(x)
    if matrix.ndim == 1:
        # As in NumPy, a vector is repeated as every row of a square matrix.
        return broadcast_in_dim(matrix, (matrix.shape[0], matrix.shape[0]), (1,))
    if matrix.ndim < 2:
        raise ShapeError(with_location(f"{name} takes matrices, got shape {matrix.shape}"))
    return matrix


@public(static=("k",))
def diag(v: ArrayLike, k: int = 0) -> Tracer:
    """Return a matrix with the vector `v` on diagonal `k`, or diagonal `k` of the matrix `v`."""
    x = as_tracer(v)
    if x.ndim == 2:
        return diagonal(x, k)
    if x.ndim != 1:
        raise ShapeError(with_location(f"diag takes a vector or a matrix, got shape {x.shape}"))
    return _embed_diagonal(x, index(k))


@public(static=("k",))
@strip_weak_types
def diagflat(v: ArrayLike, k: int = 0) -> Tracer:
    """Return a matrix with all elements of `v`, flattened, on diagonal `k`."""
    return _embed_diagonal(flatten(as_tracer(v)), index(k))


def _embed_diagonal(x: Tracer, k: int) -> Tracer:
    """Return a square matrix with `x` on diagonal `k`.

    Above the main diagonal an element is selected by its row, below by its column.
    """
    size = x.shape[0] + abs(k)
    if k:
        zero = splat(0, x.value.type.with_shape(()), x.weak_type)
        x = emit("pad", x, zero, low=(0,), high=(abs(k),), interior=(0,), weak=x.weak_type)
    placed = broadcast_in_dim(x, (size, size), (0 if k >= 0 else 1,))
    return emit_elementwise(
        "select", compare_row_column("eq", (size, size), k), placed, constant_like(placed, 0)
    )
