"""Reshapes, transpositions, reversals and rotations of arrays."""

from collections.abc import Sequence
from math import prod

from shardir.errors import OperationTypeError, count_noun
from shardir.frontend.argument_checks import canonicalize_shape
from shardir.frontend.argument_errors import with_argument_errors
from shardir.frontend.arrays.array_types import ArrayLike, AxisLike, ShapeLike
from shardir.frontend.dispatch.eager import public
from shardir.frontend.numpy.tracer_helpers.axes import (
    canonicalize_axes,
    canonicalize_axis,
    check_squeezed_axes,
)
from shardir.frontend.numpy.tracer_helpers.concrete_values import Ints, as_ints
from shardir.frontend.pytree_types import PyTree
from shardir.frontend.shardings.requested_sharding import ShardingRequest
from shardir.frontend.shardings.traced_constraints import match_broadcast_types
from shardir.frontend.source_locations import with_location
from shardir.frontend.tracing.operands import (
    as_tracer,
    broadcast,
    broadcast_shapes as together,
    reshape as _reshape,
)
from shardir.frontend.tracing.trace import emit
from shardir.frontend.tracing.tracer import Tracer


def _resolve_shape(shape: ShapeLike, size: int) -> tuple[int, ...]:
    """Return the shape with its one -1 replaced by the size that fits an array of `size`
    elements.
    """
    sizes = list(as_ints(shape))
    free = [i for i, n in enumerate(sizes) if n == -1]
    known = prod(n for n in sizes if n != -1)
    if len(free) == 1 and known and size % known == 0:
        sizes[free[0]] = size // known
    if prod(sizes) != size or min(sizes, default=0) < 0:
        raise OperationTypeError(
            with_location(
                f"an array of {count_noun(size, 'element')} cannot be reshaped to "
                f"{tuple(as_ints(shape))}"
            )
        )
    return tuple(sizes)


@public(static=("shape", "order", "copy"))
def reshape(
    a: ArrayLike,
    shape: ShapeLike,
    order: str = "C",
    *,
    copy: bool | None = None,
    out_sharding: ShardingRequest = None,
) -> Tracer:
    """Return the elements of `a`, in row-major order (`order="F"`: column-major), in another shape.

    One size may be -1 and is computed. Raise `OperationTypeError` if the number of elements
    differs.
    """
    x = as_tracer(a)
    sizes = _resolve_shape(shape, x.size)
    check_order("reshape", order)
    if order == "F":
        return transpose(_reshape(transpose(x), sizes[::-1]))
    return _reshape(x, sizes)


def check_order(name: str, order: str) -> None:
    """Raise `OperationTypeError` unless the order of elements is row-major or column-major."""
    if order not in ("C", "F"):
        raise OperationTypeError(
            with_location(
                f"{name} takes order 'C' (row-major) or 'F' (column-major), got {order!r}"
            )
        )


@public(static=("order",))
def ravel(a: ArrayLike, order: str = "C", *, out_sharding: ShardingRequest = None) -> Tracer:
    """Return all elements in one dimension, in row-major order (`order="F"`: column-major)."""
    check_order("ravel", order)
    return reshape(a, (-1,), order)


@public(static=("axes",))
def transpose(a: ArrayLike, axes: object = None) -> Tracer:
    """Permute the dimensions by `axes`; without `axes`, reverse their order."""
    x = as_tracer(a)
    perm = tuple(range(x.ndim))[::-1] if axes is None else canonicalize_axes(axes, x.ndim)
    if len(perm) != x.ndim:
        raise OperationTypeError(
            with_location(f"axes {axes} are not those of an array of rank {x.ndim}")
        )
    return _emit_transpose(x, perm)


def _emit_transpose(x: Tracer, perm: Sequence[int]) -> Tracer:
    if tuple(perm) == tuple(range(x.ndim)):
        return x
    result: Tracer = emit("transpose", x, perm=tuple(perm), weak=x.weak_type)
    return result


permute_dims = transpose


@public()
def matrix_transpose(x: ArrayLike, /) -> Tracer:
    """Exchange the last two dimensions."""
    tracer = as_tracer(x)
    if tracer.ndim < 2:
        raise OperationTypeError(
            with_location(
                f"a matrix transpose takes at least two dimensions, got shape {tracer.shape}"
            )
        )
    return swapaxes(tracer, -1, -2)


@public(static=("axis1", "axis2"))
def swapaxes(a: ArrayLike, axis1: int, axis2: int) -> Tracer:
    """Exchange two dimensions."""
    x = as_tracer(a)
    perm = list(range(x.ndim))
    first, second = canonicalize_axis(axis1, x.ndim), canonicalize_axis(axis2, x.ndim)
    perm[first], perm[second] = second, first
    return _emit_transpose(x, perm)


@public(static=("source", "destination"))
def moveaxis(a: ArrayLike, source: Ints, destination: Ints) -> Tracer:
    """Move the dimensions `source` to the positions `destination`; the others keep their order."""
    x = as_tracer(a)
    sources, destinations = (
        canonicalize_axes(source, x.ndim),
        canonicalize_axes(destination, x.ndim),
    )
    if len(sources) != len(destinations):
        raise OperationTypeError(
            with_location(
                f"moveaxis takes as many sources as destinations, got {source} and {destination}"
            )
        )
    perm = [d for d in range(x.ndim) if d not in sources]
    for at, d in sorted(zip(destinations, sources, strict=True)):
        perm.insert(at, d)
    return _emit_transpose(x, perm)


