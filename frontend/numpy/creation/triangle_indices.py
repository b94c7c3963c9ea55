"""Index arrays of diagonals and triangles."""

import numpy as np

from shardir.errors import OperationTypeError
from shardir.frontend.argument_checks import MAX_RANK, check_integer, check_not_in_place
from shardir.frontend.argument_errors import with_argument_errors
from shardir.frontend.arrays.array_types import ArrayLike
from shardir.frontend.arrays.numpy_conversion import abstract_of
from shardir.frontend.call_signatures import call_user_function
from shardir.frontend.dispatch.eager import public
from shardir.frontend.errors import ArgumentError
from shardir.frontend.numpy.creation import filling
from shardir.frontend.numpy.creation.ranges import arange
from shardir.frontend.numpy.indexing.nonzero import as_default_index_array, nonzero
from shardir.frontend.numpy.shaping import tiling
from shardir.frontend.pytree_types import UserFunction
from shardir.frontend.quoting import brief
from shardir.frontend.source_locations import with_location
from shardir.frontend.tracing.operands import as_tracer, reshape
from shardir.frontend.tracing.tracer import Tracer

MAX_INDEX = (1 << 31) - 1


@with_argument_errors
def diag_indices(n: int, ndim: int = 2) -> tuple[Tracer, ...]:
    """Return the indices of the main diagonal of an array with `ndim` dimensions of size `n`."""
    size = _check_size(n, "n of diag_indices")
    rank = check_integer("ndim of diag_indices", ndim, 0)
    if rank > MAX_RANK:
        raise ArgumentError(
            with_location(
                f"ndim of diag_indices is {rank}; arrays have at most {MAX_RANK} dimensions"
            )
        )
    return (arange(size),) * rank


@with_argument_errors
def diag_indices_from(arr: ArrayLike) -> tuple[Tracer, ...]:
    """Return the indices of the main diagonal of `arr`, whose dimensions must have one size."""
    shape = abstract_of(arr, "argument arr of diag_indices_from").type.shape
    if len(shape) < 2 or len(set(shape)) != 1:
        raise OperationTypeError(
            with_location(
                f"diag_indices_from takes an array of equal dimensions, got shape {shape}"
            )
        )
    return diag_indices(shape[0], len(shape))


@with_argument_errors
def tril_indices(n: int, k: int = 0, m: int | None = None) -> tuple[Tracer, ...]:
    """Return the indices of the lower triangle, up to diagonal `k`, of an n by m array."""
    return _triangle_indices("tril_indices", n, k, m, True)


@with_argument_errors
def triu_indices(n: int, k: int = 0, m: int | None = None) -> tuple[Tracer, ...]:
    """Return the indices of the upper triangle, from diagonal `k` on, of an n by m array."""
    return _triangle_indices("triu_indices", n, k, m, False)


def _triangle_indices(
    name: str, n: int, k: int, m: ArrayLike | None, below: bool
) -> tuple[Tracer, Tracer]:
    """Return the row and column indices up to diagonal `k` if `below`, else from it on."""
    height = _check_size(n, f"n of {name}")
    columns = height if m is None else _check_size(m, f"m of {name}")
    rows = np.arange(height, dtype=np.int32)
    # Beyond the corners all diagonals are equal.
    first = min(max(check_integer(f"k of {name}", k), -height - 1), columns) + below
    edge = np.minimum(np.maximum(np.arange(first, first + height), 0), columns)
    counts, end = (edge, edge) if below else (columns - edge, columns)
    cumulative = np.cumsum(counts)
    columns_of_elements = np.arange(cumulative[-1] if height else 0, dtype=np.int32)
    columns_of_elements -= np.repeat((cumulative - end).astype(np.int32), counts)
    return as_default_index_array(np.repeat(rows, counts)), as_default_index_array(
        columns_of_elements
    )


def _check_size(number: ArrayLike, what: str) -> int:
    """Return a number of rows or columns; raise `ArgumentError` if it is not valid."""
    result = check_integer(what, number, 0)
    if result > MAX_INDEX:
        raise ArgumentError(
            with_location(
                f"{what} is {result}; indices are of 32 bits, so it is at most {MAX_INDEX}"
            )
        )
    return result


@with_argument_errors
def tril_indices_from(arr: ArrayLike, k: int = 0) -> tuple[Tracer, ...]:
    """Return the indices of the lower triangle of a matrix; see `tril_indices`."""
    return _triangle_indices("tril_indices_from", *_matrix_size("tril_indices_from", arr, k), True)


@with_argument_errors
def triu_indices_from(arr: ArrayLike, k: int = 0) -> tuple[Tracer, ...]:
    """Return the indices of the upper triangle of a matrix; see `triu_indices`."""
    return _triangle_indices("triu_indices_from", *_matrix_size("triu_indices_from", arr, k), False)


def _matrix_size(name: str, arr: ArrayLike, k: int) -> tuple[int, int, int]:
    """Return the number of rows of a matrix, the diagonal, and the number of columns."""
    shape = abstract_of(arr, f"argument arr of {name}").type.shape
    if len(shape) < 2:
        raise OperationTypeError(with_location(f"{name} takes a matrix, got shape {shape}"))
    return shape[-2], k, shape[-1]


@with_argument_errors
def mask_indices(
    n: int, mask_func: UserFunction, k: int = 0, *, size: int | None = None
) -> tuple[Tracer, ...]:
    """Return the indices where `mask_func(ones((n, n)), k)` is not zero.

    `mask_indices(3, snp.triu)` is an example.
    """

    if not callable(mask_func):
        raise ArgumentError(with_location(f"mask_indices takes a function, got {brief(mask_func)}"))
    rows = _check_size(n, "n of mask_indices")
    mask = call_user_function(
        mask_func, "mask_func of mask_indices", (filling.ones((rows, rows)), k)
    )
    return nonzero(mask, size=size)


@with_argument_errors
def fill_diagonal(
    a: ArrayLike, val: object, wrap: bool = False, *, inplace: bool = False
) -> Tracer:
    """Return a copy of `a` with `val` (repeated if short) on its main diagonal.

    More than two dimensions must have one size; `wrap` restarts the diagonal of a tall matrix
    below its end. Raise `ArgumentError` if `inplace` is true.
    """
    check_not_in_place("fill_diagonal", inplace)
    return _fill_diagonal(a, val, wrap)


@public(static=("wrap",))
def _fill_diagonal(a: ArrayLike, val: object, wrap: bool) -> Tracer:

    x, new = as_tracer(a), as_tracer(val)
    if x.ndim < 2 or (x.ndim > 2 and len(set(x.shape)) != 1):
        raise OperationTypeError(
            with_location(
                f"fill_diagonal takes a matrix, or more dimensions of one size, got shape {x.shape}"
            )
        )
    if x.ndim == 2:
        step = x.shape[1] + 1
        end = x.size if wrap else min(x.size, x.shape[1] * x.shape[1])
    else:
        step = 1 + sum(x.shape[0] ** d for d in range(1, x.ndim))
        end = x.size
    count = len(range(0, end, step))
    if new.ndim:
        new = tiling.resize(new, (count,))
    flat = reshape(x, (x.size,)).at[0:end:step].set(new)
    return reshape(flat, x.shape)
