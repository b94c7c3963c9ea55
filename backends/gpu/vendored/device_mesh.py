"""Meshes and the groups of devices that communicate.

A device is its row-major index in the mesh. Along a list of axes (major to minor) it has one
coordinate, its position in the group of devices that differ only along those axes. An axis is named
as in the program's header: `"data"`, or `"data:(2)4"` for the sub-axis of size 4 that follows a
factor of 2 of `data`.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from math import prod

Axes = tuple[str, ...]
SubAxis = tuple[str, int, int]
"""A sub-axis: the name of its mesh axis, the product of the factors before it, and its size."""

_PART = re.compile(r"(.+):\((\d+)\)(\d+)")


class Mesh:
    """Devices along named axes, the first of which is major."""

    def __init__(self, sizes: Mapping[str, int]) -> None:
        self.sizes = dict(sizes)
        self.size = prod(self.sizes.values())
        self._strides: dict[str, int] = {}
        self._group_cache: dict[tuple[int, Axes], tuple[int, ...]] = {}
        stride = self.size
        for name, size in self.sizes.items():
            stride //= size
            self._strides[name] = stride

    def position(self, device: int, axes: Axes) -> int:
        """Return a device's position along `axes`."""
        return self._position(device, self._parts(axes))

    def count(self, axes: Axes) -> int:
        """Return the number of positions along `axes`."""
        return prod(size for _, _, size in self._parts(axes))

    def group(self, device: int, axes: Axes) -> tuple[int, ...]:
        """Return the devices that differ from `device` only along `axes`, in order of position."""
        found = self._group_cache.get((device, axes))
        if found is None:
            found = self._group_cache[device, axes] = self._group(device, self._parts(axes))
        return found

    def groups(self, axes: Axes) -> tuple[tuple[int, ...], ...]:
        """Return all groups along `axes`, the one with device 0 first."""
        return tuple(dict.fromkeys(self.group(device, axes) for device in range(self.size)))

    def sender(self, device: int, source: Axes, target: Axes) -> int:
        """Return the device to receive from when a sharding over `source` becomes one over
        `target`.

        The sender's position along `source` is the receiver's along `target`. If several devices
        match, they differ only along these axes, and every device sends exactly once.
        """
        old, new = self._refine(source, target)
        found = device
        for part in dict.fromkeys((*old, *new)):
            found -= self._position(device, (part,)) * self._stride(part)
        left = tuple(part for part in old if part not in new)
        free = tuple(part for part in new if part not in old)
        placed = ((old, self.position(device, target)), (free, self._position(device, left)))
        for parts, rest in placed:
            for part in reversed(parts):
                found += rest % part[2] * self._stride(part)
                rest //= part[2]
        return found

    def combined_group(self, device: int, source: Axes, target: Axes) -> tuple[int, ...]:
        """Return the devices that differ from `device` only along `source` and `target`."""
        old, new = self._refine(source, target)
        return self._group(device, tuple(dict.fromkeys((*old, *new))))

    def _parts(self, axes: Axes) -> tuple[SubAxis, ...]:
        return tuple(map(self._part, axes))

    def _part(self, axis: str) -> SubAxis:
        match = _PART.fullmatch(axis)
        name = axis if match is None else match[1]
        if name not in self.sizes:
            raise ValueError(f"the mesh {self.sizes} has no axis {axis!r}")
        if match is None:
            return name, 1, self.sizes[name]
        return name, int(match[2]), int(match[3])

    def _stride(self, part: SubAxis) -> int:
        name, before, size = part
        return self._strides[name] * (self.sizes[name] // (before * size))

    def _position(self, device: int, parts: Sequence[SubAxis]) -> int:
        position = 0
        for part in parts:
            position = position * part[2] + device // self._stride(part) % part[2]
        return position

    def _group(self, device: int, parts: Sequence[SubAxis]) -> tuple[int, ...]:
        members = [device]
        for part in parts:
            stride = self._stride(part)
            first = [member - member // stride % part[2] * stride for member in members]
            members = [base + i * stride for base in first for i in range(part[2])]
        return tuple(members)

    def _refine(self, *lists: Axes) -> list[tuple[SubAxis, ...]]:
        """Split axes into sub-axes such that any two are equal or disjoint."""
        bounds: dict[str, set[int]] = {}
        for axes in lists:
            for name, before, size in self._parts(axes):
                bounds.setdefault(name, set()).update((before, before * size))
        return [
            tuple(piece for part in self._parts(axes) for piece in _split(part, bounds))
            for axes in lists
        ]


def _split(part: SubAxis, bounds: Mapping[str, set[int]]) -> Iterator[SubAxis]:
    name, before, size = part
    inside = sorted(bound for bound in bounds[name] if before <= bound <= before * size)
    return ((name, low, high // low) for low, high in pairwise(inside))
