"""Devices that hold arrays.

There is exactly one `Device` object for each id. It is created when it is first requested. The
setting `num_cpu_devices` determines how many devices `devices()` lists. `virtual_devices` returns
any number of devices, so that meshes larger than this machine can be described, propagated and
partitioned, though not run. `devices("gpu")` lists one device for each GPU that torch finds, or as
many as the setting `num_gpu_devices` states, which may share GPUs. `devices("pjrt")` lists the
devices of JAX in this process. The abstract devices of an `AbstractMesh` exist on no machine.
"""

from collections.abc import Sequence

import numpy as np

from shardir.backends.device_shards import get_device_backend
from shardir.frontend.absent_members import WithAbsentMembers
from shardir.frontend.argument_errors import locate_errors, with_argument_errors
from shardir.frontend.call_signatures import with_method_errors
from shardir.frontend.config import config
from shardir.frontend.distributed.launcher_environment import warn_if_launched_together
from shardir.frontend.distributed.processes import process_group
from shardir.frontend.errors import DeviceError
from shardir.frontend.source_locations import with_location

TPU_RING_ORDER = (0, 1, 2, 3, 6, 7, 4, 5)
"""Eight TPU cores, two on each of 2x2 chips, along the ring that connects adjacent chips."""


@with_method_errors
class Device(WithAbsentMembers):
    """A device that holds shards. Two devices are equal only if they are identical."""

    __slots__ = ("backend", "id")

    id: int
    """The number of the device, as in `Mesh.device_ids`."""
    backend: str
    """The backend that runs programs on the device."""

    def __init__(self, id: int, backend: str = "cpu") -> None:
        object.__setattr__(self, "id", id)
        object.__setattr__(self, "backend", backend)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError("the attributes of a Device cannot be changed")

    @property
    def platform(self) -> str:
        """The platform name (for CPUs the setting `shown_platform`)."""
        return config.shown_platform if self.backend == "cpu" else self.backend

    @property
    def device_kind(self) -> str:
        """The name that the vendor gives the device."""
        if self.backend == "cpu":
            return self.platform
        return get_device_backend(self.backend).device_kind(self.id)

    @property
    def process_index(self) -> int:
        """The process that owns the device."""
        there = process_group()
        # Each process has its own GPUs, which other processes cannot address.
        return there.owner_of(self.id) if self.backend == "cpu" else there.index

    @property
    def local_hardware_id(self) -> int:
        """The number of the device among those of its process."""
        own = self.process_index
        return sum(find_device(id, self.backend).process_index == own for id in range(self.id))

    def memory_stats(self) -> dict[str, int] | None:
        """Return `None`, as JAX does for CPUs; `live_arrays` lists the memory of arrays."""
        return None

    def __call__(self) -> "Device":
        """Return the device itself, because `array.device()` is a call in older programs."""
        return self

    def __str__(self) -> str:
        # As in JAX, which names GPUs by their programming interface.
        return f"{'cuda' if self.platform == 'gpu' else self.platform}:{self.id}"

    def __repr__(self) -> str:
        return describe_device(self.platform, self.id)

    def __reduce__(self) -> tuple[object, ...]:
        # Copying and unpickling must preserve the identity of the device.
        return (find_device, (self.id, self.backend))


_devices: dict[tuple[int, str], Device] = {}


def describe_device(platform: str, id: int) -> str:
    """Return the text of device `id` of `platform`, in the format of JAX.

    Programs and documents written for accelerators print their devices and draw arrays on them,
    with the setting `shown_platform`.
    """
    if platform == "gpu":
        return f"CudaDevice(id={id})"
    if platform == "pjrt":
        return f"PjrtDevice(id={id})"
    if platform == "tpu":
        chip, core = divmod(id, 2)
        place = f"({chip % 2},{chip // 2},0)"
        return f"TpuDevice(id={id}, process_index=0, coords={place}, core_on_chip={core})"
    if platform == "ipu":
        return f"IpuDevice(id={id}, num_tiles=1472, version=ipu2)"
    return f"CpuDevice(id={id})"


def find_device(id: int, backend: str = "cpu") -> Device:
    """Return the only device of a backend with this id."""
    device = _devices.get((id, backend))
    if device is None and not _devices and process_group().link is None:
        warn_if_launched_together()
    # setdefault is atomic, so that two threads get the same object.
    return device or _devices.setdefault((id, backend), Device(id, backend))


def has_devices() -> bool:
    """Return whether a device has been created."""
    return bool(_devices)


def virtual_devices(count: int) -> list[Device]:
    """Return devices 0 to `count - 1`, which may exceed the devices of this machine."""
    return [find_device(id) for id in range(count)]


_PLATFORM_ALIASES = {"cuda": "gpu"}


@locate_errors
def devices(backend: str | None = None) -> list[Device]:
    """Return every device of `backend` (default: the default backend), by id.

    Raises `DeviceError` for a backend that does not exist, `NoGPUError` where there is no GPU, and
    `PJRTError` for the devices of JAX if it is not installed.
    """
    platforms = tuple(dict.fromkeys((config.shown_platform, "cpu", "gpu", "pjrt")))
    if backend is not None and not isinstance(backend, str):
        raise DeviceError(f"a platform is a string, got {backend!r}")
    if backend in _PLATFORM_ALIASES:
        backend = _PLATFORM_ALIASES[backend]
    if backend == "gpu" and config.shown_platform != "gpu":
        found = get_device_backend("gpu").device_count()
        return [find_device(id, "gpu") for id in range(config.num_gpu_devices or found)]
    if backend == "pjrt":
        return [find_device(id, "pjrt") for id in range(get_device_backend("pjrt").device_count())]
    if backend is not None and backend not in platforms:
        raise DeviceError(
            f"no devices on platform {backend!r}; the platforms are {', '.join(platforms)}"
        )
    there, count = process_group(), config.num_cpu_devices
    if there.count > 1 and count > there.device_count:
        raise DeviceError(
            f"distributed.initialize() distributed {there.device_count} devices over "
            f"{there.count} processes, and now there are {count}; set their number before"
        )
    return virtual_devices(count)


@locate_errors
def local_devices(process_index: int | None = None, backend: str | None = None) -> list[Device]:
    """Return the devices of one process, by default of this one."""
    there = process_group()
    index = there.index if process_index is None else process_index
    if not isinstance(index, (int, np.integer)):
        raise DeviceError(f"the index of a process is an integer, got {index!r}")
    if not 0 <= index < there.count:
        raise DeviceError(
            f"no process has index {index}; this program has "
            + ("one, with index 0" if there.count == 1 else f"{there.count}, from index 0")
        )
    return [device for device in devices(backend) if device.process_index == index]


@with_argument_errors
def device_count(backend: str | None = None) -> int:
    """Return the number of devices."""
    return len(devices(backend))


@with_argument_errors
def local_device_count(backend: str | None = None) -> int:
    """Return the number of devices of this process."""
    return len(local_devices(backend=backend))


def how_to_add_devices(backend: str, count: int) -> str:
    """Return how a backend gets `count` devices, for errors; empty if it is unknown."""
    if backend == "cpu":
        return f"add devices with set_cpu_devices({count})"
    return get_device_backend(backend).how_to_add_devices(count)


@with_argument_errors
def default_backend() -> str:
    """Return the default platform of arrays."""
    return config.shown_platform


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
