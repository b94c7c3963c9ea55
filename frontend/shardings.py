"""Shardings: which part of an array lives on which device, as a user says it.

Every sharding is an ordered list of devices and, for a value of some rank, the digits that cut
each dimension (see digits.py). All questions are answered from these two, so the classes differ
only in how a user writes and reads them. PositionalSharding has a file of its own.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import cached_property
from typing import Any, final

from shardir.frontend.devices import Device
from shardir.frontend.digits import Digit, Digits, merge, pieces, read
from shardir.frontend.errors import ArgumentError, IndivisibleError, ShardingError
from shardir.frontend.locations import pointed
from shardir.frontend.mesh import Mesh
from shardir.frontend.partition_spec import UNCONSTRAINED, PartitionSpec, Unconstrained
from shardir.frontend.processes import here

Index = tuple[slice, ...]
Cut = Digits | Unconstrained


def _rank(given: Any) -> int:
    from shardir.frontend.amounts import MOST_DIMENSIONS, whole_of  # which imports this file

    return whole_of("ndim of is_equivalent_to", given, 0, MOST_DIMENSIONS)


def _shape(given: Any) -> tuple[int, ...]:
    from shardir.frontend.numpy.axes import shape_of  # which imports this file

    return shape_of(given)


class Sharding(ABC):
    """Where the parts of an array live.

    Subclasses say `device_assignment` and `digits`; everything else follows.
    """

    @property
    @abstractmethod
    def device_assignment(self) -> tuple[Device, ...]:
        """The devices, in the order in which `digits` number them."""

    @abstractmethod
    def digits(self, rank: int) -> tuple[Cut, ...]:
        """For each dimension of a value of `rank` the digits that cut it, major to minor.

        Raises `ShardingError` when values of this rank cannot have this sharding.
        """

    @property
    @abstractmethod
    def natural_rank(self) -> int:
        """The rank of the values it was written for: the number of dimensions it speaks of."""

    @abstractmethod
    def describe_cut(self, dimension: int) -> str:
        """What cuts this dimension, in the words of whoever made the sharding."""

    def check_compatible_aval(self, shape: Sequence[int]) -> None:
        """Raises `ShardingError` when arrays of `shape` cannot have this sharding."""
        self.digits(len(shape))

    def __setattr__(self, name: str, value: object) -> None:
        kind = type(self).__name__
        raise ShardingError(f"a {kind} is frozen, and {name!r} cannot be set; make another one")

    @cached_property
    def is_fully_replicated(self) -> bool:
        """Whether every device holds the whole value."""
        cuts = self.digits(self.natural_rank)
        return all(cut is not UNCONSTRAINED and pieces(cut) == 1 for cut in cuts)

    @property
    def device_set(self) -> frozenset[Device]:
        return frozenset(self.device_assignment)

    @property
    def num_devices(self) -> int:
        return len(self.device_assignment)

    @property
    def addressable_devices(self) -> frozenset[Device]:
        """The devices of this process."""
        assigned = self.device_assignment
        return frozenset(assigned[place] for place in self.local_places)

    @property
    def is_fully_addressable(self) -> bool:
        """Whether this process has all of its devices."""
        return len(self.local_places) == self.num_devices

    @cached_property
    def local_places(self) -> tuple[int, ...]:
        """Which of its devices, counted in their order, are this process's."""
        there = here()
        return tuple(
            place
            for place, device in enumerate(self.device_assignment)
            if device.process_index == there.index
        )

    def cuts(self, rank: int) -> tuple[Digits, ...]:
        """`digits` when nothing is left to the compiler; otherwise a `ShardingError`."""
        cuts: list[Digits] = []
        for dimension, cut in enumerate(self.digits(rank)):
            if cut is UNCONSTRAINED:
                raise ShardingError(
                    f"dimension {dimension} of {self} is unconstrained, so nobody knows yet where "
                    "its parts live; use it in with_sharding_constraint, or name what cuts it"
                )
            cuts.append(cut)
        return tuple(cuts)

    @pointed
    def shard_shape(self, global_shape: Sequence[int]) -> tuple[int, ...]:
        """The shape of the part that one device holds of an array of `global_shape`.

        Raises `IndivisibleError` when a dimension does not divide.
        """
        shape = _shape(global_shape)
        self.check_divides(shape, "or leave it whole")
        return self.stored_shape(shape)

    def check_divides(self, global_shape: Sequence[int], remedy: str) -> None:
        """Raises `IndivisibleError` when a dimension does not divide; `remedy` ends its words."""
        shape = tuple(global_shape)
        for dimension, (size, cut) in enumerate(zip(shape, self.cuts(len(shape)), strict=True)):
            count = pieces(cut)
            if size % count:
                raise IndivisibleError(
                    f"dimension {dimension} of shape {shape} has size {size}, which is not "
                    f"divisible by {count}: it is cut {self.describe_cut(dimension)}; "
                    f"pad it to {-(-size // count) * count}, {remedy}"
                )

    def divides(self, global_shape: Sequence[int]) -> bool:
        """Whether it cuts every dimension of an array of `global_shape` into even pieces."""
        shape = tuple(global_shape)
        return not any(
            cut is not UNCONSTRAINED and size % pieces(cut)
            for size, cut in zip(shape, self.digits(len(shape)), strict=True)
        )

    def stored_shape(self, global_shape: Sequence[int]) -> tuple[int, ...]:
        """The shape in which a device stores its part: what does not divide is rounded up."""
        shape = tuple(global_shape)
        cuts = self.cuts(len(shape))
        return tuple(-(-size // pieces(cut)) for size, cut in zip(shape, cuts, strict=True))

    def shard_positions(self, rank: int) -> tuple[tuple[int, ...], ...]:
        """For each device in order: where its part lies in the grid of parts."""
        cuts = self.cuts(rank)
        return tuple(
            tuple(read(cut, position) for cut in cuts) for position in range(self.num_devices)
        )

    def devices_indices_map(self, global_shape: Sequence[int]) -> dict[Device, Index]:
        """Which part of an array of `global_shape` each device holds, in order of the devices.

        A dimension that is not cut is `slice(None)`. Raises `IndivisibleError` when a dimension
        does not divide.
        """
        shape = _shape(global_shape)
        self.shard_shape(shape)
        return self.stored_indices_map(shape)

    def stored_indices_map(self, global_shape: Sequence[int]) -> dict[Device, Index]:
        """`devices_indices_map`, but where a dimension does not divide, the last parts are shorter
        than the others, or empty."""
        shape = tuple(global_shape)
        local = self.stored_shape(shape)
        counts = [pieces(cut) for cut in self.cuts(len(shape))]
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

    def addressable_devices_indices_map(self, global_shape: Sequence[int]) -> dict[Device, Index]:
        """`devices_indices_map` for the devices of this process."""
        indices = list(self.devices_indices_map(global_shape).items())
        return dict(indices[place] for place in self.local_places)

    def is_equivalent_to(self, other: "Sharding", ndim: int) -> bool:
        """Whether both put the same parts of a value of rank `ndim` on the same devices."""
        if not isinstance(other, Sharding):
            raise ShardingError(f"is_equivalent_to takes a sharding, got {other!r}")
        ndim = _rank(ndim)
        mine, theirs = self.digits(ndim), other.digits(ndim)
        if self.device_assignment == other.device_assignment:
            return _canonical(mine) == _canonical(theirs)
        return self._holdings(mine) == other._holdings(theirs)

    def _holdings(self, cuts: tuple[Cut, ...]) -> list[object]:
        """Per dimension which piece each device holds, and of how many."""
        return [
            UNCONSTRAINED
            if cut is UNCONSTRAINED
            else {d: (read(cut, i), pieces(cut)) for i, d in enumerate(self.device_assignment)}
            for cut in cuts
        ]


def _canonical(cuts: tuple[Cut, ...]) -> list[Cut]:
    return [UNCONSTRAINED if cut is UNCONSTRAINED else merge(cut) for cut in cuts]


@final
class SingleDeviceSharding(Sharding):
    """Everything on one device."""

    device: Device

    def __init__(self, device: Device) -> None:
        if not isinstance(device, Device):
            raise ShardingError(
                f"a SingleDeviceSharding needs a device, got {device!r}; take one from devices()"
            )
        self.__dict__["device"] = device

    @property
    def device_assignment(self) -> tuple[Device, ...]:
        return (self.device,)

    def digits(self, rank: int) -> tuple[Cut, ...]:
        return ((),) * rank

    @property
    def natural_rank(self) -> int:
        return 0

    def describe_cut(self, dimension: int) -> str:
        return "nowhere"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, SingleDeviceSharding):
            return NotImplemented
        return self.device is other.device

    def __hash__(self) -> int:
        return hash(self.device)

    def __repr__(self) -> str:
        return f"SingleDeviceSharding(device={self.device!r})"


@final
class NamedSharding(Sharding):
    """Dimensions cut over the named axes of a mesh; axes not mentioned replicate.

    `NamedSharding(mesh, P("data", None))`. Equal when mesh and spec are; use `is_equivalent_to`
    to ask whether two mean the same. Raises `ShardingError` when the spec names an axis that the
    mesh lacks, or one axis twice.
    """

    mesh: Mesh
    spec: PartitionSpec

    @pointed
    def __init__(self, mesh: Mesh, spec: PartitionSpec) -> None:
        if not isinstance(mesh, Mesh):
            raise ShardingError(
                f"a NamedSharding needs a Mesh, got {mesh!r}; make one with make_mesh"
            )
        if not isinstance(spec, PartitionSpec):
            raise ArgumentError(
                f"a NamedSharding needs a PartitionSpec, got {spec!r}; "
                "write NamedSharding(mesh, PartitionSpec(...))"
            )
        seen: dict[str, None] = {}
        for axis in spec.mentioned():
            if axis not in mesh.axis_names:
                has = ", ".join(map(repr, mesh.axis_names)) or "none"
                raise ShardingError(
                    f"{spec} cuts over {axis!r}, which is no axis of the mesh; its axes are {has}"
                )
            if axis in seen:
                raise ShardingError(
                    f"{spec} cuts over {axis!r} twice; an axis can cut a value only once"
                )
            seen[axis] = None
        self.__dict__.update(mesh=mesh, spec=spec)

    @property
    def device_assignment(self) -> tuple[Device, ...]:
        return self.mesh.device_assignment

    def digits(self, rank: int) -> tuple[Cut, ...]:
        if len(self.spec) > rank:
            raise ShardingError(
                f"{self.spec} has {len(self.spec)} entries and the value has rank {rank}; "
                "use a spec with an entry for each dimension at most"
            )
        return tuple(self._cut(dimension) for dimension in range(rank))

    def _cut(self, dimension: int) -> Cut:
        axes = self.spec.axes(dimension)
        if axes is UNCONSTRAINED:
            return UNCONSTRAINED
        return tuple(Digit(self.mesh.strides[axis], self.mesh.shape[axis]) for axis in axes)

    @property
    def natural_rank(self) -> int:
        return len(self.spec)

    def describe_cut(self, dimension: int) -> str:
        axes = self.spec.axes(dimension)
        if axes is UNCONSTRAINED:
            return "as the compiler likes"
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
        return f"NamedSharding(mesh={self.mesh!r}, spec={self.spec})"
