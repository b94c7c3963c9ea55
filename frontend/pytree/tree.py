"""Pytrees: nested containers of arrays.

Lists, tuples, named tuples, dictionaries (by sorted keys) and `None` (no leaves) are containers; a
dataclass is one after registration. Every other object is a leaf. The implementation uses optree.
"""

import builtins
import functools
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import MISSING, field, fields, is_dataclass
from functools import lru_cache
from typing import Any, TypeVar

import optree

from shardir.errors import ShardirError
from shardir.frontend.argument_checks import check_flag
from shardir.frontend.argument_errors import with_argument_errors
from shardir.frontend.call_signatures import check_call_signature
from shardir.frontend.errors import StructureError
from shardir.frontend.pytree.dict_order import NAMESPACE as NAMESPACE
from shardir.frontend.pytree.tree_checks import (
    already_registered_error,
    check_acyclic,
    check_flattened_nodes,
    check_function,
    check_is_leaf,
    check_node_class,
    checked_is_leaf,
)
from shardir.frontend.pytree.tree_structure import (
    PyTreeDef as PyTreeDef,
    check_leaves,
    check_structure,
    format_structure,
)
from shardir.frontend.pytree_types import PyTree, UserFunction
from shardir.frontend.source_locations import with_location

Class = TypeVar("Class", bound=type)
IsLeaf = Callable[[PyTree], bool]
_MISSING: object = object()


@with_argument_errors
def flatten(tree: PyTree, is_leaf: IsLeaf | None = None) -> tuple[list[PyTree], PyTreeDef]:
    """Return the leaves of `tree`, and its structure.

    Raises `StructureError` for a list or a dictionary that contains itself, if `is_leaf` is not
    callable, and for wrong results of functions of registered classes.
    """
    found, spec = flatten_to_spec(tree, is_leaf)
    return found, PyTreeDef(spec)


def flatten_to_spec(
    tree: PyTree, is_leaf: IsLeaf | None = None
) -> tuple[list[PyTree], optree.PyTreeSpec]:
    """Return the leaves of `tree`, and its structure as an object of optree."""
    try:
        result = optree.tree_flatten(tree, is_leaf, namespace=NAMESPACE)
    except RecursionError:
        check_acyclic(tree)
        raise
    except (TypeError, RuntimeError):
        check_is_leaf(is_leaf)
        if is_leaf is not None:  # Its result, or its signature, may have caused the error.
            optree.tree_flatten(tree, checked_is_leaf(is_leaf), namespace=NAMESPACE)
        check_flattened_nodes(tree, NAMESPACE)
        raise
    if _node_adopters and _adopt_classes(result[0]):
        return flatten_to_spec(tree, is_leaf)
    return result


_node_adopters: list[Callable[[object], bool]] = []
_rejected_classes: set[type] = set()
"""Classes of leaves that no adopter registers."""


def add_node_adopter(adopt: Callable[[PyTree], bool]) -> None:
    """Call `adopt` with leaves of unknown classes from now on.

    It registers the class as a container if another library treats it as one, and returns whether
    it did.
    """
    if adopt not in _node_adopters:
        _node_adopters.append(adopt)
        _rejected_classes.clear()


def _adopt_classes(leaves: Iterable[object]) -> bool:
    """Return whether an adopter has just registered a class of these leaves as a container."""
    for leaf in leaves:
        if type(leaf) not in _rejected_classes:
            if builtins.any([adopt(leaf) for adopt in _node_adopters]):
                return True
            _rejected_classes.add(type(leaf))
    return False


END_OF_CONTAINER = ")"
LeafKey = Callable[[PyTree], object]


def flatten_with_key(
    tree: PyTree, kind: type, sign: LeafKey
) -> tuple[list[PyTree], tuple[PyTree, ...]]:
    """Return the leaves of `tree` in the order of `flatten`, and the cache key of the tree.

    The key of a leaf of class `kind` is its `signature`; of any other leaf it is `sign(leaf)`.
    Faster than `flatten` for built-in containers.
    """
    leaves: list[PyTree] = []
    tokens: list[object] = []
    try:
        _flatten_with_key(tree, kind, sign, leaves, tokens)
    except RecursionError:
        check_acyclic(tree)
        raise
    return leaves, tuple(tokens)


