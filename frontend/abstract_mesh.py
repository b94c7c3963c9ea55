"""Meshes of devices that nobody has: to trace, lower and partition programs for other machines.

    mesh = AbstractMesh((16, 16, 8), ("data", "model", "pipe"))
    x = ShapeDtypeStruct((4096, 4096), "float32", sharding=NamedSharding(mesh, P("data", "model")))
    jit(f).lower(x).compile().as_text()

Its devices are places without memory. All that reads a program works as for any mesh; putting an
array there, or running a program, is an error.
"""

from collections.abc import Sequence
from math import prod

import numpy as np

from shardir.frontend.axis_type import AxisType
from shardir.frontend.devices import Device
from shardir.frontend.errors import DeviceError, MeshError
from shardir.frontend.locations import point, pointed
from shardir.frontend.mesh import Mesh, clean_names, clean_shape


class AbstractDevice(Device):
    """One of the places of an `AbstractMesh`; those with the same id are the same."""

    __slots__ = ()

    @property
    def device_kind(self) -> str:
        return "abstract"

    def __repr__(self) -> str:
        return f"AbstractDevice(id={self.id})"

    def __reduce__(self) -> tuple[object, ...]:
        return (find_abstract_device, (self.id,))


_devices: dict[int, AbstractDevice] = {}


def find_abstract_device(id: int) -> AbstractDevice:
    """The one abstract device with this id."""
    device = _devices.get(id)
    return device if device is not None else _devices.setdefault(id, AbstractDevice(id))


MOST_DEVICES = 1 << 20
"""There is an object for each, and more machines than anybody has."""
_NOTHING = np.array(None, dtype=object)


class AbstractMesh(Mesh):
    """A mesh by its sizes and names alone: `AbstractMesh((16, 8), ("data", "model"))`.

    Raises `MeshError` for sizes that are no whole numbers above 0, or for other than one name
    each.
    """

    @pointed
    def __init__(
        self,
        axis_sizes: int | Sequence[int],
        axis_names: str | Sequence[str] = (),
        axis_types: AxisType | Sequence[AxisType] | None = None,
    ) -> None:
        sizes = clean_shape(axis_sizes)
        names = clean_names(axis_names)
        if len(sizes) != len(names):
            raise MeshError(
                f"an AbstractMesh has sizes {sizes} and axes {names}; name every dimension"
            )
        if prod(sizes) > MOST_DEVICES:
            raise MeshError(
                f"an AbstractMesh of sizes {sizes} has more devices than {MOST_DEVICES}, which is "
                "the most"
            )
        devices = np.empty(prod(sizes), dtype=object)
        devices[:] = [find_abstract_device(id) for id in range(devices.size)]
        super().__init__(devices.reshape(sizes) if names else _NOTHING, names, axis_types)

    def __repr__(self) -> str:
        return f"Abstract{super().__repr__()}"

    def __reduce__(self) -> tuple[object, ...]:
        return (AbstractMesh, (self.axis_sizes, self.axis_names, self.axis_types))


def is_abstract(devices: Sequence[Device]) -> bool:
    """Whether these devices, all of one mesh, are places that hold nothing."""
    return isinstance(devices[0], AbstractDevice)


def nothing_runs(what: str, count: int) -> DeviceError:
    """The error for `what` that would need memory or processors of abstract devices."""
    return DeviceError(
        point(
            f"{what} {count} abstract devices, which hold no arrays and run nothing; "
            "use a Mesh of devices() instead of the AbstractMesh"
        )
    )
