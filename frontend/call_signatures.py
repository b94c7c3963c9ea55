"""Checks that a function accepts the arguments of a call."""

import inspect
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from functools import wraps
from types import CodeType, FunctionType, MethodType
from typing import TypeVar, cast

from shardir.errors import ShardirError
from shardir.frontend.errors import ArgumentError
from shardir.frontend.pytree_types import PyTree, UserFunction
from shardir.frontend.source_locations import is_internal_code, with_location

Function = TypeVar("Function", bound=UserFunction)
Class = TypeVar("Class", bound=type)

_METHODS_OF_CALLS = ("__init__", "__new__", "__call__")
"""The methods that run when a class or an object is called."""
_CONTEXT_MANAGER = contextmanager(iter).__code__
"""The code of all functions that `contextmanager` returns."""


_checking_codes: set[CodeType] = set()
"""The code of the wrappers of public functions that check the arguments of a call."""


def register_checking_wrapper(wrapper: Callable[..., object]) -> None:
    """Register a function that raises `ArgumentError` for arguments that the function that it
    wraps does not have."""
    assert isinstance(wrapper, FunctionType)
    _checking_codes.add(wrapper.__code__)


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
        fun, name, args = bind_method(fun, name, args)
        check_call_signature(fun, name, args, options)


def bind_method(
    fun: Callable[..., object], name: str, args: tuple[object, ...]
) -> tuple[Callable[..., object], str, tuple[object, ...]]:
    """Return a called function, its name in errors, and its arguments.

    If `fun` is a method of its first argument, the result is the bound method with the other
    arguments. Its name begins with that of the class, as in `Mesh.update`. A constructor has the
    name of its class, and the method of a call that of its object.
    """
    if not args:
        return fun, name, args
    first, rest = args[0], args[1:]
    owner = first if isinstance(first, type) else type(first)
    if name in _METHODS_OF_CALLS:
        return MethodType(fun, first), getattr(first, "__name__", owner.__name__), rest
    member = inspect.getattr_static(owner, name, None)
    member = member.__func__ if isinstance(member, classmethod) else member
    if inspect.unwrap(member) is inspect.unwrap(fun):
        return MethodType(fun, first), f"{owner.__name__}.{name}", rest
    return fun, name, args


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

    register_checking_wrapper(wrapper)
    return cast(Function, wrapper)


def with_method_errors(cls: Class) -> Class:
    """Decorate a public class: a call of one of its public methods with arguments that the method
    does not have is an `ArgumentError`.

    The decorator wraps the methods that the class defines, which adds about 0.1 microseconds to
    each call. Classes whose methods are on the path of calls of compiled functions, such as `Array`
    and `Sharding`, decorate single methods instead. The methods of arrays without named parameters,
    such as `block_until_ready`, take less than a microsecond; their errors are those of Python.
    """
    for name, member in list(vars(cls).items()):
        if not name.startswith("_") or name == "__call__":
            _check_member(cls, name, member)
    return cls


def with_constructor_errors(cls: Class) -> Class:
    """Decorate a named tuple or dataclass: a call with arguments that it does not have is an
    `ArgumentError`."""
    name = "__new__" if issubclass(cls, tuple) else "__init__"
    _check_member(cls, name, vars(cls)[name])
    return cls


def _check_member(cls: type, name: str, member: object) -> None:
    """Replace a method of `cls` by one that checks the arguments of a call."""
    function = member.__func__ if isinstance(member, (classmethod, staticmethod)) else member
    if not isinstance(function, FunctionType) or function.__code__ in _checking_codes:
        return
    if _accepts_any_arguments(function):
        return
    checked: object = with_signature_errors(function)
    for kind in (classmethod, staticmethod):
        if isinstance(member, kind):
            checked = kind(cast(UserFunction, checked))
    setattr(cls, name, checked)


def _accepts_any_arguments(method: FunctionType) -> bool:
    """Return whether a method has no parameters besides its object, `*args` and `**options`."""
    code = method.__code__  # Much faster than a signature, of which importing would make many.
    takes_any = inspect.CO_VARARGS | inspect.CO_VARKEYWORDS
    return code.co_flags & takes_any == takes_any and (
        code.co_argcount + code.co_kwonlyargcount <= 1
    )


def _call_signature(fun: Callable[..., object]) -> inspect.Signature:
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
        wrapped = fun.__wrapped__
        fun = MethodType(wrapped, fun.__self__) if isinstance(fun, MethodType) else wrapped
    return inspect.signature(fun, follow_wrapped=False)


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
