"""`device_put_sharded` and `device_put_replicated`: arrays with one row per device."""

from collections.abc import Sequence

import numpy as np

from shardir.errors import count_noun
from shardir.frontend.argument_errors import locate_errors
from shardir.frontend.arrays.abstract_value import AbstractValue
from shardir.frontend.arrays.array import Array
from shardir.frontend.arrays.numpy_conversion import abstract_of, to_numpy
from shardir.frontend.arrays.signature import signature_of
from shardir.frontend.distributed.shard_exchange import check_equal_across_processes
from shardir.frontend.errors import ArgumentError, ShapeError
from shardir.frontend.pytree import tree
from shardir.frontend.pytree_types import PyTree
from shardir.frontend.shardings.devices import Device
from shardir.frontend.shardings.mesh import Mesh, as_device_array
from shardir.frontend.shardings.partition_spec import PartitionSpec
from shardir.frontend.shardings.sharding import NamedSharding
from shardir.frontend.source_locations import with_location
from shardir.ir.types import NumpyArray, TensorType

STACKED_AXIS_NAME = "pmap"
"""The name of the mesh axis along which shards are stacked."""


@locate_errors
def device_put_sharded(shards: Sequence[object], devices: Sequence[Device]) -> PyTree:
    """Stack `shards` along a new first axis, with each shard on the corresponding device.

    `shards` are arrays, or pytrees of the same structure; there is one for each device. The result
    is a valid argument of `pmap` over these devices. Every process passes all shards, and keeps
    those of its devices. Raises `ArgumentError` when the numbers of shards and devices differ, and
    `ShapeError` when shards differ in type.
    """
    shards, sharding = list(shards), _stacked_sharding(devices, "device_put_sharded")
    count = sharding.num_devices
    if len(shards) != count:
        raise ArgumentError(
            with_location(
                f"device_put_sharded got {count_noun(len(shards), 'shard')} for "
                f"{count_noun(count, 'device')}; pass one each"
            )
        )
    flat = [tree.flatten(shard) for shard in shards]
    for i, (_, structure) in enumerate(flat):
        if structure != flat[0][1]:
            raise ArgumentError(
                with_location(
                    f"shards 0 and {i} of device_put_sharded have different structures; pass "
                    "pytrees of the same structure"
                )
            )
    columns = zip(*(leaves for leaves, _ in flat), strict=True)
    return tree.unflatten(flat[0][1], [_stack_shards(column, sharding) for column in columns])


def _stack_shards(shards: Sequence[object], sharding: NamedSharding) -> Array:
    first = abstract_of(shards[0], "a shard of device_put_sharded")
    parts = []
    for i, shard in enumerate(shards):
        type = abstract_of(shard, "a shard of device_put_sharded").type
        if type != first.type:
            raise ShapeError(
                with_location(
                    f"shard {i} of device_put_sharded is {type}, and shard 0 is {first.type}; "
                    "all shards of an array need one type"
                )
            )
        parts.append(_copy_elements(shard)[None])
    return _make_stacked_array(parts, first, sharding)


@locate_errors
def device_put_replicated(x: object, devices: Sequence[Device]) -> PyTree:
    """Return arrays with a new first axis along which `x` repeats, once on each device.

    `x` is an array or a pytree of arrays.
    """
    sharding = _stacked_sharding(devices, "device_put_replicated")

    def repeat(leaf: object) -> Array:
        part = _copy_elements(leaf)[None]
        check_equal_across_processes(part, sharding)
        abstract = abstract_of(leaf, "x of device_put_replicated")
        return _make_stacked_array([part] * sharding.num_devices, abstract, sharding)

    return tree.map(repeat, x)


def _stacked_sharding(devices: Sequence[Device], what: str) -> NamedSharding:
    mesh = Mesh(as_device_array(list(devices), what), STACKED_AXIS_NAME)
    return NamedSharding(mesh, PartitionSpec(STACKED_AXIS_NAME))


def _copy_elements(leaf: object) -> NumpyArray:
    return np.array(leaf.to_numpy_view() if isinstance(leaf, Array) else to_numpy(leaf))


def _make_stacked_array(
    parts: list[NumpyArray], one: AbstractValue, sharding: NamedSharding
) -> Array:
    whole = TensorType((len(parts), *one.type.shape), one.type.dtype)
    kept = [parts[place] for place in sharding.local_positions]
    return Array(signature_of(AbstractValue(whole, False), sharding), sharding, kept)
