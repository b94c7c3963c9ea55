"""Pytree nodes of JAX: Equinox modules, Flax states, and classes that users registered in
JAX.

The import of this module registers such a class as a container in shardir when an object of it
first occurs in place of a leaf. JAX flattens and unflattens the object.
"""

import sys
import weakref
from collections.abc import Callable, Hashable, Iterable
from contextlib import suppress

import jax

from shardir.frontend.errors import ArgumentError, StructureError
from shardir.frontend.interop.graph_objects import is_graph_object, objects_within
from shardir.frontend.pytree import tree
from shardir.frontend.pytree_types import PyTree
from shardir.frontend.quoting import brief_with_type
from shardir.frontend.source_locations import with_location
from shardir.frontend.tracing.parameters import UnhashableError, static_key
from shardir.frontend.tracing.trace import current_trace
from shardir.frontend.tracing.traced_program import TracedProgram

MAX_CACHED_STRUCTURES = 4096
"""The maximum number of structures for which the leaf paths are cached."""

_registered_classes: set[type] = set()
_path_cache: dict[jax.tree_util.PyTreeDef, tuple[str, ...]] = {}


def is_jax_container(x: object) -> bool:
    """Return whether only JAX treats `x` as a container, and Python does not."""
    known = x is None or isinstance(x, (tuple, list, dict))
    return not known and not jax.tree_util.all_leaves([x])


def _register_class(x: object) -> bool:
    """Register the class of `x` as a container if it is one for JAX; return whether it is new."""
    kind = type(x)
    if kind in _registered_classes or not is_jax_container(x):
        return False
    tree.register_node(kind, _flatten_container, _unflatten_container)
    _registered_classes.add(kind)
    return True


def register_named_tuples(tree_of_jax: object) -> None:
    """Register the classes of named tuples in a tree that JAX flattens by functions of their own.

    shardir takes any other named tuple as a container of its fields, as JAX does.
    """

    def is_leaf(x: object) -> bool:
        kind = type(x)
        if hasattr(kind, "_fields") and isinstance(x, tuple) and kind not in _registered_classes:
            _, data = jax.tree_util.default_registry.flatten_one_level(x)
            if data is not kind:
                with suppress(StructureError):  # The user has registered it in shardir as well.
                    tree.register_node(kind, _flatten_container, _unflatten_container)
                _registered_classes.add(kind)
        return False

    jax.tree_util.tree_leaves(tree_of_jax, is_leaf=is_leaf)


def _flatten_container(
    x: object,
) -> tuple[PyTree, ...]:
    leaves, structure = jax.tree_util.tree_flatten(x)
    return leaves, structure, leaf_paths(structure)


def _unflatten_container(structure: jax.tree_util.PyTreeDef, leaves: Iterable[object]) -> PyTree:
    result = structure.unflatten(leaves)
    trace = current_trace()
    if trace is not None and is_graph_object(result):
        _copies_by_program.setdefault(trace.program, {}).update(
            (id(x), x) for x in objects_within(result)
        )
    return result


_copies_by_program: weakref.WeakKeyDictionary[TracedProgram, dict[int, object]] = (
    weakref.WeakKeyDictionary()
)
"""For each program in tracing, the nnx objects that were created as copies of the caller's, by
identity."""


def is_object_copy(x: object) -> bool:
    """Return whether an nnx object is a copy of the caller's object, as inside of `jit` and
    `grad`.
    """
    return any(id(x) in copies for copies in _copies_by_program.values())


def leaf_paths(structure: jax.tree_util.PyTreeDef) -> tuple[str, ...]:
    """Return the paths of the leaves of JAX's `structure`: `layers.0.weight`."""
    result = _cached_paths(structure)
    if result is None:
        filled = structure.unflatten(range(structure.num_leaves))
        result = tuple(
            jax.tree_util.keystr(path, simple=True, separator=".")
            for path, _ in jax.tree_util.tree_leaves_with_path(filled)
        )
        if len(_path_cache) < MAX_CACHED_STRUCTURES and _is_hashable(structure):
            _path_cache[structure] = result
    return result


def _cached_paths(structure: jax.tree_util.PyTreeDef) -> tuple[str, ...] | None:
    return _path_cache.get(structure) if _is_hashable(structure) else None


def _is_hashable(structure: object) -> bool:
    try:
        hash(structure)
    except (TypeError, ValueError):
        return False
    return True


tree.add_node_adopter(_register_class)


class Static:
    """A static part of an argument, as a container without leaves."""

    __slots__ = ("value",)

    def __init__(self, value: object) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Static) and bool(self._key() == other._key())

    def __hash__(self) -> int:
        return hash(self._key())

    def _key(self) -> Hashable:
        try:
            return static_key(self.value)
        except UnhashableError:
            raise ArgumentError(
                with_location(
                    f"{brief_with_type(self.value)} is not an array and cannot be hashed, "
                    "so it cannot be part of a cache key; let the function refer to it instead"
                )
            ) from None

    def __repr__(self) -> str:
        return repr(self.value)


tree.register_node(Static, lambda known: ((), known), lambda known, _: known)


def is_python_number(x: object) -> bool:
    """Return whether `x` is a Python number other than a bool."""
    return isinstance(x, (int, float, complex)) and not isinstance(x, bool)


def mark_static_parts(x: object, is_array: Callable[[object], bool]) -> PyTree:
    """Wrap the leaves of `x` that are not arrays in `Static`.

    Python numbers are traced, as by `jax.jit`, except inside of an Equinox module: there a number
    is part of the model, such as the width of a layer, as for `equinox.filter_jit`.
    """
    is_module = _equinox_module_predicate()

    def inside(leaf: object) -> object:
        return leaf if isinstance(leaf, Static) or is_array(leaf) else Static(leaf)

    def mark(part: object) -> PyTree:
        if is_module(part):
            return jax.tree_util.tree_map(inside, part)
        return part if is_python_number(part) else inside(part)

    return jax.tree_util.tree_map(mark, x, is_leaf=is_module)


def _equinox_module_predicate() -> Callable[[object], bool]:
    """Return a predicate for Equinox modules, which is always false if Equinox is not imported."""
    equinox = sys.modules.get("equinox")
    module = getattr(equinox, "Module", None)
    return lambda x: module is not None and isinstance(x, module)


def unwrap_static_parts(x: object) -> PyTree:
    """Replace the `Static` parts of `x` by their values."""
    return jax.tree_util.tree_map(lambda leaf: leaf.value if isinstance(leaf, Static) else leaf, x)
