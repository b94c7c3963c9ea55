"""Looking into programs while they run, and at where their values are."""

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
    """A debugger asked for inside of a program."""


@dataclass(frozen=True)
class _Printer:
    """Prints a format with arrays filled in."""

    format: str

    def __call__(self, *args: Any, **options: Any) -> None:
        builtins.print(self.format.format(*args, **options), flush=True)


class _Used(string.Formatter):
    """Finds out which arguments a format uses."""

    def __init__(self) -> None:
        self.used: set[int | str] = set()

    def get_value(self, key: int | str, args: Sequence[Any], kwargs: Any) -> Any:
        self.used.add(key)
        super().get_value(key, args, kwargs)
        return _Anything()

    def convert_field(self, value: Any, conversion: Any) -> Any:
        return value


class _Anything:
    """Stands for a value that is not known yet."""

    def __format__(self, spec: str) -> str:
        return ""

    def __getitem__(self, key: Any) -> "_Anything":
        return self

    def __getattr__(self, name: str) -> "_Anything":
        return self


def print(fmt: str, *args: Any, ordered: bool = False, **kwargs: Any) -> None:
    """Print `fmt.format(*args, **kwargs)` whenever the program comes here.

    Works inside of `jit`, loops, branches and every transformation; under `vmap` it prints once
    for each example, in a gradient when the function runs forward. `ordered` changes nothing:
    lines come in the order of the program. Raises `ArgumentError` for a format that does not fit.
    """
    if not isinstance(fmt, str):
        raise ArgumentError(point(f"debug.print takes a format first, got {fmt!r}"))
    formatter = _Used()
    try:
        formatter.vformat(fmt, args, kwargs)
    except (IndexError, KeyError, ValueError) as error:
        told = f"no argument {error}" if isinstance(error, KeyError) else str(error)
        raise ArgumentError(
            point(f"the format {fmt!r} of debug.print does not fit its arguments: {told}")
        ) from None
    unused = [str(key) for key in (*range(len(args)), *kwargs) if key not in formatter.used]
    if unused:
        raise ArgumentError(
            point(
                f"the format {fmt!r} of debug.print does not use argument {', '.join(unused)}; "
                "write {} for each, and f-strings only for what is known"
            )
        )
    call("callback", _Printer(fmt), (), args, kwargs, name="debug.print")


def callback(
    callback: Callable[..., Any], *args: Any, ordered: bool = False, **kwargs: Any
) -> None:
    """Call `callback(*args, **kwargs)` with NumPy arrays whenever the program comes here.

    Its result is dropped. See `print`; `ordered` changes nothing.
    """
    if not callable(callback):
        raise ArgumentError(point(f"debug.callback takes a function, got {callback!r}"))
    call("callback", callback, (), args, kwargs)


def inspect_array_sharding(value: Any, *, callback: Callable[[Sharding], Any]) -> None:
    """Call `callback` with the sharding of an array; of a traced one when it is compiled."""
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
    """Print where the parts of `array` live; of a traced one when it is compiled."""
    if not isinstance(array, Tracer):
        draw(array, use_color=use_color)
        return
    shape = array.shape
    inspect_array_sharding(
        array, callback=lambda sharding: visualize_sharding(shape, sharding, use_color=use_color)
    )


def breakpoint(**options: Any) -> NoReturn:
    """There is no debugger inside of programs; raises `NoDebuggerError`."""
    raise NoDebuggerError(
        point(
            "there is no debugger inside of a program; look at values with debug.print or "
            "debug.callback, or run the function without jit under Python's own breakpoint()"
        )
    )
