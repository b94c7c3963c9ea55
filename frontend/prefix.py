"""Pytree prefixes: one entry for each leaf or subtree of another pytree."""

from collections.abc import Callable
from typing import Any

import optree

from shardir.frontend import tree
from shardir.frontend.errors import ArgumentError
from shardir.frontend.locations import point
from shardir.frontend.quoting import brief_with_type


def spread(prefix: Any, full: Any, is_entry: Callable[[Any], bool], word: str) -> list[Any]:
    """Return for each leaf of `full` the entry of `prefix` at the leaf or above it.

    `is_entry` distinguishes entries from containers. Raises `ArgumentError` that begins with `word`
    when `prefix` is not a prefix of the structure of `full`.
    """
    entries: list[Any] = []
    _spread(prefix, full, is_entry, word, "", entries)
    return entries


def _spread(
    prefix: Any,
    full: Any,
    is_entry: Callable[[Any], bool],
    word: str,
    path: str,
    entries: list[Any],
) -> None:
    if is_entry(prefix):
        entries.extend([prefix] * len(tree.leaves(full)))
        return
    where = f" at {path}" if path else ""
    mine, theirs = _opened(prefix), _opened(full)
    if mine is None:
        raise ArgumentError(point(f"{word} has {brief_with_type(prefix)}{where}"))
    if theirs is None or type(prefix) is not type(full) or mine[1] != theirs[1]:
        raise ArgumentError(
            point(
                f"{word} has {_shown(prefix)}{where}, where the value has {_shown(full)}; give one "
                "entry for the whole subtree, or the same containers"
            )
        )
    for (key, child), other in zip(mine[0], (value for _, value in theirs[0]), strict=True):
        _spread(child, other, is_entry, word, f"{path}[{key!r}]", entries)


def _opened(x: Any) -> tuple[list[tuple[Any, Any]], Any] | None:
    """Return the children of a container with their keys, and its other contents; `None` for a
    leaf."""
    if x is None:
        return [], None
    if tree.structure(x).is_leaf():
        return None
    children, _, entries, _ = optree.tree_flatten_one_level(x, namespace=tree.NAMESPACE)
    return list(zip(entries, children, strict=True)), tuple(entries)


def _shown(x: Any) -> str:
    opened = _opened(x)
    if opened is None:
        return "one leaf"
    return f"a {type(x).__name__} of {len(opened[0])}"
