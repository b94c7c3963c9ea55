"""Devices: where arrays live.

A device is an identity: there is one object for each id, however often it is asked for. Devices
come into being when first named; how many of them `devices()` lists is the setting
`num_cpu_devices`. `virtual_devices` names as many as one likes, so that meshes larger than this
machine can be described, propagated and partitioned, though not run.
"""

from shardir.frontend.config import config
from shardir.frontend.errors import DeviceError
from shardir.frontend.locations import pointed
from shardir.frontend.platforms import described
from shardir.frontend.processes import here


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
        """What kind of device it is said to be (`config.shown_platform`)."""
        return config.shown_platform

    @property
    def device_kind(self) -> str:
        return self.platform

    @property
    def backend(self) -> str:
        """The backend that runs programs on it."""
        return "cpu"

    @property
    def process_index(self) -> int:
        """The process that holds what is on this device."""
        return here().owner(self.id)

    def __call__(self) -> "Device":
        """The device itself: in older programs `array.device()` is a call."""
        return self

    def __str__(self) -> str:
        return f"{self.platform.upper()} {self.id}"

    def __repr__(self) -> str:
        return described(self.platform, self.id)

    def __reduce__(self) -> tuple[object, ...]:
        # A copied or unpickled device is the device.
        return (find_device, (self.id,))


_devices: dict[int, Device] = {}


def find_device(id: int) -> Device:
    """The one device with this id."""
    device = _devices.get(id)
    # setdefault is atomic, so two threads get the same object.
    return device if device is not None else _devices.setdefault(id, Device(id))


def any_named() -> bool:
    """Whether some device has come into being."""
    return bool(_devices)


def virtual_devices(count: int) -> list[Device]:
    """Devices 0 to `count - 1`, also those beyond what this machine runs."""
    return [find_device(id) for id in range(count)]


@pointed
def devices(backend: str | None = None) -> list[Device]:
    """Every device of `backend` (its default), by id."""
    platforms = tuple(dict.fromkeys((config.shown_platform, "cpu")))
    if backend is not None and backend not in platforms:
        raise DeviceError(
            f"no devices on platform {backend!r}; the platforms are {', '.join(platforms)}"
        )
    there, count = here(), config.num_cpu_devices
    if there.count > 1 and count > there.device_count:
        raise DeviceError(
            f"there were to be {there.device_count} devices when distributed.initialize() dealt "
            f"them out to {there.count} processes, and now {count}; set their number before"
        )
    return virtual_devices(count)


@pointed
def local_devices(process_index: int | None = None, backend: str | None = None) -> list[Device]:
    """The devices of one process, by default of this one."""
    there = here()
    index = there.index if process_index is None else process_index
    if not 0 <= index < there.count:
        raise DeviceError(
            f"no process has index {index}; this program has "
            + ("one, with index 0" if there.count == 1 else f"{there.count}, from index 0")
        )
    return [device for device in devices(backend) if there.owner(device.id) == index]


def device_count(backend: str | None = None) -> int:
    """How many devices there are."""
    return len(devices(backend))


def local_device_count(backend: str | None = None) -> int:
    """How many devices this process has."""
    return len(local_devices(backend=backend))


def default_backend() -> str:
    """The platform that arrays live on unless told otherwise."""
    return config.shown_platform
