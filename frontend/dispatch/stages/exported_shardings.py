"""The shardings of the arguments and results of a program in StableHLO text, on a mesh."""

from collections.abc import Iterable

from shardir.errors import count_noun
from shardir.frontend.errors import ShardingError
from shardir.frontend.quoting import brief
from shardir.frontend.shardings.common_mesh import express_spec, to_sub_axis
from shardir.frontend.shardings.mesh import Mesh
from shardir.frontend.shardings.sharding import NamedSharding
from shardir.frontend.source_locations import with_location
from shardir.ir.module import Module
from shardir.ir.sharding import Sharding

UserShardings = tuple[NamedSharding | None, ...]


def argument_shardings(module: Module, mesh: Mesh) -> UserShardings:
    """Return the shardings of the arguments on `mesh`, `None` for those that have none."""
    return _place(module, (each.sharding for each in module.main.body.params), mesh)


def result_shardings(module: Module, mesh: Mesh) -> UserShardings:
    """Return the shardings of the results on `mesh`, `None` for those that have none."""
    return _place(module, module.main.result_shardings, mesh)


def _place(module: Module, shardings: Iterable[Sharding | None], mesh: Mesh) -> UserShardings:
    """Return shardings of a module on `mesh`, whose axes may differ from those of the module.

    Raise `ShardingError` if the mesh has another number of devices, or if a dimension is sharded
    along a part of an axis of the mesh.
    """
    if not isinstance(mesh, Mesh):
        raise ShardingError(
            with_location(
                f"the shardings are stated on a Mesh, got {brief(mesh)}; make one with make_mesh"
            )
        )
    axes = module.meshes[0].axes if module.meshes else ()
    if module.meshes and mesh.size != module.meshes[0].size:
        raise ShardingError(
            with_location(
                f"the program was exported for {count_noun(module.meshes[0].size, 'device')}, and "
                f"{mesh} has {mesh.size}; pass a mesh of as many devices"
            )
        )
    found: list[NamedSharding | None] = []
    for sharding in shardings:
        if sharding is None:
            found.append(None)
            continue
        parts = [tuple(to_sub_axis(part, axes) for part in dim) for dim in sharding.axes]
        spec = express_spec(parts, mesh)
        if spec is None:
            raise ShardingError(
                with_location(
                    f"the axes of {mesh} cannot state a sharding of the program; pass a mesh with "
                    f"the axes {', '.join(f'{name}={size}' for name, size in axes)}"
                )
            )
        found.append(NamedSharding(mesh, spec))
    return tuple(found)
