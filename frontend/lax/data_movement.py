"""Operations that move data without arithmetic, with the names of `jax.lax`."""

import builtins
from collections.abc import Sequence
from operator import index

from shardir.errors import OperationTypeError, count_noun
from shardir.frontend.argument_checks import canonicalize_shape, check_integer, check_integers
from shardir.frontend.argument_errors import with_argument_errors
from shardir.frontend.arrays.array_types import ArrayLike, AxisLike, DTypeLike, ShapeLike
from shardir.frontend.arrays.device_transfer import device_put
from shardir.frontend.arrays.numpy_conversion import is_number
from shardir.frontend.arrays.signature import ShapeDtypeStruct
from shardir.frontend.dispatch.eager import public
from shardir.frontend.numpy.creation import filling
from shardir.frontend.numpy.shaping import tiling
from shardir.frontend.numpy.shaping.concatenation import stack as _stack, unstack as _unstack
from shardir.frontend.numpy.tracer_helpers.axes import (
    canonicalize_axes,
    canonicalize_axis,
    check_squeezed_axes,
)
from shardir.frontend.numpy.tracer_helpers.axis_slices import slice_dim
from shardir.frontend.numpy.tracer_helpers.concrete_values import as_ints
from shardir.frontend.pytree import tree
from shardir.frontend.pytree_types import PyTree
from shardir.frontend.shardings.requested_sharding import ShardingRequest
from shardir.frontend.source_locations import with_location
from shardir.frontend.tracing.operands import (
    as_tracer,
    broadcast as _broadcast,
    broadcast_shapes as _together,
    convert,
    reshape as _reshape,
    splat,
)
from shardir.frontend.tracing.promotion import dtype_of
from shardir.frontend.tracing.trace import emit, emit_results
from shardir.frontend.tracing.tracer import Tracer
from shardir.frontend.tracing.varying_axes import vary_like
from shardir.ir.types import TensorType


@public(static=("shape", "broadcast_dimensions"))
def broadcast_in_dim(
    operand: ArrayLike,
    shape: Sequence[int],
    broadcast_dimensions: Sequence[int],
    *,
    out_sharding: ShardingRequest = None,
) -> Tracer:
    """Broadcast `operand` to `shape`; its dimension i becomes `broadcast_dimensions[i]`."""
    x = as_tracer(operand)
    result = x.value.type.with_shape(as_ints(shape))
    dims = as_ints(broadcast_dimensions)
    return emit("broadcast", x, dims=dims, result=result, weak=x.weak_type)


@public(static=("sizes",))
def broadcast(
    operand: ArrayLike, sizes: ShapeLike, *, out_sharding: ShardingRequest = None
) -> Tracer:
    """Broadcast `operand` along new leading dimensions of `sizes`."""
    x = as_tracer(operand)
    return _broadcast(x, (*canonicalize_shape(sizes), *x.shape))


@public(static=("new_sizes", "dimensions"))
def reshape(
    operand: ArrayLike,
    new_sizes: Sequence[int],
    dimensions: Sequence[int] | None = None,
    *,
    out_sharding: ShardingRequest = None,
) -> Tracer:
    """Reshape `operand`, after a transposition by `dimensions` if given, to `new_sizes`."""
    x = as_tracer(operand)
    if dimensions is not None:
        x = transpose(x, dimensions)
    return _reshape(x, as_ints(new_sizes))


@public(static=("start_dimension", "stop_dimension"))
def collapse(operand: ArrayLike, start_dimension: int, stop_dimension: int | None = None) -> Tracer:
    """Merge the dimensions from `start_dimension` up to `stop_dimension` (exclusive) into one."""
    x = as_tracer(operand)
    merged = range(x.ndim)[start_dimension:stop_dimension]
    if not merged:
        raise OperationTypeError(
            with_location(
                f"collapse takes at least one dimension, got those from {start_dimension} up to "
                f"{stop_dimension} of shape {x.shape}"
            )
        )
    size = 1
    for d in merged:
        size *= x.shape[d]
    return _reshape(x, (*x.shape[: merged.start], size, *x.shape[merged.stop :]))


@public(static=("permutation",))
def transpose(operand: ArrayLike, permutation: Sequence[int]) -> Tracer:
    """Permute dimensions: dimension i of the result is dimension `permutation[i]` of `operand`."""
    x = as_tracer(operand)
    return emit("transpose", x, perm=as_ints(permutation), weak=x.weak_type)


