"""Debugging of running programs: printing, callbacks, and the shardings of values."""

import builtins
import string
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from shardir.errors import ShardirError
from shardir.frontend.array import Array
from shardir.frontend.callbacks import call
from shardir.frontend.errors import ArgumentError, NotAnArrayError
from shardir.frontend.locations import point
from shardir.frontend.operands import as_tracer
from shardir.frontend.parameters import called, check_call, name_of
from shardir.frontend.quoting import brief_with_type
from shardir.frontend.shardings import Sharding
from shardir.frontend.trace import current, emit
from shardir.frontend.tracer import Tracer
from shardir.frontend.visualize import visualize_array_sharding as draw, visualize_sharding
from shardir.hosted import Hosted


class NoDebuggerError(ShardirError, NotImplementedError):
    """`debug.breakpoint` was called; programs have no debugger."""


@dataclass(frozen=True)
class _Printer:
    """Prints a format string with the elements of arrays."""

    format: str

    def __call__(self, *args: Any, **options: Any) -> None:
        builtins.print(self.format.format(*args, **options), flush=True)


class _Used(string.Formatter):
    """Formatter that records which arguments a format string uses."""

    def __init__(self) -> None:
        self.used: set[int | str] = set()

    def get_value(self, key: int | str, args: Sequence[Any], kwargs: Any) -> Any:
        self.used.add(key)
        super().get_value(key, args, kwargs)
        return _Anything()

    def convert_field(self, value: Any, conversion: Any) -> Any:
        return value


class _Anything:
    """Placeholder of a value that is unknown while tracing."""

    def __format__(self, spec: str) -> str:
        return ""

    def __getitem__(self, key: Any) -> "_Anything":
        return self

    def __getattr__(self, name: str) -> "_Anything":
        return self


def print(fmt: str, *args: Any, ordered: bool = False, **kwargs: Any) -> None:
    """Print `fmt.format(*args, **kwargs)` whenever the program executes this call.

    Works inside of `jit`, loops, branches and every transformation. Under `vmap` it prints once for
    each example, in a gradient in the forward pass. `ordered` has no effect: lines appear in
    program order. Raises `ArgumentError` for a format that does not fit its arguments.
    """
    if not isinstance(fmt, str):
        raise ArgumentError(point(f"debug.print takes a format first, got {fmt!r}"))
    formatter = _Used()
    try:
        formatter.vformat(fmt, args, kwargs)
    except (IndexError, KeyError, ValueError) as error:
        reason = f"no argument {error}" if isinstance(error, KeyError) else str(error)
        raise ArgumentError(
            point(f"the format {fmt!r} of debug.print does not fit its arguments: {reason}")
        ) from None
    unused = [str(key) for key in (*range(len(args)), *kwargs) if key not in formatter.used]
    if unused:
        raise ArgumentError(
            point(
                f"the format {fmt!r} of debug.print does not use argument {', '.join(unused)}; "
                "write {} for each, and use f-strings only for values known while tracing"
            )
        )
    call("callback", _Printer(fmt), (), args, kwargs, name="debug.print")


def callback(
    callback: Callable[..., Any], *args: Any, ordered: bool = False, **kwargs: Any
) -> None:
    """Call `callback(*args, **kwargs)` with NumPy arrays whenever the program executes this call.

    Its result is discarded. See `print`; `ordered` has no effect.
    """
    if not callable(callback):
        raise ArgumentError(point(f"debug.callback takes a function, got {callback!r}"))
    call("callback", callback, (), args, kwargs)


def inspect_array_sharding(value: Any, *, callback: Callable[[Sharding], Any]) -> None:
    """Call `callback` with the sharding of an array, or of a traced one when it is compiled."""
    what = "callback of inspect_array_sharding"
    check_call(callback, what, (None,))
    if current() is None or not isinstance(value, Tracer):
        if not isinstance(value, Array):
            raise NotAnArrayError(
                point(f"inspect_array_sharding takes an array, got {brief_with_type(value)}")
            )
        called(callback, what, (value.sharding,))
        return
    emit("inspect-sharding", as_tracer(value), function=Hosted(name_of(callback), callback))


def visualize_array_sharding(array: Any, *, use_color: bool | None = None) -> None:
    """Print the devices of the shards of `array`, or of a traced one when it is compiled."""
    if not isinstance(array, Tracer):
        draw(array, use_color=use_color)
        return
    shape = array.shape
    inspect_array_sharding(
        array, callback=lambda sharding: visualize_sharding(shape, sharding, use_color=use_color)
    )


def breakpoint(**options: Any) -> NoReturn:
    """Raise `NoDebuggerError`, because programs have no debugger."""
    raise NoDebuggerError(
        point(
            "there is no debugger inside of a program; print values with debug.print or "
            "debug.callback, or run the function without jit under Python's own breakpoint()"
        )
    )
