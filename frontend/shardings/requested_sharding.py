"""Resolution of requested shardings: a sharding, a device, or a spec on the entered mesh."""

from shardir.frontend.config import config
from shardir.frontend.errors import ArgumentError, ShardingError
from shardir.frontend.pytree import tree
from shardir.frontend.pytree.prefix import broadcast_prefix
from shardir.frontend.pytree_types import PyTree
from shardir.frontend.quoting import brief_with_type
from shardir.frontend.shardings.axis_type import AxisType
from shardir.frontend.shardings.deferred_sharding import DeferredSharding
from shardir.frontend.shardings.devices import Device
from shardir.frontend.shardings.mesh import AbstractMesh, current_mesh
from shardir.frontend.shardings.partition_spec import UNCONSTRAINED, PartitionSpec
from shardir.frontend.shardings.sharding import (
    NamedSharding,
    Sharding,
    SingleDeviceSharding,
    resolve_spec,
)
from shardir.frontend.source_locations import with_location

ShardingRequest = Sharding | Device | PartitionSpec | None


def is_sharding_request(x: object) -> bool:
    """Return whether `x` is a sharding request rather than a pytree; `None` is an unspecified
    sharding."""
    return x is None or isinstance(x, (Sharding, Device, PartitionSpec, DeferredSharding))


def check_sharding_requests(requests: object, word: str) -> None:
    """Raise `ArgumentError` for a pytree with leaves that are no sharding requests."""
    for request in tree.leaves(requests, is_leaf=is_sharding_request):
        if not is_sharding_request(request):
            raise _invalid_sharding_error(request, word)


def _invalid_sharding_error(request: object, word: str) -> ArgumentError:
    return ArgumentError(
        with_location(
            f"{word} has {brief_with_type(request)}, which is not a sharding; "
            "write NamedSharding(mesh, PartitionSpec(...))"
        )
    )


def broadcast_sharding_requests(requests: object, values: object, word: str) -> list[PyTree]:
    """Return the sharding request of each leaf of `values`, from a pytree prefix."""
    check_sharding_requests(requests, word)
    return broadcast_prefix(requests, values, is_sharding_request, word)


def resolve_sharding(request: object, word: str) -> Sharding | None:
    """Return the requested sharding; raises `ArgumentError` that begins with `word`.

    A sharding on a mesh without axes, such as `typeof(x).sharding` of an array without a mesh,
    requests nothing.
    """
    if isinstance(request, NamedSharding) and isinstance(request.mesh, AbstractMesh):
        if not request.mesh.axis_names:
            return None
        mesh = current_mesh()
        if mesh is not None and mesh.shape == request.mesh.shape:
            request = NamedSharding(mesh.update(axis_types=request.mesh.axis_types), request.spec)
    if isinstance(request, Device):
        return SingleDeviceSharding(request)
    if isinstance(request, PartitionSpec):
        request = resolve_spec(request, word)
    if request is not None and not isinstance(request, Sharding):
        raise _invalid_sharding_error(request, word)
    if config.explicit_sharding == "strict":
        _check_is_constrained(request, word)
    return request


def _check_is_constrained(sharding: Sharding | None, word: str) -> None:
    """Raise `ShardingError` for an unconstrained dimension on a mesh of Explicit axes only."""
    if not isinstance(sharding, NamedSharding) or UNCONSTRAINED not in sharding.spec:
        return
    if set(sharding.mesh.axis_types) == {AxisType.Explicit}:
        raise ShardingError(
            with_location(
                f"{word} has {sharding.spec}, and the mesh has no Auto axes along which the "
                "compiler could shard an unconstrained dimension; state its axes, or None"
            )
        )


def resolve_out_sharding(request: object, word: str) -> Sharding | None:
    """Return the sharding that a program requests for a result: it names Explicit axes only.

    If the setting `explicit_sharding` is "lenient", it may name Auto axes, too. Raises
    `ArgumentError` and `ShardingError` that begin with `word`.
    """
    sharding = resolve_sharding(request, word)
    if config.explicit_sharding == "strict":
        check_axes_have_type(sharding, AxisType.Explicit, word)
    return sharding


_OTHER_AXES = {
    AxisType.Explicit: "constrain the value along Auto axes with lax.with_sharding_constraint",
    AxisType.Auto: "change the sharding along Explicit axes with sharding.reshard",
}
"""The function to call instead, by the type of the axes that a sharding names."""


def check_axes_have_type(sharding: Sharding | None, required: AxisType, word: str) -> None:
    """Raise `ShardingError` that begins with `word` if a sharding names mesh axes of another type
    than `required`."""
    if not isinstance(sharding, NamedSharding):
        return
    spec, types = (
        sharding.spec,
        dict(zip(sharding.mesh.axis_names, sharding.mesh.axis_types, strict=True)),
    )
    for axis in (*spec.mentioned_axes(), *sorted(spec.unreduced), *sorted(spec.reduced)):
        if types[axis] is not required:
            raise ShardingError(
                with_location(
                    f"{word} has {spec}, and {axis!r} is {_with_article(types[axis].name)} axis of "
                    f"the mesh; name {required.name} axes only, and {_OTHER_AXES[required]}"
                )
            )


def _with_article(name: str) -> str:
    return f"an {name}" if name[0] in "AE" else f"a {name}"
