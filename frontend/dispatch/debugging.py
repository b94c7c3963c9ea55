"""Debugging of running programs: printing, callbacks, and the shardings of values."""

import builtins
import logging
import string
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import NoReturn

from shardir.errors import ShardirError
from shardir.frontend.argument_checks import check_flag
from shardir.frontend.argument_errors import with_argument_errors
from shardir.frontend.arrays.array import Array
from shardir.frontend.call_signatures import call_user_function, check_call_signature
from shardir.frontend.dispatch.callbacks import emit_callback
from shardir.frontend.errors import ArgumentError, NotAnArrayError
from shardir.frontend.pytree_types import PyTree, UserFunction
from shardir.frontend.quoting import brief_with_type
from shardir.frontend.shardings.sharding import Sharding
from shardir.frontend.source_locations import user_position, with_location
from shardir.frontend.tracing.operands import as_tracer
from shardir.frontend.tracing.parameters import function_name
from shardir.frontend.tracing.trace import emit_results
from shardir.frontend.tracing.tracer import Tracer
from shardir.frontend.visualize import visualize_array_sharding as draw, visualize_sharding
from shardir.ir.host_function import HostFunction


class NoDebuggerError(ShardirError, NotImplementedError):
    """`debug.breakpoint` was called; programs have no debugger."""


@dataclass(frozen=True)
class _Printer:
    """Prints a format string with the elements of arrays."""

    format: str

    def __call__(self, *args: PyTree, **options: PyTree) -> None:
        builtins.print(self.format.format(*args, **options), flush=True)


LOGGER = logging.getLogger("shardir.debug")
"""The logger of `log`."""


@dataclass(frozen=True)
class _Logger:
    """Logs a format string with the elements of arrays, at a line of the user's program."""

    format: str
    file: str
    line: int

    def __call__(self, *args: PyTree, **options: PyTree) -> None:
        if LOGGER.isEnabledFor(logging.INFO):
            message = self.format.format(*args, **options)
            record = LOGGER.makeRecord(
                LOGGER.name, logging.INFO, self.file, self.line, message, (), None
            )
            LOGGER.handle(record)


class _UsageFormatter(string.Formatter):
    """Formatter that records which arguments a format string uses."""

    def __init__(self) -> None:
        self.used: set[int | str] = set()

    def get_value(
        self, key: int | str, args: Sequence[PyTree], kwargs: PyTree
    ) -> "_FormatPlaceholder":
        self.used.add(key)
        if isinstance(key, int) and key >= len(args):
            raise KeyError(key)
        super().get_value(key, args, kwargs)
        return _FormatPlaceholder()

    def convert_field(self, value: object, conversion: object) -> object:
        return value


class _FormatPlaceholder:
    """Placeholder of a value that is unknown while tracing."""

    def __format__(self, spec: str) -> str:
        return ""

    def __getitem__(self, key: object) -> "_FormatPlaceholder":
        return self

    def __getattr__(self, name: str) -> "_FormatPlaceholder":
        return self


@with_argument_errors
def print(
    fmt: str,
    *args: PyTree,
    ordered: bool = False,
    partitioned: bool = False,
    skip_format_check: bool = False,
    **kwargs: PyTree,
) -> None:
    """Print `fmt.format(*args, **kwargs)` whenever the program executes this call.

    Works inside of `jit`, loops, branches and every transformation. Under `vmap` it prints once for
    each example, in a gradient in the forward pass. `ordered` has no effect: lines appear in
    program order. Raises `ArgumentError` for a format that does not fit its arguments, unless
    `skip_format_check` is set, and for `partitioned`: inside of `shard_map`, each device prints its
    shards.
    """
    _check_format("debug.print", fmt, args, kwargs, partitioned, skip_format_check)
    emit_callback("callback", _Printer(fmt), (), args, kwargs, name="debug.print")


