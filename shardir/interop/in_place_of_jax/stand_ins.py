"""What shardir has no use for itself, but programs of JAX ask for."""

from collections.abc import Callable, Iterable
from contextlib import ContextDecorator
from typing import Any

import numpy.typing as npt

from shardir.frontend.array import Array, ShapeDtypeStruct
from shardir.frontend.devices import (
    Device,
    default_backend,
    device_count,
    devices,
    local_device_count,
    local_devices,
)
from shardir.frontend.mesh import DeviceArray, create_device_mesh, current_mesh
from shardir.frontend.operands import abstract_of
from shardir.frontend.platforms import TRAY
from shardir.frontend.processes import process_count, process_index
from shardir.frontend.promotion import user_dtype

ArrayLike = Array | npt.ArrayLike
DTypeLike = npt.DTypeLike


class Guard(ContextDecorator):
    """A block, or a decorator, that changes nothing."""

    def __init__(self, *args: object, **keywords: object) -> None:
        """Take what any of them takes."""

    def __enter__(self) -> None:
        """Change nothing."""

    def __exit__(self, *raised: object) -> None:
        """Change nothing back."""


def do_nothing(*args: object, **keywords: object) -> None:
    """What there is to do when there is nothing to do."""


class Backend:
    """What `xla_bridge.get_backend()` returns: the devices."""

    @property
    def platform(self) -> str:
        return default_backend()

    def devices(self) -> list[Device]:
        return devices()

    def local_devices(self) -> list[Device]:
        return local_devices()

    def device_count(self) -> int:
        return device_count()

    def local_device_count(self) -> int:
        return local_device_count()

    def process_index(self) -> int:
        return process_index()


def get_backend(platform: str | None = None) -> Backend:
    """The devices of `platform`, which has to be the one there is."""
    devices(platform)
    return Backend()


XLA_BRIDGE = {
    "default_backend": default_backend,
    "device_count": device_count,
    "devices": devices,
    "get_backend": get_backend,
    "host_count": process_count,
    "host_id": process_index,
    "local_device_count": local_device_count,
    "local_devices": local_devices,
    "process_count": process_count,
    "process_index": process_index,
}
"""`jax.lib.xla_bridge`."""


def device_mesh_of_jax(mesh_shape: Any, devices: Any = None, **options: Any) -> DeviceArray:
    """`create_device_mesh`, in the order of JAX: eight TPU cores go around their ring.

    `options`, which are for the insides of TPUs, change nothing.
    """
    given = list(all_devices() if devices is None else devices)
    if default_backend() == "tpu" and [device.id for device in given] == [*range(8)]:
        given = [given[place] for place in TRAY]
    return create_device_mesh(mesh_shape, given)


all_devices = devices


def typeof(x: Any) -> ShapeDtypeStruct:
    """What is known of an array without its numbers."""
    known = abstract_of(x)
    sharding = getattr(x, "sharding", None)
    return ShapeDtypeStruct(
        known.type.shape, user_dtype(known.type.dtype), sharding=sharding, weak_type=known.weak
    )


def use_abstract_mesh(mesh: Any) -> Any:
    """A block in which `mesh` is entered, or the mesh of devices around if it has the same axes."""
    entered = current_mesh()
    return entered if entered is not None and entered.shape == mesh.shape else mesh


def safe_zip(*sequences: Any) -> list[Any]:
    """Tuples of what stands in the same place, in sequences that are as long."""
    return list(zip(*sequences, strict=True))


def safe_map(function: Callable[..., Any], *sequences: Any) -> list[Any]:
    """`function` of what stands in the same place, in sequences that are as long."""
    return [function(*each) for each in zip(*sequences, strict=True)]


def unzip2(pairs: Iterable[tuple[Any, Any]]) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """The first of each pair, and the second."""
    kept = list(pairs)
    return tuple(one for one, _ in kept), tuple(other for _, other in kept)
