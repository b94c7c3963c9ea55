"""Key paths: the position of a leaf in a pytree as a sequence of keys, one for each container."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import optree

from shardir.frontend.argument_checks import check_flag
from shardir.frontend.argument_errors import with_argument_errors
from shardir.frontend.call_signatures import call_user_function, with_constructor_errors
from shardir.frontend.errors import ArgumentError
from shardir.frontend.pytree.tree import NAMESPACE, PyTreeDef, flatten, map as map_tree
from shardir.frontend.pytree.tree_checks import (
    check_acyclic,
    check_function,
    check_is_leaf,
    checked_is_leaf,
    list_items,
)
from shardir.frontend.pytree_types import PyTree, UserFunction
from shardir.frontend.quoting import brief
from shardir.frontend.source_locations import with_location


@with_constructor_errors
@dataclass(frozen=True, slots=True)
class SequenceKey:
    """A position in a list or a tuple."""

    idx: int
    """The position, from 0."""

    def __str__(self) -> str:
        return f"[{self.idx!r}]"


@with_constructor_errors
@dataclass(frozen=True, slots=True)
class DictKey:
    """A key of a dictionary."""

    key: PyTree
    """The key."""

    def __str__(self) -> str:
        return f"[{self.key!r}]"


@with_constructor_errors
@dataclass(frozen=True, slots=True)
class GetAttrKey:
    """A field of a dataclass or a named tuple."""

    name: str
    """The name of the field."""

    def __str__(self) -> str:
        return f".{self.name}"


@with_constructor_errors
@dataclass(frozen=True, slots=True)
class FlattenedIndexKey:
    """The index of a child in a container without names for its children."""

    key: int
    """The index of the child, from 0."""

    def __hash__(self) -> int:  # differs from that of a `SequenceKey`
        return hash((FlattenedIndexKey, self.key))

    def __str__(self) -> str:
        return f"[<flat index {self.key}>]"


KeyEntry = Any
"""One of the keys above, or a key that a class registered with keys returns."""
KeyPath = tuple[KeyEntry, ...]
"""The keys from the root of a pytree to a leaf."""


class CustomKeyEntry(optree.PyTreeEntry):
    """A key that the class of the container defines."""


@with_argument_errors
def flatten_with_path(
    tree: PyTree, is_leaf: Callable[..., bool] | None = None, is_leaf_takes_path: bool = False
) -> tuple[list[tuple[KeyPath, PyTree]], PyTreeDef]:
    """Return the leaves of `tree`, each with its path, and the structure.

    With `is_leaf_takes_path` the predicate is called as `is_leaf(path, x)`. Raises `StructureError`
    if `is_leaf` is not callable.
    """
    check_is_leaf(is_leaf)
    if is_leaf is not None and is_leaf_takes_path:
        return _flatten_by_path(tree, is_leaf)
    try:
        places, leaves, spec = optree.tree_flatten_with_accessor(tree, is_leaf, namespace=NAMESPACE)
    except RecursionError:
        check_acyclic(tree)
        raise
    except (TypeError, RuntimeError):
        flatten(tree, is_leaf)  # Raises a specific error if `is_leaf` is invalid.
        raise
    pairs = [(_to_key_path(place), leaf) for place, leaf in zip(places, leaves, strict=True)]
    return pairs, PyTreeDef(spec)


def _flatten_by_path(
    tree: PyTree, is_leaf: Callable[[KeyPath, PyTree], bool]
) -> tuple[list[tuple[KeyPath, object]], PyTreeDef]:
    """Flatten level by level, because optree calls its predicate without paths."""
    chosen: list[tuple[KeyPath, PyTree]] = []
    is_leaf_at = checked_is_leaf(is_leaf)

    def walk(path: KeyPath, x: PyTree) -> PyTree:
        if not is_leaf_at(path, x) and (children := children_with_keys(x)) is not None:
            _, spec = optree.tree_flatten(x, lambda y: y is not x, namespace=NAMESPACE)
            return optree.tree_unflatten(spec, [walk((*path, k), child) for k, child in children])
        chosen.append((path, x))
        return _PathLeaf(path)

    held = walk((), tree)
    spec = optree.tree_structure(held, lambda x: isinstance(x, _PathLeaf), namespace=NAMESPACE)
    return chosen, PyTreeDef(spec)


@with_argument_errors
def leaves_with_path(
    tree: PyTree, is_leaf: Callable[..., bool] | None = None, is_leaf_takes_path: bool = False
) -> list[tuple[KeyPath, PyTree]]:
    """Return the leaves of `tree`, each with its path."""
    return flatten_with_path(tree, is_leaf, is_leaf_takes_path)[0]


@with_argument_errors
def map_with_path(
    function: UserFunction,
    tree: PyTree,
    *rest: object,
    is_leaf: Callable[..., bool] | None = None,
    is_leaf_takes_path: bool = False,
) -> PyTree:
    """Apply `function` to the path and the leaf at each position, with those of `rest`.

    Raises `StructureError` if `function` is not callable, and as `tree.map` does.
    """
    check_function("tree.map_with_path", function)
    pairs, spec = flatten_with_path(tree, is_leaf, is_leaf_takes_path)
    paths = spec.unflatten([_PathLeaf(path, leaf) for path, leaf in pairs])

    def apply(held: "_PathLeaf", *leaves: object) -> object:
        args = (held.path, held.leaf, *leaves)
        return call_user_function(function, "the function of tree.map_with_path", args)

    return map_tree(apply, paths, *rest, is_leaf=lambda x: isinstance(x, _PathLeaf))


@with_argument_errors
def keystr(keys: Iterable[KeyEntry], *, simple: bool = False, separator: str = "") -> str:
    """Return a path as Python text: `['layers'][0].w`.

    `simple` omits brackets, quotes and dots; `separator` is inserted between the keys.
    """
    if not isinstance(separator, str):
        raise ArgumentError(with_location(f"separator of keystr is text, got {brief(separator)}"))
    simple = check_flag("simple of keystr", simple)
    return separator.join(
        _simple_text(key) if simple else str(key) for key in list_items("keys", keys)
    )


def children_with_keys(tree: PyTree) -> list[tuple[KeyEntry, PyTree]] | None:
    """Return the children of a container, each with its key; `None` for a leaf."""
    pairs, spec = flatten_with_path(tree, lambda x: x is not tree)
    if spec.is_leaf():
        return None
    return [(path[0], child) for path, child in pairs]


@dataclass(frozen=True, slots=True)
class _PathLeaf:
    """A path and a leaf as one leaf; a tuple would be a container."""

    path: KeyPath
    leaf: PyTree = None


def _to_key_path(place: Sequence[object]) -> KeyPath:
    return tuple(map(_to_key, place))


def _to_key(entry: PyTree) -> KeyEntry:
    if isinstance(entry, CustomKeyEntry):
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


def _simple_text(key: KeyEntry) -> str:
    for name in ("key", "idx", "name"):
        if hasattr(key, name):
            return str(getattr(key, name))
    return str(key)
