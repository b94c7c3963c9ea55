"""Python numbers as arguments of programs. One array is cached for each number."""

import numpy as np

from shardir.backends.storage import Storage
from shardir.frontend.arrays.array import Array, make_uncommitted_array
from shardir.frontend.arrays.numpy_conversion import abstract_of
from shardir.frontend.config import config
from shardir.frontend.pytree_types import PyTree

NUMBER_TYPES = {bool, int, float, complex}
MAX_CACHED_SCALARS = 4096
"""Maximum number of cached arrays."""

_scalar_arrays: dict[tuple[type, object, bool], Array] = {}


def numbers_as_arrays(
    args: tuple[PyTree, ...],
    options: dict[str, PyTree],
    static_positions: frozenset[int],
    static: frozenset[str],
) -> tuple[tuple[PyTree, ...], dict[str, PyTree]]:
    """Return the arguments with dynamic numbers replaced by arrays.

    A number that does not fit its element type is not replaced.
    """
    positional = [
        number_as_array(x) if type(x) in NUMBER_TYPES and i not in static_positions else x
        for i, x in enumerate(args)
    ]
    named = {
        key: number_as_array(x) if type(x) in NUMBER_TYPES and key not in static else x
        for key, x in options.items()
    }
    return tuple(positional), named


def is_wide_int(x: object) -> bool:
    """Return whether `x` is a Python integer that the default integer type does not hold.

    No argument of a program can be such a number. It is part of the program instead, where it may
    still become an element of a type that holds it.
    """
    if type(x) is not int:
        return False
    limit = 1 << (63 if config.enable_x64 else 31)
    return not -limit <= x < limit


def number_as_array(x: object) -> PyTree:
    """Return the cached array for a number, or the number itself if it does not fit its element
    type.
    """
    # Zeros compare equal but may differ in sign.
    key = type(x), x if x else repr(x), config.enable_x64
    found = _scalar_arrays.get(key)
    if found is None:
        abstract = abstract_of(x)
        try:
            numbers = np.asarray(x, abstract.type.numpy)
        except OverflowError:
            return x
        found = make_uncommitted_array(Storage.of(numbers), abstract)
        if len(_scalar_arrays) >= MAX_CACHED_SCALARS:
            _scalar_arrays.clear()
        _scalar_arrays[key] = found
    return found
