"""Shardings: the assignment of the shards of an array to devices, in the public interface.

A sharding is an ordered list of devices and, for a value of some rank, the sub-axes that shard each
dimension (see sub_axes.py). All properties follow from these two; the classes differ only in their
notation. PositionalSharding has a file of its own.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import cached_property
from importlib import import_module
from math import prod
from typing import Self, final

from shardir.errors import count_noun
from shardir.frontend.absent_members import WithAbsentMembers
from shardir.frontend.argument_checks import MAX_RANK, canonicalize_shape, check_integer
from shardir.frontend.argument_errors import locate_errors, with_argument_errors
from shardir.frontend.call_signatures import with_signature_errors
from shardir.frontend.distributed.processes import process_group
from shardir.frontend.errors import ArgumentError, IndivisibleError, NoMeshError, ShardingError
from shardir.frontend.quoting import brief
from shardir.frontend.shardings.devices import Device
from shardir.frontend.shardings.memory_kinds import check_memory_kind
from shardir.frontend.shardings.mesh import AbstractMesh, Mesh, current_mesh
from shardir.frontend.shardings.partition_spec import UNCONSTRAINED, PartitionSpec, Unconstrained
from shardir.frontend.shardings.sub_axes import (
    SubAxes,
    SubAxis,
    merge_sub_axes,
    num_shards,
    shard_number,
)
from shardir.frontend.source_locations import with_location

Index = tuple[slice, ...]
DimensionSharding = SubAxes | Unconstrained


def _check_rank(given: int) -> int:
    return check_integer("ndim of is_equivalent_to", given, 0, MAX_RANK)


class Sharding(WithAbsentMembers, ABC):
    """Base class of shardings.

    Subclasses define `device_assignment` and `sub_axes`, from which all other properties follow.
    """

    has_explicit_axes: bool = False
    """True if its mesh has axes of type `AxisType.Explicit`."""
    has_partial_sums: bool = False
    """True if it has unreduced axes, along which the devices hold partial sums."""

    @property
    @abstractmethod
    def device_assignment(self) -> tuple[Device, ...]:
        """The devices, in the order of the device indices of `sub_axes`."""

    @abstractmethod
    def sub_axes(self, rank: int) -> tuple[DimensionSharding, ...]:
        """Return for each dimension of a value of `rank` the sub-axes that shard it, major to
        minor.

        Raises `ShardingError` when values of this rank cannot have this sharding.
        """

    @property
    @abstractmethod
    def natural_rank(self) -> int:
        """The number of dimensions that the sharding mentions."""

    @abstractmethod
    def describe_dimension(self, dimension: int) -> str:
        """Return a description of how this dimension is sharded, in the notation of the class."""

    @with_signature_errors
    def check_compatible_aval(self, shape: Sequence[int]) -> None:
        """Raise `ShardingError` when arrays of `shape` cannot have this sharding."""
        self.sub_axes(len(shape))

    def _repr_html_(self) -> str:
        # Imported late for start-up time, and because the module imports this one.
        return str(import_module("shardir.frontend.sharding_html").sharding_html(self))

    def __setattr__(self, name: str, value: object) -> None:
        kind = type(self).__name__
        raise ShardingError(f"a {kind} is frozen, and {name!r} cannot be set; make another one")

    @property
    def memory_kind(self) -> str:
        """The memory of the arrays: "device", the memory of their devices."""
        return "device"

    @locate_errors
    def with_memory_kind(self, kind: str) -> Self:
        """Return this sharding; raises `ShardingError` unless `kind` is "device"."""
        check_memory_kind(kind)
        return self

    @cached_property
    def is_fully_replicated(self) -> bool:
        """True if every device holds the global value."""
        if self.has_partial_sums:
            return False
        dim_axes = self.sub_axes(self.natural_rank)
        return all(axes is not UNCONSTRAINED and num_shards(axes) == 1 for axes in dim_axes)

    def unreduced_sub_axes(self) -> SubAxes:
        """Return the sub-axes along which the devices hold partial sums."""
        return ()

    def partial_sum_numbers(self) -> tuple[int, ...]:
        """Return for each device in order the number of its partial sum: 0 for the first device
        along the unreduced axes."""
        unreduced = self.unreduced_sub_axes()
        return tuple(shard_number(unreduced, position) for position in range(self.num_devices))

    @property
    def device_set(self) -> frozenset[Device]:
        """The devices, of all processes."""
        return frozenset(self.device_assignment)

    @property
    def num_devices(self) -> int:
        """The number of devices, of all processes."""
        return len(self.device_assignment)

    @property
    def addressable_devices(self) -> frozenset[Device]:
        """The devices of this process."""
        assigned = self.device_assignment
        return frozenset(assigned[place] for place in self.local_positions)

    @property
    def has_addressable_devices(self) -> bool:
        """True if at least one device belongs to this process."""
        return bool(self.local_positions)

    @property
    def is_fully_addressable(self) -> bool:
        """True if all devices belong to this process."""
        return len(self.local_positions) == self.num_devices

    @cached_property
    def local_positions(self) -> tuple[int, ...]:
        """The positions of the devices of this process in the device assignment."""
        there = process_group()
        return tuple(
            place
            for place, device in enumerate(self.device_assignment)
            if device.process_index == there.index
        )

    def resolved_sub_axes(self, rank: int) -> tuple[SubAxes, ...]:
        """Return `sub_axes(rank)`; raises `ShardingError` when a dimension is unconstrained."""
        dim_axes: list[SubAxes] = []
        for dimension, axes in enumerate(self.sub_axes(rank)):
            if axes is UNCONSTRAINED:
                raise ShardingError(
                    f"dimension {dimension} of {self} is unconstrained, so the devices of its "
                    "shards are unknown; use it in with_sharding_constraint, or name mesh axes"
                )
            dim_axes.append(axes)
        return tuple(dim_axes)

    @locate_errors
    def shard_shape(self, global_shape: Sequence[int]) -> tuple[int, ...]:
        """Return the shape of the shard of each device for an array of `global_shape`.

        Raises `IndivisibleError` when the sharding does not divide a dimension evenly.
        """
        shape = canonicalize_shape(global_shape)
        self.check_divides(shape, "or replicate it")
        return self.stored_shape(shape)

    def check_divides(
        self, global_shape: Sequence[int], remedy: str, *, may_be_unconstrained: bool = False
    ) -> None:
        """Raise `IndivisibleError` when a dimension does not divide; `remedy` ends the message.

        Raises `ShardingError` when the devices hold partial sums, or a dimension is unconstrained
        unless it may be.
        """
        shape = tuple(global_shape)
        is_open = may_be_unconstrained and not self.has_partial_sums
        stated = self.sub_axes(len(shape)) if is_open else self.resolved_sub_axes(len(shape))
        for dimension, (size, axes) in enumerate(zip(shape, stated, strict=True)):
            count = 1 if axes is UNCONSTRAINED else num_shards(axes)
            if size % count:
                raise IndivisibleError(
                    f"dimension {dimension} of shape {shape} has size {size}, which is not "
                    f"divisible by {count}: it is sharded {self.describe_dimension(dimension)}; "
                    f"pad it to {-(-size // count) * count}, {remedy}"
                )

    def divides_evenly(self, global_shape: Sequence[int]) -> bool:
        """Return whether the sharding divides every dimension of `global_shape` evenly."""
        shape = tuple(global_shape)
        return not any(
            axes is not UNCONSTRAINED and size % num_shards(axes)
            for size, axes in zip(shape, self.sub_axes(len(shape)), strict=True)
        )

    def stored_shape(self, global_shape: Sequence[int]) -> tuple[int, ...]:
        """Return the shape of the buffer of each device; sizes that do not divide are rounded
        up."""
        shape = tuple(global_shape)
        dim_axes = self.resolved_sub_axes(len(shape))
        return tuple(
            -(-size // num_shards(axes)) for size, axes in zip(shape, dim_axes, strict=True)
        )

    def shard_positions(self, rank: int) -> tuple[tuple[int, ...], ...]:
        """Return for each device in order the position of its shard in the grid of shards."""
        dim_axes = self.resolved_sub_axes(rank)
        return tuple(
            tuple(shard_number(axes, position) for axes in dim_axes)
            for position in range(self.num_devices)
        )

    @with_signature_errors
    def devices_indices_map(self, global_shape: Sequence[int]) -> dict[Device, Index]:
        """Return the index of each device's shard in an array of `global_shape`, in device order.

        A dimension that is not sharded is `slice(None)`. Raises `IndivisibleError` when the
        sharding does not divide a dimension evenly.
        """
        shape = canonicalize_shape(global_shape)
        self.shard_shape(shape)
        return self.stored_indices_map(shape)

    def stored_indices_map(self, global_shape: Sequence[int]) -> dict[Device, Index]:
        """Return the same as `devices_indices_map`, also for shapes that do not divide evenly.

        There the last shards are shorter than the others, or empty.
        """
        shape = tuple(global_shape)
        local = self.stored_shape(shape)
        counts = [num_shards(axes) for axes in self.resolved_sub_axes(len(shape))]
        return {
            device: tuple(
                slice(None)
                if count == 1
                else slice(min(at * size, whole), min((at + 1) * size, whole))
                for at, size, count, whole in zip(place, local, counts, shape, strict=True)
            )
            for device, place in zip(
                self.device_assignment, self.shard_positions(len(shape)), strict=True
            )
        }

    @with_signature_errors
    def addressable_devices_indices_map(self, global_shape: Sequence[int]) -> dict[Device, Index]:
        """Return `devices_indices_map` restricted to the devices of this process."""
        indices = list(self.devices_indices_map(global_shape).items())
        return dict(indices[place] for place in self.local_positions)

    @with_signature_errors
    def is_equivalent_to(self, other: "Sharding", ndim: int) -> bool:
        """Return whether both put the same shards, or partial sums of them along the same axes, of
        a value of rank `ndim` on the same devices."""
        if not isinstance(other, Sharding):
            raise ShardingError(f"is_equivalent_to takes a sharding, got {other!r}")
        ndim = _check_rank(ndim)
        mine = (*self.sub_axes(ndim), self.unreduced_sub_axes())
        theirs = (*other.sub_axes(ndim), other.unreduced_sub_axes())
        if self.device_assignment == other.device_assignment:
            return _merge_sub_axes(mine) == _merge_sub_axes(theirs)
        return self._shards_per_device(mine) == other._shards_per_device(theirs)

    def _shards_per_device(self, dim_axes: tuple[DimensionSharding, ...]) -> list[object]:
        """Return for each dimension the shard number of each device and the number of shards."""
        return [
            UNCONSTRAINED
            if axes is UNCONSTRAINED
            else {
                d: (shard_number(axes, i), num_shards(axes))
                for i, d in enumerate(self.device_assignment)
            }
            for axes in dim_axes
        ]


def _merge_sub_axes(dim_axes: tuple[DimensionSharding, ...]) -> list[DimensionSharding]:
    return [UNCONSTRAINED if axes is UNCONSTRAINED else merge_sub_axes(axes) for axes in dim_axes]


@final
class SingleDeviceSharding(Sharding):
    """The whole array on one device."""

    device: Device
    """The device that holds the whole array."""

    @with_argument_errors
    def __init__(self, device: Device, *, memory_kind: str | None = None) -> None:
        check_memory_kind(memory_kind)
        if not isinstance(device, Device):
            raise ShardingError(
                with_location(
                    f"a SingleDeviceSharding needs a device, got {brief(device)}; take one from "
                    "devices()"
                )
            )
        self.__dict__["device"] = device

    @property
    def device_assignment(self) -> tuple[Device, ...]:
        return (self.device,)

    def sub_axes(self, rank: int) -> tuple[DimensionSharding, ...]:
        return ((),) * rank

    @property
    def natural_rank(self) -> int:
        return 0

    def describe_dimension(self, dimension: int) -> str:
        return "nowhere"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, SingleDeviceSharding):
            return NotImplemented
        return self.device is other.device

    def __hash__(self) -> int:
        return hash(self.device)

    def __repr__(self) -> str:
        return f"SingleDeviceSharding(device={self.device!r}, memory_kind={self.memory_kind})"


@final
class NamedSharding(Sharding):
    """Dimensions sharded over the named axes of a mesh; axes that are not mentioned replicate.

    `NamedSharding(mesh, P("data", None))`. Two are equal when mesh and spec are; use
    `is_equivalent_to` to test whether they describe the same placement. Raises `ShardingError` when
    the spec names an axis that the mesh lacks, or one axis twice.
    """

    mesh: Mesh
    """The mesh of the devices."""
    spec: PartitionSpec
    """The axes of the mesh that shard each dimension."""

    @locate_errors
    def __init__(self, mesh: Mesh, spec: PartitionSpec, *, memory_kind: str | None = None) -> None:
        check_memory_kind(memory_kind)
        if not isinstance(mesh, Mesh):
            raise ShardingError(
                f"a NamedSharding needs a Mesh, got {mesh!r}; make one with make_mesh"
            )
        if not isinstance(spec, PartitionSpec):
            raise ArgumentError(
                f"a NamedSharding needs a PartitionSpec, got {spec!r}; "
                "write NamedSharding(mesh, PartitionSpec(...))"
            )
        mesh.check_no_manual_axes("a NamedSharding has")
        seen: dict[str, None] = {}
        for axis in (*spec.mentioned_axes(), *sorted(spec.unreduced), *sorted(spec.reduced)):
            if axis not in mesh.axis_names:
                has = ", ".join(map(repr, mesh.axis_names)) or "none"
                raise ShardingError(
                    f"{spec} names {axis!r}, which is not an axis of the mesh; its axes are {has}"
                )
            if axis in seen:
                raise ShardingError(
                    f"{spec} names {axis!r} twice; an axis can shard a value only once"
                )
            seen[axis] = None
        self.__dict__.update(
            mesh=mesh,
            spec=spec,
            has_explicit_axes=mesh.has_explicit_axes,
            has_partial_sums=any(mesh.shape[axis] > 1 for axis in spec.unreduced),
        )

    @property
    def device_assignment(self) -> tuple[Device, ...]:
        return self.mesh.device_assignment

    def sub_axes(self, rank: int) -> tuple[DimensionSharding, ...]:
        if len(self.spec) > rank:
            raise ShardingError(
                f"{self.spec} has {count_noun(len(self.spec), 'entry', 'entries')} and the value "
                f"has rank {rank}; "
                "use a spec with an entry for each dimension at most"
            )
        return tuple(self._dimension_sub_axes(dimension) for dimension in range(rank))

    @locate_errors
    def update(
        self,
        *,
        mesh: Mesh | None = None,
        spec: PartitionSpec | Sequence[object] | None = None,
        memory_kind: str | None = None,
    ) -> "NamedSharding":
        """Return the sharding with another mesh or another spec."""
        entries = self.spec if spec is None else spec
        return NamedSharding(
            self.mesh if mesh is None else mesh,
            entries if isinstance(entries, PartitionSpec) else PartitionSpec(*entries),
            memory_kind=memory_kind,
        )

    @property
    def replicated_axes(self) -> frozenset[str]:
        """The axes of the mesh that the spec does not mention."""
        spec = self.spec
        return frozenset(self.mesh.axis_names).difference(
            spec.mentioned_axes(), spec.unreduced, spec.reduced
        )

    def check_explicit_divides(self, shape: Sequence[int]) -> None:
        """Raise `IndivisibleError` if the Explicit axes of a dimension do not divide its size."""
        explicit = set(self.mesh.explicit_axes)
        for dimension, size in enumerate(shape):
            axes = self.spec.axes(dimension)
            if axes is UNCONSTRAINED or not explicit.intersection(axes):
                continue
            count = prod(self.mesh.shape[axis] for axis in axes if axis in explicit)
            if size % count:
                raise IndivisibleError(
                    f"dimension {dimension} of shape {tuple(shape)} has size {size}, which is not "
                    f"divisible by {count}: it is sharded {self.describe_dimension(dimension)}, "
                    "which is Explicit"
                )

    def unreduced_sub_axes(self) -> SubAxes:
        return tuple(
            SubAxis(self.mesh.strides[axis], self.mesh.shape[axis])
            for axis in sorted(self.spec.unreduced, key=self.mesh.axis_names.index)
        )

    def replicated_sub_axes(self) -> SubAxes:
        """Return the Explicit sub-axes that shard no dimension, on a mesh that has Auto axes, too.

        The compiler does not shard an unconstrained dimension along these.
        """
        explicit = self.mesh.explicit_axes if self.mesh.auto_axes else ()
        used = {*self.spec.mentioned_axes(), *self.spec.unreduced}
        return tuple(
            SubAxis(self.mesh.strides[axis], self.mesh.shape[axis])
            for axis in explicit
            if axis not in used
        )

    def _dimension_sub_axes(self, dimension: int) -> DimensionSharding:
        axes = self.spec.axes(dimension)
        if axes is UNCONSTRAINED:
            return UNCONSTRAINED
        return tuple(SubAxis(self.mesh.strides[axis], self.mesh.shape[axis]) for axis in axes)

    @property
    def natural_rank(self) -> int:
        return len(self.spec)

    def describe_dimension(self, dimension: int) -> str:
        axes = self.spec.axes(dimension)
        if axes is UNCONSTRAINED:
            return "by the compiler"
        named = " and ".join(f"{axis!r} of size {self.mesh.shape[axis]}" for axis in axes)
        return (
            f"over the mesh {'axis' if len(axes) == 1 else 'axes'} {named}" if axes else "nowhere"
        )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, NamedSharding):
            return NotImplemented
        return self is other or (self.mesh == other.mesh and self.spec == other.spec)

    def __hash__(self) -> int:
        return hash((self.mesh, self.spec))

    def __repr__(self) -> str:
        # The text of JAX, except that a mesh states the order of its devices.
        memory = "" if isinstance(self.mesh, AbstractMesh) else f", memory_kind={self.memory_kind}"
        return f"NamedSharding(mesh={self.mesh}, spec={self.spec}{memory})"


@with_argument_errors
def make_single_device_sharding(
    device: Device, *, memory_kind: str | None = None
) -> SingleDeviceSharding:
    """Return the sharding of whole arrays on one device."""
    return SingleDeviceSharding(device, memory_kind=memory_kind)


def resolve_spec(spec: PartitionSpec, word: str) -> NamedSharding:
    """Return the sharding of a spec on the entered mesh.

    Raises `NoMeshError` that begins with `word` if no mesh is entered.
    """
    mesh = current_mesh()
    if mesh is None:
        raise NoMeshError(
            with_location(
                f"{word} has {spec}, which names no devices; "
                f"write NamedSharding(mesh, {spec}), or call it inside `with mesh:`"
            )
        )
    return NamedSharding(mesh, spec)
