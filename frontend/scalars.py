"""Python's numbers as arguments of programs: arrays, made once for each number that is used."""

from typing import Any

import numpy as np

from shardir.backends.storage import Storage
from shardir.frontend.array import Array, uncommitted
from shardir.frontend.config import config
from shardir.frontend.operands import abstract_of

NUMBERS = {bool, int, float, complex}
MANY = 4096
"""So many arrays are kept at most."""

_arrays: dict[tuple[type, Any, bool], Array] = {}


def numbers_as_arrays(
    args: tuple[Any, ...],
    options: dict[str, Any],
    static_positions: frozenset[int],
    static: frozenset[str],
) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
    """The arguments with arrays for the numbers that are not static; `None`: there are none.

    They are what the numbers would become, made once for each; those that do not fit stay.
    """
    changed = [i for i, x in enumerate(args) if type(x) in NUMBERS and i not in static_positions]
    named = [key for key, x in options.items() if type(x) in NUMBERS and key not in static]
    if not changed and not named:
        return None
    positional = list(args)
    for i in changed:
        positional[i] = number_as_array(args[i])
    return tuple(positional), {**options, **{key: number_as_array(options[key]) for key in named}}


def is_wide_int(x: Any) -> bool:
    """Return whether `x` is a Python integer that the default integer type does not hold.

    No argument of a program can be such a number. It is part of the program instead, where it may
    still become an element of a type that holds it.
    """
    if type(x) is not int:
        return False
    limit = 1 << (63 if config.enable_x64 else 31)
    return not -limit <= x < limit


def number_as_array(x: Any) -> Any:
    """An array that a number is for a program; the number itself if there is none."""
    # Equal zeros may have other signs.
    key = type(x), x if x else repr(x), config.enable_x64
    found = _arrays.get(key)
    if found is None:
        abstract = abstract_of(x)
        try:
            numbers = np.asarray(x, abstract.type.numpy)
        except OverflowError:
            return x
        found = uncommitted(Storage.of(numbers), abstract)
        if len(_arrays) >= MANY:
            _arrays.clear()
        _arrays[key] = found
    return found
