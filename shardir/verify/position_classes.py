"""Classes of mesh positions at which a value is equal, and how collectives change them.

A value of a per-device program is described by a partition of the positions of a mesh: devices at
positions of one class have equal values. The classes are exact for operations that combine their
operands in arbitrary ways.

Sub-axes of one axis that are not parts of one split, such as 2x3 and 3x2 of an axis of size 6, need
no common refinement. A value that is gathered along both parts of one split is equal at all
positions. A value that is gathered along the minor part of each split is not: positions 0, 1 and 2
have equal values after the first gather, and 0 and 1, but not 1 and 2, also after the second one.

Only the axes that a program names matter, so a `PositionClasses` has a mesh of the least common
multiples of their ends, which may be smaller than the mesh of the program.
"""

from collections.abc import Iterable
from functools import lru_cache
from math import lcm

import numpy as np

from shardir.ir.device_groups import (
    DeviceArray,
    device_positions,
    group_array,
    permute_senders,
)
from shardir.ir.mesh import Mesh
from shardir.ir.sharding import Axes, Axis, count_positions
from shardir.ir.sub_axes import append_axis

Classes = int
"""The number of a partition of the positions in a `PositionClasses`."""
EQUAL: Classes = 0
"""The partition with one class: a value that is equal at all positions."""


class PositionClasses:
    """The partitions of the positions along some axes, each computed once."""

    def __init__(self, axes: Iterable[Axis]) -> None:
        self._ends: dict[str, set[int]] = {}
        for axis in axes:
            self._ends.setdefault(axis.name, {1}).update((axis.pre, axis.next))
        for ends in self._ends.values():
            ends.add(lcm(*ends))
        self.mesh = Mesh("positions", tuple((name, max(e)) for name, e in self._ends.items()))
        self._partitions: list[DeviceArray] = []
        self._numbers: dict[bytes, Classes] = {}
        self._number(np.zeros(self.mesh.size, np.int64))
        # Each of these results is needed for many operations of a program.
        self.meet = lru_cache(None)(self._meet)
        self.along = lru_cache(None)(self._along)
        self.gathered = lru_cache(None)(self._gathered)
        self.permuted = lru_cache(None)(self._permuted)
        self.differing_axes = lru_cache(None)(self._differing_axes)

    def of(self, classes: Classes) -> DeviceArray:
        """Return the class of each position."""
        return self._partitions[classes]

    def _number(self, labels: DeviceArray) -> Classes:
        """Return the partition of the positions into those with equal labels."""
        _, first, inverse = np.unique(labels, return_index=True, return_inverse=True)
        partition = first[inverse]
        number = self._numbers.setdefault(partition.tobytes(), len(self._partitions))
        if number == len(self._partitions):
            self._partitions.append(partition)
        return number

    def _along(self, axes: Axes) -> Classes:
        """Return the classes of a value that is arbitrary at each position along `axes`."""
        return self._number(device_positions(self.mesh, axes))

    def _meet(self, a: Classes, b: Classes) -> Classes:
        """Return the classes of a function of two values."""
        if EQUAL in (a, b) or a == b:
            return a or b
        return self._number(self.of(a) * self.mesh.size + self.of(b))

    def _gathered(self, classes: Classes, axes: Axes, in_order: bool = True) -> Classes:
        """Return the classes of a function of the values of each group of positions along `axes`.

        It is a function of the values in order of their positions, or does not depend on the order.
        """
        if classes == EQUAL:
            return EQUAL
        groups = group_array(self.mesh, axes)
        rows = self.of(classes)[groups]
        if not in_order:
            rows = np.sort(rows, axis=1)
        _, of_group = np.unique(rows, axis=0, return_inverse=True)
        labels = np.empty(self.mesh.size, np.int64)
        labels[groups] = of_group.reshape(-1, 1)
        return self._number(labels)

    def exchanged(self, classes: Classes, axes: Axes) -> Classes:
        """Return the classes of a function of the values of a group and of the position in it."""
        return self.meet(self.gathered(classes, axes), self.along(axes))

    def _permuted(self, classes: Classes, source: Axes, target: Axes) -> Classes:
        """Return the classes of a value that has moved from the `source` to the `target` axes."""
        return self._number(self.of(classes)[permute_senders(self.mesh, source, target)])

    def _differing_axes(self, classes: Classes) -> Axes:
        """Return the axes, as small as possible, along which a value with these classes differs."""
        found: list[Axis] = []
        for name in self._ends if classes != EQUAL else ():
            found.extend(self._differing_parts(name, self.of(classes)))
        return tuple(found)

    def _differing_parts(self, name: str, partition: DeviceArray) -> Axes:
        """Return the parts of one axis along which the labels differ.

        The parts are those of the split into named parts for which they have the fewest positions.
        """
        first, *ends = sorted(self._ends[name])
        best: dict[int, Axes] = {first: ()}
        for end in ends:
            ways: list[Axes] = []
            for start, parts in best.items():
                if end % start == 0:
                    part = Axis(name, start, end // start)
                    differs = self._differs(part, partition)
                    ways.append(append_axis(parts, part) if differs else parts)
            best[end] = min(ways, key=count_positions)
        return best[ends[-1]] if ends else ()

    def _differs(self, part: Axis, partition: DeviceArray) -> bool:
        rows = partition[group_array(self.mesh, (part,))]
        return bool((rows != rows[:, :1]).any())
