"""The mesh of a lowered program, in the terms of the user and of the IR."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from shardir.frontend.shardings.common_mesh import (
    MeshAxes,
    express_on_axes,
    express_request,
    spec_on_mesh,
)
from shardir.frontend.shardings.devices import Device
from shardir.frontend.shardings.mesh import AbstractMesh, Mesh
from shardir.frontend.shardings.partition_spec import Unconstrained
from shardir.frontend.shardings.sharding import NamedSharding, Sharding as UserSharding
from shardir.ir.sharding import Axes, Sharding


@dataclass(frozen=True)
class ProgramMesh:
    """A program on `axes` of the IR, and the `mesh` of the user's shardings in it."""

    axes: MeshAxes
    mesh: Mesh

    @classmethod
    def of(
        cls, axes: MeshAxes, devices: tuple[Device, ...], seen: Sequence[UserSharding]
    ) -> "ProgramMesh":
        """Return the mesh of a program with the user's shardings `seen`; without a `NamedSharding`
        it has the axes of the IR."""
        meshes = [sharding.mesh for sharding in seen if isinstance(sharding, NamedSharding)]
        if meshes:
            return cls(axes, meshes[0])
        placed = np.empty(len(devices), object)
        placed[:] = devices
        names, sizes = zip(*axes, strict=True)
        return cls(axes, Mesh(placed.reshape(sizes), names))

    def prefer(self, mesh: Mesh | None) -> "ProgramMesh":
        """Return the same program with another mesh, if that mesh has the program's devices."""
        if mesh is None or isinstance(mesh, AbstractMesh) or isinstance(self.mesh, AbstractMesh):
            return self
        same = mesh.device_assignment == self.mesh.device_assignment
        return replace(self, mesh=mesh) if same else self

    def to_user(self, sharding: Sharding | None) -> NamedSharding | None:
        """Return a sharding of the IR on the user's mesh.

        Dimensions that are sharded along parts of an axis of that mesh are unsharded.
        """
        if sharding is None:
            return None
        return NamedSharding(self.mesh, spec_on_mesh(sharding.axes, self.axes, self.mesh))

    def to_ir(self, sharding: UserSharding, rank: int) -> Sharding:
        """Return a sharding of the user on the axes of the IR."""
        return express_on_axes(sharding, rank, self.axes)

    def resolve(self, sharding: UserSharding, rank: int) -> tuple[Axes | Unconstrained, ...]:
        """Return the axes of each dimension of a sharding of the user, then the unreduced and the
        replicated ones."""
        return express_request(sharding, rank, self.axes)
