"""The axes that a map is told: a number for each array, `None` for what is not mapped."""

from typing import Any

from shardir.frontend import tree
from shardir.frontend.errors import ArgumentError
from shardir.frontend.locations import point
from shardir.frontend.quoting import brief_with_type


def is_axis(x: Any) -> bool:
    """Whether it is the number of an axis."""
    return isinstance(x, int) and not isinstance(x, bool)


def is_entry(x: Any) -> bool:
    """Whether it says of an array, or of a container of arrays, which axis is mapped."""
    return x is None or is_axis(x)


def check_axes(axes: Any, word: str, unmapped: str) -> None:
    """Raises `ArgumentError` for entries that are no axes; `unmapped` says what `None` is for."""
    for entry in tree.leaves(axes, is_leaf=is_entry):
        if not is_entry(entry):
            raise ArgumentError(
                point(
                    f"{word} has {brief_with_type(entry)}; its entries are numbers "
                    f"of axes, and None for {unmapped}"
                )
            )
