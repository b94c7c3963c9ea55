"""Devices: where arrays live.

A device is an identity: there is one object for each id, however often it is asked for. Devices
come into being when first named; how many of them `devices()` lists is the setting
`num_cpu_devices`. `virtual_devices` names as many as one likes, so that meshes larger than this
machine can be described, propagated and partitioned, though not run.
"""

from shardir.frontend.config import config
from shardir.frontend.errors import DeviceError
from shardir.frontend.locations import pointed

PLATFORMS = ("cpu",)


class Device:
    """One place for shards. Compare with `is` or `==`; both mean the same place."""

    __slots__ = ("id",)

    id: int

    def __init__(self, id: int) -> None:
        object.__setattr__(self, "id", id)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError("a Device is an identity and cannot be changed")

    @property
    def platform(self) -> str:
        return "cpu"

    @property
    def device_kind(self) -> str:
        return "cpu"

    @property
    def process_index(self) -> int:
        return 0

    def __call__(self) -> "Device":
        """The device itself: in older programs `array.device()` is a call."""
        return self

    def __str__(self) -> str:
        return f"{self.platform.upper()} {self.id}"

    def __repr__(self) -> str:
        return f"CpuDevice(id={self.id})"

    def __reduce__(self) -> tuple[object, ...]:
        # A copied or unpickled device is the device.
        return (find_device, (self.id,))


_devices: dict[int, Device] = {}


def find_device(id: int) -> Device:
    """The one device with this id."""
    device = _devices.get(id)
    # setdefault is atomic, so two threads get the same object.
    return device if device is not None else _devices.setdefault(id, Device(id))


def virtual_devices(count: int) -> list[Device]:
    """Devices 0 to `count - 1`, also those beyond what this machine runs."""
    return [find_device(id) for id in range(count)]


@pointed
def devices(backend: str | None = None) -> list[Device]:
    """Every device of `backend` (its default), by id."""
    if backend is not None and backend not in PLATFORMS:
        raise DeviceError(
            f"no devices on platform {backend!r}; the platforms are {', '.join(PLATFORMS)}"
        )
    return virtual_devices(config.num_cpu_devices)


@pointed
def local_devices(process_index: int | None = None, backend: str | None = None) -> list[Device]:
    """The devices of one process; there is one process, and its index is 0."""
    if process_index not in (None, 0):
        raise DeviceError(
            f"no process has index {process_index}; this program has one, with index 0"
        )
    return devices(backend)


def device_count(backend: str | None = None) -> int:
    """How many devices there are."""
    return len(devices(backend))


def local_device_count(backend: str | None = None) -> int:
    """How many devices this process has: all of them."""
    return len(local_devices(backend=backend))


def default_backend() -> str:
    """The platform that arrays live on unless told otherwise."""
    return PLATFORMS[0]
