"""Construction of sharded arrays from shards: `make_array_from_callback` and related functions."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from shardir.frontend.argument_checks import canonicalize_shape
from shardir.frontend.argument_errors import with_argument_errors
from shardir.frontend.arrays.abstract_value import AbstractValue
from shardir.frontend.arrays.array import Array
from shardir.frontend.arrays.numpy_conversion import to_numpy
from shardir.frontend.arrays.shard_buffers import local_indices
from shardir.frontend.arrays.signature import signature_of
from shardir.frontend.call_signatures import call_user_function
from shardir.frontend.distributed.processes import process_index
from shardir.frontend.distributed.replicated_inputs import check_replicated_shards
from shardir.frontend.errors import ArgumentError, ShapeError, ShardingError
from shardir.frontend.pytree import tree
from shardir.frontend.pytree.prefix import broadcast_prefix
from shardir.frontend.pytree_types import PyTree
from shardir.frontend.quoting import brief_with_type
from shardir.frontend.shardings.devices import Device
from shardir.frontend.shardings.partition_spec import PartitionSpec
from shardir.frontend.shardings.requested_sharding import resolve_sharding
from shardir.frontend.shardings.sharding import Index, Sharding
from shardir.frontend.shardings.sub_axes import num_shards
from shardir.frontend.source_locations import with_location
from shardir.frontend.tracing.promotion import dtype_of
from shardir.ir.types import NUMPY_DTYPES, TensorType, dtype_name

DIVISIBLE_SHAPE_REMEDY = "choose a shape that divides"


@with_argument_errors
def make_array_from_single_device_arrays(
    shape: Sequence[int], sharding: Sharding, arrays: Sequence[Array], *, dtype: object = None
) -> Array:
    """Return the array of `shape` with the shards `arrays`, one on each local device of `sharding`.

    The shards are not copied. Raises `ArgumentError` when a device has no shard or several, or when
    two processes have different elements for the same shard, and `ShapeError` for a shard of the
    wrong shape or element type.
    """
    sizes, word = canonicalize_shape(shape), "make_array_from_single_device_arrays"
    _check_sharding(sharding, word)
    sharding.check_divides(sizes, DIVISIBLE_SHAPE_REMEDY)
    parts: dict[Device, Array] = {}
    if not isinstance(arrays, (list, tuple)):
        raise ArgumentError(
            with_location(f"{word} takes a list of arrays, got one {type(arrays).__name__}")
        )
    for array in arrays:
        if not isinstance(array, Array):
            raise ArgumentError(
                with_location(
                    f"a shard of {word} is {brief_with_type(array)}; its shards are "
                    "concrete arrays on devices"
                )
            )
        if len(array.devices()) != 1:
            raise ArgumentError(
                with_location(f"a shard of {word} is on {len(array.devices())} devices")
            )
        (device,) = array.devices()
        if device in parts:
            raise ArgumentError(with_location(f"two shards of {word} are on {device}"))
        parts[device] = array
    local = [sharding.device_assignment[place] for place in sharding.local_positions]
    if lacking := [each for each in local if each not in parts]:
        raise ArgumentError(
            with_location(f"{word} has no shard on {lacking[0]}; pass one for each device")
        )
    name = _require_dtype(dtype, word) if not parts or dtype is not None else arrays[0].type.dtype
    expected = TensorType(sharding.shard_shape(sizes), name)
    for device, array in parts.items():
        if array.type != expected:
            raise ShapeError(
                with_location(
                    f"the shard of {word} on {device} is {array.type}, and it must be {expected}"
                )
            )
    abstract = AbstractValue(TensorType(sizes, name))
    held = [parts[device].device_shards[0] for device in local]
    check_replicated_shards(held, sharding, abstract.type, word)
    return Array(signature_of(abstract, sharding), sharding, held)


def _check_sharding(sharding: object, word: str) -> None:
    if not isinstance(sharding, Sharding):
        raise ArgumentError(
            with_location(
                f"the sharding of {word} is {sharding!r}; "
                "write NamedSharding(mesh, PartitionSpec(...))"
            )
        )
    if sharding.has_partial_sums:
        raise ShardingError(
            with_location(
                f"the sharding of {word} is {sharding}, and the elements of a shard do not "
                "determine its partial sums; place the total with device_put"
            )
        )


@with_argument_errors
def make_array_from_callback(
    shape: Sequence[int],
    sharding: Sharding,
    data_callback: Callable[[Index], object],
    *,
    dtype: object = None,
) -> Array:
    """Return the array of `shape` whose shard at `index`, a tuple of slices, is
    `data_callback(index)`.

    The function is called once for all devices of this process that hold the same shard. Raises
    `ArgumentError` in all processes when two have different elements for the same shard.
    """
    sizes = canonicalize_shape(shape)
    dtype = None if dtype is None else NUMPY_DTYPES[dtype_of(dtype)]
    word = "make_array_from_callback"
    _check_sharding(sharding, word)
    if not callable(data_callback):
        raise ArgumentError(with_location(f"{word} takes a function, got {data_callback!r}"))
    sharding.check_divides(sizes, DIVISIBLE_SHAPE_REMEDY)
    made: dict[tuple[tuple[int, int, int], ...], Any] = {}
    parts: list[Any] = []
    for index in local_indices(sharding, sizes):
        place = tuple(part.indices(size) for part, size in zip(index, sizes, strict=True))
        if place not in made:
            given = call_user_function(data_callback, f"data_callback of {word}", (index,))
            part = np.array(to_numpy(given if dtype is None else np.asarray(given, dtype)))
            if part.shape != sharding.shard_shape(sizes):
                raise ShapeError(
                    with_location(
                        f"data_callback of make_array_from_callback returned shape {part.shape} "
                        f"for a shard of shape {sharding.shard_shape(sizes)}"
                    )
                )
            made[place] = part
        parts.append(made[place])
    if len(kinds := sorted({str(part.dtype) for part in parts})) > 1:
        listed = " and ".join(kinds)
        raise ShapeError(
            with_location(f"data_callback returned shards of different types, {listed}")
        )
    name = dtype_name(parts[0].dtype) if parts else _require_dtype(dtype, word)
    abstract = AbstractValue(TensorType(sizes, name))
    check_replicated_shards(parts, sharding, abstract.type, word)
    return Array(signature_of(abstract, sharding), sharding, parts)


@with_argument_errors
def make_array_from_process_local_data(
    sharding: Sharding | Device | PartitionSpec, local_data: object, global_shape: object = None
) -> PyTree:
    """Return the array whose shards on the devices of this process together are `local_data`.

    Along a dimension that is not sharded over processes, `local_data` has all elements. Without a
    `global_shape`, the data of all processes must have the same shape. `local_data` and
    `global_shape` may be pytrees, and one shape applies to all arrays. Raises `ShapeError` when the
    data does not fit the shards of this process's devices, and `ArgumentError` in all processes
    when two have different elements for a shard that both hold.
    """
    placed = resolve_sharding(sharding, "make_array_from_process_local_data")
    if placed is None:
        raise ArgumentError(
            with_location("make_array_from_process_local_data needs a sharding, got None")
        )
    leaves, structure = tree.flatten(local_data)
    word = "global_shape of make_array_from_process_local_data"
    shapes = broadcast_prefix(global_shape, local_data, _is_shape, word)
    result = [
        _make_from_local_data(placed, leaf, shape)
        for leaf, shape in zip(leaves, shapes, strict=True)
    ]
    return tree.unflatten(structure, result)


def _is_shape(x: object) -> bool:
    return x is None or (isinstance(x, (list, tuple)) and all(isinstance(n, int) for n in x))


def _make_from_local_data(
    sharding: Sharding, local_data: object, global_shape: Sequence[int] | None
) -> Array:
    numbers = np.array(to_numpy(local_data))
    word = "make_array_from_process_local_data"
    if global_shape is not None and len(tuple(global_shape)) != numbers.ndim:
        raise ShapeError(
            with_location(
                f"{word} got data of shape {numbers.shape} for a global shape "
                f"{tuple(global_shape)}; both have the same number of dimensions"
            )
        )
    shape = (
        _infer_global_shape(sharding, numbers.shape)
        if global_shape is None
        else tuple(global_shape)
    )
    sharding.check_divides(shape, DIVISIBLE_SHAPE_REMEDY)
    corner, size = _local_extent(sharding, shape)
    if numbers.shape not in (size, shape):
        raise ShapeError(
            with_location(
                f"{word} got data of shape {numbers.shape}, and the devices of process "
                f"{process_index()} hold {size} of an array of shape {shape}"
            )
        )
    starts = (0,) * len(shape) if numbers.shape == shape else corner
    made: dict[tuple[tuple[int, int, int], ...], Any] = {}
    parts = []
    for index in local_indices(sharding, shape):
        place = tuple(part.indices(size) for part, size in zip(index, shape, strict=True))
        if place not in made:
            bounds = zip(place, starts, strict=True)
            here = tuple(slice(a - low, b - low) for (a, b, _), low in bounds)
            made[place] = np.array(numbers[here])  # Indexing may return a NumPy scalar.
        parts.append(made[place])
    abstract = AbstractValue(TensorType(shape, dtype_name(numbers.dtype)))
    check_replicated_shards(parts, sharding, abstract.type, word)
    return Array(signature_of(abstract, sharding), sharding, parts)


def _infer_global_shape(sharding: Sharding, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape of an array of which every process has data of this shape."""
    places = sharding.shard_positions(len(shape))
    mine = [places[at] for at in sharding.local_positions]
    whole = []
    for dimension, (size, axes) in enumerate(
        zip(shape, sharding.resolved_sub_axes(len(shape)), strict=True)
    ):
        local = len({place[dimension] for place in mine})
        if not local or size * num_shards(axes) % local:
            raise ShapeError(
                with_location(
                    f"data of shape {shape} in process {process_index()} does not determine the "
                    "shape of the global array; pass global_shape"
                )
            )
        whole.append(size * num_shards(axes) // local)
    return tuple(whole)


def _local_extent(
    sharding: Sharding, shape: tuple[int, ...]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the start and the extent along each dimension of the shards of this process."""
    boxes = [
        [part.indices(size)[:2] for part, size in zip(index, shape, strict=True)]
        for index in local_indices(sharding, shape)
    ]
    if not boxes:
        return (0,) * len(shape), (0,) * len(shape)
    low = tuple(min(box[i][0] for box in boxes) for i in range(len(shape)))
    return low, tuple(max(box[i][1] for box in boxes) - low[i] for i in range(len(shape)))


def _require_dtype(dtype: object, word: str) -> str:
    """Return the IR name of `dtype`, which is required in a process without shards."""
    if dtype is None:
        raise ArgumentError(
            with_location(
                f"no device of {word} belongs to process {process_index()}, so the element type "
                "is unknown there; pass dtype"
            )
        )
    return dtype_of(dtype)
