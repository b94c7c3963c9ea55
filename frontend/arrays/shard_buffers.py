"""Shards of arrays as NumPy arrays, one for each device of this process.

Devices with the same shard share one buffer. All shards of an array have one shape. Where the
sharding does not divide a dimension, the last shards have padding with unspecified elements at
their ends.

Along unreduced axes the buffers are partial sums. An array in one allocation has their total, and
its shards are this total on the first device along these axes and zeros on the others.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from shardir.frontend.shardings.sharding import Index, Sharding
from shardir.frontend.shardings.sub_axes import num_shards
from shardir.ir.types import NumpyArray, NumpyDType, TensorType, dtype_name
from shardir.op_rules.partitioning import identity_element
from shardir.op_rules.widening import widened_type
from shardir.ops.elementwise.numerics import convert

Buffer = NumpyArray


def assemble_shards(parts: Sequence[Buffer], sharding: Sharding, type: TensorType) -> Buffer:
    """Return all elements in one array, which is a view of a shard if that has all of them.

    The result is the total of partial sums.
    """
    if sharding.has_partial_sums:
        return _add_partial_sums(parts, sharding, type)
    if all(part is parts[0] for part in parts) and parts[0].shape == type.shape:
        return parts[0].view()
    whole = np.empty(type.shape, type.numpy)
    done: set[tuple[tuple[int | None, int | None], ...]] = set()
    for index, part in zip(local_indices(sharding, type.shape), parts, strict=True):
        # Not by the identity of the shard: one buffer may serve several positions.
        place = tuple((s.start, s.stop) for s in index)
        if place not in done:
            done.add(place)
            whole[index] = without_padding(part, whole[index].shape)
    return whole


def _add_partial_sums(parts: Sequence[Buffer], sharding: Sharding, type: TensorType) -> Buffer:
    """Return the total of the partial sums of all devices, which is computed as an all-reduce
    does."""
    wide = widened_type(type)
    total = np.full(type.shape, identity_element("add", wide.dtype), wide.numpy)
    done: set[tuple[int, tuple[int, ...]]] = set()
    numbers, places = sharding.partial_sum_numbers(), sharding.shard_positions(len(type.shape))
    indices = local_indices(sharding, type.shape)
    for part, index, position in zip(parts, indices, sharding.local_positions, strict=True):
        key = numbers[position], places[position]
        if key not in done:
            done.add(key)
            own = without_padding(part, total[index].shape)
            total[index] += own.astype(wide.numpy, copy=False)
    return total if wide == type else convert(total, type)


def _zero_shard(shape: tuple[int, ...], type: NumpyDType) -> Buffer:
    """Return the partial sum of a device that adds nothing to the total."""
    return np.full(shape, identity_element("add", dtype_name(type)), type)


def pad_to_shards(whole: Buffer, sharding: Sharding) -> Buffer:
    """Return all elements, with zeros after dimensions that the sharding does not divide."""
    longer = padded_shape(whole.shape, sharding)
    if longer == whole.shape:
        return whole
    result = np.zeros(longer, whole.dtype)
    result[tuple(map(slice, whole.shape))] = whole
    return result


def padded_shape(shape: tuple[int, ...], sharding: Sharding) -> tuple[int, ...]:
    """Return the padded shape: the combined shape of all shards of an array of `shape`."""
    local, dim_axes = sharding.stored_shape(shape), sharding.resolved_sub_axes(len(shape))
    return tuple(part * num_shards(axes) for part, axes in zip(local, dim_axes, strict=True))


def shard_views(stored: Buffer, sharding: Sharding, shape: tuple[int, ...]) -> list[Buffer]:
    """Return the shard of each device as a view of the padded array; `shape` excludes padding."""
    local = sharding.stored_shape(shape)
    made: dict[tuple[int, ...], Buffer] = {}
    for place in sharding.shard_positions(len(shape)):
        if place not in made:
            corner = zip(place, local, strict=True)
            index: list[Any] = [slice(at * n, (at + 1) * n) for at, n in corner]
            made[place] = stored[(..., *index)]
    views = [made[place] for place in sharding.shard_positions(len(shape))]
    return _first_partial_sums(views, sharding, range(sharding.num_devices))


def _first_partial_sums(
    shards: list[Buffer], sharding: Sharding, positions: Sequence[int]
) -> list[Buffer]:
    """Return the shards of a total as the partial sums of the devices at `positions`."""
    if not sharding.has_partial_sums or not shards:
        return shards
    numbers = sharding.partial_sum_numbers()
    zeros = _zero_shard(shards[0].shape, shards[0].dtype)
    return [
        zeros if numbers[position] else shard
        for shard, position in zip(shards, positions, strict=True)
    ]


def local_indices(sharding: Sharding, shape: tuple[int, ...]) -> list[Index]:
    """Return the index of the shard of each device of this process in an array of `shape`."""
    indices = list(sharding.stored_indices_map(shape).values())
    return [indices[place] for place in sharding.local_positions]


def without_padding(part: Buffer, shape: tuple[int, ...]) -> Buffer:
    """Return a shard without its padding."""
    return part if part.shape == shape else part[tuple(map(slice, shape))]


def pad_shard(part: Buffer, shape: tuple[int, ...]) -> Buffer:
    """Return a shard with zeros at the end, in the common shape of all shards."""
    if part.shape == shape:
        return part
    longer = np.zeros(shape, part.dtype)
    longer[tuple(map(slice, part.shape))] = part
    return longer


def split_into_shards(whole: Buffer, sharding: Sharding) -> list[Buffer]:
    """Return the shard of each device of this process; devices with the same shard share one
    buffer."""
    stored = sharding.stored_shape(whole.shape)
    made: dict[tuple[tuple[int | None, int | None], ...], Buffer] = {}
    parts = []
    for index in local_indices(sharding, whole.shape):
        place = tuple((s.start, s.stop) for s in index)
        if place not in made:
            part = np.ascontiguousarray(whole[index]).reshape(whole[index].shape)
            made[place] = pad_shard(part, stored)
        parts.append(made[place])
    return _first_partial_sums(parts, sharding, sharding.local_positions)
