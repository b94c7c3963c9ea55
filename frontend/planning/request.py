"""The parts of planning requests that `plan` and `AUTO` share."""

from collections.abc import Sequence

from shardir.display.byte_sizes import parse_bytes
from shardir.errors import MachineError
from shardir.frontend.errors import ArgumentError
from shardir.frontend.shardings.mesh import Mesh
from shardir.frontend.shardings.partition_spec import UNCONSTRAINED, PartitionSpec
from shardir.frontend.shardings.sharding import NamedSharding
from shardir.frontend.source_locations import with_location
from shardir.ir.mesh import Mesh as MeshAxes
from shardir.ir.module import Module
from shardir.passes.planning.problem import PlanningError
from shardir.passes.planning.programs.assignment import DimAxes, find_problem
from shardir.passes.simulation import MachineModel


class StatedShardingError(ArgumentError, PlanningError):
    """The sharding of an argument is one that a plan on this mesh cannot have."""


def planned_mesh(module: Module, mesh: Mesh, word: str) -> MeshAxes:
    """Return the mesh of a program that is planned by the public function `word`; raise
    `ArgumentError` if the program has shardings on a mesh with other axes."""
    axes = tuple(mesh.shape.items())
    if not module.meshes:
        ids = mesh.device_ids
        return MeshAxes("mesh", axes, None if ids == tuple(range(mesh.size)) else ids)
    if module.meshes[0].axes != axes:
        raise ArgumentError(
            with_location(
                f"the function of {word} has shardings on a mesh with the axes "
                f"{dict(module.meshes[0].axes)}, and the mesh of {word} has {dict(axes)}; use "
                "one mesh"
            )
        )
    return module.meshes[0]


def memory_limit(memory: int | str | None, machine: MachineModel | None) -> int | None:
    """Return the limit in bytes: the given one, or the capacity of a device of the machine."""
    if memory is not None:
        return parse_bytes(memory)
    try:
        return None if machine is None else machine.memory_bytes
    except MachineError:  # The description states no capacity, so that nothing limits.
        return None


def stated_axes(sharding: object, rank: int, mesh: Mesh, word: str) -> DimAxes | None:
    """Return the axes of each dimension of an argument, `None` without a sharding on a mesh."""
    if not isinstance(sharding, NamedSharding):
        return None
    if dict(sharding.mesh.shape) != dict(mesh.shape):
        raise ArgumentError(
            with_location(
                f"an argument of {word} is sharded on a mesh with the axes "
                f"{dict(sharding.mesh.shape)}, and the mesh of {word} has {dict(mesh.shape)}; use "
                "one mesh"
            )
        )
    dims = [sharding.spec.axes(dim) for dim in range(rank)]
    return tuple(() if dim is UNCONSTRAINED else dim for dim in dims)


def spec_of_axes(axes: DimAxes) -> PartitionSpec:
    """Return the spec of the axes of each dimension, without trailing unsharded dimensions."""
    entries: Sequence[tuple[str, ...] | None] = [dim or None for dim in axes]
    while entries and entries[-1] is None:
        entries = entries[:-1]
    return PartitionSpec(*entries)


def check_stated_axes(
    stated: Sequence[DimAxes | None], module: Module, mesh: MeshAxes, word: str, *, pads: bool
) -> None:
    """Raise `StatedShardingError` for axes of arguments that a plan cannot have; with `pads`,
    shards may be uneven."""
    for axes_of_dims, param in zip(stated, module.main.body.params, strict=False):
        problem = axes_of_dims and find_problem(axes_of_dims, param.type.shape, mesh, pads=pads)
        if problem:
            raise StatedShardingError(
                with_location(f"the sharding of the argument %{param.name} of {word} {problem}")
            )
