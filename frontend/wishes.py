"""Resolution of requested shardings: a sharding, a device, or a spec on the entered mesh."""

from typing import Any

from shardir.frontend import tree
from shardir.frontend.devices import Device
from shardir.frontend.errors import ArgumentError, NoMeshError
from shardir.frontend.locations import point
from shardir.frontend.mesh import current_mesh
from shardir.frontend.partition_spec import PartitionSpec
from shardir.frontend.prefix import spread
from shardir.frontend.quoting import brief_with_type
from shardir.frontend.shardings import NamedSharding, Sharding, SingleDeviceSharding

Wish = Sharding | Device | PartitionSpec | None


def is_wish(x: Any) -> bool:
    """Return whether `x` is a sharding request rather than a pytree; `None` is an unspecified
    sharding."""
    return x is None or isinstance(x, (Sharding, Device, PartitionSpec))


def check_wishes(requests: Any, word: str) -> None:
    """Raise `ArgumentError` for a pytree with leaves that are no sharding requests."""
    for request in tree.leaves(requests, is_leaf=is_wish):
        if not is_wish(request):
            raise _no_wish(request, word)


def _no_wish(request: Any, word: str) -> ArgumentError:
    return ArgumentError(
        point(
            f"{word} has {brief_with_type(request)}, which is no sharding; "
            "write NamedSharding(mesh, PartitionSpec(...))"
        )
    )


def spread_wishes(requests: Any, values: Any, word: str) -> list[Any]:
    """Return the sharding request of each leaf of `values`, from a pytree prefix."""
    check_wishes(requests, word)
    return spread(requests, values, is_wish, word)


def granted(request: Any, word: str) -> Sharding | None:
    """Return the requested sharding; raises `ArgumentError` that begins with `word`."""
    if request is None or isinstance(request, Sharding):
        return request
    if isinstance(request, Device):
        return SingleDeviceSharding(request)
    if not isinstance(request, PartitionSpec):
        raise _no_wish(request, word)
    mesh = current_mesh()
    if mesh is None:
        raise NoMeshError(
            point(
                f"{word} has {request}, which does not say on which devices; "
                f"write NamedSharding(mesh, {request}), or call it inside `with mesh:`"
            )
        )
    return NamedSharding(mesh, request)
