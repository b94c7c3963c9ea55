"""Pytree prefixes: one entry for each leaf or subtree of another pytree."""

from collections.abc import Callable, Mapping

import optree

from shardir.frontend.errors import ArgumentError
from shardir.frontend.pytree import tree
from shardir.frontend.pytree_types import PyTree
from shardir.frontend.quoting import brief, brief_with_type
from shardir.frontend.source_locations import with_location


def broadcast_prefix(
    prefix: object, full: object, is_entry: Callable[[PyTree], bool], word: str
) -> list[PyTree]:
    """Return for each leaf of `full` the entry of `prefix` at the leaf or above it.

    `is_entry` distinguishes entries from containers. Raises `ArgumentError` that begins with `word`
    when `prefix` is not a prefix of the structure of `full`.
    """
    entries: list[PyTree] = []
    _broadcast_prefix(prefix, full, is_entry, word, "", entries)
    return entries


def _broadcast_prefix(
    prefix: object,
    full: object,
    is_entry: Callable[[PyTree], bool],
    word: str,
    path: str,
    entries: list[object],
) -> None:
    if is_entry(prefix):
        entries.extend([prefix] * len(tree.leaves(full)))
        return
    where = f" at {path}" if path else ""
    mine, theirs = _flatten_one_level(prefix), _flatten_one_level(full)
    if mine is None:
        raise ArgumentError(with_location(f"{word} has {brief_with_type(prefix)}{where}"))
    if theirs is None or type(prefix) is not type(full) or mine[1] != theirs[1]:
        raise ArgumentError(
            with_location(
                f"{word} has {_describe_node(prefix, full)}{where}, where the value has "
                f"{_describe_node(full, prefix)}; give one entry for the whole subtree, or the "
                "same containers"
            )
        )
    for (key, child), other in zip(mine[0], (value for _, value in theirs[0]), strict=True):
        _broadcast_prefix(child, other, is_entry, word, f"{path}[{key!r}]", entries)


def _flatten_one_level(x: PyTree) -> tuple[list[tuple[PyTree, PyTree]], PyTree] | None:
    """Return the children of a container with their keys, and its other contents; `None` for a
    leaf."""
    if x is None:
        return [], None
    if tree.structure(x).is_leaf():
        return None
    children, _, entries, _ = optree.tree_flatten_one_level(x, namespace=tree.NAMESPACE)
    return list(zip(entries, children, strict=True)), tuple(entries)


def _describe_node(x: PyTree, other: PyTree) -> str:
    """Return a description of a container; dictionaries of equal size differ in their keys."""
    opened = _flatten_one_level(x)
    if opened is None:
        return "one leaf"
    if isinstance(x, Mapping) and isinstance(other, Mapping) and len(x) == len(other):
        return f"a {type(x).__name__} with the keys {brief([key for key, _ in opened[0]])}"
    return f"a {type(x).__name__} of {len(opened[0])}"
