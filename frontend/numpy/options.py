"""Options as users give them: whole numbers, flags, a name out of a few; checked."""

from collections.abc import Collection
from typing import Any

import numpy as np

from shardir.frontend.amounts import whole
from shardir.frontend.errors import ArgumentError
from shardir.frontend.locations import point
from shardir.frontend.quoting import brief


def whole_of(number: Any, what: str, least: int | None = None) -> int:
    """The whole number that is `what`; raises `ArgumentError` for another thing, or below `least`.

    A traced number says itself why it cannot be one.
    """
    found = whole(number)
    if found is None:
        raise ArgumentError(point(f"{what} is {brief(number)}, which is no whole number"))
    if least is not None and found < least:
        raise ArgumentError(point(f"{what} is {found}; it is at least {least}"))
    return found


def flag_of(value: Any, what: str) -> bool:
    """Whether `what` is wanted; raises `ArgumentError` for an array of other than one element.

    Arrays of this library say themselves why they are no flags.
    """
    if isinstance(value, np.ndarray) and value.size != 1:
        raise ArgumentError(point(f"{what} is {brief(value)}; it is True or False"))
    return bool(value)


def is_one_of(value: Any, names: Collection[str]) -> bool:
    """Whether a value is text, and one of the names."""
    return isinstance(value, str) and value in names
