"""Random shardings of tensors over a mesh, with axes and sub-axes."""

from collections.abc import Sequence

from shardir.frontend.random_programs.choices import Choices
from shardir.ir.mesh import Mesh
from shardir.ir.sharding import Axes, Axis, Sharding

MESHES = (
    Mesh("m", (("x", 8),)),
    Mesh("m", (("x", 4), ("y", 2))),
    Mesh("m", (("x", 2), ("y", 2), ("z", 2))),
)
"""Meshes of eight devices with one, two and three axes."""


def axis_parts(mesh: Mesh, name: str) -> Sequence[Axes]:
    """Return the ways to use an axis: as a whole, or as a major and a minor sub-axis."""
    size = mesh.sizes[name]
    ways: list[Axes] = [(Axis(name, 1, size),)]
    for major in range(2, size):
        if size % major == 0:
            ways.append((Axis(name, 1, major), Axis(name, major, size // major)))
    return ways


def choose_sharding(
    choices: Choices,
    mesh: Mesh,
    shape: tuple[int, ...],
    *,
    split: bool = True,
    uneven: bool = False,
    pending: bool = False,
) -> Sharding:
    """Return a closed sharding of a tensor of `shape`.

    `split`: sub-axes are allowed; `uneven`: axes need not divide dimensions; `pending`: the tensor
    may be unreduced over some axes.
    """
    atoms = [
        axis
        for name, _ in mesh.axes
        for axis in choices.choose(axis_parts(mesh, name) if split else axis_parts(mesh, name)[:1])
    ]
    dims: list[list[Axis]] = [[] for _ in shape]
    unreduced: list[Axis] = []
    for axis in choices.permute(atoms):
        dim = choices.integer(-2 if pending else -1, len(shape) - 1)
        if dim == -2:
            unreduced.append(axis)
        elif dim >= 0 and (uneven or _is_divisible(shape[dim], [*dims[dim], axis])):
            dims[dim].append(axis)
    sharding = Sharding.of(mesh.name, [merge_axes(axes) for axes in dims])
    return Sharding(mesh.name, sharding.dims, unreduced=merge_axes(sorted(unreduced)))


def merge_axes(axes: Sequence[Axis]) -> Axes:
    """Return the axes with adjacent sub-axes merged, as shardings require."""
    merged: list[Axis] = []
    for axis in axes:
        if merged and merged[-1].name == axis.name and merged[-1].next == axis.pre:
            axis = Axis(axis.name, merged[-1].pre, merged.pop().size * axis.size)
        merged.append(axis)
    return tuple(merged)


def _is_divisible(size: int, axes: Sequence[Axis]) -> bool:
    for axis in axes:
        if size % axis.size:
            return False
        size //= axis.size
    return True