def _flatten_with_key(
    x: PyTree, kind: type[PyTree], sign: LeafKey, leaves: list[PyTree], tokens: list[object]
) -> None:
    found = type(x)
    if found is dict and (keys := _sort_keys(tuple(x))) is not None:
        tokens.append(keys)
        # The loop of the branch below is inlined, because there may be hundreds of dictionaries.
        for key in keys:
            child = x[key]
            if type(child) is kind:
                leaves.append(child)
                tokens.append(child.signature)
            else:
                _flatten_with_key(child, kind, sign, leaves, tokens)
        tokens.append(END_OF_CONTAINER)
    elif found is tuple or found is list:
        tokens.append(found)
        for child in x:
            if type(child) is kind:
                leaves.append(child)
                tokens.append(child.signature)
            else:
                _flatten_with_key(child, kind, sign, leaves, tokens)
        tokens.append(END_OF_CONTAINER)
    else:
        inside, spec = flatten_to_spec(x)
        leaves.extend(inside)
        if not spec.is_leaf():
            tokens.append(spec)
        tokens.extend(y.signature if type(y) is kind else sign(y) for y in inside)


@lru_cache(maxsize=4096)
def _sort_keys(keys: tuple[PyTree, ...]) -> tuple[PyTree, ...] | None:
    try:
        return tuple(sorted(keys))
    except TypeError:
        return None


@with_argument_errors
def unflatten(structure: PyTreeDef, leaves: Iterable[PyTree]) -> PyTree:
    """Return a pytree with `structure` and `leaves`.

    Raises `StructureError` for a wrong number of leaves, and for an invalid structure.
    """
    check_structure("tree.unflatten", structure)
    return structure.unflatten(check_leaves("tree.unflatten", structure, leaves))


@with_argument_errors
def leaves(tree: PyTree, is_leaf: IsLeaf | None = None) -> list[PyTree]:
    """Return the leaves of `tree`, in order."""
    return flatten(tree, is_leaf)[0]


@with_argument_errors
def structure(tree: PyTree, is_leaf: IsLeaf | None = None) -> PyTreeDef:
    """Return the structure of `tree` without its leaves."""
    return flatten(tree, is_leaf)[1]


@with_argument_errors
def map(
    function: UserFunction, tree: PyTree, *rest: PyTree, is_leaf: IsLeaf | None = None
) -> PyTree:
    """Apply `function` to each leaf of `tree`, with the corresponding leaves of `rest`.

    Raises `StructureError` when the structures of `rest` differ from that of `tree`.
    """
    check_function("tree.map", function)
    check_is_leaf(is_leaf)
    found, kind = flatten(tree, is_leaf)
    try:
        others = [kind.spec.flatten_up_to(other) for other in rest]
        return kind.unflatten([*builtins.map(function, found, *others)])
    except ValueError as error:
        mismatched = [other for other in rest if structure(other) != structure(tree)]
        if not mismatched:
            raise
        mine, other = format_structure(structure(tree)), format_structure(structure(mismatched[0]))
        raise StructureError(
            with_location(f"the containers do not match: {mine} and {other}")
        ) from error
    except (TypeError, RuntimeError) as error:
        found = flatten(tree, is_leaf)[0]
        _check_call_error(error, "map", function, found[:1] * (1 + len(rest)))
        raise


@with_argument_errors
def all(tree: PyTree, *, is_leaf: IsLeaf | None = None) -> bool:
    """Return whether every leaf is true; raise `ArgumentError` for an array of several elements."""
    return builtins.all(check_flag("a leaf of tree.all", leaf) for leaf in leaves(tree, is_leaf))


