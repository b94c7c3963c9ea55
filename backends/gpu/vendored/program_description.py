"""Descriptions of programs and of their arguments and results, with the shards of devices."""

from dataclasses import dataclass

from shardir.backends.gpu.vendored.device_mesh import Axes, Mesh


@dataclass(frozen=True)
class Tensor:
    """An argument or a result of a program; its files are named `name`.

    `shape` is the global shape; `dim_axes` has the mesh axes that shard each dimension. If a size
    is not divisible, all shards have the length of the longest, with padding. A value that is
    `unreduced` along axes is the `reduction` over the tensors of the devices along them. `label` is
    the user's name. `value` is a file beside the program with a captured array, which the user does
    not pass.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    dim_axes: tuple[Axes, ...] = ()
    label: str = ""
    donated: bool = False
    value: str = ""
    unreduced: Axes = ()
    reduction: str = "add"

    def shard_shape(self, mesh: Mesh) -> tuple[int, ...]:
        """Return the shape of a shard."""
        return tuple(
            -(-size // mesh.count(axes))
            for size, axes in zip(self.shape, self._dim_axes, strict=True)
        )

    def window(self, mesh: Mesh, device: int) -> tuple[slice, ...]:
        """Return the slices of a device's shard in the global array."""
        slices = []
        parts = self.shard_shape(mesh)
        for size, part, axes in zip(self.shape, parts, self._dim_axes, strict=True):
            start = min(mesh.position(device, axes) * part, size)
            slices.append(slice(start, min(start + part, size)))
        return tuple(slices)

    @property
    def _dim_axes(self) -> tuple[Axes, ...]:
        return self.dim_axes or ((),) * len(self.shape)

    def __str__(self) -> str:
        sizes = []
        for size, axes in zip(self.shape, self._dim_axes, strict=True):
            along = axes[0] if len(axes) == 1 else f"({', '.join(axes)})"
            sizes.append(f"{size}@{along}" if axes else str(size))
        return f"{self.label or self.name}: {self.dtype}[{', '.join(sizes)}]"


@dataclass(frozen=True)
class Program:
    """A description of a program besides its `main`.

    `mesh` has the size of each axis, major first. `groups` are the tuples of axes over which the
    program communicates, in order of first use. `file` is the program's file, beside which its data
    is. `no_graph` is the reason why a CUDA graph cannot contain the program, or "".
    """

    title: str
    mesh: dict[str, int]
    arguments: tuple[Tensor, ...]
    results: tuple[Tensor, ...]
    groups: tuple[Axes, ...] = ()
    file: str = ""
    no_graph: str = ""

    @property
    def passed_arguments(self) -> tuple[Tensor, ...]:
        """Return the arguments that the user passes."""
        return tuple(each for each in self.arguments if not each.value)

    @property
    def devices(self) -> Mesh:
        """Return the mesh of devices."""
        return Mesh(self.mesh)
