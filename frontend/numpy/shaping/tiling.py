"""Repetition of whole arrays: `tile` and `resize`."""

from math import prod

from shardir.frontend.arrays.array_types import ArrayLike, ShapeLike
from shardir.frontend.dispatch.eager import public
from shardir.frontend.numpy.tracer_helpers.axis_slices import slice_dim
from shardir.frontend.numpy.tracer_helpers.concrete_values import as_ints
from shardir.frontend.tracing.operands import as_tracer, broadcast, reshape, splat
from shardir.frontend.tracing.tracer import Tracer


@public(static=("reps",))
def tile(A: ArrayLike, reps: ShapeLike) -> Tracer:
    """Repeat the array `A`, `reps` times along each dimension."""
    x = as_tracer(A)
    times = as_ints(reps)
    rank = max(x.ndim, len(times))
    x = reshape(x, (1,) * (rank - x.ndim) + x.shape)
    times = (1,) * (rank - len(times)) + times
    new_shape = tuple(t * n for t, n in zip(times, x.shape, strict=True))
    if new_shape == x.shape:
        return x
    # Only the dimensions that are repeated are split, so that shardings of the others remain.
    splits = [(1, n) if t != 1 else (n,) for t, n in zip(times, x.shape, strict=True)]
    expanded = [n for split in splits for n in split]
    repeats = [(t, n) if t != 1 else (n,) for t, n in zip(times, x.shape, strict=True)]
    grown = [n for repeat in repeats for n in repeat]
    return reshape(broadcast(reshape(x, expanded), grown), new_shape)


@public(static=("new_shape",))
def resize(a: ArrayLike, new_shape: ShapeLike) -> Tracer:
    """Return the elements of the flattened array in `new_shape`, repeated if there are too few."""
    x = as_tracer(a)
    shape = as_ints(new_shape)
    size = prod(shape)
    if not x.size or not size:
        return splat(0, x.value.type.with_shape(shape), x.weak_type)
    times = -(-size // x.size)
    return reshape(slice_dim(tile(reshape(x, (x.size,)), times), 0, 0, size), shape)
