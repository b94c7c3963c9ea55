"""The order of the keys of dictionaries in pytrees: sorted, as in JAX.

optree flattens dictionaries in the order of their sorted keys, but it restores the order of the
keys of the dictionary that was flattened. Equal structures would then make different dictionaries,
so a compiled function would return keys in the order of its first call.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable
from functools import lru_cache

import optree
from optree import PyTreeSpec

from shardir.frontend.errors import StructureError
from shardir.frontend.pytree_types import PyTree
from shardir.frontend.quoting import brief
from shardir.frontend.source_locations import with_location

NAMESPACE = "shardir"


def has_dict(spec: PyTreeSpec) -> bool:
    """Return whether a structure contains dictionaries, whose keys have an order.

    Raises `StructureError` for keys that cannot be sorted.
    """
    if spec.is_leaf():
        return False
    found: list[list[PyTree]] = []

    def visit(kind: type, data: PyTree, children: object) -> None:
        if kind is dict:
            found.append(data)
        elif kind is defaultdict:
            found.append(data[1])

    spec.walk(range(spec.num_leaves), visit)
    for keys in found:
        _check_sortable(keys)
    return bool(found)


def _check_sortable(keys: list[PyTree]) -> None:
    try:
        sorted(keys)
    except TypeError:
        raise StructureError(
            with_location(
                f"the keys {brief(keys)} of a dictionary cannot be sorted, which determines the "
                "order of its leaves; use keys of one type that can be compared, or an OrderedDict"
            )
        ) from None


def unflatten_sorted(spec: PyTreeSpec, leaves: Iterable[PyTree]) -> PyTree:
    """Return the pytree with this structure and `leaves`, with sorted keys in dictionaries."""
    return spec.walk(leaves, _make_container)


def _make_container(kind: type, data: PyTree, children: tuple[PyTree, ...]) -> PyTree:
    if kind is tuple:
        return children
    if kind is dict:
        return dict(zip(data, children, strict=True))
    return _unflatten_function(kind)(data, children)


@lru_cache(maxsize=256)
def _unflatten_function(kind: type) -> Callable[[PyTree, Iterable[PyTree]], PyTree]:
    entry: PyTree = optree.register_pytree_node.get(kind, namespace=NAMESPACE)
    function: Callable[[PyTree, Iterable[PyTree]], PyTree] = entry.unflatten_func
    return function


def sort_keys(spec: PyTreeSpec) -> PyTreeSpec:
    """Return an equal structure whose own method `unflatten` makes sorted dictionaries.

    The method runs no Python code for containers of built-in types, but making this structure takes
    longer than flattening a pytree: use it for a structure that restores many pytrees.
    """
    return spec.transform(_sort_node)


def _sort_node(node: PyTreeSpec) -> PyTreeSpec:
    if node.type is not dict and node.type is not defaultdict:
        return node
    return optree.tree_structure(unflatten_sorted(node, range(node.num_leaves)))
