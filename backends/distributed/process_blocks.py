"""Detects whether the devices of each process form a block of the mesh.

Processes whose devices form equal, aligned blocks form a mesh themselves.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from shardir.ir.mesh import Mesh


@dataclass(frozen=True)
class ProcessBlocks:
    """The blocks of a mesh.

    `across` has the number of blocks along each axis that has several, `at` the position of this
    process's block, both in the syntax of the pass `hierarchical-collectives`; `owners` are the
    processes in the order of their blocks.
    """

    across: str
    at: str
    owners: tuple[int, ...]


def process_blocks_of(mesh: Mesh, owners: Sequence[int], here: int) -> ProcessBlocks | None:
    """Return the blocks of the devices of each process, or None if they do not form blocks."""
    corners: dict[int, list[int]] = {}
    ends: dict[int, list[int]] = {}
    counts: dict[int, int] = {}
    for owner, coordinates in zip(owners, mesh.coordinates(), strict=True):
        place = list(coordinates.values())
        counts[owner] = counts.get(owner, 0) + 1
        corners[owner] = list(map(min, corners.get(owner, place), place))
        ends[owner] = list(map(max, ends.get(owner, place), place))
    shapes = {tuple(b - a + 1 for a, b in zip(corners[p], ends[p], strict=True)) for p in corners}
    if len(shapes) != 1 or here not in corners:
        return None
    (shape,) = shapes
    if any(count != prod(shape) for count in counts.values()):
        return None
    if any(a % n for corner in corners.values() for a, n in zip(corner, shape, strict=True)):
        return None
    if any(size % n for (_, size), n in zip(mesh.axes, shape, strict=True)):
        return None
    numbers = {
        tuple(a // n for a, n in zip(corner, shape, strict=True)): p
        for p, corner in corners.items()
    }
    split_axes = [
        (name, size // n, i)
        for i, ((name, size), n) in enumerate(zip(mesh.axes, shape, strict=True))
        if size > n
    ]
    own_index = next(place for place, process in numbers.items() if process == here)
    return ProcessBlocks(
        "/".join(f"{name}:{count}" for name, count, _ in split_axes),
        "/".join(f"{name}:{own_index[i]}" for name, _, i in split_axes),
        tuple(process for _, process in sorted(numbers.items())),
    )
