"""The places of diagonals and triangles."""

from collections.abc import Callable
from operator import index
from typing import Any

import numpy as np

from shardir.errors import OperationTypeError
from shardir.frontend.eager import public
from shardir.frontend.locations import point
from shardir.frontend.numpy.choosing import not_in_place
from shardir.frontend.numpy.creation import arange
from shardir.frontend.numpy.positions import nonzero, places_of
from shardir.frontend.operands import as_tracer, reshape


def diag_indices(n: int, ndim: int = 2) -> tuple[Any, ...]:
    """The places of the main diagonal of an array with `ndim` dimensions of size `n`."""
    return (arange(index(n), dtype=np.int32),) * ndim


def diag_indices_from(arr: Any) -> tuple[Any, ...]:
    """The places of the main diagonal of `arr`, whose dimensions must all be of one size."""
    shape = tuple(arr.shape)
    if len(shape) < 2 or len(set(shape)) != 1:
        raise OperationTypeError(
            point(f"diag_indices_from takes an array of equal dimensions, got shape {shape}")
        )
    return diag_indices(shape[0], len(shape))


def tril_indices(n: int, k: int = 0, m: int | None = None) -> tuple[Any, ...]:
    """The places of the lower triangle, up to the k-th diagonal, of an n by m array."""
    return _lines(n, k + 1, m, True)


def triu_indices(n: int, k: int = 0, m: int | None = None) -> tuple[Any, ...]:
    """The places of the upper triangle, from the k-th diagonal on, of an n by m array."""
    return _lines(n, k, m, False)


def _lines(n: int, k: int, m: int | None, below: bool) -> tuple[Any, Any]:
    """The places of each row `below` the one that lies `k` after the diagonal, or from there on."""
    columns = index(n if m is None else m)
    rows = np.arange(index(n), dtype=np.int32)
    edge = np.minimum(np.maximum(np.arange(k, k + n), 0), columns)
    counts, end = (edge, edge) if below else (columns - edge, columns)
    past = np.cumsum(counts)
    across = np.arange(past[-1] if n else 0, dtype=np.int32)
    across -= np.repeat((past - end).astype(np.int32), counts)
    return places_of(np.repeat(rows, counts)), places_of(across)


def tril_indices_from(arr: Any, k: int = 0) -> tuple[Any, ...]:
    """The places of the lower triangle of a matrix; see `tril_indices`."""
    return tril_indices(arr.shape[-2], k, arr.shape[-1])


def triu_indices_from(arr: Any, k: int = 0) -> tuple[Any, ...]:
    """The places of the upper triangle of a matrix; see `triu_indices`."""
    return triu_indices(arr.shape[-2], k, arr.shape[-1])


def mask_indices(
    n: int, mask_func: Callable[..., Any], k: int = 0, *, size: int | None = None
) -> Any:
    """The places where `mask_func(ones((n, n)), k)` is not zero: `mask_indices(3, snp.triu)`."""
    from shardir.frontend import numpy as snp

    return nonzero(mask_func(snp.ones((n, n)), k), size=size)


def fill_diagonal(a: Any, val: Any, wrap: bool = False, *, inplace: bool = False) -> Any:
    """A copy of `a` with `val` (from the start again if short) on its main diagonal.

    With more than two dimensions these must be of one size; `wrap` begins a tall matrix's diagonal
    anew below its end.
    """
    not_in_place("fill_diagonal", inplace)
    return _fill_diagonal(a, val, wrap)


@public(static=("wrap",))
def _fill_diagonal(a: Any, val: Any, wrap: bool) -> Any:
    from shardir.frontend import numpy as snp

    x, new = as_tracer(a), as_tracer(val)
    if x.ndim < 2 or (x.ndim > 2 and len(set(x.shape)) != 1):
        raise OperationTypeError(
            point(
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
        new = snp.resize(new, (count,))
    flat = reshape(x, (x.size,)).at[0:end:step].set(new)
    return reshape(flat, x.shape)
