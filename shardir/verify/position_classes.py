"""Classes of mesh positions at which a value is equal, and how collectives change them.

A value of a per-device program is described by a partition of the positions of a mesh: devices at
positions of one class have equal values. The classes are exact for operations that combine their
operands in arbitrary ways.

Sub-axes of one axis that are not parts of one split, such as 2x3 and 3x2 of an axis of size 6, need
no common refinement. A value that is gathered along both parts of one split is equal at all
positions. A value that is gathered along the minor part of each split is not: positions 0, 1 and 2
have equal values after the first gather, and 0 and 1, but not 1 and 2, also after the second one.

Classes do not depend on the sizes of axes whose parts belong to one split. In the mesh of a
`PositionClasses`, each such part has the size 2, so that the number of positions does not depend on
the number of devices. Other axes have the least common multiples of the ends of their parts.
"""

from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import pairwise
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
    """The partitions of the positions along some axes, each computed once.

    `moves` are the source and target axes of the permutes to compute.
    """

    def __init__(self, axes: Iterable[Axis], moves: Iterable[tuple[Axes, Axes]] = ()) -> None:
        moves = tuple(moves)
        found: dict[str, set[int]] = {}
        for axis in (*axes, *(axis for move in moves for side in move for axis in side)):
            found.setdefault(axis.name, {1}).update((axis.pre, axis.next))
        self._ends = {name: sorted({*ends, lcm(*ends)}) for name, ends in found.items()}
        self._unscaled = self._find_unscaled_axes(moves)
        self.mesh = Mesh(
            "positions",
            tuple(
                (name, ends[-1] if name in self._unscaled else 2 ** (len(ends) - 1))
                for name, ends in self._ends.items()
            ),
        )
        self._partitions: list[DeviceArray] = []
        self._numbers: dict[bytes, Classes] = {}
        self._number(np.zeros(self.mesh.size, np.int64))
        # Each of these results is needed for many operations of a program.
        self.meet = lru_cache(None)(self._meet)
        self.along = lru_cache(None)(self._along)
        self.gather = lru_cache(None)(self._gather)
        self.permute = lru_cache(None)(self._permute)
        self.differing_axes = lru_cache(None)(self._differing_axes)

    def of(self, classes: Classes) -> DeviceArray:
        """Return the class of each position."""
        return self._partitions[classes]

    def _find_unscaled_axes(self, moves: Sequence[tuple[Axes, Axes]]) -> frozenset[str]:
        """Return the axes that keep their sizes: those without a split into all of their parts, and
        those between whose parts a permute moves values although their sizes differ."""
        found = {
            name
            for name, ends in self._ends.items()
            if any(high % low for low, high in pairwise(ends))
        }
        pending = [
            ({axis.name for axis in (*source, *target)}, self._part_sizes(source, target))
            for source, target in moves
        ]
        count = -1
        while count != len(found):
            count = len(found)
            for names, (before, after) in pending:
                if before != after or names & found:
                    found |= names
        return frozenset(found)

    def _part_sizes(self, *sides: Axes) -> list[list[int]]:
        """Return, for each list of axes, the sizes of their parts, from the major to the minor."""
        found: list[list[int]] = []
        for side in sides:
            found.append([])
            for axis in side:
                ends = self._ends[axis.name]
                inside = ends[ends.index(axis.pre) : ends.index(axis.next) + 1]
                found[-1] += [high // low for low, high in reversed(list(pairwise(inside)))]
        return found

    def _scale(self, axes: Axes) -> Axes:
        """Return the axes of the mesh of positions for axes of the program."""
        found = []
        for axis in axes:
            if axis.name not in self._unscaled:
                ends = self._ends[axis.name]
                low, high = ends.index(axis.pre), ends.index(axis.next)
                axis = Axis(axis.name, 2**low, 2 ** (high - low))
            found.append(axis)
        return tuple(found)

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
        return self._number(device_positions(self.mesh, self._scale(axes)))

    def _meet(self, a: Classes, b: Classes) -> Classes:
        """Return the classes of a function of two values."""
        if EQUAL in (a, b) or a == b:
            return a or b
        return self._number(self.of(a) * self.mesh.size + self.of(b))

    def _gather(self, classes: Classes, axes: Axes, in_order: bool = True) -> Classes:
        """Return the classes of a function of the values of each group of positions along `axes`.

        It is a function of the values in order of their positions, or does not depend on the order.
        """
        if classes == EQUAL:
            return EQUAL
        groups = group_array(self.mesh, self._scale(axes))
        rows = self.of(classes)[groups]
        if not in_order:
            rows = np.sort(rows, axis=1)
        _, of_group = np.unique(rows, axis=0, return_inverse=True)
        labels = np.empty(self.mesh.size, np.int64)
        labels[groups] = of_group.reshape(-1, 1)
        return self._number(labels)

    def exchange(self, classes: Classes, axes: Axes) -> Classes:
        """Return the classes of a function of the values of a group and of the position in it."""
        return self.meet(self.gather(classes, axes), self.along(axes))

    def _permute(self, classes: Classes, source: Axes, target: Axes) -> Classes:
        """Return the classes of a value that has moved from the `source` to the `target` axes."""
        senders = permute_senders(self.mesh, self._scale(source), self._scale(target))
        return self._number(self.of(classes)[senders])

    def is_equal_along(self, classes: Classes, axes: Axes) -> bool:
        """Return whether a value with these classes is equal on all positions along `axes`."""
        return not any(self._differs(axis, self.of(classes)) for axis in axes)

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
        first, *ends = self._ends[name]
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
        rows = partition[group_array(self.mesh, self._scale((part,)))]
        return bool((rows != rows[:, :1]).any())
