"""Conversion of errors of Python and NumPy inside of public functions to `ArgumentError`.

Most invalid arguments are found by specific checks with specific messages. For the remaining ones
Python reports what is wrong with a value, but not which argument it belongs to.
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
"""Exceptions that Python and NumPy raise for invalid values."""

_LIBRARIES = {"numpy", "ml_dtypes", "optree", *sys.stdlib_module_names} - {"__main__"}


def refuse(
    fun: Callable[..., Any],
    name: str,
    args: tuple[Any, ...],
    options: dict[str, Any],
    error: Exception,
) -> None:
    """Raise `ArgumentError` if the arguments of a call of `fun` caused `error`.

    If `error` states that an argument is no array, the new message names the argument.
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
    """Decorate a public function so that errors about its arguments name it and its parameters."""

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
    """Put the name of an argument into an error about it.

    Each enclosing function overwrites the name, so that the message names the function that the
    user called.
    """
    from shardir.frontend.parameters import Parameters

    culprit, says = error.about or (None, "")
    known = Parameters.of(fun)
    given = [(known.label(i), arg) for i, arg in enumerate(args)]
    for label, arg in [*given, *options.items()]:
        try:
            path = _path(arg, culprit)
        except RecursionError:
            check_ends(arg)
            raise
        if path is not None:
            error.args = (point(f"argument {label}{path} of {name} {says}"),)
            return


def _path(x: Any, culprit: object) -> str | None:
    """Return the path of `culprit` in `x` in the notation of argument labels, or `None`."""
    if x is culprit:
        return ""
    if isinstance(x, (list, tuple, dict)):
        for key, child in x.items() if isinstance(x, dict) else enumerate(x):
            path = _path(child, culprit)
            if path is not None:
                return f".{key}{path}"
    return None


def _refusal(
    name: str, args: tuple[Any, ...], options: dict[str, Any], error: Exception
) -> ArgumentError | None:
    """Return the error for a call of `name` that raised `error`, or `None`.

    The result is `None` for an error of this package, and for one that a function of the user
    raised.
    """
    if isinstance(error, ShardirError):
        return None
    for frame, _ in walk_tb(error.__traceback__):
        module = str(frame.f_globals.get("__name__", ""))
        if not is_internal(frame.f_code) and module.partition(".")[0] not in _LIBRARIES:
            return None
    parts = [brief(arg) for arg in args]
    parts += [f"{key}={brief(value)}" for key, value in options.items()]
    return ArgumentError(point(f"{name} does not accept ({', '.join(parts)}): {error}"))
