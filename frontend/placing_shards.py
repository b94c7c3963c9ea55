"""Arrays put together from what each device is to have."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from shardir.frontend import tree
from shardir.frontend.array import Array
from shardir.frontend.devices import Device
from shardir.frontend.errors import ArgumentError, ShapeError
from shardir.frontend.gathering import check_same
from shardir.frontend.locations import point, pointed
from shardir.frontend.mesh import Mesh, as_device_array
from shardir.frontend.operands import abstract_of, to_numpy
from shardir.frontend.partition_spec import PartitionSpec
from shardir.frontend.promotion import Abstract
from shardir.frontend.shardings import NamedSharding
from shardir.frontend.signature import signature_of
from shardir.types import TensorType

AXIS = "pmap"
"""What the axis of the mesh is called along which shards are stacked."""


@pointed
def device_put_sharded(shards: Sequence[Any], devices: Sequence[Device]) -> Any:
    """Arrays that stack `shards` along a new first axis, each shard on the device of its place.

    Every process gives all shards, and keeps those of its devices.

    Shards are arrays, or containers of arrays that are alike; there is one for each device. What
    `pmap` over these devices takes. Raises `ArgumentError` when they are not as many, and
    `ShapeError` when they differ in type.
    """
    shards, sharding = list(shards), _along(devices, "device_put_sharded")
    count = sharding.num_devices
    if len(shards) != count:
        raise ArgumentError(
            point(f"device_put_sharded got {len(shards)} shards for {count} devices; give each one")
        )
    flat = [tree.flatten(shard) for shard in shards]
    for i, (_, structure) in enumerate(flat):
        if structure != flat[0][1]:
            raise ArgumentError(
                point(
                    f"shards 0 and {i} of device_put_sharded are different containers; give "
                    "containers that are alike"
                )
            )
    columns = zip(*(leaves for leaves, _ in flat), strict=True)
    return tree.unflatten(flat[0][1], [_stacked(column, sharding) for column in columns])


def _stacked(shards: Sequence[Any], sharding: NamedSharding) -> Array:
    first = abstract_of(shards[0], "a shard of device_put_sharded")
    parts = []
    for i, shard in enumerate(shards):
        type = abstract_of(shard, "a shard of device_put_sharded").type
        if type != first.type:
            raise ShapeError(
                point(
                    f"shard {i} of device_put_sharded is {type}, and shard 0 is {first.type}; "
                    "shards of one array are of one type"
                )
            )
        parts.append(_numbers(shard)[None])
    return _placed(parts, first, sharding)


@pointed
def device_put_replicated(x: Any, devices: Sequence[Device]) -> Any:
    """Arrays with a new first axis along which `x` repeats, once on each device.

    `x` is an array or a container of arrays.
    """
    sharding = _along(devices, "device_put_replicated")

    def repeated(leaf: Any) -> Array:
        part = _numbers(leaf)[None]
        check_same(part, sharding)
        abstract = abstract_of(leaf, "x of device_put_replicated")
        return _placed([part] * sharding.num_devices, abstract, sharding)

    return tree.map(repeated, x)


def _along(devices: Sequence[Device], what: str) -> NamedSharding:
    mesh = Mesh(as_device_array(list(devices), what), AXIS)
    return NamedSharding(mesh, PartitionSpec(AXIS))


def _numbers(leaf: Any) -> Any:
    return np.array(leaf.whole() if isinstance(leaf, Array) else to_numpy(leaf))


def _placed(parts: list[Any], one: Abstract, sharding: NamedSharding) -> Array:
    whole = TensorType((len(parts), *one.type.shape), one.type.dtype)
    kept = [parts[place] for place in sharding.local_places]
    return Array(signature_of(Abstract(whole, False), sharding), sharding, kept)
