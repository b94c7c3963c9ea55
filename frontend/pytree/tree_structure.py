"""The structure of a pytree without its leaves, with the attributes and the text of JAX."""

from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterable
from typing import TypeVar

import optree
from optree import PyTreeSpec

from shardir.errors import count_noun
from shardir.frontend.absent_members import WithAbsentMembers
from shardir.frontend.call_signatures import with_method_errors
from shardir.frontend.errors import StructureError
from shardir.frontend.pytree.dict_order import has_dict, unflatten_sorted
from shardir.frontend.pytree.tree_checks import check_function, list_items
from shardir.frontend.pytree_types import PyTree
from shardir.frontend.quoting import brief
from shardir.frontend.source_locations import with_location

Node = TypeVar("Node")


@with_method_errors
class PyTreeDef(WithAbsentMembers):
    """The structure of a pytree: its containers without the leaves. It is hashable.

    The dictionaries of a pytree that it makes have sorted keys, whatever the order of the keys in
    the dictionaries that were flattened.
    """

    __slots__ = ("__weakref__", "_has_dict", "spec")

    spec: PyTreeSpec
    """The structure as an object of optree."""

    def __init__(self, spec: PyTreeSpec) -> None:
        if not isinstance(spec, PyTreeSpec):
            raise StructureError(
                with_location(
                    f"PyTreeDef takes a structure of optree, got {brief(spec)}; use "
                    "tree.structure(x) for the structure of x"
                )
            )
        self.spec = spec
        self._has_dict = has_dict(spec)

    @property
    def num_leaves(self) -> int:
        """The number of leaves."""
        return self.spec.num_leaves

    @property
    def num_nodes(self) -> int:
        """The number of containers and leaves."""
        return self.spec.num_nodes

    def is_leaf(self) -> bool:
        """Return whether the structure is a single leaf."""
        return self.spec.is_leaf()

    def unflatten(self, leaves: Iterable[PyTree], /) -> PyTree:
        """Return a pytree with this structure and `leaves`.

        Raises `StructureError` for a wrong number of leaves.
        """
        found = check_leaves("PyTreeDef.unflatten", self, leaves)
        return unflatten_sorted(self.spec, found) if self._has_dict else self.spec.unflatten(found)

    def flatten_up_to(self, tree: PyTree, /) -> list[PyTree]:
        """Return the parts of `tree` at the leaves of this structure.

        Raises `StructureError` unless the outer containers of `tree` are those of this structure.
        """
        try:
            return self.spec.flatten_up_to(tree)
        except ValueError:
            raise StructureError(
                with_location(
                    "PyTreeDef.flatten_up_to takes a tree whose outer containers are those of "
                    f"{format_structure(self)}, got {brief(tree)}"
                )
            ) from None

    def children(self) -> "list[PyTreeDef]":
        """Return the structures of the children of the outermost container."""
        return [PyTreeDef(child) for child in self.spec.children()]

    def compose(self, inner: "PyTreeDef", /) -> "PyTreeDef":
        """Return this structure with `inner` in place of each leaf."""
        check_structure("PyTreeDef.compose", inner)
        return PyTreeDef(self.spec.compose(inner.spec))

    def node_data(self) -> tuple[type, PyTree] | None:
        """Return the class and the auxiliary data of the outermost container; `None` for a leaf."""
        if self.spec.is_leaf():
            return None
        found: list[tuple[type, PyTree]] = []
        self.spec.walk(
            range(self.num_leaves),
            lambda kind, data, children: found.append((kind, data)),
        )
        kind, data = found[-1]
        return kind, None if optree.is_namedtuple_class(kind) else _static_data(kind, data)

    def walk(
        self,
        f_node: Callable[[tuple[Node, ...], PyTree], Node],
        f_leaf: Callable[[PyTree], Node] | None,
        leaves: Iterable[PyTree],
        /,
    ) -> Node:
        """Call `f_leaf(leaf)` for leaves, and `f_node(results, auxiliary data)` for containers.

        `results` are those of the children. Return the result of the outermost call. Raises
        `StructureError` for a wrong number of leaves.
        """
        check_function("PyTreeDef.walk", f_node)
        if f_leaf is not None:
            check_function("PyTreeDef.walk", f_leaf)

        def visit(kind: type, data: PyTree, children: tuple[Node, ...]) -> Node:
            return f_node(children, _static_data(kind, data))

        result: Node = self.spec.walk(check_leaves("PyTreeDef.walk", self, leaves), visit, f_leaf)
        return result

    def paths(self) -> list[tuple[PyTree, ...]]:
        """Return the position of each leaf as a tuple of entries, one for each container."""
        return self.spec.paths()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PyTreeDef) and self.spec == other.spec

    def __hash__(self) -> int:
        return hash(self.spec)

    def __repr__(self) -> str:
        text = self.spec.walk(range(self.num_leaves), _format_node, lambda leaf: "*")
        return f"PyTreeDef({text})"

    def __reduce__(self) -> tuple[object, ...]:
        return PyTreeDef, (self.spec,)


def check_structure(what: str, structure: object) -> None:
    """Raise `StructureError` unless `structure` is the structure of a pytree."""
    if not isinstance(structure, PyTreeDef):
        raise StructureError(
            with_location(f"{what} takes what tree.structure returns, got {structure!r}")
        )


def check_leaves(what: str, structure: PyTreeDef, leaves: Iterable[PyTree]) -> list[PyTree]:
    """Return the leaves of a structure as a list; raise `StructureError` for a wrong number."""
    found = list_items(f"leaves of {what}", leaves)
    if len(found) != structure.num_leaves:
        raise StructureError(
            with_location(
                f"{what} got {count_noun(len(found), 'leaf', 'leaves')} for a structure of "
                f"{structure.num_leaves}"
            )
        )
    return found


def _static_data(kind: type, data: PyTree) -> PyTree:
    """Return the auxiliary data of a container as JAX states it: keys in a given order as a
    tuple."""
    if kind is OrderedDict:
        return tuple(data)
    if kind is defaultdict:
        return data[0], tuple(data[1])
    return data


def _format_node(kind: type, data: PyTree, children: tuple[str, ...]) -> str:
    """Return the text of a container from the texts of its children."""
    if kind is type(None):
        return "None"
    if kind is dict:
        return (
            "{"
            + ", ".join(f"{k!r}: {child}" for k, child in zip(data, children, strict=True))
            + "}"
        )
    listed = ", ".join(children)
    if kind is list:
        return f"[{listed}]"
    if kind is tuple:
        return f"({listed},)" if len(children) == 1 else f"({listed})"
    if optree.is_namedtuple_class(kind):
        return f"CustomNode(namedtuple[{kind.__name__}], [{listed}])"
    return f"CustomNode({kind.__name__}[{_static_data(kind, data)}], [{listed}])"


class _Leaf:
    """Placeholder of a leaf where a pytree is printed."""

    def __repr__(self) -> str:
        return "*"


def format_structure(structure: PyTreeDef) -> str:
    """Return the structure as Python text, with * for each leaf."""
    try:
        text = repr(structure.unflatten([_Leaf()] * structure.num_leaves))
    except Exception:  # The class of the user may reject the placeholders.
        text = ""
    if text and " object at 0x" not in text:
        return text
    return str(structure).removeprefix("PyTreeDef(")[:-1]