@public(static=("dimensions",))
def rev(operand: ArrayLike, dimensions: AxisLike) -> Tracer:
    """Reverse the order of elements along `dimensions`."""
    x = as_tracer(operand)
    return emit("reverse", x, dims=canonicalize_axes(dimensions, x.ndim), weak=x.weak_type)


@public(static=("dimensions",))
def expand_dims(array: ArrayLike, dimensions: Sequence[int]) -> Tracer:
    """Insert dimensions of size 1 at the positions `dimensions` of the result."""
    x = as_tracer(array)
    rank = x.ndim + len(dimensions)
    new = canonicalize_axes(dimensions, rank)
    sizes = iter(x.shape)
    return _reshape(x, tuple(1 if d in new else next(sizes) for d in range(rank)))


@public(static=("dimensions",))
def squeeze(array: ArrayLike, dimensions: AxisLike) -> Tracer:
    """Remove the dimensions of size 1 that `dimensions` names.

    Raise `ShapeError` if a named dimension has another size.
    """
    x = as_tracer(array)
    removed = canonicalize_axes(dimensions, x.ndim)
    check_squeezed_axes(removed, x.shape)
    return _reshape(x, tuple(n for d, n in enumerate(x.shape) if d not in removed))


@public(static=("dimension",))
def concatenate(operands: Sequence[ArrayLike], dimension: int) -> Tracer:
    """Concatenate arrays of one element type along `dimension`."""
    parts = [as_tracer(x) for x in operands]
    if not parts:
        raise OperationTypeError(with_location("concatenate takes at least one array"))
    weak = builtins.all(x.weak_type for x in parts)
    return emit("concatenate", *parts, dim=canonicalize_axis(dimension, parts[0].ndim), weak=weak)


@public(static=("sizes", "axis"))
def split(operand: ArrayLike, sizes: Sequence[int], axis: int = 0) -> list[Tracer]:
    """Split into parts of the given sizes along `axis`; return a list."""
    x = as_tracer(operand)
    dim = canonicalize_axis(axis, x.ndim)
    sizes = tuple(map(index, sizes))
    if sum(sizes) != x.shape[dim]:
        raise OperationTypeError(
            with_location(
                f"sizes {tuple(sizes)} do not add up to dimension {dim} of shape {x.shape}"
            )
        )
    parts, start = [], 0
    for size in sizes:
        parts.append(slice_dim(x, dim, start, start + size))
        start += size
    return parts


@with_argument_errors
def stack(operands: Sequence[ArrayLike], axis: int = 0) -> Tracer:
    """Stack arrays of one shape along a new axis."""
    return _stack(operands, axis)


@with_argument_errors
def unstack(x: ArrayLike, axis: int = 0) -> tuple[Tracer, ...]:
    """Return the slices of an array along `axis`, without that axis, as a tuple."""
    return tuple(_unstack(x, axis=axis))


@with_argument_errors
def broadcast_shapes(*shapes: Sequence[int]) -> tuple[int, ...]:
    """Return the shape to which `shapes` broadcast; raise an error if they do not."""
    return _together(*map(_as_shape, shapes))


def _as_shape(shape: Sequence[int]) -> tuple[int, ...]:
    try:
        sizes = tuple(map(index, shape))
    except TypeError:
        raise OperationTypeError(
            with_location(f"a shape is a tuple of sizes, got {shape!r}")
        ) from None
    if any(size < 0 for size in sizes):
        raise OperationTypeError(
            with_location(f"the sizes of a shape are not negative, got {sizes}")
        )
    return sizes


@public(static=("padding_config",))
def pad(
    operand: ArrayLike, padding_value: ArrayLike, padding_config: Sequence[tuple[int, int, int]]
) -> Tracer:
    """Pad `operand` with `padding_value` by (low, high, interior) per dimension.

    A negative low or high padding removes elements.
    """
    x = as_tracer(operand)
    pads = [check_integers("padding_config of pad", each, 3) for each in padding_config]
    if len(pads) != x.ndim:
        raise OperationTypeError(
            with_location(
                f"padding_config of pad has {count_noun(x.ndim, 'entry', 'entries')} here, "
                f"got {len(pads)}"
            )
        )
    low, high, interior = zip(*pads, strict=True) if pads else ((), (), ())
    filler = as_tracer(padding_value)
    value = convert(filler, x.value.type.dtype, filler.weak_type)
    return emit("pad", x, value, low=low, high=high, interior=interior)


