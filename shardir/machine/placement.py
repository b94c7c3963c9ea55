"""Placement of mesh axes on links.

Without instructions, the last axes fill the innermost link (the node) first, as the ids of devices
do. An axis that the node cannot hold whole is divided: its minor part is inside of the node, its
major part on the next link. `links={"data": "infiniband"}` places an axis on one link.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations
from math import gcd, inf, prod

from shardir.errors import MachineError
from shardir.machine.description import Link, MachineDescription


@dataclass(frozen=True, slots=True)
class Level:
    """A part of a mesh axis on one link: `size` devices at a distance of `stride` along the axis.

    On a torus, `dimension` is the dimension of the torus, `ring_stride` the distance between
    adjacent devices along it, and `is_ring` is false for a line, whose ends are not connected.
    """

    link: Link
    size: int
    stride: int
    dimension: int = 0
    ring_stride: int = 1
    is_ring: bool = True


def place_axes(
    description: MachineDescription, axes: Mapping[str, int], links: Mapping[str, str] | None
) -> dict[str, tuple[Level, ...]]:
    """Return the levels of each axis, innermost first. Axes of size 1 have none."""
    links = links or {}
    order = list(description.links.values())
    for axis, name in links.items():
        if axis not in axes:
            raise MachineError(
                f"links places the axis {axis!r}, but the mesh has the axes "
                f"{', '.join(axes) or '(none)'}"
            )
        if name not in description.links:
            raise MachineError(
                f"links places the axis {axis!r} on {name!r}, but machine {description.name!r} has "
                f"the links {', '.join(description.links) or '(none)'}"
            )
    # Parts of axes on each link, innermost axis first: (axis, size, stride).
    parts: dict[str, list[tuple[str, int, int]]] = {link.name: [] for link in order}
    free = {link.name: link.group_size for link in order}
    for axis in reversed(list(axes)):
        size = axes[axis]
        if size == 1:
            continue
        if axis in links:
            link = description.links[links[axis]]
            if size > free[link.name]:
                raise MachineError(
                    f"the axis {axis!r} of size {size} does not fit on {link.name!r} of machine "
                    f"{description.name!r}: a group has {link.group_size:g} devices, and other "
                    f"axes leave {free[link.name]:g}; place the axis on another link, or do not "
                    "name its link, so that it is divided"
                )
            parts[link.name].append((axis, size, 1))
            if free[link.name] < inf:
                free[link.name] //= size
            continue
        rest, stride = size, 1
        for link in order:
            space = free[link.name]
            inside = rest if rest <= space else gcd(rest, int(space))
            if inside > 1:
                parts[link.name].append((axis, inside, stride))
                free[link.name] = space // inside if space < inf else inf
            if inside < rest and space < inf:
                # Device ids of one node are contiguous: the following axes are outside of it.
                free[link.name] = 1
            rest, stride = rest // inside, stride * inside
            if rest == 1:
                break
        if rest > 1:
            raise MachineError(
                f"the axis {axis!r} of size {size} has no link on machine {description.name!r}: "
                f"{_describe_links(description)}; add a link that connects more devices to "
                f"{description.path}, or make the mesh smaller"
            )
    levels: dict[str, list[Level]] = {axis: [] for axis in axes}
    for link in order:
        placed = _place_on_torus if link.topology == "torus" else _place_on_switch
        for axis, level in placed(link, parts[link.name]):
            levels[axis].append(level)
    return {axis: tuple(each) for axis, each in levels.items()}


def _describe_links(description: MachineDescription) -> str:
    if not description.links:
        return "it has no links"
    sizes = [f"{link.name} connects {link.group_size:g}" for link in description.links.values()]
    return f"{', '.join(sizes)} devices, and the axes that follow it need some of them"


def _place_on_switch(link: Link, parts: list[tuple[str, int, int]]) -> list[tuple[str, Level]]:
    return [(axis, Level(link, size, stride)) for axis, size, stride in parts]


def _place_on_torus(link: Link, parts: list[tuple[str, int, int]]) -> list[tuple[str, Level]]:
    """Assign each part to whole dimensions of the torus if the sizes allow it, else to parts of
    dimensions: the smaller part is a line of adjacent devices, the larger one is strided.
    """
    shape = choose_torus_shape(link, prod(size for _, size, _ in parts))
    used = [1] * len(shape)
    placed = []
    for axis, size, stride in parts:
        for dimension, count in _dimensions_for(size, shape, used):
            is_whole = count == shape[dimension]
            is_ring = is_whole and count > 2 and count % link.wrap_multiple == 0
            placed.append((axis, Level(link, count, stride, dimension, used[dimension], is_ring)))
            used[dimension] *= count
            stride *= count
    return placed


def _dimensions_for(size: int, shape: tuple[int, ...], used: list[int]) -> list[tuple[int, int]]:
    """Return dimensions, and how many devices along each, for a part of an axis."""
    free = [d for d in range(len(shape)) if used[d] == 1 and shape[d] > 1]
    for count in range(len(free), 0, -1):
        for chosen in combinations(free, count):
            if prod(shape[d] for d in chosen) == size:
                return [(d, shape[d]) for d in chosen]
    found = []
    for dimension, length in enumerate(shape):
        part = gcd(size, length // used[dimension])
        if part > 1:
            found.append((dimension, part))
            size //= part
    assert size == 1, "the sizes of the parts multiply to the size of the torus"
    return found


def choose_torus_shape(link: Link, count: int) -> tuple[int, ...]:
    """Return the shape of the slice with `count` devices: the one with the smallest sum of sizes.

    Sizes that are multiples of `wrap_multiple` are preferred, because they are rings.
    """
    shapes = list(_factorizations(count, link.shape))
    if not shapes:
        limits = "x".join(map(str, link.shape))
        raise MachineError(
            f"{count} devices are not a slice of the torus {link.name!r} of at most {limits}; "
            "use sizes of axes that multiply to the sizes of its dimensions"
        )
    wrap = link.wrap_multiple
    return min(shapes, key=lambda s: (sum(s), sum(n % wrap != 0 for n in s), s))


def _factorizations(count: int, limits: tuple[int, ...]) -> list[tuple[int, ...]]:
    if not limits:
        return [()] if count == 1 else []
    return [
        (first, *rest)
        for first in range(1, min(count, limits[0]) + 1)
        if count % first == 0
        for rest in _factorizations(count // first, limits[1:])
    ]
