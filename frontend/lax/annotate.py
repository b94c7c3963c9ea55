"""Telling the compiler how a value is to be spread."""

from typing import Any

from shardir.frontend import tree
from shardir.frontend.annotations import constrain
from shardir.frontend.errors import ArgumentError, ShardingError
from shardir.frontend.locations import point
from shardir.frontend.mesh import Mesh, current_mesh
from shardir.frontend.operands import as_tracer
from shardir.frontend.partition_spec import PartitionSpec
from shardir.frontend.placing import device_put
from shardir.frontend.shardings import NamedSharding, Sharding
from shardir.frontend.trace import current


def with_sharding_constraint(x: Any, shardings: Any) -> Any:
    """The same values, spread as `shardings` says from here on.

    `x` may be a container; `shardings` is one sharding for all of it, or a container of shardings
    with the same beginning. A `PartitionSpec` refers to the mesh of the `with mesh:` around the
    call. Dimensions need not divide inside `jit`; outside of `jit` this is `device_put`.
    """
    placed = tree.map(_sharding, shardings, is_leaf=_is_leaf)
    if current() is None:
        return device_put(x, placed)
    if isinstance(placed, Sharding):
        return tree.map(lambda leaf: constrain(as_tracer(leaf), placed), x)
    leaves, structure = tree.flatten(placed, is_leaf=_is_leaf)
    try:
        parts = structure.flatten_up_to(x)
    except ValueError:
        raise ArgumentError(
            point(
                f"the containers of shardings do not begin like those of x: {structure} and "
                f"{tree.structure(x)}"
            )
        ) from None
    done = [
        tree.map(lambda leaf, s=sharding: constrain(as_tracer(leaf), s), part)
        for part, sharding in zip(parts, leaves, strict=True)
    ]
    return tree.unflatten(structure, done)


def _is_leaf(x: Any) -> bool:
    return isinstance(x, (Sharding, PartitionSpec))


def _sharding(x: Any) -> Sharding:
    if isinstance(x, Sharding):
        return x
    if isinstance(x, PartitionSpec):
        mesh: Mesh | None = current_mesh()
        if mesh is None:
            raise ShardingError(
                point(
                    f"{x} needs a mesh to refer to; give NamedSharding(mesh, {x}), "
                    "or call it inside `with mesh:`"
                )
            )
        return NamedSharding(mesh, x)
    raise ShardingError(point(f"a sharding is wanted, got {x!r} of type {type(x).__name__}"))
