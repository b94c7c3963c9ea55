"""Shardings: how each dimension of a tensor is cut along mesh axes.

Text of a dimension: `64@data` is cut over `data`, `64@(data, model)` over both (major to minor),
`64@-` is whole for good, `64` says nothing yet, and a trailing `?` leaves the dimension open to
more axes; `p1` after it is a priority. Text after the brackets: `replicated(model)` keeps
propagation from using `model` anywhere in the tensor, `unreduced(model)` says that the tensor is
the sum over `model` of what the devices hold, and `on @other` names a mesh other than the
module's first. The representation is that of OpenXLA Shardy
(docs/sharding_representation.md there).

An axis of size n may be used in parts: seen as a reshape [pre, size, n / (pre * size)], the part
in the middle is the sub-axis `data:(pre)size`. A whole axis is the sub-axis (1)n.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from math import prod
from typing import Self

from shardir.mesh import Mesh


@dataclass(frozen=True, slots=True, order=True)
class Axis:
    """A mesh axis or a part of one: the `size` positions whose stride is n / (pre * size)."""

    name: str
    pre: int
    size: int

    @classmethod
    def whole(cls, name: str, mesh: Mesh) -> Self:
        return cls(name, 1, mesh.sizes[name])

    @property
    def next(self) -> int:
        """What a following part of the same axis would have as `pre`."""
        return self.pre * self.size

    def is_whole(self, mesh: Mesh) -> bool:
        return self.pre == 1 and self.size == mesh.sizes[self.name]

    def overlaps(self, other: "Axis") -> bool:
        return self.name == other.name and self.pre < other.next and other.pre < self.next

    def contains(self, other: "Axis") -> bool:
        return self.name == other.name and self.pre <= other.pre and self.next >= other.next

    def stride(self, mesh: Mesh) -> int:
        """How far apart neighbours along it are in row-major order of devices."""
        return mesh.strides[self.name] * (mesh.sizes[self.name] // self.next)

    def __str__(self) -> str:
        return f"{self.name}:({self.pre}){self.size}"


Axes = tuple[Axis, ...]


def size_of(axes: Iterable[Axis]) -> int:
    """How many positions there are along axes together."""
    return prod(axis.size for axis in axes)


@dataclass(frozen=True, slots=True)
class Dim:
    """How one dimension is cut: `axes` major to minor; `open` to more axes or not."""

    axes: Axes = ()
    open: bool = True
    priority: int | None = None

    @property
    def pieces(self) -> int:
        return size_of(self.axes)

    def close(self) -> "Dim":
        return Dim(self.axes, open=False)


OPEN = Dim()
WHOLE = Dim(open=False)


@dataclass(frozen=True, slots=True)
class Sharding:
    """How a tensor is spread over the mesh called `mesh`.

    `replicated` are axes that propagation may not use; `unreduced` are axes over which the true
    value is still to be combined from the devices' values by `reduction` (add, max, min, mul).
    """

    mesh: str
    dims: tuple[Dim, ...]
    replicated: Axes = ()
    unreduced: Axes = ()
    reduction: str = "add"

    @classmethod
    def open(cls, mesh: str, rank: int) -> Self:
        """Says nothing about any dimension."""
        return cls(mesh, (OPEN,) * rank)

    @classmethod
    def whole(cls, mesh: str, rank: int) -> Self:
        """Every device holds the whole tensor."""
        return cls(mesh, (WHOLE,) * rank)

    @classmethod
    def of(cls, mesh: str, axes: Iterable[Axes]) -> Self:
        """Closed, cut along `axes` (one tuple a dimension)."""
        return cls(mesh, tuple(Dim(tuple(a), open=False) for a in axes))

    @property
    def axes(self) -> tuple[Axes, ...]:
        """The axes of each dimension."""
        return tuple(dim.axes for dim in self.dims)

    @property
    def closed(self) -> bool:
        return not any(dim.open for dim in self.dims)

    def used(self) -> Iterator[Axis]:
        """Every axis that cuts a dimension."""
        return (axis for dim in self.dims for axis in dim.axes)

    def close(self) -> Self:
        """The same cuts, with nothing left open, prioritised or explicitly replicated."""
        return replace(self, dims=tuple(dim.close() for dim in self.dims), replicated=())

    def local_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The shape one device holds; a dimension that does not divide is rounded up."""
        return tuple(-(-size // dim.pieces) for size, dim in zip(shape, self.dims, strict=True))
