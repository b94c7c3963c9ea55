"""Shardings: how each dimension of a tensor is sharded along mesh axes.

Text of a dimension: `64@data` is sharded over `data`, `64@(data, model)` over both (major to
minor), `64@-` is closed and unsharded, `64` is open without axes, and a trailing `?` leaves the
dimension open to more axes; `p1` after it is a priority. Text after the brackets:
`replicated(model)` prevents propagation from using `model` in any dimension of the tensor,
`unreduced(model)` states that the tensor is the sum over `model` of the devices' values, and `on
@other` names a mesh other than the module's first. The representation is that of OpenXLA Shardy
(docs/sharding_representation.md there).

An axis of size n can be used in parts: seen as a reshape to [pre, size, n / (pre * size)], the
middle part is the sub-axis `data:(pre)size`. The full axis is the sub-axis (1)n.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import Self

from shardir.errors import suggest_name
from shardir.ir.cached_hash import CachedHash, cache_hash
from shardir.ir.mesh import Mesh


@cache_hash
@dataclass(frozen=True, slots=True, order=True)
class Axis(CachedHash):
    """A mesh axis or a sub-axis: `size` positions with the stride n / (pre * size)."""

    name: str
    pre: int
    size: int

    @classmethod
    def full(cls, name: str, mesh: Mesh) -> Self:
        return cls(name, 1, mesh.sizes[name])

    @property
    def next(self) -> int:
        """The `pre` of the sub-axis that follows this one."""
        return self.pre * self.size

    def is_full(self, mesh: Mesh) -> bool:
        return self.pre == 1 and self.size == mesh.sizes[self.name]

    def overlaps(self, other: "Axis") -> bool:
        return self.name == other.name and self.pre < other.next and other.pre < self.next

    def contains(self, other: "Axis") -> bool:
        """Return whether `other` is a part of this axis: both begin and end at divisors."""
        return self.name == other.name and other.pre % self.pre == 0 and self.next % other.next == 0

    def stride(self, mesh: Mesh) -> int:
        """Return the stride along the axis in the row-major order of devices."""
        return mesh.strides[self.name] * (mesh.sizes[self.name] // self.next)

    def __str__(self) -> str:
        return f"{self.name}:({self.pre}){self.size}"


def missing_axis_fault(name: str, mesh: Mesh) -> str | None:
    """Return why a mesh has no axis of this name; `None` if it has one."""
    if name in mesh.sizes:
        return None
    hint = suggest_name(name, mesh.sizes) or f"it has {', '.join(mesh.sizes) or 'none'}"
    return f"mesh @{mesh.name} has no axis called {name!r}; {hint}"


def sub_axis_fault(axis: Axis, mesh: Mesh) -> str | None:
    """Return why an axis of the mesh has no such sub-axis; `None` if it has it."""
    size = mesh.sizes[axis.name]
    if axis.pre >= 1 and axis.size >= 1 and size % axis.next == 0:
        return None
    return (
        f"axis {axis.name!r} of size {size} has no sub-axis ({axis.pre}){axis.size}; "
        f"{axis.pre} * {axis.size} must divide {size}"
    )


def has_axis(axis: Axis, mesh: Mesh) -> bool:
    """Return whether the mesh has the axis or sub-axis."""
    return axis.name in mesh.sizes and sub_axis_fault(axis, mesh) is None


def find_mesh_of_axis(axis: Axis, meshes: Iterable[Mesh]) -> Mesh | None:
    """Return the first mesh that has the axis or sub-axis; without one, the first mesh that has an
    axis of its name.

    Axes of several meshes may have the same name and different sizes.
    """
    named = [mesh for mesh in meshes if axis.name in mesh.sizes]
    holding = (mesh for mesh in named if has_axis(axis, mesh))
    return next(holding, named[0] if named else None)


Axes = tuple[Axis, ...]


def count_positions(axes: Iterable[Axis]) -> int:
    """Return the product of the sizes of the axes."""
    return prod(axis.size for axis in axes)


@cache_hash
@dataclass(frozen=True, slots=True)
class DimSharding(CachedHash):
    """The sharding of one dimension:

    `axes` major to minor, and whether it is `open` to more axes.
    """

    axes: Axes = ()
    open: bool = True
    priority: int | None = None

    @property
    def num_shards(self) -> int:
        return count_positions(self.axes)

    def close(self) -> "DimSharding":
        if not self.open and self.priority is None:
            return self
        return DimSharding(self.axes, open=False)


OPEN_DIM = DimSharding()
REPLICATED_DIM = DimSharding(open=False)


@cache_hash
@dataclass(frozen=True, slots=True)
class Sharding(CachedHash):
    """The sharding of a tensor over the mesh named `mesh`.

    Propagation must not use the axes in `replicated`. Over the axes in `unreduced`, the devices
    hold partial values that `reduction` (add, max, min, mul) combines.
    """

    mesh: str
    dims: tuple[DimSharding, ...]
    replicated: Axes = ()
    unreduced: Axes = ()
    reduction: str = "add"

    @classmethod
    def open(cls, mesh: str, rank: int) -> Self:
        """Return the sharding in which every dimension is open and has no axes."""
        return cls(mesh, (OPEN_DIM,) * rank)

    @classmethod
    def fully_replicated(cls, mesh: str, rank: int) -> Self:
        """Return the closed sharding in which every device holds the full tensor."""
        return cls(mesh, (REPLICATED_DIM,) * rank)

    @classmethod
    def of(cls, mesh: str, axes: Iterable[Axes]) -> Self:
        """Return the closed sharding along `axes` (one tuple per dimension)."""
        return cls(mesh, tuple(DimSharding(tuple(a), open=False) for a in axes))

    @property
    def axes(self) -> tuple[Axes, ...]:
        """The axes of each dimension."""
        return tuple(dim.axes for dim in self.dims)

    @property
    def is_closed(self) -> bool:
        return not any(dim.open for dim in self.dims)

    def used_axes(self) -> Iterator[Axis]:
        """Yield every axis that shards a dimension."""
        return (axis for dim in self.dims for axis in dim.axes)

    def mentioned_axes(self) -> Iterator[Axis]:
        """Yield every axis that shards a dimension, or is replicated or unreduced."""
        yield from self.used_axes()
        yield from (*self.replicated, *self.unreduced)

    def close(self) -> "Sharding":
        """Return the same axes with all dimensions closed, without priorities and `replicated`."""
        return _close(self)

    def local_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return the shape of a local shard; sizes that are not divisible are rounded up."""
        return tuple(-(-size // dim.num_shards) for size, dim in zip(shape, self.dims, strict=True))


@lru_cache(maxsize=1 << 14)
def _close(sharding: Sharding) -> Sharding:
    dims = tuple(dim.close() for dim in sharding.dims)
    return Sharding(sharding.mesh, dims, (), sharding.unreduced, sharding.reduction)
