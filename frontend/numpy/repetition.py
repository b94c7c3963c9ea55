"""Repetition, insertion and deletion of elements along an axis."""

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from shardir.errors import OperationTypeError
from shardir.frontend.composing import composed
from shardir.frontend.eager import public
from shardir.frontend.errors import ArgumentError, IndexingError
from shardir.frontend.locations import point
from shardir.frontend.numpy.along import counted, joined, piece, repeated, resized
from shardir.frontend.numpy.axes import axis_of
from shardir.frontend.numpy.known import as_ints, frozen, is_known
from shardir.frontend.numpy.taking import take
from shardir.frontend.operands import as_tracer, broadcast, promote_to, reshape, splat
from shardir.frontend.quoting import brief
from shardir.frontend.resharding import laid_out
from shardir.frontend.tracer import Tracer

FEW = 4
"""The number of contiguous runs from which on elements are gathered instead of concatenated."""


@public(static=("reps",))
def tile(A: Any, reps: Any) -> Any:
    """Repeat the array `A`, `reps` times along each dimension."""
    x = as_tracer(A)
    times = as_ints(reps)
    rank = max(x.ndim, len(times))
    x = reshape(x, (1,) * (rank - x.ndim) + x.shape)
    times = (1,) * (rank - len(times)) + times
    new_shape = tuple(t * n for t, n in zip(times, x.shape, strict=True))
    if new_shape == x.shape:
        return x
    expanded = [n for pair in zip((1,) * rank, x.shape, strict=True) for n in pair]
    grown = [n for pair in zip(times, x.shape, strict=True) for n in pair]
    return reshape(broadcast(reshape(x, expanded), grown), new_shape)


@composed()
def repeat(
    a: Any, repeats: Any, axis: Any = None, *, total_repeat_length: int | None = None,
    out_sharding: Any = None,
) -> Any:  # fmt: skip
    """Repeat each element `repeats` times along `axis` (without it, in the flattened array).

    Counts per element may be traced if `total_repeat_length` states the size of the result, which
    is truncated or padded with its last element.
    """
    if is_known(repeats):
        return laid_out(_repeated(a, frozen(repeats), axis, total_repeat_length), out_sharding)
    if total_repeat_length is None:
        raise OperationTypeError(
            point("repeat with traced counts needs total_repeat_length=, the size of the result")
        )
    return laid_out(_repeated_by(a, repeats, axis, total_repeat_length), out_sharding)


@public(static=("axis", "total"), name="repeat")
def _repeated_by(a: Any, repeats: Any, axis: Any, total: int) -> Any:
    from shardir.frontend import numpy as snp

    x, dim = _lined(a, axis)
    size = x.shape[dim]
    ends = counted(broadcast(as_tracer(repeats), (size,)))
    index = snp.searchsorted(ends, snp.arange(total), side="right")
    return take(x, index, axis=dim, mode="promise_in_bounds")


@public(static=("repeats", "axis", "total"), name="repeat")
def _repeated(a: Any, repeats: Any, axis: Any, total: int | None) -> Any:
    x, dim = _lined(a, axis)
    size = x.shape[dim]
    counts = np.asarray(repeats)
    if not counts.size:
        counts = counts.astype(int)
    if counts.dtype.kind not in "iub" or counts.ndim > 1 or (counts < 0).any():
        raise OperationTypeError(
            point(f"repeat takes whole numbers of at least 0 as counts, got {repeats}")
        )
    if counts.size == 1:
        count = int(counts.reshape(()))
        unit_shape, repeated_shape = (*x.shape[: dim + 1], 1), (*x.shape[: dim + 1], count)
        grown = broadcast(
            reshape(x, unit_shape + x.shape[dim + 1 :]), repeated_shape + x.shape[dim + 1 :]
        )
        result = reshape(grown, resized(x.shape, dim, size * count))
    else:
        if counts.shape != (size,):
            raise OperationTypeError(
                point(f"repeat takes {size} counts for this axis, got {counts.size}")
            )
        result = selected([x], dim, np.repeat(np.arange(size), counts))
    if total is None or total == result.shape[dim]:
        return result
    length = result.shape[dim]
    if length > total:
        return piece(result, dim, 0, total)
    return joined([result, repeated(result, dim, length - 1, total - length)], dim)


def _lined(a: Any, axis: Any) -> tuple[Tracer, int]:
    """Return the array and its dimension; without an axis, the flattened array."""
    x = as_tracer(a)
    if axis is None:
        return reshape(x, (x.size,)), 0
    return x, axis_of(axis, x.ndim)


def selected(xs: Sequence[Tracer], dim: int, index: npt.NDArray[Any]) -> Tracer:
    """Return the elements at concrete indices along one dimension of concatenated arrays."""
    ends = np.cumsum([x.shape[dim] for x in xs])
    breaks = np.flatnonzero((np.diff(index) != 1) | np.isin(index[1:], ends)) + 1
    if index.size and len(breaks) < FEW:
        pieces = []
        for run in np.split(index, breaks):
            number = int(np.searchsorted(ends, run[0], "right"))
            x = xs[number]
            first = int(run[0] - ends[number]) + x.shape[dim]
            pieces.append(piece(x, dim, first, first + len(run)))
        return joined(pieces, dim)
    result: Tracer = take(joined(xs, dim), index, axis=dim, mode="promise_in_bounds")
    return result


