"""Errors of public functions: the user's line, and `ArgumentError` for errors of Python and NumPy.

Most invalid arguments are found by specific checks with specific messages. For the remaining ones
Python reports what is wrong with a value, but not which argument it belongs to: the message names
the first argument that does not fit the annotation of its parameter, and what must be given there.
"""

import sys
from collections.abc import Callable
from functools import wraps
from traceback import walk_tb
from typing import NoReturn, TypeVar, cast

from shardir.errors import OutOfMemoryError, ShardirError
from shardir.frontend.argument_checks import parameter_names
from shardir.frontend.call_signatures import (
    bind_method,
    check_call_signature,
    register_checking_wrapper,
)
from shardir.frontend.declared_types import find_misfit, parameter_annotations
from shardir.frontend.errors import ArgumentError, NotAnArrayError
from shardir.frontend.pytree.tree_checks import check_acyclic
from shardir.frontend.pytree_types import PyTree, UserFunction
from shardir.frontend.quoting import brief
from shardir.frontend.source_locations import has_location, is_internal_code, with_location
from shardir.frontend.tracebacks import hide_own_frames

Function = TypeVar("Function", bound=UserFunction)

FOREIGN_ERRORS = (
    TypeError,
    ValueError,
    IndexError,
    KeyError,
    AttributeError,
    OverflowError,
    ZeroDivisionError,
)
"""Exceptions that Python and NumPy raise for invalid values."""

MAX_INTEGER_BITS = 63
"""Number of bits of the largest integer that NumPy accepts as a size or an index, in bits."""

_LIBRARY_MODULES = {"numpy", "ml_dtypes", "optree", *sys.stdlib_module_names} - {"__main__"}


def raise_argument_error(
    fun: Callable[..., object],
    name: str,
    args: tuple[object, ...],
    options: dict[str, PyTree],
    error: Exception,
) -> None:
    """Raise `ArgumentError` if the arguments of a call of `fun` caused `error`.

    If `error` states that an argument is not an array, the new message names the argument.
    """
    fun, name, args = bind_method(fun, name, args)
    if isinstance(error, NotAnArrayError):
        _name_argument(error, fun, name, args, options)
    if isinstance(error, TypeError) and not isinstance(error, ShardirError):
        check_call_signature(fun, name, args, options)
    found = _make_argument_error(fun, name, args, options, error)
    if found is not None:
        raise found from found.foreign


def raise_memory_error(name: str, error: MemoryError) -> NoReturn:
    """Raise `OutOfMemoryError` for a constant of a call of `name` that the host cannot allocate."""
    if isinstance(error, ShardirError):
        raise error
    reason = f": {error}" if str(error) else ""
    raise OutOfMemoryError(
        with_location(
            f"the host has no memory for the constants of {name}{reason}; check the sizes in the "
            "arguments"
        )
    ) from error


def with_argument_errors(function: Function) -> Function:
    """Decorate a public function so that errors about its arguments name it and its parameters."""

    @wraps(function)
    def wrapper(*args: object, **options: object) -> object:
        try:
            try:
                return function(*args, **options)
            except FOREIGN_ERRORS as error:
                raise_argument_error(function, function.__name__, args, options, error)
                raise
        except Exception as error:
            hide_own_frames(error)
            raise

    register_checking_wrapper(wrapper)
    return cast(Function, wrapper)


def locate_errors(function: Function) -> Function:
    """Decorate `function` so that errors of this package show the user's line."""

    @wraps(function)
    def wrapper(*args: object, **options: object) -> object:
        try:
            try:
                return function(*args, **options)
            except Exception as error:
                if isinstance(error, FOREIGN_ERRORS):
                    raise_argument_error(function, function.__name__, args, options, error)
                if isinstance(error, ShardirError) and not has_location(str(error)):
                    raise type(error)(with_location(str(error))) from None
                raise
        except Exception as error:
            hide_own_frames(error)
            raise

    register_checking_wrapper(wrapper)
    return cast(Function, wrapper)


