"""What is wrong with the arguments of optimizers, found before they are used."""

from collections.abc import Sequence
from typing import Any

from shardir.frontend import tree
from shardir.frontend.calling import is_array_like
from shardir.frontend.errors import ArgumentError, StructureError
from shardir.frontend.locations import point
from shardir.frontend.numpy.creation import asarray
from shardir.frontend.operands import abstract_of
from shardir.frontend.operators import Operators
from shardir.frontend.quoting import brief
from shardir.frontend.tree_checks import shown


def check_numbers(what: str, **values: Any) -> None:
    """Raises `ArgumentError` unless all values, known by these names, are numbers.

    They may be traced, or arrays that go with the parameters.
    """
    for word, value in values.items():
        if not is_array_like(value):
            raise ArgumentError(point(f"{word} of {what} is a number, got {brief(value)}"))
        abstract_of(value, f"{word} of {what}")


def listed(what: str, values: Any) -> Sequence[Any]:
    """The values; raises `ArgumentError` unless they are a list or a tuple."""
    if not isinstance(values, (list, tuple)):
        raise ArgumentError(point(f"{what} are a list, got {brief(values)}"))
    return values


def arrays(word: str, container: Any) -> Any:
    """The container, NumPy's arrays and Python's numbers in it as arrays of this library.

    Raises `ArgumentError` unless all its leaves, the `word` in errors, are arrays of numbers.
    """
    return _as_arrays(word, container, tree.leaves(container))


def _as_arrays(word: str, container: Any, leaves: Sequence[Any]) -> Any:
    for leaf in leaves:
        if not is_array_like(leaf) or abstract_of(leaf).type.dtype == "key":
            raise ArgumentError(point(f"{word} are arrays in containers, got {brief(leaf)}"))
    plain = all(isinstance(leaf, Operators) for leaf in leaves)
    return container if plain else tree.map(asarray, container)


def with_state(what: str, state: Any, kind: type[Any], updates: Any) -> Any:
    """The updates, as `arrays`; raises `ArgumentError` unless `state` has the fields of `kind`, as
    `what` makes it."""
    leaves, wanted = tree.flatten(updates)
    for field in kind._fields:
        parts, found = tree.flatten(getattr(state, field, "nothing"))
        if not all(map(is_array_like, parts)):
            raise ArgumentError(
                point(f"{what} got the state {brief(state)}; make one with its own init")
            )
        if found != wanted and not found.is_leaf():
            raise _other_containers(f"the state of {what}", found, wanted)
    return _as_arrays("updates", updates, leaves)


def check_containers(what: str, given: Any, updates: Any) -> None:
    """Raises `StructureError` unless `given`, called `what`, is in the containers of updates."""
    found, wanted = tree.structure(given), tree.structure(updates)
    if found != wanted:
        raise _other_containers(what, found, wanted)


def _other_containers(what: str, found: tree.PyTreeDef, wanted: tree.PyTreeDef) -> StructureError:
    return StructureError(
        point(f"{what} is in {shown(found)}, and the updates are in {shown(wanted)}")
    )
