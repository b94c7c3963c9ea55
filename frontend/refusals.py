"""Errors of Python and NumPy that come out of a function of a namespace.

Most mistakes are found where their meaning is known, and have a text of their own. What is left
are values of a kind that nobody looked at: Python says of such a value what is wrong with it, but
not whose argument it is.
"""

import sys
from collections.abc import Callable
from functools import wraps
from traceback import walk_tb
from typing import Any, TypeVar, cast

from shardir.errors import ShardirError
from shardir.frontend.errors import ArgumentError, NotAnArrayError
from shardir.frontend.locations import is_internal, point
from shardir.frontend.quoting import brief
from shardir.frontend.tree_checks import check_ends

Function = TypeVar("Function", bound=Callable[..., Any])

FOREIGN = (
    TypeError,
    ValueError,
    IndexError,
    KeyError,
    AttributeError,
    OverflowError,
    ZeroDivisionError,
)
"""What Python and NumPy raise for values that they cannot take."""

_LIBRARIES = {"numpy", "ml_dtypes", "optree", *sys.stdlib_module_names} - {"__main__"}


def refuse(
    fun: Callable[..., Any],
    name: str,
    args: tuple[Any, ...],
    options: dict[str, Any],
    error: Exception,
) -> None:
    """Raises `ArgumentError` for a call of `fun` that met `error` because of its arguments.

    Where `error` is that one of them is no array, it says which.
    """
    if isinstance(error, NotAnArrayError) and error.about:
        _name(error, fun, name, args, options)
    if isinstance(error, TypeError) and not isinstance(error, ShardirError):
        from shardir.frontend.parameters import check_call

        check_call(fun, name, args, options)
    found = _refusal(name, args, options, error)
    if found is not None:
        raise found from error


def refusing(function: Function) -> Function:
    """Errors about what a function of a namespace is called with name it and its parameters."""

    @wraps(function)
    def wrapper(*args: Any, **options: Any) -> Any:
        try:
            return function(*args, **options)
        except FOREIGN as error:
            refuse(function, function.__name__, args, options, error)
            raise

    return cast(Function, wrapper)


def _name(
    error: NotAnArrayError,
    fun: Callable[..., Any],
    name: str,
    args: tuple[Any, ...],
    options: dict[str, Any],
) -> None:
    """Put the name of an argument into an error about it. The outermost function has the last
    word, because that is the one the user called."""
    from shardir.frontend.parameters import Parameters

    thing, says = error.about or (None, "")
    known = Parameters.of(fun)
    given = [(known.label(i), arg) for i, arg in enumerate(args)]
    for label, arg in [*given, *options.items()]:
        try:
            path = _path(arg, thing)
        except RecursionError:
            check_ends(arg)
            raise
        if path is not None:
            error.args = (point(f"argument {label}{path} of {name} {says}"),)
            return


def _path(x: Any, thing: object) -> str | None:
    """Where `thing` is in `x`, as labels of arguments tell it; `None`: nowhere."""
    if x is thing:
        return ""
    if isinstance(x, (list, tuple, dict)):
        for key, child in x.items() if isinstance(x, dict) else enumerate(x):
            path = _path(child, thing)
            if path is not None:
                return f".{key}{path}"
    return None


def _refusal(
    name: str, args: tuple[Any, ...], options: dict[str, Any], error: Exception
) -> ArgumentError | None:
    """The error for a call of `name` that met `error`; `None` if that is ours, or the user's.

    It is the user's if it was raised in a function that the call was given.
    """
    if isinstance(error, ShardirError):
        return None
    for frame, _ in walk_tb(error.__traceback__):
        module = str(frame.f_globals.get("__name__", ""))
        if not is_internal(frame.f_code) and module.partition(".")[0] not in _LIBRARIES:
            return None
    parts = [brief(arg) for arg in args]
    parts += [f"{key}={brief(value)}" for key, value in options.items()]
    return ArgumentError(point(f"{name} does not take ({', '.join(parts)}): {error}"))
