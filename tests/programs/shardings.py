"""Random shardings: hypothesis strategies over meshes, axes and sub-axes."""

from collections.abc import Sequence

from hypothesis import strategies as st

from shardir.ir.mesh import Mesh
from shardir.ir.sharding import Axes, Axis, Sharding

MESHES = (
    Mesh("m", (("x", 8),)),
    Mesh("m", (("x", 4), ("y", 2))),
    Mesh("m", (("x", 2), ("y", 2), ("z", 2))),
)
"""Eight devices, arranged in one, two and three dimensions."""


def parts(mesh: Mesh, name: str) -> Sequence[Axes]:
    """Return the ways to use an axis: the full axis, or its major and minor sub-axes."""
    size = mesh.sizes[name]
    ways: list[Axes] = [(Axis(name, 1, size),)]
    for major in range(2, size):
        if size % major == 0:
            ways.append((Axis(name, 1, major), Axis(name, major, size // major)))
    return ways


@st.composite
def shardings(
    draw: st.DrawFn,
    mesh: Mesh,
    shape: tuple[int, ...],
    *,
    split: bool = True,
    uneven: bool = False,
    pending: bool = False,
) -> Sharding:
    """Draw a closed sharding of a tensor of `shape`.

    `split` allows sub-axes, `uneven` allows indivisible dimensions, and `pending` allows unreduced
    axes.
    """
    atoms = [
        axis
        for name, _ in mesh.axes
        for axis in draw(st.sampled_from(parts(mesh, name) if split else parts(mesh, name)[:1]))
    ]
    cuts: list[list[Axis]] = [[] for _ in shape]
    waiting: list[Axis] = []
    for axis in draw(st.permutations(atoms)):
        dim = draw(st.integers(-2 if pending else -1, len(shape) - 1))
        if dim == -2:
            waiting.append(axis)
        elif dim >= 0 and (uneven or _divides(shape[dim], [*cuts[dim], axis])):
            cuts[dim].append(axis)
    sharding = Sharding.of(mesh.name, [merge_axes(cut) for cut in cuts])
    return Sharding(mesh.name, sharding.dims, unreduced=merge_axes(sorted(waiting)))


def merge_axes(axes: Sequence[Axis]) -> Axes:
    """Merge adjacent sub-axes of one axis, as shardings require."""
    joined: list[Axis] = []
    for axis in axes:
        if joined and joined[-1].name == axis.name and joined[-1].next == axis.pre:
            axis = Axis(axis.name, joined[-1].pre, joined.pop().size * axis.size)
        joined.append(axis)
    return tuple(joined)


def _divides(size: int, axes: Sequence[Axis]) -> bool:
    for axis in axes:
        if size % axis.size:
            return False
        size //= axis.size
    return True
