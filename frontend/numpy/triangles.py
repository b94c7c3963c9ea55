"""Identity, diagonal and triangular matrices."""

from operator import index
from typing import Any

from shardir.frontend.eager import public
from shardir.frontend.errors import ShapeError
from shardir.frontend.locations import point
from shardir.frontend.numpy.contraction import flat
from shardir.frontend.numpy.diagonals import diagonal
from shardir.frontend.numpy.layout import spread
from shardir.frontend.numpy.pointwise import like, same
from shardir.frontend.operands import as_tracer, convert, splat
from shardir.frontend.placing import device_put
from shardir.frontend.promotion import dtype_of
from shardir.frontend.trace import emit
from shardir.frontend.tracer import Tracer
from shardir.types import TensorType


def compared(op: str, shape: tuple[int, ...], k: int) -> Tracer:
    """Compare row index + k with the column index by `op`, in the last two dimensions, as bools."""
    kind = TensorType(shape, "i32")
    rows: Tracer = emit("iota", dim=len(shape) - 2, result=kind)
    columns: Tracer = emit("iota", dim=len(shape) - 1, result=kind)
    if k:
        rows = same("add", rows, like(rows, k))
    return same(op, rows, columns)


def eye(N: int, M: int | None = None, k: int = 0, dtype: Any = None, *, device: Any = None) -> Any:
    """Return a matrix of N rows and M (or N) columns with ones on diagonal `k`, zeros elsewhere."""
    result = _eye(N, M, k, dtype)
    return result if device is None else device_put(result, device)


@public(static=("N", "M", "k", "dtype"))
def _eye(N: int, M: int | None, k: int, dtype: Any) -> Any:
    rows, columns = _sizes(N, M)
    offset = max(min(index(k), columns), -rows)
    return convert(compared("eq", (rows, columns), offset), dtype_of(dtype or float))


def _sizes(N: Any, M: Any) -> tuple[int, int]:
    rows, columns = index(N), index(N if M is None else M)
    if rows < 0 or columns < 0:
        raise ShapeError(point(f"a matrix cannot have {rows} rows and {columns} columns"))
    return rows, columns


def identity(n: int, dtype: Any = None) -> Any:
    """Return the n x n identity matrix."""
    return eye(n, dtype=dtype)


@public(static=("N", "M", "k", "dtype"))
def tri(N: int, M: int | None = None, k: int = 0, dtype: Any = None) -> Any:
    """Return a matrix with ones on and below diagonal `k` and zeros above, float32 unless `dtype`
    is given.
    """
    return convert(compared("ge", _sizes(N, M), index(k)), dtype_of(dtype or "float32"))


@public(static=("k",))
def tril(m: Any, k: int = 0) -> Any:
    """Return the matrices with the elements above diagonal `k` replaced by zeros."""
    x = _matrices("tril", m)
    return same("select", compared("ge", x.shape, index(k)), x, like(x, 0))


@public(static=("k",))
def triu(m: Any, k: int = 0) -> Any:
    """Return the matrices with the elements below diagonal `k` replaced by zeros."""
    x = _matrices("triu", m)
    return same("select", compared("le", x.shape, index(k)), x, like(x, 0))


def _matrices(name: str, x: Any) -> Tracer:
    matrix = as_tracer(x)
    if matrix.ndim == 1:
        # As in NumPy, a vector is repeated as every row of a square matrix.
        return spread(matrix, (matrix.shape[0], matrix.shape[0]), (1,))
    if matrix.ndim < 2:
        raise ShapeError(point(f"{name} takes matrices, got shape {matrix.shape}"))
    return matrix


@public(static=("k",))
def diag(v: Any, k: int = 0) -> Any:
    """Return a matrix with the vector `v` on diagonal `k`, or diagonal `k` of the matrix `v`."""
    x = as_tracer(v)
    if x.ndim == 2:
        return diagonal(x, k)
    if x.ndim != 1:
        raise ShapeError(point(f"diag takes a vector or a matrix, got shape {x.shape}"))
    return _with_diagonal(x, index(k))


@public(static=("k",))
def diagflat(v: Any, k: int = 0) -> Any:
    """Return a matrix with all elements of `v`, flattened, on diagonal `k`."""
    return _with_diagonal(flat(as_tracer(v)), index(k))


def _with_diagonal(x: Tracer, k: int) -> Tracer:
    """Return a square matrix with `x` on diagonal `k`.

    Above the main diagonal an element is selected by its row, below by its column.
    """
    size = x.shape[0] + abs(k)
    if k:
        zero = splat(0, x.value.type.with_shape(()), x.weak_type)
        x = emit("pad", x, zero, low=(0,), high=(abs(k),), interior=(0,), weak=x.weak_type)
    placed = spread(x, (size, size), (0 if k >= 0 else 1,))
    return same("select", compared("eq", (size, size), k), placed, like(placed, 0))
