"""Groups of devices that communicate, and the mesh axes along which they lie."""

import re
from collections.abc import Iterable, Mapping
from itertools import combinations, product
from math import prod

import numpy as np

from shardir.hlo.module import parse_number

Group = frozenset[int]
Groups = frozenset[Group]

_IOTA = re.compile(r"\[([\d,]+)\]<=\[([\d,]+)\](?:T\(([\d,]+)\))?")
_MESH = re.compile(r"mesh\[(.*?)\]\s*\{(.*?)\}")
_MESH_AXIS = re.compile(r"'([^']*)'\s*=\s*(\d+)")
_AXIS = re.compile(r"'([^']*)'(?::\((\d+)\)(\d+))?")


def parse_groups(text: str, device_count: int) -> Groups | None:
    """Return the groups of an attribute of HLO; `None` for an unknown form.

    The forms are lists (`{{0,1},{2,3}}`), permuted ranges (`[2,4]<=[4,2]T(1,0)`), and axes of a
    mesh (`mesh['a'=4,'b'=2] {'a'}`). An empty list is one group of all devices.
    """
    text = text.strip()
    if match := _IOTA.fullmatch(text):
        shape, sizes = _integers(match[1]), _integers(match[2])
        permutation = _integers(match[3]) if match[3] else list(range(len(sizes)))
        if len(shape) != 2 or prod(shape) != prod(sizes) or prod(sizes) > device_count:
            return None
        if sorted(permutation) != list(range(len(sizes))):
            return None
        ids = np.arange(prod(sizes)).reshape(sizes).transpose(permutation).reshape(shape)
        return frozenset(frozenset(map(int, row)) for row in ids)
    if match := _MESH.fullmatch(text):
        mesh = {name: parse_number(size) or 0 for name, size in _MESH_AXIS.findall(match[1])}
        axes = [
            (name, parse_number(before) or 1, parse_number(size) or mesh.get(name, 0))
            for name, before, size in _AXIS.findall(match[2])
        ]
        if prod(mesh.values()) > device_count or not all(
            name in mesh and size > 0 and mesh[name] % (before * size) == 0
            for name, before, size in axes
        ):
            return None
        return _groups_along(mesh, axes)
    if not re.fullmatch(r"\{[\s\d,{}]*\}", text):
        return None
    lists = re.findall(r"\{([\d,\s]*)\}", text[1:-1])
    groups = frozenset(frozenset(_integers(each)) for each in lists if each.strip())
    return groups or frozenset([frozenset(range(device_count))])


def parse_pairs(text: str) -> list[tuple[int, int]] | None:
    """Return the pairs of a collective-permute: `{{0,1},{1,0}}`; `None` for an unknown form."""
    if not re.fullmatch(r"\{[\s\d,{}]*\}", text.strip()):
        return None
    lists = [_integers(each) for each in re.findall(r"\{([\d,\s]*)\}", text.strip()[1:-1])]
    return [(each[0], each[1]) for each in lists] if all(len(e) == 2 for e in lists) else None


def name_axes(groups: Groups, mesh: Mapping[str, int]) -> tuple[str, ...] | None:
    """Return the axes of the mesh along which the groups lie; `None` if there are none.

    Device `i` of the program is at position `i` of the mesh in row-major order.
    """
    size = max(map(len, groups))
    for count in range(len(mesh) + 1):
        for axes in combinations(mesh, count):
            if prod(mesh[axis] for axis in axes) == size and groups == _groups_along(
                mesh, [(axis, 1, mesh[axis]) for axis in axes]
            ):
                return axes
    return None


def axes_of_pairs(pairs: Iterable[tuple[int, int]], mesh: Mapping[str, int]) -> tuple[str, ...]:
    """Return the axes of the mesh along which devices send to others."""
    sizes = tuple(mesh.values())
    used: set[int] = set()
    for source, target in pairs:
        if max(source, target) < prod(sizes):
            a, b = np.unravel_index(source, sizes), np.unravel_index(target, sizes)
            used |= {axis for axis in range(len(sizes)) if a[axis] != b[axis]}
    return tuple(name for axis, name in enumerate(mesh) if axis in used)


def _groups_along(mesh: Mapping[str, int], axes: Iterable[tuple[str, int, int]]) -> Groups:
    """Return the groups along axes or parts of axes: name, size before the part, and size."""
    names = list(mesh)
    parts: list[tuple[int, bool]] = []
    chosen = {name: (before, size) for name, before, size in axes}
    for name in names:
        before, size = chosen.get(name, (1, 1))
        parts += [(before, False), (size, name in chosen), (mesh[name] // (before * size), False)]
    ids = np.arange(prod(mesh.values())).reshape([size for size, _ in parts])
    fixed = [axis for axis, (_, along) in enumerate(parts) if not along]
    moved = np.moveaxis(ids, fixed, range(len(fixed)))
    rows = moved.reshape(prod(parts[axis][0] for axis in fixed), -1)
    return frozenset(frozenset(map(int, row)) for row in rows)


def expand_to_partitions(groups: Groups, partition_count: int) -> Groups:
    """Return groups of all partitions of groups of replicas."""
    return frozenset(
        frozenset(
            replica * partition_count + partition
            for replica, partition in product(group, range(partition_count))
        )
        for group in groups
    )


def _integers(text: str) -> list[int]:
    return [parse_number(part) or 0 for part in text.split(",") if part.strip()]
