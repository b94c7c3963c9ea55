"""Pytree functions under the names of `jax.tree_util`."""

import functools
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import optree

from shardir.errors import count_noun
from shardir.frontend.argument_errors import with_argument_errors
from shardir.frontend.errors import StructureError
from shardir.frontend.pytree import tree
from shardir.frontend.pytree.key_paths import (
    CustomKeyEntry,
    DictKey as DictKey,
    FlattenedIndexKey as FlattenedIndexKey,
    GetAttrKey as GetAttrKey,
    KeyEntry as KeyEntry,
    KeyPath as KeyPath,
    SequenceKey as SequenceKey,
    children_with_keys,
    flatten_with_path as tree_flatten_with_path,
    keystr as keystr,
    leaves_with_path as tree_leaves_with_path,
    map_with_path as tree_map_with_path,
)
from shardir.frontend.pytree.tree import (
    NAMESPACE,
    IsLeaf,
    PyTreeDef as PyTreeDef,
    all as tree_all,
    broadcast as tree_broadcast,
    flatten as tree_flatten,
    leaves as tree_leaves,
    map as tree_map,
    reduce as tree_reduce,
    reduce_associative as tree_reduce_associative,
    register_dataclass as register_dataclass,
    structure as tree_structure,
    transpose as tree_transpose,
)
from shardir.frontend.pytree.tree_checks import (
    already_registered_error,
    check_function,
    check_node_class,
    list_items,
)
from shardir.frontend.pytree.tree_structure import check_structure, format_structure
from shardir.frontend.pytree_types import PyTree, UserFunction
from shardir.frontend.quoting import brief_with_type
from shardir.frontend.source_locations import with_location

__all__ = [
    "DictKey",
    "FlattenedIndexKey",
    "GetAttrKey",
    "KeyEntry",
    "KeyPath",
    "Partial",
    "PyTreeDef",
    "SequenceKey",
    "all_leaves",
    "flatten_one_level",
    "flatten_one_level_with_keys",
    "is_tree_node",
    "keystr",
    "register_dataclass",
    "register_pytree_node",
    "register_pytree_node_class",
    "register_pytree_with_keys",
    "register_pytree_with_keys_class",
    "register_static",
    "tree_all",
    "tree_broadcast",
    "tree_flatten",
    "tree_flatten_with_path",
    "tree_leaves",
    "tree_leaves_with_path",
    "tree_map",
    "tree_map_with_path",
    "tree_reduce",
    "tree_reduce_associative",
    "tree_structure",
    "tree_transpose",
    "tree_unflatten",
    "treedef_children",
    "treedef_is_leaf",
    "treedef_tuple",
]

Class = TypeVar("Class", bound=type)
FlattenFunction = Callable[[PyTree], tuple[Iterable[PyTree], PyTree]]
UnflattenFunction = Callable[[PyTree, PyTree], PyTree]


@with_argument_errors
def tree_unflatten(treedef: PyTreeDef, leaves: Iterable[PyTree]) -> PyTree:
    """Return a pytree with the structure `treedef` and `leaves`.

    Raises `StructureError` when the number of leaves does not match.
    """
    check_structure("tree_unflatten", treedef)
    found = list_items("leaves of tree_unflatten", leaves)
    if len(found) != treedef.num_leaves:
        raise StructureError(
            f"{format_structure(treedef)} has {count_noun(treedef.num_leaves, 'leaf', 'leaves')}, "
            f"got {len(found)}"
        )
    return tree.unflatten(treedef, found)


@with_argument_errors
def all_leaves(iterable: Iterable[object], is_leaf: IsLeaf | None = None) -> bool:
    """Return whether no element is a container."""
    return all(tree.structure(x, is_leaf).is_leaf() for x in list_items("elements", iterable))


@with_argument_errors
def is_tree_node(x: object) -> bool:
    """Return whether objects of the class `x` are containers; or whether the object `x` is one."""
    if not isinstance(x, type):
        return children_with_keys(x) is not None
    is_registered = optree.register_pytree_node.get(x, namespace=NAMESPACE) is not None
    return is_registered or optree.is_namedtuple_class(x)


@with_argument_errors
def flatten_one_level(x: PyTree) -> tuple[Iterable[PyTree], PyTree]:
    """Return the children of a container and its auxiliary data; raises `StructureError` for a
    leaf."""
    if not is_tree_node(x):
        raise StructureError(with_location(f"{brief_with_type(x)} is not a container"))
    found = optree.tree_flatten_one_level(x, namespace=NAMESPACE)
    rest: PyTree = found.metadata
    return found.children, tuple(rest) if type(x) is dict else rest


@with_argument_errors
def flatten_one_level_with_keys(x: PyTree) -> tuple[list[tuple[KeyEntry, PyTree]], PyTree]:
    """Return the children of a container with their keys, and its auxiliary data."""
    _, rest = flatten_one_level(x)
    return children_with_keys(x) or [], rest


@with_argument_errors
def treedef_children(treedef: PyTreeDef) -> list[PyTreeDef]:
    """Return the structures of the children."""
    check_structure("treedef_children", treedef)
    return treedef.children()


