"""Functions of the namespaces, inside a trace and outside of it.

A function marked `@public` is written once, on traced values. While something is being traced it
simply runs, and its operations become part of that program; so it does when none of its own
arguments is traced (`snp.zeros(3)` inside `jit` makes no array). Outside of any trace a call is a
program of one function: arrays and numbers become its parameters, everything else is part of what
the compiled program is found by. Placement rules, errors and numbers are those of `jit`, because
it is the same path.

A call that was made before, of arrays, numbers and plain static arguments, is answered by machine
code, without any Python (`answers`).
"""

from collections.abc import Callable, Iterable, Sequence
from functools import update_wrapper
from inspect import CO_VARARGS, CO_VARKEYWORDS, Parameter, signature
from types import FunctionType, MethodType
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from shardir.backends.cpu.native.runtime.callables import quick_class
from shardir.errors import ShardirError
from shardir.frontend.refusals import FOREIGN, refuse
from shardir.frontend.trace import current
from shardir.frontend.tree_checks import check_ends

if TYPE_CHECKING:
    from shardir.backends.cpu.native.runtime.answering import Answers, Static

Function = TypeVar("Function", bound=Callable[..., Any])


def public(
    *, static: Iterable[str] = (), cached: bool = True, name: str = ""
) -> Callable[[Function], Function]:
    """Mark a function of a namespace: it takes arrays as well as traced values.

    `static` names the parameters whose values shape the program (axes, dtypes, shapes, flags,
    functions): they reach the function as they are and must be hashable (lists and slices count
    as such). All others are containers (optree) of arrays and numbers, which reach the function as
    tracers; `None`, slices, strings, `...` and dtypes in them are static by nature.

    `cached=False` is for functions that call a function of the user: what such a function refers
    to may change from call to call, so it is traced every time, though compiled only once.

    A parameter `out_sharding` is none that the function sees: whoever calls it may ask for the
    layout of the result by it (`resharding.laid_out`).

    `name` is what the user knows the function by, in errors and programs, if it has another name.

    The function returns a container of tracers (or of anything `as_tracer` takes).
    """

    def decorate(fun: Function) -> Function:
        outside = Eager(fun, tuple(static), cached, name or fun.__name__.strip("_"))
        return Public(fun, outside)  # type: ignore[return-value]

    return decorate


@quick_class
class Public:
    """A function of a namespace."""

    __name__: str
    __qualname__: str

    def __init__(self, fun: Callable[..., Any], outside: "Eager") -> None:
        update_wrapper(self, fun)
        self._fun, self.outside = fun, outside
        self._is_laid_out = "out_sharding" in outside.names
        self._answers: Answers | None = None
        outside.thing = self

    def __call__(self, *args: Any, **options: Any) -> Any:
        try:
            if self._is_laid_out and "out_sharding" in options:
                return self._laid_out(args, dict(options))
            if current() is not None:
                return self._fun(*args, **options)
            return self.outside(args, options)
        except FOREIGN as error:
            self.outside.check(args, options, error)
            raise
        except RecursionError:
            check_ends((*args, *options.values()))
            raise

    def _laid_out(self, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        # What lays out places arrays, by functions of the namespaces.
        from shardir.frontend.resharding import laid_out

        out_sharding = options.pop("out_sharding")
        return laid_out(self(*args, **options), out_sharding)

    @property
    def static(self) -> "Static":
        return self.outside.kept_out

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        return self if instance is None else MethodType(self, instance)

    def __reduce__(self) -> str:
        return self.__qualname__

    def __repr__(self) -> str:
        return f"<function {self.__module__}.{self.__qualname__}>"


class Eager:
    """Calls one function outside of traces.

    `thing` is what a user calls, which has the calls that machine code knows.
    """

    thing: Any = None

    def __init__(
        self, fun: Callable[..., Any], static: Sequence[str], cached: bool, name: str
    ) -> None:
        self.names, self.positional, self.variadic = parameters_of(fun)
        if unknown := [name for name in static if name not in self.names]:
            raise ValueError(f"{fun.__name__} has no parameter {unknown[0]!r} to be static")
        self.fun, self.cached, self.name = fun, cached, name
        self.static = frozenset(static)
        self.static_positions = frozenset(
            i for i, name in enumerate(self.positional) if name in self.static
        )
        self.programs: dict[Any, Any] = {}

    @property
    def kept_out(self) -> "Static":
        """The arguments that shape programs, for machine code."""
        from shardir.backends.cpu.native.runtime.answering import Static

        return Static(sorted(self.static_positions), sorted(self.static))

    def check(self, args: tuple[Any, ...], options: dict[str, Any], error: Exception) -> None:
        """Raises `ArgumentError` for a call that met `error` because of its arguments."""
        refuse(self.fun, self.name, args, options, error)

    def __call__(self, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        from shardir.frontend.calling import call_eagerly

        return call_eagerly(self, args, options)


def parameters_of(
    fun: Callable[..., Any],
) -> tuple[tuple[str, ...], tuple[str, ...], str]:
    """The names of a function's parameters, those that may be given by position, and `*`'s."""
    if type(fun) is FunctionType and not hasattr(fun, "__wrapped__"):
        # The namespaces have hundreds of these, and `signature` takes 30 times as long.
        code = fun.__code__
        given = code.co_argcount + code.co_kwonlyargcount
        more = bool(code.co_flags & CO_VARARGS) + bool(code.co_flags & CO_VARKEYWORDS)
        names = code.co_varnames[: given + more]
        return names, names[: code.co_argcount], names[given] if code.co_flags & CO_VARARGS else ""
    known = signature(fun).parameters.values()
    by_position = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
    return (
        tuple(p.name for p in known),
        tuple(p.name for p in known if p.kind in by_position),
        next((p.name for p in known if p.kind is Parameter.VAR_POSITIONAL), ""),
    )


class UnhashableError(ShardirError, TypeError):
    """A static argument without a hash."""


def static_key(value: Any) -> Any:
    """What a static argument is found by; raises `UnhashableError` when it has no hash.

    Tells apart what Python calls equal: 1, 1.0 and True are three arguments.
    """
    kind = type(value)
    if value is None or kind is str or kind is type:
        return value
    if kind is tuple or kind is list:
        return (kind, *map(static_key, value))
    if kind is slice:
        return (slice, static_key(value.start), static_key(value.stop), static_key(value.step))
    if kind is dict:
        return (dict, *((key, static_key(each)) for key, each in value.items()))
    if isinstance(value, float) and (value == 0 or value != value):
        return kind, repr(value)
    if isinstance(value, np.ndarray):
        return kind, value.shape, value.dtype, value.tobytes()
    try:
        hash(value)
    except TypeError as error:
        raise UnhashableError(f"{value!r} cannot be hashed") from error
    return kind, value
