"""The mesh axes of collectives: their names, and those between whose positions data moves."""

from collections.abc import Iterable, Mapping

from shardir.ir.mesh import Mesh
from shardir.ir.operation import Attr
from shardir.ir.sharding import Axes, Axis


def name_axes(meshes: Iterable[Mesh], axes: Axes) -> tuple[str, ...]:
    """Return the names of axes: `data`, or `data:(1)2` for a sub-axis."""
    sizes = {name: size for mesh in meshes for name, size in mesh.axes}
    return tuple(a.name if a.size == sizes.get(a.name) else str(a) for a in axes)


def crossed_axes(attributes: Mapping[str, Attr]) -> Axes:
    """Return the axes between whose positions a collective with some attributes moves data: those
    along which it communicates, and in a permutation also the axes that replace these."""
    found: list[Axis] = []
    for name in ("axes", "source", "target"):
        axes: Axes = attributes.get(name) or ()
        found.extend(axes)
    return tuple(dict.fromkeys(found))
