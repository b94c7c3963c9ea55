"""Where a leaf is in nested containers: a path of keys, one for each container on the way."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import optree

from shardir.frontend.tree import NAMESPACE, IsLeaf, PyTreeDef, map as map_tree


@dataclass(frozen=True, slots=True)
class SequenceKey:
    """A place in a list or a tuple."""

    idx: int

    def __str__(self) -> str:
        return f"[{self.idx!r}]"


@dataclass(frozen=True, slots=True)
class DictKey:
    """A key of a dictionary."""

    key: Any

    def __str__(self) -> str:
        return f"[{self.key!r}]"


@dataclass(frozen=True, slots=True)
class GetAttrKey:
    """A field of a dataclass or a named tuple."""

    name: str

    def __str__(self) -> str:
        return f".{self.name}"


@dataclass(frozen=True, slots=True)
class FlattenedIndexKey:
    """A child of a container that has no names for its children."""

    key: int

    def __str__(self) -> str:
        return f"[<flat index {self.key}>]"


KeyEntry = Any
"""One of the keys above, or what a class registered with keys calls its children."""
KeyPath = tuple[KeyEntry, ...]


class OwnKey(optree.PyTreeEntry):
    """A key that the class of the container has chosen."""


def flatten_with_path(
    tree: Any, is_leaf: IsLeaf | None = None
) -> tuple[list[tuple[KeyPath, Any]], PyTreeDef]:
    """The leaves of `tree`, each with its path, and the containers without them."""
    places, leaves, spec = optree.tree_flatten_with_accessor(tree, is_leaf, namespace=NAMESPACE)
    return [(_keys(place), leaf) for place, leaf in zip(places, leaves, strict=True)], spec


def leaves_with_path(tree: Any, is_leaf: IsLeaf | None = None) -> list[tuple[KeyPath, Any]]:
    """The leaves of `tree`, each with its path."""
    return flatten_with_path(tree, is_leaf)[0]


def map_with_path(
    function: Callable[..., Any], tree: Any, *rest: Any, is_leaf: IsLeaf | None = None
) -> Any:
    """`tree` with `function` of the path and the leaf at each place, and of those of `rest`."""
    pairs, spec = flatten_with_path(tree, is_leaf)
    paths = optree.tree_unflatten(spec, [_Held(path) for path, _ in pairs])

    def apply(held: "_Held", *leaves: Any) -> Any:
        return function(held.path, *leaves)

    return map_tree(apply, paths, tree, *rest, is_leaf=lambda x: isinstance(x, _Held) or (
        is_leaf is not None and is_leaf(x)
    ))  # fmt: skip


def keystr(keys: Iterable[KeyEntry], *, simple: bool = False, separator: str = "") -> str:
    """A path as text, as it is written in Python: `['layers'][0].w`.

    `simple` leaves brackets, quotes and dots away, and `separator` stands between the keys.
    """
    return separator.join(_bare(key) if simple else str(key) for key in keys)


def children_with_keys(tree: Any) -> list[tuple[KeyEntry, Any]] | None:
    """The children of a container, each with its key; `None` for a leaf."""
    pairs, spec = flatten_with_path(tree, lambda x: x is not tree)
    if spec.is_leaf():
        return None
    return [(path[0], child) for path, child in pairs]


@dataclass(frozen=True, slots=True)
class _Held:
    """A path as a leaf; a bare tuple would be a container."""

    path: KeyPath


def _keys(place: Sequence[Any]) -> KeyPath:
    return tuple(map(_key, place))


def _key(entry: Any) -> KeyEntry:
    if isinstance(entry, OwnKey):
        return entry.entry
    if isinstance(entry, optree.NamedTupleEntry):
        return GetAttrKey(entry.field)
    if isinstance(entry, optree.SequenceEntry):
        return SequenceKey(entry.entry)
    if isinstance(entry, optree.MappingEntry):
        return DictKey(entry.entry)
    if isinstance(entry, optree.GetAttrEntry):
        return GetAttrKey(entry.entry)
    return FlattenedIndexKey(entry.entry)


def _bare(key: KeyEntry) -> str:
    for name in ("key", "idx", "name"):
        if hasattr(key, name):
            return str(getattr(key, name))
    return str(key)
