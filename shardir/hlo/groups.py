"""Groups of devices that communicate, and the mesh axes along which their devices differ."""

import re
from collections.abc import Iterable, Mapping
from itertools import combinations, product
from math import prod

import numpy as np

from shardir.hlo.module import parse_number

Group = frozenset[int]
Groups = frozenset[Group]

_IOTA = re.compile(r"\[([\d,]+)\]<=\[([\d,]+)\](?:T\(([\d,]+)\))?")
_MESH = re.compile(r"mesh\[(.*?)\]\s*(?:,\s*device_ids=\(([^{}]*)\)\s*)?\{(.*?)\}")
_DEVICE_ORDER = re.compile(r"\[([\d,]+)\](?:T\(([\d,]+)\))?")
_MESH_AXIS = re.compile(r"'([^']*)'\s*=\s*(\d+)")
_AXIS = re.compile(r"'([^']*)'(?::\((\d+)\)(\d+))?")
_TILES = re.compile(
    r"\{\s*devices=\[([\d,]+)\](?:<=(\[[\d,]+\](?:T\([\d,]+\))?)|([\d,]+))"
    r"(\s+last_tile_dim_replicate|\s+last_tile_dims=\{([\w\s,]*)\})?.*\}"
)


def parse_groups(text: str, device_count: int) -> Groups | None:
    """Return the groups of an attribute of HLO; `None` for an unknown form.

    The forms are lists (`{{0,1},{2,3}}`), permuted ranges (`[2,4]<=[4,2]T(1,0)`), and axes of a
    mesh (`mesh['a'=4,'b'=2] {'a'}`), whose devices may be in another order
    (`mesh['a'=4,'b'=2], device_ids=([2,4]T(1,0)) {'a'}`). An empty list is one group of all
    devices.
    """
    text = text.strip()
    if match := _IOTA.fullmatch(text):
        shape = _integers(match[1])
        order = _permuted_range(match[2], match[3], device_count)
        if order is None or len(shape) != 2 or prod(shape) != len(order):
            return None
        rows = np.asarray(order).reshape(shape)
        return frozenset(frozenset(map(int, row)) for row in rows)
    if match := _MESH.fullmatch(text):
        mesh = {name: parse_number(size) or 0 for name, size in _MESH_AXIS.findall(match[1])}
        axes = [
            (name, parse_number(before) or 1, parse_number(size) or mesh.get(name, 0))
            for name, before, size in _AXIS.findall(match[3])
        ]
        if prod(mesh.values()) > device_count or not all(
            name in mesh and size > 0 and mesh[name] % (before * size) == 0
            for name, before, size in axes
        ):
            return None
        groups = _groups_along(mesh, axes)
        if match[2] is None:
            return groups
        ids = _device_order(match[2], device_count)
        if ids is None or len(ids) != prod(mesh.values()):
            return None
        return frozenset(frozenset(ids[position] for position in group) for group in groups)
    if not re.fullmatch(r"\{[\s\d,{}]*\}", text):
        return None
    lists = re.findall(r"\{([\d,\s]*)\}", text[1:-1])
    groups = frozenset(frozenset(_integers(each)) for each in lists if each.strip())
    return groups or frozenset([frozenset(range(device_count))])


def parse_shard_groups(text: str, device_count: int) -> Groups | None:
    """Return the groups of devices that have the same shard, from a `sharding` of HLO; `None` for
    an unknown form.

    The forms are `{replicated}` and `{devices=[4,1,2]<=[8] last_tile_dim_replicate}`, whose devices
    may also be a list, or a permuted range.
    """
    if text.strip() == "{replicated}":
        return frozenset([frozenset(range(device_count))])
    match = _TILES.fullmatch(text.strip())
    if match is None:
        return None
    sizes = _integers(match[1])
    ids = _device_order(match[2] or match[3], device_count)
    if ids is None or prod(sizes) != len(ids) or not ids:
        return None
    kinds = [kind.strip() for kind in match[5].split(",")] if match[5] else []
    if match[4] and not match[5]:
        kinds = ["replicated"]
    if len(kinds) > len(sizes):
        return None
    first = len(sizes) - len(kinds)
    equal = [first + at for at, kind in enumerate(kinds) if kind == "replicated"]
    tiles = np.moveaxis(np.asarray(ids).reshape(sizes), equal, range(-len(equal), 0))
    rows = tiles.reshape(-1, prod(sizes[axis] for axis in equal))
    return frozenset(frozenset(map(int, row)) for row in rows)


def _device_order(text: str, device_count: int) -> list[int] | None:
    """Return the devices at the positions of a mesh: `[4,2]T(1,0)`, `0,2,1,3`; `None` for an
    unknown form."""
    if match := _DEVICE_ORDER.fullmatch(text.strip()):
        return _permuted_range(match[1], match[2], device_count)
    if not re.fullmatch(r"[\d,\s]+", text):
        return None
    ids = _integers(text)
    return ids if len({*ids}) == len(ids) and max(ids, default=0) < device_count else None


def _permuted_range(shape: str, permutation: str | None, device_count: int) -> list[int] | None:
    """Return the numbers from 0 in the order of a transposed array of `shape`; `None` for invalid
    numbers."""
    sizes = _integers(shape)
    axes = _integers(permutation) if permutation else list(range(len(sizes)))
    if prod(sizes) > device_count or sorted(axes) != list(range(len(sizes))):
        return None
    return [int(id) for id in np.arange(prod(sizes)).reshape(sizes).transpose(axes).reshape(-1)]


def parse_pairs(text: str) -> list[tuple[int, int]] | None:
    """Return the pairs of a collective-permute: `{{0,1},{1,0}}`; `None` for an unknown form."""
    if not re.fullmatch(r"\{[\s\d,{}]*\}", text.strip()):
        return None
    lists = [_integers(each) for each in re.findall(r"\{([\d,\s]*)\}", text.strip()[1:-1])]
    return [(each[0], each[1]) for each in lists] if all(len(e) == 2 for e in lists) else None


def name_axes(groups: Groups, mesh: Mapping[str, int]) -> tuple[str, ...] | None:
    """Return the axes of the mesh along which the devices of each group differ; `None` if there are
    none.

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
