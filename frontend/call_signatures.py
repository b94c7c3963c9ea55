"""Checks that a function accepts the arguments of a call."""

from collections.abc import Callable, Sequence
from contextlib import contextmanager
from functools import wraps
from inspect import Signature, signature
from typing import TypeVar, cast

from shardir.errors import ShardirError
from shardir.frontend.errors import ArgumentError
from shardir.frontend.pytree_types import PyTree, UserFunction
from shardir.frontend.source_locations import is_internal_code, with_location

Function = TypeVar("Function", bound=UserFunction)
_CONTEXT_MANAGER = contextmanager(iter).__code__
"""The code of all functions that `contextmanager` returns."""


def check_function(fun: object, what: str) -> None:
    """Raise `ArgumentError` unless `fun`, named `what` in errors, can be called."""
    if not callable(fun):
        raise ArgumentError(with_location(f"{what} must be a function, got {fun!r}"))


def check_call_signature(
    fun: Callable[..., object],
    what: str,
    args: Sequence[object],
    options: dict[str, object] | None = None,
) -> None:
    """Raise `ArgumentError` unless `fun`, named `what` in errors, accepts these arguments."""
    check_function(fun, what)
    try:
        known = _call_signature(fun)
    except (TypeError, ValueError):
        return  # Some functions that are not written in Python have no signature.
    try:
        known.bind(*args, **(options or {}))
    except TypeError as error:
        takes = f"({', '.join(known.parameters)})"
        raise ArgumentError(with_location(f"{what} takes {takes}: {error}")) from None


def check_entered(
    fun: Callable[..., object],
    name: str,
    args: tuple[object, ...],
    options: dict[str, object],
    error: TypeError,
) -> None:
    """Raise `ArgumentError` if a call of `fun` raised `error` before Python entered `fun`.

    The caller of this function contains the call.
    """
    place = error.__traceback__
    if place is not None and place.tb_next is None:
        check_call_signature(fun, name, args, options)


def with_signature_errors(function: Function) -> Function:
    """Decorate a public function of a module that `argument_errors` imports: a call with arguments
    that the function does not have is an `ArgumentError`."""

    @wraps(function)
    def wrapper(*args: object, **options: object) -> object:
        try:
            return function(*args, **options)
        except TypeError as error:
            check_entered(function, function.__name__, args, options, error)
            raise

    return cast(Function, wrapper)


def _call_signature(fun: Callable[..., object]) -> Signature:
    """Return the signature with which `fun` can be called.

    A wrapper of the user may take other arguments than the function that it wraps. The wrappers of
    this package and those of `contextmanager` take the same ones.
    """
    while hasattr(fun, "__wrapped__"):
        code = getattr(fun, "__code__", None)
        is_own_class = type(fun).__module__.startswith("shardir.")
        is_own = is_own_class if code is None else is_internal_code(code)
        if not is_own and code is not _CONTEXT_MANAGER:
            break
        fun = fun.__wrapped__
    return signature(fun, follow_wrapped=False)


def call_user_function(
    fun: Callable[..., object],
    what: str,
    args: Sequence[object],
    options: dict[str, object] | None = None,
) -> PyTree:
    """Call `fun`, named `what` in errors, with these arguments and return its result.

    Raises `ArgumentError` if the function does not accept them.
    """
    try:
        return fun(*args, **(options or {}))
    except TypeError as error:
        if not isinstance(error, ShardirError):
            check_call_signature(fun, what, args, options)
        raise