@with_argument_errors
def treedef_is_leaf(treedef: PyTreeDef) -> bool:
    """Return whether the structure is a single leaf."""
    check_structure("treedef_is_leaf", treedef)
    return treedef.is_leaf()


@with_argument_errors
def treedef_tuple(treedefs: Iterable[PyTreeDef]) -> PyTreeDef:
    """Return the structure of a tuple of pytrees."""
    found = list_items("elements of treedef_tuple", treedefs)
    for each in found:
        check_structure("treedef_tuple", each)
    return PyTreeDef(optree.treespec_tuple([each.spec for each in found], namespace=NAMESPACE))


@with_argument_errors
def register_pytree_node(
    nodetype: Class,
    flatten_func: FlattenFunction,
    unflatten_func: UnflattenFunction,
    flatten_with_keys_func: FlattenFunction | None = None,
) -> None:
    """Register a class as a container.

    `flatten_func(x)` returns (children, auxiliary data), and `unflatten_func(auxiliary data,
    children)` makes the object again. `flatten_with_keys_func` returns (key, child) for each child.
    Raises `StructureError` if `nodetype` is no class, if a function is not callable, and for a
    class that is registered already.
    """
    check_node_class(
        "register_pytree_node", nodetype, flatten_func=flatten_func, unflatten_func=unflatten_func
    )
    if flatten_with_keys_func is not None:
        register_pytree_with_keys(nodetype, flatten_with_keys_func, unflatten_func)
    else:
        tree.register_node(nodetype, flatten_func, unflatten_func)


@with_argument_errors
def register_pytree_node_class(cls: Class) -> Class:
    """Register a class with methods `tree_flatten` and `tree_unflatten` as a container; a
    decorator."""
    made: Any = cls
    flatten, unflatten = (getattr(cls, f"tree_{word}", None) for word in ("flatten", "unflatten"))
    check_node_class(
        "register_pytree_node_class", cls, tree_flatten=flatten, tree_unflatten=unflatten
    )
    register_pytree_node(cls, lambda x: x.tree_flatten(), made.tree_unflatten)
    return cls


@with_argument_errors
def register_pytree_with_keys(
    nodetype: Class,
    flatten_with_keys: FlattenFunction,
    unflatten_func: UnflattenFunction,
    flatten_func: FlattenFunction | None = None,
) -> None:
    """Register a class as a container whose children have keys.

    `flatten_with_keys(x)` returns (pairs of key and child, auxiliary data).
    """
    check_node_class(
        "register_pytree_with_keys",
        nodetype,
        flatten_with_keys=flatten_with_keys,
        unflatten_func=unflatten_func,
    )

    def flatten_with_entries(x: object) -> tuple[Iterable[object], object, Iterable[object]]:
        pairs, rest = flatten_with_keys(x)
        pairs = list(pairs)
        return [child for _, child in pairs], rest, [key for key, _ in pairs]

    kind: Any = nodetype
    try:
        optree.register_pytree_node(
            kind,
            flatten_with_entries,
            unflatten_func,
            path_entry_type=CustomKeyEntry,
            namespace=NAMESPACE,
        )
    except ValueError:
        raise already_registered_error(kind) from None


@with_argument_errors
def register_pytree_with_keys_class(cls: Class) -> Class:
    """Register a class with `tree_flatten_with_keys` and `tree_unflatten` as a container; a
    decorator."""
    made: Any = cls
    flatten, unflatten = (
        getattr(cls, f"tree_{word}", None) for word in ("flatten_with_keys", "unflatten")
    )
    check_node_class(
        "register_pytree_with_keys_class",
        cls,
        tree_flatten_with_keys=flatten,
        tree_unflatten=unflatten,
    )
    register_pytree_with_keys(cls, lambda x: x.tree_flatten_with_keys(), made.tree_unflatten)
    return cls


@with_argument_errors
def register_static(cls: Class) -> Class:
    """Register a class as a container without children; instances are part of the structure."""
    check_node_class("register_static", cls)
    return tree.register_node(cls, lambda x: ((), x), lambda x, _: x)


class _OpaquePartial:
    """A plain partial as the function of a `Partial`, which would merge it: its arguments are no
    leaves. It equals the partial."""

    def __init__(self, function: functools.partial[PyTree]) -> None:
        functools.update_wrapper(self, function.func)
        self.function = function

    def __call__(self, *args: PyTree, **options: PyTree) -> PyTree:
        return self.function(*args, **options)

    def __eq__(self, other: object) -> bool:
        return self.function == (other.function if isinstance(other, _OpaquePartial) else other)

    def __hash__(self) -> int:
        return hash(self.function)


class Partial(functools.partial[PyTree]):
    """`functools.partial` as a container: its arguments are leaves, the function is structure."""

    def __new__(cls, func: UserFunction, *args: PyTree, **options: PyTree) -> "Partial":
        check_function("Partial", func)
        if isinstance(func, functools.partial) and not isinstance(func, Partial):
            func = _OpaquePartial(func)
        return super().__new__(cls, func, *args, **options)


tree.register_node(
    Partial,
    lambda x: ((x.args, x.keywords), x.func),
    lambda func, children: Partial(func, *children[0], **children[1]),
)
