"""Checks and conversions of arguments that must be known while tracing: integers, shapes,
flags, names, and functions of the user."""

from collections.abc import Callable, Collection, Iterable
from inspect import CO_VARARGS, CO_VARKEYWORDS, Parameter, signature
from operator import index
from types import FunctionType
from typing import Any

import numpy as np

from shardir.errors import ShardirError, count_noun
from shardir.frontend.arrays.abstract_value import ArrayBase
from shardir.frontend.errors import ArgumentError, ShapeError
from shardir.frontend.quoting import brief
from shardir.frontend.source_locations import with_location

MAX_RANK = 64
"""The maximum rank of arrays, which is that of NumPy."""


def as_integer(given: Any) -> int | None:
    """Return `given` as an integer, or `None` if it is none; a tracer raises its own error."""
    try:
        return index(given)
    except ShardirError:
        raise
    except TypeError:
        return None


def check_positional_only(what: str, options: Iterable[str]) -> None:
    """Raise `ArgumentError` if arguments are passed by name to `what`."""
    if names := ", ".join(options):
        raise ArgumentError(
            with_location(
                f"{what}, which are for positional arguments, and was called with {names} by "
                "name; pass all arguments by position"
            )
        )


def as_items(given: Any) -> tuple[Any, ...]:
    """Return the items of an iterable, or a tuple of the one object that is given."""
    many = isinstance(given, Iterable) and getattr(given, "ndim", 1) != 0
    return tuple(given) if many else (given,)


def check_integer(
    what: str, given: object, least: int | None = None, most: int | None = None
) -> int:
    """Return `given` as an integer; raises `ArgumentError` unless it is one from `least` to `most`.

    A tracer raises its own error. `what` names the argument in errors.
    """
    number = as_integer(given)
    if number is None:
        raise ArgumentError(with_location(f"{what} must be an integer, got {brief(given)}"))
    if least is not None and number < least:
        raise ArgumentError(with_location(f"{what} is at least {least}, got {number}"))
    if most is not None and number > most:
        raise ArgumentError(with_location(f"{what} is at most {most}, got {number}"))
    return number


def check_integers(what: str, given: object, rank: int | None = None) -> tuple[int, ...]:
    """Return `given` as a tuple of integers, `rank` of them if that is given; they may be negative.

    Raises `ArgumentError` for anything else.
    """
    listed = as_items(given) if isinstance(given, Iterable) else (None,)
    sizes = tuple(n for n in map(as_integer, listed) if n is not None)
    if len(sizes) != len(listed):
        raise ArgumentError(
            with_location(f"{what} must be a tuple of integers, got {brief(given)}")
        )
    if rank is not None and rank != len(sizes):
        raise ArgumentError(
            with_location(f"{what} has {count_noun(rank, 'number')} here, got {sizes}")
        )
    return sizes


def check_least_rank(what: str, x: ArrayBase, least: int) -> None:
    """Raise `ShapeError` if an array, named `what` in errors, has fewer than `least` dimensions."""
    if x.ndim < least:
        raise ShapeError(
            with_location(
                f"{what} has at least {count_noun(least, 'dimension')}, got shape {x.shape}"
            )
        )


def canonicalize_shape(shape: object) -> tuple[int, ...]:
    """Return a shape from one integer or several.

    Raise `ShapeError` for a size that is not an integer or is negative. A traced size raises the
    error of its `__index__`, which states why it cannot be a size.
    """
    given = as_items(shape)
    sizes = []
    for size in given:
        found = as_integer(size)
        if found is None:
            raise ShapeError(
                with_location(
                    f"shape {brief(given)} has the size {size!r}, which is not an integer"
                )
            )
        sizes.append(found)
    if min(sizes, default=0) < 0:
        raise ShapeError(with_location(f"shape {tuple(sizes)} has a negative size"))
    return tuple(sizes)


def check_real(what: str, given: Any) -> float:
    """Return `given` as a real number; raises `ArgumentError` for anything else."""
    try:
        if not isinstance(given, (str, bytes)):
            return float(given)
    except ShardirError:
        raise
    except (TypeError, ValueError, OverflowError):
        pass
    raise ArgumentError(with_location(f"{what} is a real number, got {brief(given)}"))


def check_flag(what: str, given: object) -> bool:
    """Return `given` as a bool; raises `ArgumentError` for an object without a truth value.

    A tracer raises its own error.
    """
    try:
        # Several elements have no truth value. An empty array would be false by accident.
        if not isinstance(given, (np.ndarray, ArrayBase)) or given.size == 1:
            return bool(given)
    except ShardirError:
        raise
    except (TypeError, ValueError):
        pass
    raise ArgumentError(with_location(f"{what} is True or False, got {brief(given)}"))


def is_one_of(value: object, names: Collection[str]) -> bool:
    """Return whether a value is a string and one of the names."""
    return isinstance(value, str) and value in names


def check_not_in_place(what: str, inplace: bool) -> None:
    """Raise `ArgumentError` if `inplace` is true: arrays are immutable."""
    if check_flag(f"inplace of {what}", inplace):
        raise ArgumentError(
            with_location(
                f"{what} cannot write into an array; take the result and pass inplace=False"
            )
        )


def parameter_names(
    fun: Callable[..., object],
) -> tuple[tuple[str, ...], tuple[str, ...], str]:
    """Return the names of all parameters, of the positional ones, and of the variadic one
    (`*args`).

    Some functions that are not written in Python have no signature; they count as variadic.
    """
    if type(fun) is FunctionType and not hasattr(fun, "__wrapped__"):
        # The namespaces have hundreds of functions, and `signature` takes 30 times as long.
        code = fun.__code__
        given = code.co_argcount + code.co_kwonlyargcount
        more = bool(code.co_flags & CO_VARARGS) + bool(code.co_flags & CO_VARKEYWORDS)
        names = code.co_varnames[: given + more]
        return names, names[: code.co_argcount], names[given] if code.co_flags & CO_VARARGS else ""
    try:
        known = signature(fun).parameters.values()
    except (TypeError, ValueError):
        return (), (), "args"
    by_position = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
    return (
        tuple(p.name for p in known),
        tuple(p.name for p in known if p.kind in by_position),
        next((p.name for p in known if p.kind is Parameter.VAR_POSITIONAL), ""),
    )
