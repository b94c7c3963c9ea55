"""Amounts and options as users give them, known while tracing: numbers, flags, names; checked."""

from collections.abc import Collection, Iterable
from operator import index
from typing import Any

import numpy as np

from shardir.errors import ShardirError, counted
from shardir.frontend.errors import ArgumentError
from shardir.frontend.locations import point
from shardir.frontend.operators import Operators
from shardir.frontend.quoting import brief

MOST_DIMENSIONS = 64
"""NumPy, which shows arrays and takes them apart, knows none of more."""


def whole(given: Any) -> int | None:
    """The whole number that `given` is; `None` if it is none. A traced one says itself why not."""
    try:
        return index(given)
    except ShardirError:
        raise
    except TypeError:
        return None


def several(given: Any) -> tuple[Any, ...]:
    """The one thing that is given, or all of them."""
    many = isinstance(given, Iterable) and getattr(given, "ndim", 1) != 0
    return tuple(given) if many else (given,)


def whole_of(what: str, given: Any, least: int | None = None, most: int | None = None) -> int:
    """The whole number `given`; raises `ArgumentError` unless it is one from `least` to `most`.

    A traced number says itself why it cannot be one.
    """
    number = whole(given)
    if number is None:
        raise ArgumentError(point(f"{what} is a whole number, got {brief(given)}"))
    if least is not None and number < least:
        raise ArgumentError(point(f"{what} is at least {least}, got {number}"))
    if most is not None and number > most:
        raise ArgumentError(point(f"{what} is at most {most}, got {number}"))
    return number


def sizes_of(what: str, given: Any, rank: int | None = None) -> tuple[int, ...]:
    """The whole numbers of `given`, as many as `rank` says, negative ones among them.

    Raises `ArgumentError` for anything else.
    """
    listed = several(given) if isinstance(given, Iterable) else (None,)
    sizes = tuple(n for n in map(whole, listed) if n is not None)
    if len(sizes) != len(listed):
        raise ArgumentError(point(f"{what} is a tuple of whole numbers, got {brief(given)}"))
    if rank is not None and rank != len(sizes):
        raise ArgumentError(point(f"{what} has {counted(rank, 'number')} here, got {sizes}"))
    return sizes


def real_of(what: str, given: Any) -> float:
    """The real number `given`; raises `ArgumentError` for anything else."""
    try:
        if not isinstance(given, (str, bytes)):
            return float(given)
    except ShardirError:
        raise
    except (TypeError, ValueError, OverflowError):
        pass
    raise ArgumentError(point(f"{what} is a real number, got {brief(given)}"))


def flag_of(what: str, given: Any) -> bool:
    """Whether `given` is true; raises `ArgumentError` for what is neither true nor false.

    A traced value says itself why it is no flag.
    """
    try:
        # Several elements are no truth value, and none would be false, which nobody means.
        if not isinstance(given, (np.ndarray, Operators)) or given.size == 1:
            return bool(given)
    except ShardirError:
        raise
    except (TypeError, ValueError):
        pass
    raise ArgumentError(point(f"{what} is True or False, got {brief(given)}"))


def is_one_of(value: Any, names: Collection[str]) -> bool:
    """Whether a value is text, and one of the names."""
    return isinstance(value, str) and value in names
