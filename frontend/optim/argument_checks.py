"""Validation of the arguments of optimizers."""

from collections.abc import Sequence
from typing import NamedTuple

from shardir.frontend.arrays.numpy_conversion import abstract_of
from shardir.frontend.arrays.operators import Operators
from shardir.frontend.dispatch.traced_calls import is_array_like
from shardir.frontend.errors import ArgumentError, StructureError
from shardir.frontend.numpy.creation.array_conversion import asarray
from shardir.frontend.pytree import tree
from shardir.frontend.pytree.tree_structure import format_structure
from shardir.frontend.pytree_types import PyTree
from shardir.frontend.quoting import brief
from shardir.frontend.source_locations import with_location
from shardir.ir.dtypes import KEYS


def check_numbers(what: str, **values: object) -> None:
    """Raise `ArgumentError` unless all values, with these names, are numbers.

    They may be traced, or arrays that broadcast with the parameters.
    """
    for name, value in values.items():
        if not is_array_like(value):
            raise ArgumentError(with_location(f"{name} of {what} is a number, got {brief(value)}"))
        abstract_of(value, f"{name} of {what}")


def require_list(what: str, values: object) -> Sequence[PyTree]:
    """Return the values; raise `ArgumentError` unless they are a list or a tuple."""
    if not isinstance(values, (list, tuple)):
        raise ArgumentError(with_location(f"{what} are a list, got {brief(values)}"))
    return values


def as_array_leaves(word: str, container: object) -> PyTree:
    """Return the container with NumPy arrays and Python numbers converted to arrays.

    Raise `ArgumentError`, which mentions `word`, unless all leaves are arrays of numbers.
    """
    return _as_arrays(word, container, tree.leaves(container))


def _as_arrays(word: str, container: object, leaves: Sequence[object]) -> PyTree:
    for leaf in leaves:
        if not is_array_like(leaf) or abstract_of(leaf).type.dtype in KEYS:
            raise ArgumentError(
                with_location(f"{word} are arrays in containers, got {brief(leaf)}")
            )
    plain = all(isinstance(leaf, Operators) for leaf in leaves)
    return container if plain else tree.map(asarray, container)


def check_state(what: str, state: PyTree, kind: type[NamedTuple], updates: PyTree) -> PyTree:
    """Return the updates, converted as by `as_array_leaves`.

    Raise `ArgumentError` unless `state` has the fields of `kind`, as `what` creates it.
    """
    leaves, expected = tree.flatten(updates)
    for field in kind._fields:
        parts, found = tree.flatten(getattr(state, field, "nothing"))
        if not all(map(is_array_like, parts)):
            raise ArgumentError(
                with_location(f"{what} got the state {brief(state)}; make one with its own init")
            )
        if found != expected and not found.is_leaf():
            raise _structure_error(f"the state of {what}", found, expected)
    return _as_arrays("updates", updates, leaves)


def check_structure(what: str, given: object, updates: PyTree) -> None:
    """Raise `StructureError` unless `given`, called `what`, has the containers of the updates."""
    found, expected = tree.structure(given), tree.structure(updates)
    if found != expected:
        raise _structure_error(what, found, expected)


def _structure_error(what: str, found: tree.PyTreeDef, expected: tree.PyTreeDef) -> StructureError:
    return StructureError(
        with_location(
            f"{what} is in {format_structure(found)}, and the updates are in "
            f"{format_structure(expected)}"
        )
    )
