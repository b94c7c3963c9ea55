"""Device coordinates and replica groups along mesh axes, as arrays over devices.

A device is its row-major position in the mesh. Along a list of axes (major to minor) it has one
coordinate: its position in the group of devices that differ only along those axes. Programs name
axes; only their execution needs this module.
"""

from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import combinations, pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from shardir.ir.mesh import Mesh
from shardir.ir.sharding import Axes, Axis, count_positions
from shardir.ir.sub_axes import can_coexist

DeviceArray = npt.NDArray[np.int64]
"""An array with one entry per device."""


@lru_cache(maxsize=4096)
def device_positions(mesh: Mesh, axes: Axes) -> DeviceArray:
    """Return the position of each device along `axes`."""
    devices = np.arange(mesh.size)
    position = np.zeros_like(devices)
    for axis in axes:
        position = position * axis.size + _coordinate(devices, axis, mesh)
    return _freeze(position)


@lru_cache(maxsize=4096)
def device_groups(mesh: Mesh, axes: Axes) -> tuple[tuple[int, ...], ...]:
    """Return the groups of devices that differ only along `axes`, each in order of position."""
    return tuple(map(tuple, group_array(mesh, axes).tolist()))


@lru_cache(maxsize=4096)
def group_array(mesh: Mesh, axes: Axes) -> DeviceArray:
    """Return `device_groups` as an array with one row per group."""
    devices = np.arange(mesh.size)
    first = devices.copy()
    for axis in axes:
        first -= _coordinate(devices, axis, mesh) * axis.stride(mesh)
    order = np.lexsort((device_positions(mesh, axes), first))
    return _freeze(order.reshape(-1, count_positions(axes)))


@lru_cache(maxsize=4096)
def permute_senders(mesh: Mesh, source: Axes, target: Axes) -> DeviceArray:
    """Return the sender for each device when a dimension moves from `source` to `target` axes.

    The sender's position along `source` is the receiver's position along `target`. Among the
    possible senders, the sender differs from the receiver only along the named axes, and every
    device sends exactly once.
    """
    parts = refine_axes((*source, *target))
    old = [part for axis in source for part in parts[axis]]
    new = [part for axis in target for part in parts[axis]]
    devices = np.arange(mesh.size)
    sender = devices.copy()
    for part in dict.fromkeys((*old, *new)):
        sender -= _coordinate(devices, part, mesh) * part.stride(mesh)
    left = tuple(part for part in old if part not in new)
    free = tuple(part for part in new if part not in old)
    for placed, position in (
        (old, device_positions(mesh, target)),
        (free, device_positions(mesh, left)),
    ):
        rest: Any = position
        for part in reversed(placed):
            sender += rest % part.size * part.stride(mesh)
            rest = rest // part.size
    return _freeze(sender)


def refine_axes(axes: Iterable[Axis]) -> dict[Axis, tuple[Axis, ...]]:
    """Split axes into parts such that any two parts are equal or disjoint.

    Raises `ValueError` if two axes have no common refinement, such as thirds and halves of one mesh
    axis.
    """
    axes = tuple(dict.fromkeys(axes))
    for a, b in combinations(axes, 2):
        if not can_coexist(a, b):
            raise ValueError(f"{a} and {b} have no common refinement")
    bounds: dict[str, set[int]] = {}
    for axis in axes:
        bounds.setdefault(axis.name, set()).update((axis.pre, axis.next))
    return {axis: _split_axis(axis, sorted(bounds[axis.name])) for axis in axes}


def merge_axes(axes: Sequence[Axis]) -> Axes:
    """Return the axes with consecutive parts of one mesh axis merged."""
    merged: list[Axis] = []
    for axis in axes:
        if merged and merged[-1].name == axis.name and merged[-1].next == axis.pre:
            merged[-1] = Axis(axis.name, merged[-1].pre, merged[-1].size * axis.size)
        else:
            merged.append(axis)
    return tuple(merged)


def _split_axis(axis: Axis, bounds: Sequence[int]) -> tuple[Axis, ...]:
    inside = [bound for bound in bounds if axis.pre <= bound <= axis.next]
    return tuple(Axis(axis.name, low, high // low) for low, high in pairwise(inside))


def _coordinate(devices: DeviceArray, axis: Axis, mesh: Mesh) -> DeviceArray:
    return devices // axis.stride(mesh) % axis.size


def _freeze(array: DeviceArray) -> DeviceArray:
    array.setflags(write=False)
    return array
