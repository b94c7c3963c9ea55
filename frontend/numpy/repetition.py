"""More or fewer of the same elements: repeating, inserting, deleting."""

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
"""Elements in so many runs are cut out and joined; in more, they are looked up."""


@public(static=("reps",))
def tile(A: Any, reps: Any) -> Any:
    """`A` repeated as a whole, `reps` times along each dimension."""
    x = as_tracer(A)
    times = as_ints(reps)
    rank = max(x.ndim, len(times))
    x = reshape(x, (1,) * (rank - x.ndim) + x.shape)
    times = (1,) * (rank - len(times)) + times
    whole = tuple(t * n for t, n in zip(times, x.shape, strict=True))
    if whole == x.shape:
        return x
    apart = [n for pair in zip((1,) * rank, x.shape, strict=True) for n in pair]
    grown = [n for pair in zip(times, x.shape, strict=True) for n in pair]
    return reshape(broadcast(reshape(x, apart), grown), whole)


@composed()
def repeat(
    a: Any, repeats: Any, axis: Any = None, *, total_repeat_length: int | None = None,
    out_sharding: Any = None,
) -> Any:  # fmt: skip
    """Each element `repeats` times in a row along `axis` (without it, in the flat array).

    Counts for each element may be traced if `total_repeat_length` tells the size they make: it is
    cut off there, or lengthened by its last element.
    """
    if is_known(repeats):
        return laid_out(_repeated(a, frozen(repeats), axis, total_repeat_length), out_sharding)
    if total_repeat_length is None:
        raise OperationTypeError(
            point("repeat with traced counts needs total_repeat_length=, the size it makes")
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
        thin, thick = (*x.shape[: dim + 1], 1), (*x.shape[: dim + 1], count)
        grown = broadcast(reshape(x, thin + x.shape[dim + 1 :]), thick + x.shape[dim + 1 :])
        made = reshape(grown, resized(x.shape, dim, size * count))
    else:
        if counts.shape != (size,):
            raise OperationTypeError(
                point(f"repeat takes {size} counts for this axis, got {counts.size}")
            )
        made = selected([x], dim, np.repeat(np.arange(size), counts))
    if total is None or total == made.shape[dim]:
        return made
    have = made.shape[dim]
    if have > total:
        return piece(made, dim, 0, total)
    return joined([made, repeated(made, dim, have - 1, total - have)], dim)


def _lined(a: Any, axis: Any) -> tuple[Tracer, int]:
    """The array and its dimension; without an axis, the flat array."""
    x = as_tracer(a)
    if axis is None:
        return reshape(x, (x.size,)), 0
    return x, axis_of(axis, x.ndim)


def selected(xs: Sequence[Tracer], dim: int, index: npt.NDArray[Any]) -> Tracer:
    """The elements at known places along one dimension of arrays, as if those were joined."""
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
    taken: Tracer = take(joined(xs, dim), index, axis=dim, mode="promise_in_bounds")
    return taken


def delete(arr: Any, obj: Any, axis: Any = None) -> Any:
    """Without the elements at `obj` along `axis` (without it, in the flat array).

    `obj` is an index, several, a slice or a mask, known while tracing; one index may be traced.
    """
    if is_known(obj):
        return _deleted(arr, frozen(obj), axis)
    return _deleted_at(arr, obj, axis)


@public(static=("obj", "axis"), name="delete")
def _deleted(arr: Any, obj: Any, axis: Any) -> Any:
    x, dim = _lined(arr, axis)
    places = np.arange(x.shape[dim])
    try:
        rest = np.delete(places, _index(obj))
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
            point(f"delete takes one traced index, got {at.value.type}; how many are left?")
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
    """`values` before the elements at `obj` along `axis` (without it, in the flat array).

    The values are converted to the element type of `arr`.

    `obj` is an index, several, or a slice, known while tracing.
    """
    return _inserted(arr, values, frozen(obj), axis)


@public(static=("obj", "axis"), name="insert")
def _inserted(arr: Any, values: Any, obj: Any, axis: Any) -> Any:
    x, dim = _lined(as_tracer(arr), axis)
    (new,) = promote_to((x.value.type.dtype, x.weak_type), values)
    new = reshape(new, (1,) * (x.ndim - new.ndim) + new.shape)
    if not isinstance(obj, (tuple, slice)):
        # One place: the first dimension of the values says how many.
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
    """As many elements of the flat array as `new_shape` takes, from the start again if short."""
    x = as_tracer(a)
    shape = as_ints(new_shape)
    size = prod(shape)
    if not x.size or not size:
        return splat(0, x.value.type.with_shape(shape), x.weak_type)
    times = -(-size // x.size)
    return reshape(piece(tile(reshape(x, (x.size,)), times), 0, 0, size), shape)


def trim_zeros(filt: Any, trim: str = "fb") -> Any:
    """Without the zeros at the front ("f" in `trim`) and the back ("b"), which must be known."""
    from shardir.frontend import numpy as snp
    from shardir.frontend.numpy.known import known_array

    numbers = known_array(
        filt,
        "argument filt of trim_zeros",
        "the size of trim_zeros depends on the numbers",
        "call it outside of jit",
    )
    if numbers.ndim != 1:
        raise OperationTypeError(point(f"trim_zeros takes a vector, got shape {numbers.shape}"))
    if not isinstance(trim, str) or set(trim) - set("fb"):
        raise ArgumentError(point(f"trim {brief(trim)} is unknown; it is 'f', 'b' or 'fb'"))
    there = np.flatnonzero(numbers)
    first = int(there[0]) if "f" in trim and there.size else 0
    last = int(there[-1]) + 1 if "b" in trim and there.size else len(numbers)
    return snp.asarray(filt)[first:last] if there.size else snp.asarray(filt)[:0]