@with_argument_errors
def reduce(
    function: Callable[[PyTree, PyTree], PyTree],
    tree: PyTree,
    initializer: object = _MISSING,
    is_leaf: IsLeaf | None = None,
) -> PyTree:
    """Combine the leaves from left to right with `function`.

    Raises `StructureError` if there are no leaves and no `initializer`.
    """
    check_function("tree.reduce", function)
    found = leaves(tree, is_leaf)
    if initializer is not _MISSING:
        found = [initializer, *found]
    elif not found:
        raise StructureError(with_location("there are no leaves to combine; give an initializer"))
    try:
        return functools.reduce(function, found)
    except TypeError as error:
        _check_call_error(error, "reduce", function, found[:1] * 2)
        raise


@with_argument_errors
def reduce_associative(
    operation: Callable[[PyTree, PyTree], PyTree],
    tree: PyTree,
    *,
    identity: object = _MISSING,
    is_leaf: IsLeaf | None = None,
) -> PyTree:
    """Combine adjacent leaves with `operation`, in a binary tree of minimal depth.

    Raises `StructureError` if there are no leaves and no `identity`.
    """
    check_function("tree.reduce_associative", operation)
    result = leaves(tree, is_leaf)
    if not result:
        if identity is _MISSING:
            raise StructureError(with_location("there are no leaves to combine; give an identity"))
        return identity
    while len(result) > 1:
        pairs = zip(result[::2], result[1::2], strict=False)
        odd = result[-1:] if len(result) % 2 else []
        try:
            result = [*(operation(a, b) for a, b in pairs), *odd]
        except TypeError as error:
            _check_call_error(error, "reduce_associative", operation, result[:2])
            raise
    return result[0]


def _check_call_error(
    error: Exception, word: str, function: UserFunction, args: Sequence[PyTree]
) -> None:
    """Raise `ArgumentError` if `error` means that a function does not accept so many arguments."""
    if isinstance(error, TypeError) and not isinstance(error, ShardirError) and args:
        check_call_signature(function, f"the function of tree.{word}", args)


@with_argument_errors
def broadcast(prefix: PyTree, full: PyTree, is_leaf: IsLeaf | None = None) -> PyTree:
    """Return `full` with each leaf replaced by the leaf of `prefix` at or above it.

    Raises `StructureError` if `prefix` is not a prefix of `full`.
    """
    check_is_leaf(is_leaf)
    try:
        found = optree.broadcast_prefix(prefix, full, is_leaf, namespace=NAMESPACE)
    except ValueError as error:
        mine, whole = format_structure(structure(prefix)), format_structure(structure(full))
        raise StructureError(with_location(f"{mine} is not a prefix of {whole}")) from error
    except (TypeError, RuntimeError):
        flatten(prefix, is_leaf)
        flatten(full, is_leaf)
        raise
    return structure(full, is_leaf).unflatten(found)


@with_argument_errors
def transpose(outer: PyTreeDef, inner: PyTreeDef | None, tree: PyTree) -> PyTree:
    """Return `tree`, of structure `outer` of `inner`, as a pytree of structure `inner` of `outer`.

    Without `inner` its structure is that of the first child of `outer`. Raises `StructureError` for
    an invalid structure, and for a tree of another structure.
    """
    for each in (outer,) if inner is None else (outer, inner):
        check_structure("tree.transpose", each)
    found, kind = flatten(tree)
    try:
        inside = structure(outer.flatten_up_to(tree)[0]) if inner is None else inner
    except (StructureError, IndexError):  # `outer` has other containers, or no leaves.
        inside = None
    if inside is None or len(found) != outer.num_leaves * inside.num_leaves:
        expected = f"{format_structure(outer)} with " + (
            "the same containers" if inner is None else format_structure(inner)
        )
        raise StructureError(
            with_location(f"expected {expected} at each leaf, got {format_structure(kind)}")
        )
    count = inside.num_leaves
    return inside.unflatten([outer.unflatten(found[k::count]) for k in range(count)])


def is_registered(kind: type) -> bool:
    """Return whether instances of the class are containers, because it is registered or built in.

    Named tuples are containers without being registered.
    """
    return optree.register_pytree_node.get(kind, namespace=NAMESPACE) is not None