def _name_argument(
    error: NotAnArrayError,
    fun: Callable[..., object],
    name: str,
    args: tuple[object, ...],
    options: dict[str, object],
) -> None:
    """Put the name of an argument into an error about it.

    Each enclosing function overwrites the name, so that the message names the function that the
    user called.
    """
    if not error.about:
        return
    culprit, describe = error.about
    for label, arg in _label_arguments(fun, args, options):
        try:
            path = _find_path(arg, culprit)
        except RecursionError:
            check_acyclic(arg)
            raise
        if path is not None:
            error.args = (with_location(f"argument {label}{path} of {name} {describe(culprit)}"),)
            return


def _label_arguments(
    fun: Callable[..., object], args: tuple[object, ...], options: dict[str, object]
) -> list[tuple[str, object]]:
    """Return the arguments of a call of `fun` with the names of their parameters."""
    _, names, variadic = parameter_names(fun)
    rest = (f"{variadic}.{i}" for i in range(len(args) - len(names)))
    return [*zip((*names, *rest), args, strict=False), *options.items()]


def _find_path(x: object, culprit: object) -> str | None:
    """Return the path of `culprit` in `x` in the notation of argument labels, or `None`."""
    if x is culprit:
        return ""
    if isinstance(x, (list, tuple, dict)):
        for key, child in x.items() if isinstance(x, dict) else enumerate(x):
            path = _find_path(child, culprit)
            if path is not None:
                return f".{key}{path}"
    return None


def _find_misfit(
    fun: Callable[..., object], name: str, args: tuple[object, ...], options: dict[str, object]
) -> str | None:
    """Return the text for the first argument that does not fit its annotation, or `None`."""
    annotations = parameter_annotations(fun)
    for label, arg in _label_arguments(fun, args, options):
        parameter = label.partition(".")[0]
        misfit = find_misfit(annotations[parameter], arg) if parameter in annotations else None
        if misfit is not None:
            return (
                f"argument {label}{misfit.path} of {name} is {brief(misfit.value)}, and must be "
                f"{misfit.requirement}"
            )
    return None


def _find_wide_integer(
    fun: Callable[..., object], name: str, args: tuple[object, ...], options: dict[str, object]
) -> str | None:
    """Return the text for the first integer of more than 64 bits in the arguments, or `None`."""
    for label, arg in _label_arguments(fun, args, options):
        for number in arg if isinstance(arg, (list, tuple)) else (arg,):
            if isinstance(number, int) and number.bit_length() > MAX_INTEGER_BITS:
                return f"argument {label} of {name} has {number}, which does not fit into 64 bits"
    return None


def _make_argument_error(
    fun: Callable[..., object],
    name: str,
    args: tuple[object, ...],
    options: dict[str, object],
    error: Exception,
) -> ArgumentError | None:
    """Return the error for a call of `name` that raised `error`, or `None`.

    The result is `None` for an error of this package, and for one that a function of the user
    raised. An error that a function called by `fun` made here is replaced if an argument of `fun`
    is the cause, so that the message names the function that the user called.
    """
    foreign = error.foreign if isinstance(error, ShardirError) else error
    if foreign is None:
        return None
    for frame, _ in walk_tb(error.__traceback__):
        module = str(frame.f_globals.get("__name__", ""))
        if not is_internal_code(frame.f_code) and module.partition(".")[0] not in _LIBRARY_MODULES:
            return None
    text = _find_misfit(fun, name, args, options)
    if text is None and isinstance(foreign, (OverflowError, ValueError)):
        text = _find_wide_integer(fun, name, args, options)
    if text is None:
        if error is not foreign:
            return None
        parts = [brief(arg) for arg in args]
        parts += [f"{key}={brief(value)}" for key, value in options.items()]
        text = f"{name} does not accept ({', '.join(parts)}): {error}"
    return ArgumentError(with_location(text)).repeat(foreign)
