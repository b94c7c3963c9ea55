"""Arrays put together from their parts, each of which is made or lies where it belongs."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from shardir.frontend.array import Array
from shardir.frontend.devices import Device
from shardir.frontend.errors import ArgumentError, ShapeError
from shardir.frontend.locations import point
from shardir.frontend.operands import to_numpy
from shardir.frontend.placing import device_put
from shardir.frontend.promotion import Abstract, dtype_of
from shardir.frontend.shardings import Index, Sharding
from shardir.frontend.signature import signature_of
from shardir.types import TensorType, dtype_name

REMEDY = "choose a shape that divides"


def make_array_from_single_device_arrays(
    shape: Sequence[int], sharding: Sharding, arrays: Sequence[Array], *, dtype: Any = None
) -> Array:
    """The array of `shape` whose parts are `arrays`, one on each device of `sharding`.

    Nothing is copied. Raises `ArgumentError` when devices have no part or several, and
    `ShapeError` for a part of another shape or element type than its place has.
    """
    sizes, word = tuple(shape), "make_array_from_single_device_arrays"
    sharding.check_divides(sizes, REMEDY)
    parts: dict[Device, Array] = {}
    for array in arrays:
        if len(array.devices()) != 1:
            raise ArgumentError(point(f"a part of {word} is on {len(array.devices())} devices"))
        (device,) = array.devices()
        if device in parts:
            raise ArgumentError(point(f"two parts of {word} are on {device}"))
        parts[device] = array
    if lacking := [each for each in sharding.device_assignment if each not in parts]:
        raise ArgumentError(point(f"{word} has no part on {lacking[0]}; give one for each device"))
    name = dtype_of(dtype) if dtype is not None else next(iter(parts.values())).type.dtype
    wanted = TensorType(sharding.shard_shape(sizes), name)
    for device, array in parts.items():
        if array.type != wanted:
            raise ShapeError(
                point(f"the part of {word} on {device} is {array.type}, and its place is {wanted}")
            )
    abstract = Abstract(TensorType(sizes, name))
    held = [parts[device].parts[0] for device in sharding.device_assignment]
    return Array(signature_of(abstract, sharding), sharding, held)


def make_array_from_callback(
    shape: Sequence[int],
    sharding: Sharding,
    data_callback: Callable[[Index], Any],
    *,
    dtype: Any = None,
) -> Array:
    """The array of `shape` whose part at `index`, a tuple of slices, is `data_callback(index)`.

    The function is called once for all devices that hold the same part.
    """
    sizes = tuple(shape)
    sharding.check_divides(sizes, REMEDY)
    made: dict[tuple[tuple[int, int, int], ...], Any] = {}
    parts = []
    for index in sharding.devices_indices_map(sizes).values():
        place = tuple(cut.indices(size) for cut, size in zip(index, sizes, strict=True))
        if place not in made:
            given = data_callback(index)
            part = np.array(to_numpy(given if dtype is None else np.asarray(given, dtype)))
            if part.shape != sharding.shard_shape(sizes):
                raise ShapeError(
                    point(
                        f"data_callback of make_array_from_callback returned shape {part.shape} "
                        f"for a part of shape {sharding.shard_shape(sizes)}"
                    )
                )
            made[place] = part
        parts.append(made[place])
    if len(kinds := sorted({str(part.dtype) for part in parts})) > 1:
        told = " and ".join(kinds)
        raise ShapeError(point(f"data_callback returned parts of several element types, {told}"))
    abstract = Abstract(TensorType(sizes, dtype_name(parts[0].dtype)))
    return Array(signature_of(abstract, sharding), sharding, parts)


def make_array_from_process_local_data(
    sharding: Sharding, local_data: Any, global_shape: Sequence[int] | None = None
) -> Any:
    """`device_put(local_data, sharding)`: there is one process, which has all the data."""
    if global_shape is not None and tuple(global_shape) != np.shape(local_data):
        raise ShapeError(
            point(
                f"the data of the only process has shape {np.shape(local_data)}, and all data is "
                f"to have {tuple(global_shape)}"
            )
        )
    return device_put(local_data, sharding)