@with_argument_errors
def log(
    fmt: str,
    *args: PyTree,
    ordered: bool = False,
    partitioned: bool = False,
    skip_format_check: bool = False,
    **kwargs: PyTree,
) -> None:
    """Log `fmt.format(*args, **kwargs)` whenever the program executes this call; see `print`.

    The record has the level INFO, the logger `shardir.debug` and the line of this call.
    """
    _check_format("debug.log", fmt, args, kwargs, partitioned, skip_format_check)
    place = user_position()
    file, line = ("", 0) if place is None else (place.site.loc.file, place.site.loc.line)
    emit_callback("callback", _Logger(fmt, file, line), (), args, kwargs, name="debug.log")


def _check_format(
    name: str,
    fmt: object,
    args: Sequence[PyTree],
    kwargs: dict[str, PyTree],
    partitioned: bool,
    skip_format_check: bool,
) -> None:
    if not isinstance(fmt, str):
        raise ArgumentError(with_location(f"{name} takes a format first, got {fmt!r}"))
    if check_flag(f"partitioned of {name}", partitioned):
        raise ArgumentError(
            with_location(
                f"{name} takes whole arrays; call it inside of shard_map for the shards of each "
                "device, without partitioned=True"
            )
        )
    if check_flag(f"skip_format_check of {name}", skip_format_check):
        return
    used = check_format_fits(name, fmt, args, kwargs)
    unused = [str(key) for key in (*range(len(args)), *kwargs) if key not in used]
    if unused:
        raise ArgumentError(
            with_location(
                f"the format {fmt!r} of {name} does not use argument {', '.join(unused)}; "
                "write {} for each, and use f-strings only for values known while tracing"
            )
        )


def check_format_fits(
    name: str, fmt: str, args: Sequence[object], kwargs: Mapping[str, object]
) -> Set[int | str]:
    """Return the arguments that a format uses; raise `ArgumentError` if it needs others."""
    formatter = _UsageFormatter()
    try:
        formatter.vformat(fmt, args, kwargs)
    except (KeyError, ValueError) as error:
        reason = f"no argument {error}" if isinstance(error, KeyError) else str(error)
        raise ArgumentError(
            with_location(f"the format {fmt!r} of {name} does not fit its arguments: {reason}")
        ) from None
    return formatter.used


@with_argument_errors
def callback(
    callback: UserFunction, *args: PyTree, ordered: bool = False, **kwargs: PyTree
) -> None:
    """Call `callback(*args, **kwargs)` with NumPy arrays whenever the program executes this call.

    Its result is discarded. See `print`; `ordered` has no effect.
    """
    if not callable(callback):
        raise ArgumentError(with_location(f"debug.callback takes a function, got {callback!r}"))
    emit_callback("callback", callback, (), args, kwargs)


@with_argument_errors
def inspect_array_sharding(value: object, *, callback: Callable[[Sharding], PyTree]) -> None:
    """Call `callback` with the sharding of an array, or of a traced one when it is compiled."""
    what = "callback of inspect_array_sharding"
    check_call_signature(callback, what, (None,))
    if not isinstance(value, Tracer):
        if not isinstance(value, Array):
            raise NotAnArrayError(
                with_location(
                    f"inspect_array_sharding takes an array, got {brief_with_type(value)}"
                )
            )
        call_user_function(callback, what, (value.sharding,))
        return
    emit_results(
        "inspect-sharding",
        as_tracer(value),
        function=HostFunction(function_name(callback), callback),
    )


@with_argument_errors
def visualize_array_sharding(array: object, *, use_color: bool | None = None) -> None:
    """Print the devices of the shards of `array`, or of a traced one when it is compiled."""
    if not isinstance(array, Tracer):
        draw(array, use_color=use_color)
        return
    shape = array.shape
    inspect_array_sharding(
        array, callback=lambda sharding: visualize_sharding(shape, sharding, use_color=use_color)
    )


@with_argument_errors
def breakpoint(**options: PyTree) -> NoReturn:
    """Raise `NoDebuggerError`, because programs have no debugger."""
    raise NoDebuggerError(
        with_location(
            "there is no debugger inside of a program; print values with debug.print or "
            "debug.callback, or run the function without jit under Python's own breakpoint()"
        )
    )
