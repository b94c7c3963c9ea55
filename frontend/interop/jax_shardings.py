"""Conversion of JAX's meshes, partition specs, shardings, and arrays with their named shardings."""

from collections.abc import Collection

import jax
import numpy as np

from shardir.frontend.arrays.array import from_numpy
from shardir.frontend.arrays.device_transfer import device_put
from shardir.frontend.arrays.jax_keys import jax_key_dtype, jax_key_storage
from shardir.frontend.arrays.signature import ShapeDtypeStruct
from shardir.frontend.errors import ShardingError
from shardir.frontend.shardings.devices import devices as all_devices
from shardir.frontend.shardings.mesh import AbstractMesh, Mesh, current_mesh, make_mesh
from shardir.frontend.shardings.partition_spec import UNCONSTRAINED, PartitionSpec
from shardir.frontend.shardings.sharding import NamedSharding
from shardir.frontend.shardings.traced_constraints import constrain
from shardir.frontend.source_locations import with_location
from shardir.frontend.tracing.tracer import Tracer


def convert_mesh(mesh: jax.sharding.Mesh | jax.sharding.AbstractMesh) -> Mesh:
    """Return the mesh of shardir for a JAX mesh.

    This is the current mesh (`with mesh:`) if it has the same axes, or the same axis names if it is
    an `AbstractMesh`; otherwise a mesh of this machine's devices with the same ids. It is an
    `AbstractMesh` if the JAX mesh is abstract or there are not enough devices.
    """
    shape = {str(name): int(size) for name, size in mesh.shape.items()}
    current = current_mesh()
    if current is None or not all(name in current.shape for name in shape):
        return _make_mesh(mesh, shape)
    fits = isinstance(current, AbstractMesh) or shape.items() <= current.shape.items()
    return current if fits else _make_mesh(mesh, shape)


def _make_mesh(mesh: jax.sharding.Mesh | jax.sharding.AbstractMesh, shape: dict[str, int]) -> Mesh:
    names, sizes = tuple(shape), tuple(shape.values())
    known = {device.id: device for device in all_devices()}
    numbers = getattr(mesh, "device_ids", None) if isinstance(mesh, jax.sharding.Mesh) else None
    if numbers is not None and all(int(i) in known for i in numbers.flat):
        chosen = np.array([known[int(i)] for i in numbers.flat], dtype=object)
        return Mesh(chosen.reshape(numbers.shape), names)
    if len(known) >= _size_product(sizes):
        return make_mesh(sizes, names)
    return AbstractMesh(sizes, names)


def _size_product(sizes: tuple[int, ...]) -> int:
    count = 1
    for size in sizes:
        count *= size
    return count


def convert_spec(spec: jax.sharding.PartitionSpec) -> PartitionSpec:
    """Return the partition spec of shardir for one of JAX."""
    free = jax.sharding.PartitionSpec.UNCONSTRAINED
    # JAX refuses to iterate over a spec with unreduced or reduced axes.
    entries = getattr(spec, "partitions", spec)
    return PartitionSpec(
        *(UNCONSTRAINED if entry is free else entry for entry in entries),
        unreduced=getattr(spec, "unreduced", ()),
        reduced=getattr(spec, "reduced", ()),
    )


def convert_sharding(
    sharding: jax.sharding.Sharding | None, unconstrained: Collection[int] = ()
) -> NamedSharding | None:
    """Return the sharding of shardir for one of JAX; `None` if it states nothing.

    The dimensions in `unconstrained` are unconstrained. Raise `ShardingError` for shardings over
    several devices that are not named, and for memory of the host.
    """
    if (
        isinstance(sharding, jax.sharding.Sharding)
        and not isinstance(sharding, jax.sharding.NamedSharding)
        and len(sharding.device_set) > 1
    ):
        raise ShardingError(
            with_location(
                f"{sharding} of JAX is not a NamedSharding, which is the only supported kind; make "
                "it one, over a mesh with named axes"
            )
        )
    _check_memory(sharding)
    if isinstance(sharding, jax.sharding.NamedSharding):
        if sharding.mesh.empty:
            return None
        spec = convert_spec(sharding.spec)
        if unconstrained:
            last = max(max(unconstrained) + 1, len(spec))
            entries = [spec[i] if i < len(spec) else None for i in range(last)]
            spec = PartitionSpec(
                *(UNCONSTRAINED if i in unconstrained else entry for i, entry in enumerate(entries))
            )
        return NamedSharding(convert_mesh(sharding.mesh), spec)
    return None  # A single device, or JAX's object for an unspecified sharding.


def _check_memory(target: object) -> None:
    """Raise `ShardingError` for another memory than that of the devices."""
    kind = getattr(target, "memory_kind", None)
    space = getattr(jax, "memory", None)  # Older versions of JAX have no memory spaces.
    if space is not None and isinstance(target, space.Space):
        kind = "pinned_host" if target is space.Space.Host else None
    if kind in (None, "device"):
        return
    devices = target.device_set if isinstance(target, jax.sharding.Sharding) else ()
    if any(device.default_memory().kind == kind for device in devices):
        return
    raise ShardingError(
        with_location(
            f"the memory kind {kind!r} of JAX is not supported: arrays are in the memory of their "
            "devices; omit the memory kind, and select values to save by a policy that does not "
            "offload them, such as save_only_these_names"
        )
    )


def constrain_as_jax(
    value: Tracer, sharding: jax.sharding.Sharding | None, unconstrained: Collection[int] = ()
) -> Tracer:
    """Constrain a value to a JAX sharding."""
    found = convert_sharding(sharding, unconstrained)
    return value if found is None else constrain(value, found)


def constrain_to_typed_sharding(value: Tracer, sharding: object) -> Tracer:
    """Constrain a value to a sharding that is part of its type in JAX: that of an explicit mesh.

    Such a sharding does not constrain the other mesh axes, which the compiler may use.
    """
    if not isinstance(sharding, jax.sharding.NamedSharding):
        return value
    explicit = jax.sharding.AxisType.Explicit
    return constrain_as_jax(value, sharding) if explicit in sharding.mesh.axis_types else value


def convert_array(x: object) -> object:
    """Convert a JAX array; return any other object unchanged.

    An array with a named sharding over several devices keeps the sharding if enough devices exist.
    """
    if isinstance(x, jax.ShapeDtypeStruct):
        return ShapeDtypeStruct(
            x.shape, x.dtype, sharding=convert_sharding(x.sharding), weak_type=bool(x.weak_type)
        )
    if not isinstance(x, jax.Array) or isinstance(x, jax.core.Tracer):
        return x
    if (keys := jax_key_storage(x)) is not None:
        return from_numpy(keys, dtype=jax_key_dtype(x))
    values = np.asarray(x)
    if len(x.sharding.device_set) == 1:
        return values
    sharding = convert_sharding(x.sharding)
    return values if sharding is None else device_put(values, sharding)
