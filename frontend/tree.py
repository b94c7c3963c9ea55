"""Nested containers of arrays.

Lists, tuples, named tuples, dictionaries (by sorted keys) and `None` (no leaves) are containers;
a dataclass is one once it is registered. Everything else is a leaf. The work is done by optree.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields, is_dataclass
from functools import lru_cache
from typing import Any, TypeVar

import optree

from shardir.frontend.errors import ArgumentError

__all__ = [
    "PyTreeDef",
    "all",
    "flatten",
    "leaves",
    "map",
    "reduce",
    "register_dataclass",
    "register_node",
    "structure",
    "transpose",
    "unflatten",
]

NAMESPACE = "shardir"
PyTreeDef = optree.PyTreeSpec
Class = TypeVar("Class", bound=type)
IsLeaf = Callable[[Any], bool]


def flatten(tree: Any, is_leaf: IsLeaf | None = None) -> tuple[list[Any], PyTreeDef]:
    """The leaves of `tree`, and the containers without them."""
    return optree.tree_flatten(tree, is_leaf, namespace=NAMESPACE)


CLOSED = ")"
Sign = Callable[[Any], Any]


def walk(tree: Any, kind: type, sign: Sign) -> tuple[list[Any], tuple[Any, ...]]:
    """The leaves of `tree` in the order of `flatten`, and what containers and leaves are found by.

    A leaf of this `kind` is found by its `signature`, any other by what `sign` says. Quicker than
    `flatten` for containers of Python's own types.
    """
    leaves: list[Any] = []
    tokens: list[Any] = []
    _walk(tree, kind, sign, leaves, tokens)
    return leaves, tuple(tokens)


def _walk(x: Any, kind: type[Any], sign: Sign, leaves: list[Any], tokens: list[Any]) -> None:
    found = type(x)
    if found is dict and (keys := _sorted(tuple(x))) is not None:
        tokens.append(keys)
        # The loop below once more, because there may be hundreds of small dictionaries.
        for key in keys:
            child = x[key]
            if type(child) is kind:
                leaves.append(child)
                tokens.append(child.signature)
            else:
                _walk(child, kind, sign, leaves, tokens)
        tokens.append(CLOSED)
    elif found is tuple or found is list:
        tokens.append(found)
        for child in x:
            if type(child) is kind:
                leaves.append(child)
                tokens.append(child.signature)
            else:
                _walk(child, kind, sign, leaves, tokens)
        tokens.append(CLOSED)
    else:
        inside, structure = flatten(x)
        leaves.extend(inside)
        if not structure.is_leaf():
            tokens.append(structure)
        tokens.extend(y.signature if type(y) is kind else sign(y) for y in inside)


@lru_cache(maxsize=4096)
def _sorted(keys: tuple[Any, ...]) -> tuple[Any, ...] | None:
    try:
        return tuple(sorted(keys))
    except TypeError:
        return None


def unflatten(structure: PyTreeDef, leaves: Iterable[Any]) -> Any:
    """The containers of `structure` with `leaves` in them."""
    return optree.tree_unflatten(structure, leaves)


def leaves(tree: Any, is_leaf: IsLeaf | None = None) -> list[Any]:
    """The leaves of `tree`, in order."""
    return optree.tree_leaves(tree, is_leaf, namespace=NAMESPACE)


def structure(tree: Any, is_leaf: IsLeaf | None = None) -> PyTreeDef:
    """The containers of `tree` without its leaves."""
    return optree.tree_structure(tree, is_leaf, namespace=NAMESPACE)


def map(function: Callable[..., Any], tree: Any, *rest: Any, is_leaf: IsLeaf | None = None) -> Any:
    """`tree` with `function` of each leaf, and of the leaves of `rest` at the same place.

    Raises `ArgumentError` when the containers of `rest` are not those of `tree`.
    """
    try:
        return optree.tree_map(function, tree, *rest, is_leaf=is_leaf, namespace=NAMESPACE)
    except ValueError as error:
        mismatched = [other for other in rest if structure(other) != structure(tree)]
        if not mismatched:
            raise
        raise ArgumentError(
            f"the containers do not match: {structure(tree)} and {structure(mismatched[0])}"
        ) from error


def all(tree: Any) -> bool:
    """Whether every leaf is true."""
    return bool(optree.tree_all(tree, namespace=NAMESPACE))


def reduce(function: Callable[[Any, Any], Any], tree: Any, *initial: Any) -> Any:
    """The leaves combined from left to right by `function`."""
    return optree.tree_reduce(function, tree, *initial, namespace=NAMESPACE)


def transpose(outer: PyTreeDef, inner: PyTreeDef, tree: Any) -> Any:
    """`tree`, containers `inner` within `outer`, as containers `outer` within `inner`."""
    return optree.tree_transpose(outer, inner, tree)


def register_node(
    kind: Class,
    flatten: Callable[[Any], tuple[Iterable[Any], Any]],
    unflatten: Callable[[Any, Any], Any],
) -> Class:
    """Make `kind` a container: `flatten(x)` is (children, the rest), `unflatten(rest, children)`
    makes it again."""
    optree.register_pytree_node(kind, flatten, unflatten, namespace=NAMESPACE)
    return kind


def register_dataclass(
    kind: Class,
    data_fields: Sequence[str] | None = None,
    meta_fields: Sequence[str] = (),
) -> Class:
    """Make a dataclass a container; may be used as its decorator.

    `data_fields` hold arrays or containers of them (all fields but the others unless named),
    `meta_fields` are part of the structure and must compare and hash.
    """
    if not is_dataclass(kind):
        raise ArgumentError(f"{kind.__name__} is no dataclass; decorate it with @dataclass first")
    names = [field.name for field in fields(kind) if field.init]
    meta = tuple(meta_fields)
    data = tuple(n for n in names if n not in meta) if data_fields is None else tuple(data_fields)
    if sorted(data + meta) != sorted(names):
        raise ArgumentError(
            f"the fields of {kind.__name__} are {', '.join(names)}, but data_fields and "
            f"meta_fields are {', '.join(data)} and {', '.join(meta) or 'none'}; "
            "name each field once"
        )

    def apart(instance: Any) -> tuple[Iterable[Any], Any, Iterable[str]]:
        rest = tuple(getattr(instance, name) for name in meta)
        return tuple(getattr(instance, name) for name in data), rest, data

    def together(rest: Any, children: Any) -> Any:
        instance = object.__new__(kind)
        for name, value in zip((*data, *meta), (*children, *rest), strict=True):
            object.__setattr__(instance, name, value)
        return instance

    as_node: Any = kind
    optree.register_pytree_node(
        as_node, apart, together, path_entry_type=optree.GetAttrEntry, namespace=NAMESPACE
    )
    return kind
