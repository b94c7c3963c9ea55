"""Abstract meshes, to trace, lower and partition programs for devices that this machine lacks.

    mesh = AbstractMesh((16, 16, 8), ("data", "model", "pipe"))
    x = ShapeDtypeStruct((4096, 4096), "float32", sharding=NamedSharding(mesh, P("data", "model")))
    jit(f).lower(x).compile().as_text()

The devices have no memory. Everything that reads a program works as for any mesh; placing an array
there, or running a program, is an error.
"""

from collections.abc import Sequence
from math import prod

import numpy as np

from shardir.frontend.argument_errors import locate_errors
from shardir.frontend.errors import DeviceError, MeshError
from shardir.frontend.shardings.axis_type import AxisType
from shardir.frontend.shardings.devices import Device
from shardir.frontend.shardings.mesh import Mesh, as_axis_names, check_mesh_shape
from shardir.frontend.source_locations import with_location


class AbstractDevice(Device):
    """A device of an `AbstractMesh`; devices with the same id are the same object."""

    __slots__ = ()

    @property
    def device_kind(self) -> str:
        return "abstract"

    def __repr__(self) -> str:
        return f"AbstractDevice(id={self.id})"

    def __reduce__(self) -> tuple[object, ...]:
        return (find_abstract_device, (self.id,))


_abstract_devices: dict[int, AbstractDevice] = {}


def find_abstract_device(id: int) -> AbstractDevice:
    """Return the only abstract device with this id."""
    device = _abstract_devices.get(id)
    return device if device is not None else _abstract_devices.setdefault(id, AbstractDevice(id))


MAX_ABSTRACT_DEVICES = 1 << 20
"""Maximum number of abstract devices, because each one is a Python object."""
_NO_DEVICES = np.array(None, dtype=object)


class AbstractMesh(Mesh):
    """A mesh given by its sizes and names alone: `AbstractMesh((16, 8), ("data", "model"))`.

    Raises `MeshError` for sizes that are not integers above 0, and if there is not one name per
    size.
    """

    @locate_errors
    def __init__(
        self,
        axis_sizes: int | Sequence[int],
        axis_names: str | Sequence[str] = (),
        axis_types: AxisType | Sequence[AxisType] | None = None,
    ) -> None:
        sizes = check_mesh_shape(axis_sizes)
        names = as_axis_names(axis_names)
        if len(sizes) != len(names):
            raise MeshError(
                f"an AbstractMesh has sizes {sizes} and axes {names}; name every dimension"
            )
        if prod(sizes) > MAX_ABSTRACT_DEVICES:
            raise MeshError(
                f"an AbstractMesh of sizes {sizes} has more than the maximum of "
                f"{MAX_ABSTRACT_DEVICES} "
                "devices"
            )
        devices = np.empty(prod(sizes), dtype=object)
        devices[:] = [find_abstract_device(id) for id in range(devices.size)]
        super().__init__(devices.reshape(sizes) if names else _NO_DEVICES, names, axis_types)

    def __repr__(self) -> str:
        return f"Abstract{super().__repr__()}"

    def __reduce__(self) -> tuple[object, ...]:
        return (AbstractMesh, (self.axis_sizes, self.axis_names, self.axis_types))


def is_abstract_assignment(devices: Sequence[Device]) -> bool:
    """Return whether these devices, all of one mesh, are abstract."""
    return isinstance(devices[0], AbstractDevice)


def abstract_device_error(what: str, count: int) -> DeviceError:
    """Return the error for `what` that needs memory or processors of abstract devices."""
    return DeviceError(
        with_location(
            f"{what} {count} abstract devices, which have no memory and run no programs; "
            "use a Mesh of devices() instead of the AbstractMesh"
        )
    )