def delete(arr: Any, obj: Any, axis: Any = None) -> Any:
    """Remove the elements at `obj` along `axis` (without it, from the flattened array).

    `obj` is a concrete index, several indices, a slice or a mask; one index may be traced.
    """
    if is_known(obj):
        return _deleted(arr, frozen(obj), axis)
    return _deleted_at(arr, obj, axis)


@public(static=("obj", "axis"), name="delete")
def _deleted(arr: Any, obj: Any, axis: Any) -> Any:
    x, dim = _lined(arr, axis)
    positions = np.arange(x.shape[dim])
    try:
        rest = np.delete(positions, _index(obj))
    except IndexError as error:
        raise IndexingError(point(f"delete: {error}")) from None
    return selected([x], dim, rest)


@public(static=("axis",), name="delete")
def _deleted_at(arr: Any, obj: Any, axis: Any) -> Any:
    from shardir.frontend import numpy as snp

    x, dim = _lined(arr, axis)
    at = as_tracer(obj)
    if at.ndim:
        raise OperationTypeError(
            point(
                f"delete takes one traced index, got {at.value.type}; the size of the result is "
                "unknown"
            )
        )
    size = x.shape[dim]
    at = snp.where(at < 0, at + size, at)
    rest = snp.arange(size - 1)
    return take(x, rest + (rest >= at), axis=dim, mode="promise_in_bounds")


def _index(obj: Any) -> Any:
    if isinstance(obj, tuple):
        return np.asarray(obj) if len(obj) else np.zeros(0, np.int64)
    return obj


def insert(arr: Any, obj: Any, values: Any, axis: Any = None) -> Any:
    """Insert `values` before the elements at `obj` along `axis` (without it, in the flattened
    array).

    The values are converted to the element type of `arr`. `obj` is a concrete index, several
    indices, or a slice.
    """
    return _inserted(arr, values, frozen(obj), axis)


@public(static=("obj", "axis"), name="insert")
def _inserted(arr: Any, values: Any, obj: Any, axis: Any) -> Any:
    x, dim = _lined(as_tracer(arr), axis)
    (new,) = promote_to((x.value.type.dtype, x.weak_type), values)
    new = reshape(new, (1,) * (x.ndim - new.ndim) + new.shape)
    if not isinstance(obj, (tuple, slice)):
        # With one index, the first dimension of the values is the number of inserted elements.
        from shardir.frontend.numpy.manipulation import moveaxis

        new = moveaxis(new, 0, dim)
    size = x.shape[dim]
    index = np.arange(size)[obj] if isinstance(obj, slice) else np.asarray(_index(obj))
    count = new.shape[dim] if index.size == 1 else index.size
    new = broadcast(new, resized(x.shape, dim, count))
    try:
        order = np.insert(np.arange(size), _index(obj), size + np.arange(count))
    except (IndexError, ValueError) as error:
        raise IndexingError(point(f"insert: {error}")) from None
    return selected([x, new], dim, order)


@public(static=("new_shape",))
def resize(a: Any, new_shape: Any) -> Any:
    """Return the elements of the flattened array in `new_shape`, repeated if there are too few."""
    x = as_tracer(a)
    shape = as_ints(new_shape)
    size = prod(shape)
    if not x.size or not size:
        return splat(0, x.value.type.with_shape(shape), x.weak_type)
    times = -(-size // x.size)
    return reshape(piece(tile(reshape(x, (x.size,)), times), 0, 0, size), shape)


def trim_zeros(filt: Any, trim: str = "fb") -> Any:
    """Remove zeros at the front ("f" in `trim`) and the back ("b"); the vector must be concrete."""
    from shardir.frontend import numpy as snp
    from shardir.frontend.numpy.known import known_array

    numbers = known_array(
        filt,
        "argument filt of trim_zeros",
        "the size of trim_zeros depends on the values",
        "call it outside of jit",
    )
    if numbers.ndim != 1:
        raise OperationTypeError(point(f"trim_zeros takes a vector, got shape {numbers.shape}"))
    if not isinstance(trim, str) or set(trim) - set("fb"):
        raise ArgumentError(point(f"trim {brief(trim)} is unknown; it is 'f', 'b' or 'fb'"))
    nonzero_indices = np.flatnonzero(numbers)
    first = int(nonzero_indices[0]) if "f" in trim and nonzero_indices.size else 0
    last = int(nonzero_indices[-1]) + 1 if "b" in trim and nonzero_indices.size else len(numbers)
    return snp.asarray(filt)[first:last] if nonzero_indices.size else snp.asarray(filt)[:0]
