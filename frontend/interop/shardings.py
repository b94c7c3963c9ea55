"""Conversion of JAX's meshes, partition specs and shardings."""

from typing import Any

import jax

from shardir.frontend.abstract_mesh import AbstractMesh
from shardir.frontend.annotations import constrain
from shardir.frontend.devices import devices as all_devices
from shardir.frontend.errors import ShardingError
from shardir.frontend.locations import point
from shardir.frontend.mesh import Mesh, current_mesh, make_mesh
from shardir.frontend.partition_spec import UNCONSTRAINED, PartitionSpec
from shardir.frontend.shardings import NamedSharding
from shardir.frontend.tracer import Tracer


def mesh_of(mesh: Any) -> Mesh:
    """Return the mesh of shardir for a JAX mesh.

    This is the current mesh (`with mesh:`) if it has the same axes, or the same axis names if it is
    an `AbstractMesh`; otherwise a mesh of this machine's devices with the same ids. It is an
    `AbstractMesh` if the JAX mesh is abstract or there are not enough devices.
    """
    shape = {str(name): int(size) for name, size in mesh.shape.items()}
    current = current_mesh()
    if current is None or not all(name in current.shape for name in shape):
        return _made(mesh, shape)
    fits = isinstance(current, AbstractMesh) or shape.items() <= current.shape.items()
    return current if fits else _made(mesh, shape)


def _made(mesh: Any, shape: dict[str, int]) -> Mesh:
    names, sizes = tuple(shape), tuple(shape.values())
    known = {device.id: device for device in all_devices()}
    numbers = getattr(mesh, "device_ids", None) if isinstance(mesh, jax.sharding.Mesh) else None
    if numbers is not None and all(int(i) in known for i in numbers.flat):
        import numpy as np

        chosen = np.array([known[int(i)] for i in numbers.flat], dtype=object)
        return Mesh(chosen.reshape(numbers.shape), names)
    if len(known) >= _product(sizes):
        return make_mesh(sizes, names)
    return AbstractMesh(sizes, names)


def _product(sizes: tuple[int, ...]) -> int:
    count = 1
    for size in sizes:
        count *= size
    return count


def spec_of(spec: Any) -> PartitionSpec:
    """Return the partition spec of shardir for one of JAX."""
    free = jax.sharding.PartitionSpec.UNCONSTRAINED
    return PartitionSpec(*(UNCONSTRAINED if entry is free else entry for entry in spec))


def sharding_of(sharding: Any, unconstrained: Any = ()) -> NamedSharding | None:
    """Return the sharding of shardir for one of JAX; `None` if it states nothing.

    The dimensions in `unconstrained` are unconstrained. Raise `ShardingError` for shardings over
    several devices that are not named.
    """
    if isinstance(sharding, jax.sharding.NamedSharding):
        if sharding.mesh.empty:
            return None
        spec = spec_of(sharding.spec)
        if unconstrained:
            last = max(max(unconstrained) + 1, len(spec))
            entries = [spec[i] if i < len(spec) else None for i in range(last)]
            spec = PartitionSpec(
                *(UNCONSTRAINED if i in unconstrained else entry for i, entry in enumerate(entries))
            )
        return NamedSharding(mesh_of(sharding.mesh), spec)
    if sharding is None or not isinstance(sharding, jax.sharding.Sharding):
        return None  # JAX represents an unspecified sharding in this way.
    if len(sharding.device_set) == 1:
        return None
    raise ShardingError(
        point(
            f"{sharding} of JAX is not a NamedSharding, which is the only supported kind; make it "
            "one, over a mesh with named axes"
        )
    )


def constrained(value: Tracer, sharding: Any, unconstrained: Any = ()) -> Tracer:
    """Constrain a value to a JAX sharding."""
    found = sharding_of(sharding, unconstrained)
    return value if found is None else constrain(value, found)


def typed(value: Tracer, sharding: Any) -> Tracer:
    """Constrain a value to a sharding that is part of its type in JAX: that of an explicit mesh.

    Such a sharding does not constrain the other mesh axes, which the compiler may use.
    """
    if not isinstance(sharding, jax.sharding.NamedSharding):
        return value
    explicit = jax.sharding.AxisType.Explicit
    return constrained(value, sharding) if explicit in sharding.mesh.axis_types else value
