"""Pictures of meshes and shardings for notebooks: a grid of devices, or of shards, with the names
of mesh axes at its edges.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from math import prod

from shardir.display.html_elements import Html, join, label, output, tag
from shardir.frontend.shardings.mesh import Mesh
from shardir.frontend.shardings.sharding import NamedSharding, Sharding
from shardir.frontend.shardings.sub_axes import num_shards
from shardir.frontend.visualize import GridPosition, label_shards

MAX_BOXES = 256
"""Maximum number of boxes in a picture."""
MAX_ROWS = 20
"""Maximum number of rows in a list of shards."""


def mesh_html(mesh: Mesh) -> Html:
    """Return the axes of a mesh and a picture of its devices."""
    return output(*_mesh_picture(mesh))


def sharding_html(sharding: Sharding) -> Html:
    """Return a picture of a sharding: the devices of the shards of an array of any size."""
    return output(tag("div", _first_word(sharding)), _shards(None, sharding))


def array_html(kind: str, shape: Sequence[int], sharding: Sharding, values: str) -> Html:
    """Return the type and the sharding of an array, a picture of its shards, and its values."""
    return output(
        tag("div", f"Array {kind} ", _first_word(sharding)),
        _shards(shape, sharding),
        tag("pre", values),
    )


def axis_colors(mesh: Mesh) -> dict[str, int]:
    """Return the number of the color of each axis."""
    return {name: number for number, name in enumerate(mesh.axis_names)}


def _first_word(sharding: Sharding) -> Html:
    """Return the class of a sharding, and the dimensions of its spec with labels of axes."""
    name = tag("span", type(sharding).__name__, class_="sd-k")
    if not isinstance(sharding, NamedSharding):
        return name
    colors = axis_colors(sharding.mesh)
    parts = [
        join(["None"])
        if not (axes := _dimension_axes(sharding, dimension))
        else join(_separate([label(axis, colors[axis]) for axis in axes], " "))
        for dimension in range(len(sharding.spec))
    ]
    return join([name, " (", *_separate(parts, ", "), ")"])


def _separate(items: Sequence[str], separator: str) -> Iterator[str]:
    for number, item in enumerate(items):
        if number:
            yield separator
        yield item


def _dimension_axes(sharding: Sharding, dimension: int) -> tuple[str, ...]:
    """Return the mesh axes of a dimension, which are known for a `NamedSharding` alone."""
    if not isinstance(sharding, NamedSharding):
        return ()
    axes = sharding.spec.axes(dimension)
    return tuple(axes) if isinstance(axes, tuple) else ()


def _mesh_picture(mesh: Mesh) -> Iterator[Html]:
    colors = axis_colors(mesh)
    axes = [
        join([label(name, colors[name]), f" {size} {kind!r}"])
        for (name, size), kind in zip(mesh.shape.items(), mesh.axis_types, strict=True)
    ]
    title = tag("span", type(mesh).__name__, class_="sd-k")
    yield tag("div", title, f" of {mesh.size} devices: ", *_separate(axes, ", "))
    if mesh.size > MAX_BOXES or not mesh.axis_names:
        return
    *outer, rows, columns = (1, *mesh.axis_sizes) if mesh.ndim == 1 else mesh.axis_sizes
    names = ("", *mesh.axis_names) if mesh.ndim == 1 else mesh.axis_names
    texts = [f"{device.platform.upper()} {device.id}" for device in mesh.device_assignment]
    grids = []
    for number, place in enumerate(product(*map(range, outer))):
        inside = texts[number * rows * columns : (number + 1) * rows * columns]
        grid = [inside[row * columns : (row + 1) * columns] for row in range(rows)]
        where = [
            join([label(name, colors[name]), f" {index}"])
            for name, index in zip(names, place, strict=False)
        ]
        edges = [[_coordinate(names[-2], i, colors) for i in range(rows)]]
        edges.append([_coordinate(names[-1], i, colors) for i in range(columns)])
        grids.append(tag("div", *_separate(where, ", "), _grid(grid, edges)))
    yield tag("div", *grids, class_="sd-row")


def _coordinate(name: str, index: int, colors: Mapping[str, int]) -> Html:
    return join([label(name, colors[name]), f" {index}"]) if name else Html("")


def _shards(shape: Sequence[int] | None, sharding: Sharding) -> Html:
    """Return the picture of the shards of an array, or of one of unknown sizes if `shape` is
    `None`."""
    rank = sharding.natural_rank if shape is None else len(shape)
    counts = [num_shards(axes) for axes in sharding.resolved_sub_axes(rank)]
    if prod(counts) > MAX_BOXES:
        return tag("div", f"{prod(counts):,} shards on {sharding.num_devices:,} devices")
    labels = label_shards(sharding, rank)
    edges = [[_range(shape, counts, d, i) for i in range(n)] for d, n in enumerate(counts)]
    if rank > 2:
        return _list(labels, edges)
    edges = [[Html("")]] * (2 - rank) + edges
    rows, columns = (len(edge) for edge in edges)
    flat = list(labels.values())
    grid = [flat[row * columns : (row + 1) * columns] for row in range(rows)]
    words = ("rows", "columns")[2 - rank :]
    dims = [_dimension(shape, sharding, d, word) for d, word in enumerate(words)]
    return join(
        [
            tag("div", *_separate(dims, "; ")) if dims else "",
            _grid(grid, edges),
        ]
    )


def _dimension(shape: Sequence[int] | None, sharding: Sharding, dimension: int, word: str) -> Html:
    """Return the size of a dimension with labels of the axes that shard it."""
    axes = _dimension_axes(sharding, dimension)
    colors = axis_colors(sharding.mesh) if isinstance(sharding, NamedSharding) else {}
    size = "" if shape is None else f", size {shape[dimension]}"
    names = (part for axis in axes for part in (" ", label(axis, colors[axis])))
    return join([f"{word}: dimension {dimension}{size}", " over" if axes else "", *names])


def _range(
    shape: Sequence[int] | None, counts: Sequence[int], dimension: int, position: int
) -> Html:
    """Return the elements of a shard along a dimension, or its number if the size is unknown."""
    if counts[dimension] == 1:
        return Html(":")
    if shape is None:
        return Html(str(position))
    size = shape[dimension]
    # Uneven shard sizes are rounded up, and the last shards are shorter.
    part = -(-size // counts[dimension])
    return Html(f"{min(position * part, size)}:{min((position + 1) * part, size)}")


def _grid(grid: Sequence[Sequence[str]], edges: Sequence[Sequence[Html]]) -> Html:
    """Return a table of boxes with the texts of `edges` at its left and above it."""
    head = tag("tr", tag("th"), [tag("th", text) for text in edges[1]])
    rows = [
        tag("tr", tag("th", edge), [tag("td", text) for text in row])
        for edge, row in zip(edges[0], grid, strict=True)
    ]
    return tag("table", head, rows, class_="sd-grid")


def _list(
    labels: Mapping[GridPosition, str],
    edges: Sequence[Sequence[Html]],
) -> Html:
    """Return a list of shards with their elements and devices."""
    rows = [
        tag(
            "tr",
            tag("th", f"[{', '.join(e[i] for e, i in zip(edges, place, strict=True))}]"),
            tag("td", text),
        )
        for place, text in list(labels.items())[:MAX_ROWS]
    ]
    rest = len(labels) - len(rows)
    return join(
        [
            tag("table", rows, class_="sd-grid"),
            tag("div", f"{rest:,} more shards") if rest else "",
        ]
    )
