"""Anchors: values inside of a program whose shardings no argument determines.

The arguments of a program such as `x = random.normal(key, (n, n)); return x @ x.T` have no
dimension that could be sharded. One value stands for each such group of dimensions; a plan states
its sharding, and propagation continues from there.

An operation such as `x.T @ x` has one group in two dimensions of its result, of which an axis of
the group can shard one only. Such a clash is a decision about the result: the two dimensions are
decided separately from the group, also where all arguments are replicated.
"""

from collections.abc import Iterator, Mapping, Sequence

from shardir.ir.mesh import Mesh
from shardir.ir.module import Block, Value

MAX_ANCHORS = 4
"""The number of anchors of a program; those with the most elements are chosen, and values without
dimensions of arguments come first."""
MIN_ANCHOR_PART = 1 / 16
"""The size of the smallest anchor, as a part of that of the largest value."""

Groups = Mapping[Value, tuple[int, ...]]
"""The group of each dimension of values."""


def find_anchors(
    body: Block, groups: Groups, known: Sequence[int], mesh: Mesh, *, pads: bool = False
) -> tuple[Value, ...]:
    """Return the largest values with a dimension whose group is not `known`, and that an axis of
    the mesh divides, and then the largest ones that introduce a clash. Each group and each clash
    has one anchor, which is a variable of the user's program if possible. With `pads`, an axis need
    not divide a dimension."""
    found = [value for op in body.ops if op.operands for value in op.results if value in groups]
    found.sort(key=lambda value: (-value.type.size, value.name.isdigit()))
    if not found:
        return ()
    least = found[0].type.nbytes * MIN_ANCHOR_PART
    sizes = [size for _, size in mesh.axes if size > 1]
    candidates = []
    for value in found:
        if value.type.nbytes < least:
            break
        if value.sharding is None:
            candidates.append(value)

    def list_shardable_groups(value: Value) -> list[int]:
        """Return the groups of the dimensions that an axis of the mesh can shard."""
        return [
            group
            for group, size in zip(groups[value], value.type.shape, strict=True)
            if size and any(size > parts if pads else size % parts == 0 for parts in sizes)
        ]

    covered = set(known)
    anchors: list[Value] = []
    for value in candidates:
        if not covered.issuperset(list_shardable_groups(value)):
            covered.update(groups[value])
            anchors.append(value)
    introduced = set(_values_with_new_clashes(body, groups))
    clashes: set[tuple[int, ...]] = set()
    for value in candidates:
        kind = tuple(sorted(groups[value]))
        if value not in introduced or value in anchors or kind in clashes:
            continue
        if not _clashing_groups(groups[value]).isdisjoint(list_shardable_groups(value)):
            clashes.add(kind)
            anchors.append(value)
    return tuple(anchors[:MAX_ANCHORS])


def clashing_dims(groups: Sequence[int]) -> list[int]:
    """Return the dimensions of a value whose group another dimension has, too."""
    return [dim for dim, group in enumerate(groups) if groups.count(group) > 1]


def _values_with_new_clashes(body: Block, groups: Groups) -> Iterator[Value]:
    """Yield the results with a clash that no operand of their operation has."""
    for op in body.ops:
        known: set[int] = set()
        for operand in op.operands:
            known |= _clashing_groups(groups.get(operand, ()))
        for value in op.results:
            if not _clashing_groups(groups.get(value, ())) <= known:
                yield value


def _clashing_groups(groups: Sequence[int]) -> set[int]:
    """Return the groups that several dimensions of a value have."""
    return {groups[dim] for dim in clashing_dims(groups)}
