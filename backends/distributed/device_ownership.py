"""Device ownership: the process of each device, and classes of devices with equal data.

If a value differs between devices only along some mesh axes, devices that differ only along other
axes hold equal data. Such devices form one *class*; its data is sent once for any number of
devices, and not at all to a process that has a device of the class.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from shardir.backends.base import Array
from shardir.ir.device_groups import device_positions
from shardir.ir.mesh import Mesh
from shardir.ir.sharding import Axis


@dataclass(frozen=True)
class DeviceOwnership:
    """The devices of a mesh, the process of each device, and the index of this process."""

    mesh: Mesh
    owners: tuple[int, ...]
    this_process: int

    @cached_property
    def local_devices(self) -> tuple[int, ...]:
        """The devices of this process."""
        return tuple(d for d, owner in enumerate(self.owners) if owner == self.this_process)

    @cached_property
    def processes(self) -> tuple[int, ...]:
        """All processes that have devices, in order."""
        return tuple(sorted(set(self.owners)))

    def classes(self, differing: Sequence[Axis]) -> "DeviceClasses":
        """Return the classes of devices for a value that differs along these axes."""
        return DeviceClasses(
            self, tuple(device_positions(self.mesh, tuple(sorted(differing))).tolist())
        )


@dataclass(frozen=True)
class DeviceClasses:
    """The class of each device for one value."""

    places: DeviceOwnership
    class_of: tuple[int, ...]

    @cached_property
    def holders(self) -> dict[int, tuple[int, ...]]:
        """The processes that hold each class."""
        found: dict[int, dict[int, None]] = {}
        for number, owner in zip(self.class_of, self.places.owners, strict=True):
            found.setdefault(number, {})[owner] = None
        return {number: tuple(sorted(owners)) for number, owners in found.items()}

    def sender(self, number: int, receiver: int) -> int:
        """Return the process that sends a class to `receiver`: the receiver itself if it holds the
        class, otherwise one of the processes that do."""
        holders = self.holders[number]
        return receiver if receiver in holders else holders[receiver % len(holders)]

    def arrays_by_class(self, arrays: Sequence[Array]) -> dict[int, Array]:
        """Return the array of each class that this process holds; `arrays` are those of its
        devices."""
        arrays_found: dict[int, Array] = {}
        for device, array in zip(self.places.local_devices, arrays, strict=True):
            arrays_found.setdefault(self.class_of[device], array)
        return arrays_found
