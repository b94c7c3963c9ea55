"""Meshes of devices with a fast network inside of groups, and a slower one between them."""

from collections.abc import Sequence
from math import prod

import numpy as np

from shardir.errors import count_noun
from shardir.frontend.argument_errors import locate_errors
from shardir.frontend.errors import MeshError
from shardir.frontend.shardings.devices import Device, devices as all_devices
from shardir.frontend.shardings.mesh import (
    DeviceArray,
    as_device_array,
    check_mesh_shape,
    create_device_mesh,
)


@locate_errors
def create_hybrid_device_mesh(
    mesh_shape: int | Sequence[int],
    dcn_mesh_shape: int | Sequence[int],
    devices: Sequence[Device] | None = None,
    *,
    process_is_granule: bool = False,
    should_sort_granules_by_key: bool = True,
    allow_split_physical_axes: bool = False,
) -> DeviceArray:
    """Return the devices of several groups, arranged in the product of both shapes.

    `dcn_mesh_shape` arranges the groups, `mesh_shape` the devices of each; consecutive positions
    along each axis are in one group. The groups are the processes with `process_is_granule`;
    otherwise they are the slices of the devices, and CPU devices are in one slice. They are in the
    order of their indices, or with `should_sort_granules_by_key=False` in that of `devices`.
    `allow_split_physical_axes` has no effect, because CPU devices have no topology. Raise
    `MeshError` unless there are as many groups as positions in `dcn_mesh_shape`, and as many
    devices in each group as positions in `mesh_shape`.
    """
    inner, outer = check_mesh_shape(mesh_shape), check_mesh_shape(dcn_mesh_shape)
    if len(inner) != len(outer):
        raise MeshError(
            f"a hybrid device mesh has the shapes {inner} and {outer}; both have one size for each "
            "axis, which is 1 where the axis is in one network"
        )
    given = as_device_array(list(all_devices() if devices is None else devices), "a hybrid mesh")
    groups: dict[int, list[Device]] = {}
    for device in given:
        groups.setdefault(device.process_index if process_is_granule else 0, []).append(device)
    indices = sorted(groups) if should_sort_granules_by_key else list(groups)
    word = "process" if process_is_granule else "slice"
    plural = "es" if process_is_granule else "s"
    if prod(outer) != len(indices):
        raise MeshError(
            f"dcn_mesh_shape {outer} has {count_noun(prod(outer), 'position')}, and the devices "
            f"are in {count_noun(len(indices), word, plural)}"
            + ("" if process_is_granule else "; with process_is_granule=True, groups are processes")
        )
    for index in indices:
        if len(groups[index]) != prod(inner):
            raise MeshError(
                f"mesh_shape {inner} has {count_noun(prod(inner), 'position')}, and {word} "
                f"{index} has {count_noun(len(groups[index]), 'device')}"
            )
    result = np.empty([a * b for a, b in zip(inner, outer, strict=True)], dtype=object)
    for index, place in zip(indices, np.ndindex(*outer), strict=True):
        block = tuple(slice(i * size, (i + 1) * size) for i, size in zip(place, inner, strict=True))
        result[block] = create_device_mesh(inner, groups[index])
    return as_device_array(result, "a hybrid mesh")
