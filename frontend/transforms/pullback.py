"""The function that `vjp` returns: a container of residuals, of which some are arguments."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import final

from shardir.errors import count_noun
from shardir.frontend.absent_members import WithAbsentMembers
from shardir.frontend.arrays.numpy_conversion import abstract_of
from shardir.frontend.arrays.signature import ShapeDtypeStruct
from shardir.frontend.dispatch.traced_calls import is_array_like
from shardir.frontend.errors import ArgumentError
from shardir.frontend.pytree import tree
from shardir.frontend.pytree.tree_util import register_static
from shardir.frontend.pytree_types import PyTree
from shardir.frontend.quoting import brief_with_type
from shardir.frontend.source_locations import with_location
from shardir.frontend.tracebacks import traceback_boundary


@register_static
@dataclass(frozen=True)
class NotNeeded:
    """An entry of `Pullback.args_res` for an argument that the gradients do not depend on."""


def is_not_needed(x: object) -> bool:
    return isinstance(x, NotNeeded)


@dataclass(frozen=True)
class PullbackRule:
    """The immutable part of a `Pullback`.

    `apply` takes the residuals and the cotangents. `sources` states for each residual the position
    of the leaf of the arguments that it is, or `None`. `leaves` are the types of the leaves, and
    `labels` their names.
    """

    name: str
    apply: Callable[[Sequence[object], PyTree], PyTree]
    sources: tuple[int | None, ...]
    leaves: tuple[ShapeDtypeStruct, ...]
    structure: tree.PyTreeDef
    labels: tuple[str, ...]


@final
class Pullback(WithAbsentMembers):
    """The linear function from the cotangents of the results of a function to the gradients.

    It is a pytree of its residuals. `args_res` is a list with an entry for each argument: the
    argument where it is a residual, and `NotNeeded` instead of all other arrays in it. An entry may
    be replaced by `None`, which releases the argument, and by the argument itself before the call.
    `opaque_residuals` are the residuals that were computed.
    """

    __slots__ = ("__weakref__", "_rule", "args_res", "opaque_residuals")

    def __init__(
        self, rule: PullbackRule, args_res: list[PyTree], opaque_residuals: list[PyTree]
    ) -> None:
        self._rule, self.args_res, self.opaque_residuals = rule, args_res, opaque_residuals

    @classmethod
    def of(cls, rule: PullbackRule, residuals: Sequence[object]) -> "Pullback":
        """Return the pullback with these residuals, in the order of `rule.sources`."""
        entries: list[object] = [NotNeeded()] * len(rule.leaves)
        opaque = []
        for source, residual in zip(rule.sources, residuals, strict=True):
            if source is None:
                opaque.append(residual)
            else:
                entries[source] = residual
        return cls(rule, list(tree.unflatten(rule.structure, entries)), opaque)

    @traceback_boundary
    def __call__(self, cotangents: PyTree) -> PyTree:
        """Return a tuple with the gradient of each argument."""
        entries = self._entries()
        opaque = iter(self.opaque_residuals)
        residuals = [
            next(opaque) if source is None else self._argument(entries[source], source)
            for source in self._rule.sources
        ]
        return self._rule.apply(residuals, cotangents)

    def _entries(self) -> list[object]:
        """Return an entry of `args_res` for each leaf of the arguments, `None` for those that are
        absent."""
        parts = self._rule.structure.children()
        given = self.args_res
        if not isinstance(given, (list, tuple)) or len(given) != len(parts):
            raise ArgumentError(
                with_location(
                    f"args_res of the pullback of {self._rule.name} is a list with an entry for "
                    f"each of {count_noun(len(parts), 'argument')}, got {brief_with_type(given)}"
                )
            )
        entries: list[object] = []
        for entry, part in zip(given, parts, strict=True):
            leaves = tree.leaves(entry, is_not_needed)
            is_whole = len(leaves) == part.num_leaves
            entries += leaves if is_whole else [None] * part.num_leaves
        return entries

    def _argument(self, entry: object, position: int) -> object:
        """Return a residual that is an argument; raise `ArgumentError` if it has another type."""
        expected = self._rule.leaves[position].abstract.type
        if is_array_like(entry) and abstract_of(entry).type == expected:
            return entry
        if entry is None or is_not_needed(entry):
            described = "absent"
        elif is_array_like(entry):
            described = str(abstract_of(entry).type)
        else:
            described = brief_with_type(entry)
        raise ArgumentError(
            with_location(
                f"the pullback of {self._rule.name} needs the argument "
                f"{self._rule.labels[position]}, which is {expected}, and it is {described} in "
                "args_res; assign the argument of vjp there"
            )
        )


tree.register_node(
    Pullback,
    lambda x: ((x.args_res, x.opaque_residuals), x._rule),
    lambda rule, children: Pullback(rule, *children),
)
