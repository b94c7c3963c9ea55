"""Programs and their arguments and results: what they are, and what each device holds of them."""

from dataclasses import dataclass

from shardir.backends.gpu.vendored.layout import Axes, Mesh


@dataclass(frozen=True)
class Tensor:
    """An argument or a result of a program; its files are called `name`.

    `shape` is that of the whole; `cuts` has the mesh axes that each dimension is cut along. Where
    a dimension does not divide, all parts are as long as the longest, and padded. What is
    `unreduced` along axes is the `reduction` of what the devices along them hold. `label` is what
    the user calls it. A `value` is a file beside the program: nobody passes that argument.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    cuts: tuple[Axes, ...] = ()
    label: str = ""
    donated: bool = False
    value: str = ""
    unreduced: Axes = ()
    reduction: str = "add"

    def part_shape(self, mesh: Mesh) -> tuple[int, ...]:
        """The shape of what one device holds."""
        return tuple(
            -(-size // mesh.count(axes)) for size, axes in zip(self.shape, self._cuts, strict=True)
        )

    def window(self, mesh: Mesh, device: int) -> tuple[slice, ...]:
        """Which elements of the whole a device holds."""
        slices = []
        parts = self.part_shape(mesh)
        for size, part, axes in zip(self.shape, parts, self._cuts, strict=True):
            start = min(mesh.position(device, axes) * part, size)
            slices.append(slice(start, min(start + part, size)))
        return tuple(slices)

    @property
    def _cuts(self) -> tuple[Axes, ...]:
        return self.cuts or ((),) * len(self.shape)

    def __str__(self) -> str:
        cuts = []
        for size, axes in zip(self.shape, self._cuts, strict=True):
            along = axes[0] if len(axes) == 1 else f"({', '.join(axes)})"
            cuts.append(f"{size}@{along}" if axes else str(size))
        return f"{self.label or self.name}: {self.dtype}[{', '.join(cuts)}]"


@dataclass(frozen=True)
class Program:
    """What is known of a program besides its `main`.

    `mesh` has the size of each axis, major first. `groups` are the lists of axes along which the
    program exchanges anything, in the order in which they are first needed. `file` is the program
    itself, beside which its data is. `no_graph` says why a CUDA graph cannot hold the program,
    where it cannot.
    """

    title: str
    mesh: dict[str, int]
    arguments: tuple[Tensor, ...]
    results: tuple[Tensor, ...]
    groups: tuple[Axes, ...] = ()
    file: str = ""
    no_graph: str = ""

    @property
    def passed(self) -> tuple[Tensor, ...]:
        """The arguments that the user passes."""
        return tuple(each for each in self.arguments if not each.value)

    @property
    def devices(self) -> Mesh:
        """The mesh, with its arithmetic."""
        return Mesh(self.mesh)
