"""Tracebacks of errors in the user's program, without the frames of this package.

Public functions are boundaries: an error that leaves one loses the frames of this package below it.
Errors of this package itself (bugs) keep all frames, and so does every error if the setting
`traceback` is `"full"` (`SHARDIR_TRACEBACK=full`).

A boundary is a `try` statement in the outermost function of the package, because Python adds a
frame to a traceback before it enters an `except` clause of that frame, and not again when the
clause raises the error again.

The hooks for uncaught exceptions of Python and IPython remove the frames of public functions
without this statement.
"""

import os
import sys
import sysconfig
import threading
from collections.abc import Iterator
from contextlib import suppress
from functools import wraps
from traceback import walk_tb
from types import CodeType, TracebackType
from typing import Any, TypeVar, cast

import numpy as np

from shardir.errors import HIDDEN_FRAMES_NOTE, OutOfMemoryError, ShardirError
from shardir.frontend.call_signatures import check_entered, register_checking_wrapper
from shardir.frontend.config import config
from shardir.frontend.pytree_types import UserFunction
from shardir.frontend.source_locations import has_location, is_internal_code, with_location
from shardir.ir.location import running_ipython

Function = TypeVar("Function", bound=UserFunction)

_LIBRARY_PREFIXES = tuple(
    path + os.sep for path in (sysconfig.get_path("stdlib"), os.path.dirname(np.__file__))
)

_boundary_codes: set[CodeType] = set()


def hide_own_frames(error: Exception) -> None:
    """Remove the frames of this package from an error that leaves a public function.

    The message of an error of memory, which the backends raise, gets the user's line.
    """
    if isinstance(error, OutOfMemoryError) and not has_location(str(error)):
        # The same object, because it also states whether execution had started.
        error.args = (with_location(str(error)),)
    _remove_own_frames(error)


def _remove_own_frames(error: Exception) -> None:
    """Remove the frames of this package from the tracebacks of an error, its cause and its context.

    The function changes nothing if the error is a bug of this package, if the setting `traceback`
    is `"full"`, or if too many functions call each other, because these calls would be too many.
    """
    has_deep_stack = isinstance(error, RecursionError) and not isinstance(error, ShardirError)
    if error.__traceback__ is None or has_deep_stack or _is_own_bug(error):
        return
    # An invalid environment variable is an error of every setting.
    with suppress(ShardirError):
        if config.traceback == "full":
            return
    is_changed = [_filter_traceback(each) for each in _chain(error)]
    if any(is_changed) and HIDDEN_FRAMES_NOTE not in getattr(error, "__notes__", ()):
        error.add_note(HIDDEN_FRAMES_NOTE)


def traceback_boundary(function: Function) -> Function:
    """Decorate a public function so that errors do not show the frames of this package below it.

    A call with arguments that the function does not have is an `ArgumentError`. The functions on
    the path of compiled calls contain this `try` statement themselves.
    """

    def wrapper(*args: object, **options: object) -> object:
        try:
            try:
                return function(*args, **options)
            except TypeError as error:
                check_entered(function, boundary.__name__, args, options, error)
                raise
        except Exception as error:
            hide_own_frames(error)
            raise

    _boundary_codes.add(wrapper.__code__)
    register_checking_wrapper(wrapper)
    boundary = wraps(function)(wrapper)
    # A function that a transformation returns wraps that of the user, as in JAX.
    boundary.__wrapped__ = getattr(function, "__wrapped__", function)
    return cast(Function, boundary)


def install_exception_hooks() -> None:
    """Remove the frames of this package from uncaught exceptions before the present hooks show
    them.
    """
    show, show_in_thread = sys.excepthook, threading.excepthook

    def hook(kind: type[BaseException], error: BaseException, place: TracebackType | None) -> None:
        show(kind, error, _filter_uncaught(error, place))

    def hook_in_thread(given: threading.ExceptHookArgs) -> None:
        if given.exc_value is not None:
            place = _filter_uncaught(given.exc_value, given.exc_traceback)
            shown = given.exc_type, given.exc_value, place, given.thread
            given = threading.ExceptHookArgs(shown)
        show_in_thread(given)

    sys.excepthook, threading.excepthook = hook, hook_in_thread


def install_in_ipython() -> None:
    """Remove the frames of this package from the errors that IPython and Jupyter show.

    They call no hook of Python. The function changes nothing outside of IPython, or if the user has
    installed a handler of exceptions.
    """
    shell = running_ipython()
    if shell is not None and not shell.custom_exceptions:
        shell.set_custom_exc((Exception,), _show_in_ipython)


def _show_in_ipython(
    shell: Any,
    kind: type[BaseException],
    error: BaseException,
    place: TracebackType | None,
    tb_offset: int | None = None,
) -> None:
    """Show an error of a cell; the parameters are those of handlers of IPython."""
    shown = kind, error, _filter_uncaught(error, place)
    shell.showtraceback(shown, tb_offset=tb_offset, running_compiled_code=True)


def _filter_uncaught(error: BaseException, place: TracebackType | None) -> TracebackType | None:
    """Return the traceback of an uncaught exception without the frames of this package."""
    if not isinstance(error, Exception) or error.__traceback__ is not place:
        return place
    _remove_own_frames(error)
    return error.__traceback__


def _is_own_bug(error: Exception) -> bool:
    """Return whether code of this package, and no function of the user, raised an error
    unintentionally."""
    if isinstance(error, ShardirError):
        return False
    is_own = False
    for frame, _ in walk_tb(error.__traceback__):
        is_own = _is_hidden(frame.f_code, is_own)
        code = frame.f_code
    # A call with arguments that the function does not have fails in the boundary.
    return is_own and code not in _boundary_codes


def _is_hidden(code: CodeType, is_caller_hidden: bool) -> bool:
    """Return whether a frame belongs to this package, or to a library that it calls."""
    return is_internal_code(code) or (is_caller_hidden and _is_library_code(code))


def _is_library_code(code: CodeType) -> bool:
    """Return whether a code object belongs to the standard library or to NumPy."""
    file = code.co_filename
    return file.startswith(_LIBRARY_PREFIXES) and (
        "site-packages" not in file or file.startswith(_LIBRARY_PREFIXES[1])
    )


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and the errors that Python shows with it."""
    seen: set[int] = set()
    shown: BaseException | None = error
    while shown is not None and id(shown) not in seen:
        seen.add(id(shown))
        yield shown
        shown = shown.__cause__ or (None if shown.__suppress_context__ else shown.__context__)


def _filter_traceback(error: BaseException) -> bool:
    """Remove the hidden frames from a traceback; return whether there were any."""
    steps: list[TracebackType] = []
    step, count, is_hidden = error.__traceback__, 0, False
    while step is not None:
        is_hidden = _is_hidden(step.tb_frame.f_code, is_hidden)
        if not is_hidden:
            steps.append(step)
        step, count = step.tb_next, count + 1
    if len(steps) == count:
        return False
    kept: TracebackType | None = None
    for step in reversed(steps):
        kept = TracebackType(kept, step.tb_frame, step.tb_lasti, step.tb_lineno)
    error.__traceback__ = kept
    return True


install_exception_hooks()
install_in_ipython()
