"""Checks of `in_axes` and `out_axes`: an axis for each array, `None` if it is not mapped."""

from typing import Any

from shardir.frontend.errors import ArgumentError
from shardir.frontend.pytree import tree
from shardir.frontend.quoting import brief_with_type
from shardir.frontend.source_locations import with_location


def is_axis_number(x: Any) -> bool:
    """Return whether `x` is the number of an axis."""
    return isinstance(x, int) and not isinstance(x, bool)


def is_axis_entry(x: Any) -> bool:
    """Return whether `x` is the mapped axis of an array or a pytree of arrays, or `None`."""
    return x is None or is_axis_number(x)


def check_axis_entries(axes: Any, word: str, unmapped: str) -> None:
    """Raise `ArgumentError` for entries that are no axes; `unmapped` describes the meaning of
    `None`."""
    for entry in tree.leaves(axes, is_leaf=is_axis_entry):
        if not is_axis_entry(entry):
            raise ArgumentError(
                with_location(
                    f"{word} has {brief_with_type(entry)}; its entries are axis "
                    f"numbers, and None for {unmapped}"
                )
            )
