"""Meshes and shardings of JAX as ours: axes by their names and sizes, devices by their numbers."""

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
    """Our mesh for a mesh of JAX's.

    The one entered by `with mesh:` where it has the same axes, or the same names if it is an
    `AbstractMesh`, which stands for whatever the program would run on; else one of this machine's
    devices by their numbers, or an `AbstractMesh` when JAX's is one too or there are not as many.
    """
    shape = {str(name): int(size) for name, size in mesh.shape.items()}
    around = current_mesh()
    if around is None or not all(name in around.shape for name in shape):
        return _made(mesh, shape)
    fits = isinstance(around, AbstractMesh) or shape.items() <= around.shape.items()
    return around if fits else _made(mesh, shape)


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
    """Our partition spec for one of JAX's."""
    free = jax.sharding.PartitionSpec.UNCONSTRAINED
    return PartitionSpec(*(UNCONSTRAINED if entry is free else entry for entry in spec))


def sharding_of(sharding: Any, unconstrained: Any = ()) -> NamedSharding | None:
    """Our sharding for one of JAX's; `None` where it says nothing.

    The dimensions in `unconstrained` are free. Raises `ShardingError` for other kinds than named
    ones on several devices.
    """
    if isinstance(sharding, jax.sharding.NamedSharding):
        if sharding.mesh.empty:
            return None
        spec = spec_of(sharding.spec)
        if unconstrained:
            last = max(max(unconstrained) + 1, len(spec))
            cuts = [spec[i] if i < len(spec) else None for i in range(last)]
            spec = PartitionSpec(
                *(UNCONSTRAINED if i in unconstrained else cut for i, cut in enumerate(cuts))
            )
        return NamedSharding(mesh_of(sharding.mesh), spec)
    if sharding is None or not isinstance(sharding, jax.sharding.Sharding):
        return None  # JAX's words for what nobody has said.
    if len(sharding.device_set) == 1:
        return None
    raise ShardingError(
        point(
            f"{sharding} of JAX is no NamedSharding, and only those are known here; make it one, "
            "over a mesh with named axes"
        )
    )


def constrained(value: Tracer, sharding: Any, unconstrained: Any = ()) -> Tracer:
    """The value, held to a sharding of JAX's."""
    found = sharding_of(sharding, unconstrained)
    return value if found is None else constrain(value, found)


def typed(value: Tracer, sharding: Any) -> Tracer:
    """The value, held to a sharding that is part of its type in JAX: that of an explicit mesh.

    Along the other axes of a mesh, which the compiler is free to use, such a sharding says nothing.
    """
    if not isinstance(sharding, jax.sharding.NamedSharding):
        return value
    explicit = jax.sharding.AxisType.Explicit
    return constrained(value, sharding) if explicit in sharding.mesh.axis_types else value
