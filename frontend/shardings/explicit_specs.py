"""Specs of shardings on meshes with axes of type `AxisType.Explicit`, which are parts of types."""

from typing import TypeVar

from shardir.frontend.shardings.partition_spec import UNCONSTRAINED, PartitionSpec
from shardir.frontend.shardings.sharding import NamedSharding, Sharding

Requested = TypeVar("Requested", bound=Sharding | None)


def complete_spec(sharding: Requested, rank: int) -> Requested | NamedSharding:
    """Return a sharding on a mesh with Explicit axes with an entry for each of `rank` dimensions.

    Entries beyond these are omitted if they are `None`, as in JAX. Other shardings are returned
    unchanged.
    """
    if not isinstance(sharding, NamedSharding) or not sharding.has_explicit_axes:
        return sharding
    spec = sharding.spec
    if len(spec) > rank and not any(spec[rank:]):
        spec = spec.with_entries(*spec[:rank])
    return NamedSharding(sharding.mesh, spec + (None,) * max(rank - len(spec), 0))


def open_auto_axes(sharding: Sharding) -> Sharding:
    """Return a sharding with unconstrained dimensions in place of unsharded ones, if its mesh has
    Explicit and Auto axes: a program states the Explicit ones only.
    """
    if not isinstance(sharding, NamedSharding) or not sharding.has_explicit_axes:
        return sharding
    if sharding.mesh.are_all_axes_explicit or sharding.has_partial_sums:
        return sharding
    return NamedSharding(
        sharding.mesh, PartitionSpec(*(entry or UNCONSTRAINED for entry in sharding.spec))
    )