@public(static=("reps",))
def tile(operand: ArrayLike, reps: Sequence[int]) -> Tracer:
    """Repeat the array `operand`, `reps` times along each dimension."""

    x = as_tracer(operand)
    if len(reps) != x.ndim:
        raise OperationTypeError(
            with_location(
                f"tile takes a number for each of {count_noun(x.ndim, 'dimension')}, "
                f"got {len(reps)}"
            )
        )
    return tiling.tile(x, tuple(reps))


@public(static=("dtype", "size"))
def iota(dtype: DTypeLike, size: int) -> Tracer:
    """Return the vector 0, 1, ..., size - 1."""
    count = check_integer("the size of iota", size, 0)
    return emit("iota", dim=0, result=TensorType((count,), dtype_of(dtype)))


@public(static=("dtype", "shape", "dimension"))
def broadcasted_iota(
    dtype: DTypeLike, shape: ShapeLike, dimension: int, *, out_sharding: ShardingRequest = None
) -> Tracer:
    """Return the index of every element along `dimension`."""
    sizes = canonicalize_shape(shape)
    dim = canonicalize_axis(dimension, len(sizes))
    return emit("iota", dim=dim, result=TensorType(sizes, dtype_of(dtype)))


@public(static=("shape", "dtype"), name="full")
def _full(shape: ShapeLike, fill_value: ArrayLike, dtype: DTypeLike | None) -> Tracer:
    return _fill(canonicalize_shape(shape), fill_value, None if dtype is None else dtype_of(dtype))


@with_argument_errors
def full(
    shape: ShapeLike,
    fill_value: ArrayLike,
    dtype: DTypeLike | None = None,
    *,
    sharding: ShardingRequest = None,
) -> Tracer:
    """Return an array of `shape` filled with the scalar `fill_value`, placed by `sharding` if
    given.
    """
    result = _full(shape, fill_value, dtype)
    return result if sharding is None else device_put(result, sharding)


@public(static=("dtype", "shape"), name="full_like")
def _full_like(
    x: ArrayLike, fill_value: ArrayLike, dtype: DTypeLike | None, shape: ShapeLike | None
) -> Tracer:
    like = as_tracer(x)
    name, weak = like.value.type.dtype, like.weak_type
    if dtype is not None:
        name, weak = dtype_of(dtype), False
    sizes = like.shape if shape is None else canonicalize_shape(shape)
    return vary_like(_fill(sizes, fill_value, name, weak), like)


@with_argument_errors
def full_like(
    x: ArrayLike | ShapeDtypeStruct,
    fill_value: ArrayLike,
    dtype: DTypeLike | None = None,
    shape: ShapeLike | None = None,
    sharding: ShardingRequest = None,
) -> Tracer:
    """Return an array with the shape and element type of `x`, filled with `fill_value`.

    `dtype` and `shape` replace those of `x`; `sharding` places the result.
    """
    if isinstance(x, ShapeDtypeStruct):
        return filling.full_like(x, fill_value, dtype, shape, device=sharding)
    result = _full_like(x, fill_value, dtype, shape)
    placement: object = sharding
    if sharding is None and shape is None and isinstance(x, Tracer):
        placement = x.abstract.sharding
    placed: Tracer = result if placement is None else device_put(result, placement)
    return placed


def _fill(shape: Sequence[int], value: ArrayLike, name: str | None, weak: bool = False) -> Tracer:
    if is_number(value) and name is not None:
        return splat(value, TensorType(tuple(shape), name), weak)
    filler = as_tracer(value)
    if filler.ndim:
        raise OperationTypeError(
            with_location(f"a fill value is a scalar, got {filler.value.type}")
        )
    return _broadcast(filler if name is None else convert(filler, name, weak), shape)


@public()
def optimization_barrier(operand: PyTree) -> PyTree:
    """Return the same values; no pass moves an operation across the barrier. Accepts containers."""
    leaves, structure = tree.flatten(operand)
    if not leaves:
        return operand
    results = emit_results("optimization_barrier", *(as_tracer(x) for x in leaves))
    return tree.unflatten(structure, results)
