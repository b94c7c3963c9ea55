"""Where things are: the places of what is true, of a diagonal, of a triangle, of a flat index.

How many elements are true shows only in the numbers. Outside of a trace they are looked at; inside
one, `size=` has to say how many places the result has.
"""

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np

from shardir.errors import OperationTypeError
from shardir.frontend.eager import public
from shardir.frontend.errors import IndexingError, TracedValueError
from shardir.frontend.locations import point
from shardir.frontend.numpy.known import as_ints, is_known
from shardir.frontend.numpy.pointwise import truth
from shardir.frontend.numpy.taking import not_in_place
from shardir.frontend.operands import as_tracer, reshape
from shardir.frontend.tracer import Tracer
from shardir.types import INTEGERS


def nonzero(a: Any, *, size: int | None = None, fill_value: Any = None) -> Any:
    """The places of the elements that are not zero: for each dimension an i32 vector of indices.

    `size` says how many there are; it must be given for a traced array. Places too many are cut
    off, those too few are `fill_value` (0; a tuple has one for each dimension).
    """
    if size is not None:
        return _nonzero(a, size, fill_value)
    if not is_known(a):
        raise TracedValueError(
            point(
                "how many elements are not zero depends on their numbers, which are traced; state "
                "how many there are at most with size=, or choose with snp.where(condition, x, y)"
            )
        )
    array = np.asarray(a)
    if not array.ndim:
        raise OperationTypeError(point("nonzero takes at least one dimension; use atleast_1d"))
    return tuple(_places(places) for places in np.nonzero(array))


def _places(numbers: Any) -> Any:
    from shardir.frontend import numpy as snp

    return snp.asarray(numbers.astype(np.int32))


@public(static=("size", "fill_value"))
def _nonzero(a: Any, size: int, fill_value: Any) -> Any:
    from shardir.frontend import numpy as snp

    there = truth(a)
    if not there.ndim:
        raise OperationTypeError(point("nonzero takes at least one dimension; use atleast_1d"))
    flat = reshape(there, (there.size,))
    rank = there.ndim
    fills = fill_value if isinstance(fill_value, (tuple, list)) else (fill_value or 0,) * rank
    if len(fills) != rank:
        raise OperationTypeError(
            point(f"nonzero takes one fill_value or {rank} of them, got {len(fills)}")
        )
    # Each true element knows how many came before it, which is its place in the result.
    count = snp.cumsum(flat, dtype=np.int32)
    where = snp.where(flat, count - 1, size)
    found = snp.zeros((size,), np.int32).at[where].set(snp.arange(there.size, dtype=np.int32))
    total = snp.sum(flat, dtype=np.int32)
    valid = snp.arange(size, dtype=np.int32) < total
    places = unravel_index(found, there.shape)
    return tuple(
        snp.where(valid, place, int(fill)) for place, fill in zip(places, fills, strict=True)
    )


_nonzero.__name__ = "nonzero"


def flatnonzero(a: Any, *, size: int | None = None, fill_value: Any = None) -> Any:
    """The places in the flat array of the elements that are not zero; see `nonzero`."""
    from shardir.frontend.numpy.manipulation import ravel

    return nonzero(ravel(a), size=size, fill_value=fill_value)[0]


def argwhere(a: Any, *, size: int | None = None, fill_value: Any = None) -> Any:
    """The places of the elements that are not zero, one row of indices each; see `nonzero`."""
    from shardir.frontend import numpy as snp

    if not np.ndim(a) if not hasattr(a, "shape") else not len(a.shape):
        places = nonzero(snp.atleast_1d(a), size=size, fill_value=fill_value)
        return snp.zeros((places[0].shape[0], 0), np.int32)
    return snp.stack(nonzero(a, size=size, fill_value=fill_value), axis=-1)


def ix_(*args: Any) -> tuple[Any, ...]:
    """Index arrays for the rows, columns, ... that the vectors name: `x[ix_([0, 2], [1, 3])]`."""
    rank = len(args)
    return tuple(_open(arg, d, rank) for d, arg in enumerate(args))


def _open(arg: Any, dim: int, rank: int) -> Any:
    from shardir.frontend import numpy as snp

    vector = arg if hasattr(arg, "shape") else np.asarray(arg)
    if len(vector.shape) != 1:
        raise IndexingError(point(f"ix_ takes vectors, got shape {tuple(vector.shape)}"))
    if vector.dtype == np.bool_:
        (vector,) = nonzero(vector)
    elif not vector.shape[0]:
        vector = np.zeros((0,), np.int32)
    shape = tuple(vector.shape[0] if d == dim else 1 for d in range(rank))
    return snp.reshape(vector, shape)


