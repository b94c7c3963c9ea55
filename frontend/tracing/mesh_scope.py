"""The mesh on which values of a traced program have types, and the axes that these types contain.

A program has one such scope, and each block of `use_abstract_mesh` with other axes has its own. All
arrange the same devices, in the same order.
"""

from dataclasses import dataclass, field

from shardir.frontend.shardings.axis_type import AxisType
from shardir.frontend.shardings.common_mesh import express_spec
from shardir.frontend.shardings.mesh import AbstractMesh, Mesh
from shardir.frontend.shardings.partition_spec import UNCONSTRAINED, PartitionSpec
from shardir.frontend.shardings.sharding import NamedSharding
from shardir.frontend.tracing.sharding_type import ShardingType, replicated_type


@dataclass(eq=False, slots=True)
class MeshScope:
    """A mesh, and the axes along which the types of values contain shardings."""

    mesh: Mesh
    explicit_axes: frozenset[str]
    """The axes that types contain, except in blocks where they are Auto."""
    auto: frozenset[str] = frozenset()
    """The axes that the compiler determines at this line."""
    _named: dict[tuple[ShardingType, frozenset[str]], NamedSharding] = field(default_factory=dict)

    @property
    def is_auto(self) -> bool:
        """True if the compiler determines shardings along all axes at this line."""
        return self.explicit_axes <= self.auto

    def has_axes_of(self, mesh: Mesh) -> bool:
        """Return whether `mesh` has the same axes."""
        return self.mesh.shape_tuple == mesh.shape_tuple

    def has_devices_of(self, mesh: Mesh) -> bool:
        """Return whether `mesh` has the same devices in the same order, or states their number."""
        if isinstance(mesh, AbstractMesh) or isinstance(self.mesh, AbstractMesh):
            return mesh.size == self.mesh.size
        return mesh.device_assignment == self.mesh.device_assignment

    def without_auto_axes(self, type: ShardingType) -> ShardingType:
        """Return a type without the axes that the compiler determines."""
        if not self.auto:
            return type
        dims = tuple(tuple(a for a in axes if a not in self.auto) for axes in type.dims)
        return ShardingType(dims, type.unreduced - self.auto, type.reduced - self.auto)

    def from_sharding(self, sharding: NamedSharding, rank: int) -> ShardingType:
        """Return the type that a public sharding on this mesh states."""
        spec, explicit, dims = sharding.spec, self.explicit_axes, []
        for dim in range(rank):
            axes = spec.axes(dim)
            dims.append(
                () if axes is UNCONSTRAINED else tuple(axis for axis in axes if axis in explicit)
            )
        return ShardingType(tuple(dims), spec.unreduced & explicit, spec.reduced & explicit)

    def named_sharding(self, type: ShardingType) -> NamedSharding:
        """Return the public form of a type, on a mesh whose other axes are Auto."""
        now = self.explicit_axes - self.auto
        known = self._named.get((type, now))
        if known is None:
            spec = PartitionSpec(*type.dims, unreduced=type.unreduced, reduced=type.reduced)
            kinds = {
                name: AxisType.Explicit if name in now else AxisType.Auto
                for name in self.mesh.axis_names
            }
            known = NamedSharding(self.mesh.update_axis_types(kinds), spec)
            self._named[type, now] = known
        return known

    def convert(self, type: ShardingType, source: "MeshScope") -> ShardingType:
        """Return a type of the scope `source` in the axes of this one.

        A value whose sharding needs a part of an axis, or has partial sums, is replicated.
        """
        rank = len(type.dims)
        sharding = source.named_sharding(type)
        dims = [axes for axes in sharding.sub_axes(rank) if axes is not UNCONSTRAINED]
        spec = express_spec(dims, self.mesh)
        if spec is None or type.unreduced or type.reduced:
            return replicated_type(rank)
        return self.from_sharding(NamedSharding(self.mesh, spec), rank)
