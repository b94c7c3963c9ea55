"""Anchors: values inside of a program whose dimensions no argument determines.

The arguments of a program such as `x = random.normal(key, (n, n)); return x @ x.T` have no
dimension that could be sharded. One value stands for each such group of dimensions; a plan states
its sharding, and propagation continues from there.
"""

from collections.abc import Mapping, Sequence

from shardir.ir.mesh import Mesh
from shardir.ir.module import Block, Value

MAX_ANCHORS = 4
"""The number of anchors of a program; those with the most elements are chosen."""
MIN_ANCHOR_PART = 1 / 16
"""The size of the smallest anchor, as a part of that of the largest value."""


def find_anchors(
    body: Block, groups: Mapping[Value, tuple[int, ...]], known: Sequence[int], mesh: Mesh
) -> tuple[Value, ...]:
    """Return the largest values with a dimension whose group is not `known`, and that an axis of
    the mesh divides; each group has one, which is a variable of the user's program if possible."""
    found = [value for op in body.ops if op.operands for value in op.results if value in groups]
    found.sort(key=lambda value: (-value.type.size, value.name.isdigit()))
    sizes = [size for _, size in mesh.axes if size > 1]
    covered = set(known)
    anchors: list[Value] = []
    for value in found:
        if (
            len(anchors) == MAX_ANCHORS
            or value.type.nbytes < found[0].type.nbytes * MIN_ANCHOR_PART
        ):
            break
        own = {
            group
            for group, size in zip(groups[value], value.type.shape, strict=True)
            if size and any(size % parts == 0 for parts in sizes)
        }
        if value.sharding is None and not own <= covered:
            covered.update(groups[value])
            anchors.append(value)
    return tuple(anchors)