@public(static=("shape",))
def unravel_index(indices: Any, shape: Any) -> Any:
    """The indices in each dimension of an array of `shape` that flat indices mean.

    Negative ones count from the end; those out of range are moved to the nearest element.
    """
    from shardir.frontend import numpy as snp

    sizes = as_ints(shape)
    flat = _whole(indices, "unravel_index")
    size = prod(sizes)
    if len(sizes) == 1:
        return (flat if not size else snp.clip(_from_front(flat, size), 0, size - 1),)
    flat = snp.clip(_from_front(flat, size), 0, max(size - 1, 0))
    places = []
    for n in reversed(sizes):
        places.append(snp.remainder(flat, max(n, 1)))
        flat = snp.floor_divide(flat, max(n, 1))
    return tuple(reversed(places))


def _whole(x: Any, what: str) -> Tracer:
    tracer = as_tracer(x)
    if tracer.value.type.dtype not in INTEGERS:
        raise IndexingError(point(f"{what} takes integers, got {tracer.value.type.dtype}"))
    return tracer


def _from_front(index: Tracer, size: int) -> Tracer:
    from shardir.frontend import numpy as snp

    counted: Tracer = snp.where(index < 0, index + size, index)
    return counted


def ravel_multi_index(
    multi_index: Any, dims: Any, mode: str | Sequence[str] = "raise", order: str = "C"
) -> Any:
    """Flat indices of an array of shape `dims` from the indices in each dimension.

    Indices out of range raise (which takes indices that are known), are moved to the nearest
    ("clip") or start again ("wrap"); `mode` may say so for each dimension.
    """
    sizes = as_ints(dims)
    modes = (mode,) * len(sizes) if isinstance(mode, str) else tuple(mode)
    if len(multi_index) != len(sizes) or len(modes) != len(sizes):
        raise IndexingError(
            point(f"ravel_multi_index takes {len(sizes)} index arrays, got {len(multi_index)}")
        )
    for index, size, each in zip(multi_index, sizes, modes, strict=True):
        if each not in ("raise", "clip", "wrap"):
            raise IndexingError(
                point(f"mode {each!r} is unknown; the modes are 'raise', 'clip' and 'wrap'")
            )
        if each != "raise":
            continue
        if not is_known(index):
            raise TracedValueError(
                point(
                    "ravel_multi_index looks whether indices are in range, which are traced; "
                    "pass mode='clip' or mode='wrap'"
                )
            )
        numbers = np.asarray(index)
        if ((numbers < 0) | (numbers >= size)).any():
            raise IndexingError(point(f"ravel_multi_index has an index out of range for {dims}"))
    return _raveled(tuple(multi_index), sizes, modes, order)


@public(static=("sizes", "modes", "order"))
def _raveled(indices: Any, sizes: tuple[int, ...], modes: tuple[str, ...], order: str) -> Any:
    from shardir.frontend import numpy as snp

    if order not in ("C", "F"):
        raise OperationTypeError(point(f"order {order!r} is unknown; it is 'C' or 'F'"))
    flat: Any = 0
    parts = list(zip(indices, sizes, modes, strict=True))
    for index, size, mode in parts if order == "C" else reversed(parts):
        place: Any = _whole(index, "ravel_multi_index")
        if mode == "clip":
            place = snp.clip(place, 0, size - 1)
        elif mode == "wrap":
            place = snp.remainder(place, size)
        flat = flat * size + place
    return flat


_raveled.__name__ = "ravel_multi_index"


def diag_indices(n: int, ndim: int = 2) -> tuple[Any, ...]:
    """The places of the main diagonal of an array with `ndim` dimensions of size `n`."""
    return (_places(np.arange(n)),) * ndim


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
    return tuple(map(_places, np.tril_indices(n, k, m)))


def triu_indices(n: int, k: int = 0, m: int | None = None) -> tuple[Any, ...]:
    """The places of the upper triangle, from the k-th diagonal on, of an n by m array."""
    return tuple(map(_places, np.triu_indices(n, k, m)))


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


_fill_diagonal.__name__ = "fill_diagonal"


def place(arr: Any, mask: Any, vals: Any, *, inplace: bool = False) -> Any:
    """A copy of `arr` where the n-th true element of `mask` is the n-th of `vals`, around again."""
    not_in_place("place", inplace)
    return _placed(arr, mask, vals)


@public()
def _placed(arr: Any, mask: Any, vals: Any) -> Any:
    from shardir.frontend import numpy as snp
    from shardir.frontend.numpy.at import fitted

    x, there = as_tracer(arr), truth(mask)
    new = fitted(x, vals)
    if there.size != x.size or not new.size:
        raise OperationTypeError(
            point(f"place takes a mask of shape {x.shape} and values, got {there.shape}")
        )
    order = snp.remainder(snp.cumsum(snp.ravel(there), dtype=np.int32) - 1, new.size)
    spread = reshape(snp.take(new, order, mode="clip"), x.shape)
    return snp.where(reshape(there, x.shape), spread, x)


_placed.__name__ = "place"
