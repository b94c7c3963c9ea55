"""What is wrong with the arguments of optimizers, found before they are used."""

from collections.abc import Sequence
from typing import Any

from shardir.frontend import tree
from shardir.frontend.calling import is_array_like
from shardir.frontend.errors import ArgumentError
from shardir.frontend.locations import point
from shardir.frontend.operands import abstract_of
from shardir.frontend.quoting import brief


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


def check_updates(updates: Any) -> None:
    """Raises `ArgumentError` unless all leaves of a container of updates are arrays."""
    for leaf in tree.leaves(updates):
        if not is_array_like(leaf):
            raise ArgumentError(point(f"updates are arrays in containers, got {brief(leaf)}"))


def check_state(what: str, state: Any, kind: type[Any], updates: Any) -> None:
    """Raises `ArgumentError` unless `state` has the fields of `kind`, as `what` makes it, and
    `updates` are arrays."""
    check_updates(updates)
    if not all(hasattr(state, field) for field in kind._fields):
        raise ArgumentError(
            point(f"{what} got the state {brief(state)}; make one with its own init")
        )
