"""Pytree nodes of JAX: Equinox modules, Flax states, and classes that users registered in
JAX.

The import of this module registers such a class as a container in shardir when an object of it
first occurs in place of a leaf. JAX flattens and unflattens the object.
"""

import sys
import weakref
from collections.abc import Callable
from typing import Any

import jax

from shardir.frontend import tree
from shardir.frontend.eager import UnhashableError, static_key
from shardir.frontend.errors import ArgumentError
from shardir.frontend.interop.graph_objects import is_graph_object, objects_within
from shardir.frontend.locations import point
from shardir.frontend.quoting import brief_with_type
from shardir.frontend.trace import current
from shardir.frontend.traced_program import Program

MANY = 4096
"""The maximum number of structures for which the leaf paths are cached."""

_adopted: set[type] = set()
_paths: dict[Any, tuple[str, ...]] = {}


def is_foreign(x: Any) -> bool:
    """Return whether only JAX treats `x` as a container, and Python does not."""
    known = x is None or isinstance(x, (tuple, list, dict))
    return not known and not jax.tree_util.all_leaves([x])


def _adopt(x: Any) -> bool:
    """Register the class of `x` as a container if it is one for JAX; return whether it is new."""
    kind = type(x)
    if kind in _adopted or not is_foreign(x):
        return False
    tree.register_node(kind, _apart, _together)
    _adopted.add(kind)
    return True


def _apart(x: Any) -> tuple[Any, ...]:
    leaves, structure = jax.tree_util.tree_flatten(x)
    return leaves, structure, paths_of(structure)


def _together(structure: Any, leaves: Any) -> Any:
    result = structure.unflatten(leaves)
    trace = current()
    if trace is not None and is_graph_object(result):
        _copies.setdefault(trace.program, {}).update((id(x), x) for x in objects_within(result))
    return result


_copies: weakref.WeakKeyDictionary[Program, dict[int, Any]] = weakref.WeakKeyDictionary()
"""For each program in tracing, the nnx objects that were created as copies of the caller's, by
identity."""


def is_copy(x: Any) -> bool:
    """Return whether an nnx object is a copy of the caller's object, as inside of `jit` and
    `grad`.
    """
    return any(id(x) in copies for copies in _copies.values())


def paths_of(structure: Any) -> tuple[str, ...]:
    """Return the paths of the leaves of JAX's `structure`: `layers.0.weight`."""
    found = _known(structure)
    if found is None:
        filled = structure.unflatten(range(structure.num_leaves))
        found = tuple(
            jax.tree_util.keystr(path, simple=True, separator=".")
            for path, _ in jax.tree_util.tree_leaves_with_path(filled)
        )
        if len(_paths) < MANY and _hashable(structure):
            _paths[structure] = found
    return found


def _known(structure: Any) -> tuple[str, ...] | None:
    return _paths.get(structure) if _hashable(structure) else None


def _hashable(structure: Any) -> bool:
    try:
        hash(structure)
    except (TypeError, ValueError):
        return False
    return True


tree.adopt_by(_adopt)


class Known:
    """A static part of an argument, as a container without leaves."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Known) and bool(self._key() == other._key())

    def __hash__(self) -> int:
        return hash(self._key())

    def _key(self) -> Any:
        try:
            return static_key(self.value)
        except UnhashableError:
            raise ArgumentError(
                point(
                    f"{brief_with_type(self.value)} is not an array and cannot be hashed, "
                    "so it cannot be part of a cache key; let the function refer to it instead"
                )
            ) from None

    def __repr__(self) -> str:
        return repr(self.value)


tree.register_node(Known, lambda known: ((), known), lambda known, _: known)


def is_number(x: Any) -> bool:
    """Return whether `x` is a Python number other than a bool."""
    return isinstance(x, (int, float, complex)) and not isinstance(x, bool)


def known_parts(x: Any, is_array: Callable[[Any], bool]) -> Any:
    """Wrap the leaves of `x` that are not arrays in `Static`.

    Python numbers are traced, as by `jax.jit`, except inside of an Equinox module: there a number
    is part of the model, such as the width of a layer, as for `equinox.filter_jit`.
    """
    is_module = _module_check()

    def inside(leaf: Any) -> Any:
        return leaf if isinstance(leaf, Known) or is_array(leaf) else Known(leaf)

    def mark(part: Any) -> Any:
        if is_module(part):
            return jax.tree_util.tree_map(inside, part)
        return part if is_number(part) else inside(part)

    return jax.tree_util.tree_map(mark, x, is_leaf=is_module)


def _module_check() -> Callable[[Any], bool]:
    """Return a predicate for Equinox modules, which is always false if Equinox is not imported."""
    equinox = sys.modules.get("equinox")
    module = getattr(equinox, "Module", None)
    return lambda x: module is not None and isinstance(x, module)


def unmarked(x: Any) -> Any:
    """Replace the `Static` parts of `x` by their values."""
    return jax.tree_util.tree_map(lambda leaf: leaf.value if isinstance(leaf, Known) else leaf, x)