@public(static=("axis", "start"))
def rollaxis(a: ArrayLike, axis: int, start: int = 0) -> Tracer:
    """Move dimension `axis` to the position before dimension `start`."""
    x = as_tracer(a)
    axis = canonicalize_axis(axis, x.ndim)
    start = start + x.ndim if start < 0 else start
    return moveaxis(x, axis, start - 1 if start > axis else start)


@public(static=("axis",))
def expand_dims(a: ArrayLike, axis: Ints) -> Tracer:
    """Insert dimensions of size 1 at the positions `axis` of the result."""
    x = as_tracer(a)
    rank = x.ndim + len(as_ints(axis))
    new = canonicalize_axes(axis, rank)
    sizes = iter(x.shape)
    return _reshape(x, tuple(1 if d in new else next(sizes) for d in range(rank)))


@public(static=("axis",))
def squeeze(a: ArrayLike, axis: AxisLike = None) -> Tracer:
    """Remove all dimensions of size 1, or those that `axis` names.

    Raise `ShapeError` if a named dimension has another size.
    """
    x = as_tracer(a)
    removed = (
        [d for d, n in enumerate(x.shape) if n == 1]
        if axis is None
        else canonicalize_axes(axis, x.ndim)
    )
    check_squeezed_axes(removed, x.shape)
    return _reshape(x, tuple(n for d, n in enumerate(x.shape) if d not in removed))


@public(static=("shape",))
def broadcast_to(
    array: ArrayLike, shape: ShapeLike, *, out_sharding: ShardingRequest = None
) -> Tracer:
    """Broadcast `array` to `shape` by NumPy's rules."""
    return broadcast(as_tracer(array), as_ints(shape))


@with_argument_errors
def broadcast_shapes(*shapes: object) -> tuple[int, ...]:
    """Return the shape to which the given shapes broadcast by NumPy's rules.

    Raise `OperationTypeError`, which lists all shapes, if they do not broadcast, and `ShapeError`
    for an argument that is not a shape.
    """
    return together(*map(canonicalize_shape, shapes))


@public()
def broadcast_arrays(*args: PyTree) -> PyTree:
    """Broadcast all arrays to their common shape; return a list.

    In programs on meshes of Explicit axes, arrays of different shapes get one sharding, as in JAX:
    each dimension has the axes that shard it in one of them.
    """
    tracers = [as_tracer(x) for x in args]
    shape = together(*(x.shape for x in tracers))
    if all(x.shape == shape for x in tracers):
        return tracers
    return match_broadcast_types(tracers, [broadcast(x, shape) for x in tracers])


@public(static=("axis",))
def flip(m: ArrayLike, axis: AxisLike = None) -> Tracer:
    """Reverse the order of elements along `axis`, or along all dimensions."""
    x = as_tracer(m)
    dims = tuple(range(x.ndim)) if axis is None else canonicalize_axes(axis, x.ndim)
    return emit("reverse", x, dims=dims, weak=x.weak_type) if dims else x


@with_argument_errors
def fliplr(m: ArrayLike) -> Tracer:
    """Reverse the order of elements along the second dimension."""
    return flip(m, 1)


@with_argument_errors
def flipud(m: ArrayLike) -> Tracer:
    """Reverse the order of elements along the first dimension."""
    return flip(m, 0)


@public(static=("k", "axes"))
def rot90(m: ArrayLike, k: int = 1, axes: tuple[int, int] = (0, 1)) -> Tracer:
    """Rotate by `k` quarter turns in the plane of `axes`, from the first axis towards the
    second.
    """
    x = as_tracer(m)
    first, second = canonicalize_axes(axes, x.ndim)
    match k % 4:
        case 0:
            return x
        case 1:
            return swapaxes(flip(x, second), first, second)
        case 2:
            return flip(x, (first, second))
        case _:
            return flip(swapaxes(x, first, second), second)


@with_argument_errors
def atleast_1d(*arys: ArrayLike) -> PyTree:
    """Return the array with at least one dimension; for several arrays, a list."""
    return _expand_all_ranks(arys, 1)


@with_argument_errors
def atleast_2d(*arys: ArrayLike) -> PyTree:
    """Return the array with at least two dimensions, added in front; for several arrays, a list."""
    return _expand_all_ranks(arys, 2)


@with_argument_errors
def atleast_3d(*arys: ArrayLike) -> PyTree:
    """Return the array with at least three dimensions; for several arrays, a list.

    A matrix gets a dimension behind its own, a vector one on each side.
    """
    return _expand_all_ranks(arys, 3)


def _expand_all_ranks(arrays: Sequence[ArrayLike], rank: int) -> PyTree:
    results = [_expand_rank(x, rank) for x in arrays]
    return results[0] if len(results) == 1 else results


@public(static=("rank",), name="atleast")
def _expand_rank(x: ArrayLike, rank: int) -> Tracer:
    tracer = as_tracer(x)
    shape = tracer.shape
    if rank == 3 and tracer.ndim in (1, 2):
        return _reshape(tracer, (1, *shape, 1) if tracer.ndim == 1 else (*shape, 1))
    return _reshape(tracer, (1,) * (rank - tracer.ndim) + shape)