@with_argument_errors
def register_node(
    kind: Class,
    flatten: Callable[[PyTree], tuple[Iterable[PyTree], PyTree]],
    unflatten: Callable[[PyTree, PyTree], PyTree],
) -> Class:
    """Register `kind` as a container and return it.

    `flatten(x)` returns (children, auxiliary data), and `unflatten(auxiliary data, children)` makes
    the object again. Raises `StructureError` if `kind` is no class, if a function is not callable,
    and for a class that is registered already.
    """
    check_node_class("register_node", kind, flatten=flatten, unflatten=unflatten)
    with warnings.catch_warnings():
        # optree warns about named tuples, which are containers already; the user overrides that.
        warnings.simplefilter("ignore", UserWarning)
        try:
            optree.register_pytree_node(kind, flatten, unflatten, namespace=NAMESPACE)
        except ValueError:
            raise already_registered_error(kind) from None
    return kind


def _is_list_of_names(given: PyTree) -> bool:
    listed = isinstance(given, (list, tuple, set, frozenset, dict))
    return listed and builtins.all(isinstance(name, str) for name in given)


@with_argument_errors
def static(**options: PyTree) -> Any:
    """Return a dataclass field that is part of the structure: `dataclasses.field` with
    `options`."""
    metadata = {"static": True, **(options.pop("metadata", None) or {})}
    return field(metadata=metadata, **options)


@with_argument_errors
def register_dataclass(
    kind: Class,
    data_fields: Sequence[str] | None = None,
    meta_fields: Sequence[str] | None = None,
    drop_fields: Sequence[str] = (),
) -> Class:
    """Register a dataclass as a container and return it; may be used as a decorator.

    Other classes are accepted when `data_fields` and `meta_fields` list all of their attributes.

    `data_fields` hold arrays or pytrees of them (by default all other fields). `meta_fields` are
    part of the structure and must be comparable and hashable; by default they are the fields made
    by `static()`. `drop_fields` are in neither, and are reset to their defaults.
    """
    check_node_class("register_dataclass", kind)
    for word, given in (("data", data_fields), ("meta", meta_fields), ("drop", drop_fields)):
        if not (given is None or _is_list_of_names(given)):
            raise StructureError(
                with_location(
                    f"{word}_fields of {kind.__name__} are names of fields, got {given!r}"
                )
            )
    if not is_dataclass(kind) and (data_fields is None or meta_fields is None):
        raise StructureError(
            with_location(
                f"{kind.__name__} is not a dataclass; decorate it with @dataclass first, or name "
                "its data_fields and meta_fields"
            )
        )
    known = fields(kind) if is_dataclass(kind) else ()
    names = [each.name for each in known if each.init and each.name not in drop_fields]
    made = {each.name: each.default_factory for each in known if each.name in drop_fields}
    meta = tuple(meta_fields or ())
    if not is_dataclass(kind):
        names = [*(data_fields or ()), *meta]
    if data_fields is None and not meta:
        meta = tuple(f.name for f in fields(kind) if f.init and f.metadata.get("static"))
    data = tuple(n for n in names if n not in meta) if data_fields is None else tuple(data_fields)
    if sorted(data + meta) != sorted(names):
        raise StructureError(
            with_location(
                f"the fields of {kind.__name__} are {', '.join(names)}, but data_fields and "
                f"meta_fields are {', '.join(data)} and {', '.join(meta) or 'none'}; "
                "name each field once"
            )
        )

    def flatten_instance(instance: object) -> tuple[Iterable[object], object, Iterable[str]]:
        rest = tuple(getattr(instance, name) for name in meta)
        return tuple(getattr(instance, name) for name in data), rest, data

    def unflatten_instance(rest: PyTree, children: Iterable[PyTree]) -> PyTree:
        instance: object = object.__new__(kind)
        for name, value in zip((*data, *meta), (*children, *rest), strict=True):
            object.__setattr__(instance, name, value)
        for name, default in made.items():
            if default is not MISSING:
                object.__setattr__(instance, name, default())
        return instance

    as_node: Any = kind
    optree.register_pytree_node(
        as_node,
        flatten_instance,
        unflatten_instance,
        path_entry_type=optree.GetAttrEntry,
        namespace=NAMESPACE,
    )
    return kind
