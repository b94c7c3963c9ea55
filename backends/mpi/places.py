"""Who has what: the devices of a program, their processes, and what is the same on several.

Where a value differs between devices only along some mesh axes, devices that differ along others
alone have equal numbers of it. Such devices are one *class*, of which one number suffices: what a
class holds is sent once, whatever the number of its devices, and not at all to a process that has
one of them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from shardir.backends.base import Array
from shardir.groups import positions
from shardir.mesh import Mesh
from shardir.placement import Axis


@dataclass(frozen=True)
class Places:
    """The devices of a mesh, the process of each, and the process that this is."""

    mesh: Mesh
    owners: tuple[int, ...]
    here: int

    @cached_property
    def local(self) -> tuple[int, ...]:
        """The devices of this process."""
        return tuple(d for d, owner in enumerate(self.owners) if owner == self.here)

    @cached_property
    def processes(self) -> tuple[int, ...]:
        """All processes that have devices, in order."""
        return tuple(sorted(set(self.owners)))

    def classes(self, differing: Sequence[Axis]) -> "Classes":
        """The devices by what they hold of a value that differs along these axes."""
        return Classes(self, tuple(positions(self.mesh, tuple(sorted(differing))).tolist()))


@dataclass(frozen=True)
class Classes:
    """Each device's class of one value."""

    places: Places
    of: tuple[int, ...]

    @cached_property
    def holders(self) -> dict[int, tuple[int, ...]]:
        """For each class the processes that hold it."""
        found: dict[int, dict[int, None]] = {}
        for number, owner in zip(self.of, self.places.owners, strict=True):
            found.setdefault(number, {})[owner] = None
        return {number: tuple(sorted(owners)) for number, owners in found.items()}

    def sender(self, number: int, receiver: int) -> int:
        """Who gives a class to a process: itself if it can, else one of those that have it."""
        holders = self.holders[number]
        return receiver if receiver in holders else holders[receiver % len(holders)]

    def held(self, arrays: Sequence[Array]) -> dict[int, Array]:
        """What this process holds of each class; `arrays` are those of its devices."""
        made: dict[int, Array] = {}
        for device, array in zip(self.places.local, arrays, strict=True):
            made.setdefault(self.of[device], array)
        return made
