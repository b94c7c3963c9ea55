"""Shardings as users give them: a sharding, a device, or a spec of the mesh entered."""

from typing import Any

from shardir.frontend.devices import Device
from shardir.frontend.errors import ArgumentError, NoMeshError
from shardir.frontend.locations import point
from shardir.frontend.mesh import current_mesh
from shardir.frontend.partition_spec import PartitionSpec
from shardir.frontend.shardings import NamedSharding, Sharding, SingleDeviceSharding

Wish = Sharding | Device | PartitionSpec | None


def is_wish(x: Any) -> bool:
    """Whether it is a wish rather than a container of wishes; `None` is the wish for nothing."""
    return x is None or isinstance(x, (Sharding, Device, PartitionSpec))


def granted(wish: Any, word: str) -> Sharding | None:
    """The sharding that is wished for; raises `ArgumentError` that begins with `word`."""
    if wish is None or isinstance(wish, Sharding):
        return wish
    if isinstance(wish, Device):
        return SingleDeviceSharding(wish)
    if not isinstance(wish, PartitionSpec):
        raise ArgumentError(
            point(
                f"{word} has {wish!r} of type {type(wish).__name__}, which is no sharding; "
                "write NamedSharding(mesh, PartitionSpec(...))"
            )
        )
    mesh = current_mesh()
    if mesh is None:
        raise NoMeshError(
            point(
                f"{word} has {wish}, which does not say on which devices; "
                f"write NamedSharding(mesh, {wish}), or call it inside `with mesh:`"
            )
        )
    return NamedSharding(mesh, wish)
