"""Progress of compilations, for a callback.

Each compilation stage calls `report`; without a callback that does nothing.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from time import perf_counter

from shardir.errors import ShardirError


class ReportingError(ShardirError, TypeError):
    """The progress callback is not callable."""


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of one compilation: `done` of `total` parts of a stage, `seconds` after the
    start.

    The stages are the passes (`total` is their number) and then `kernels`, the code generation.
    """

    program: str
    """The name of the program."""
    stage: str
    """The name of a pass, or `kernels`."""
    done: int
    """The number of completed parts of the stage."""
    total: int
    """The number of parts of the stage."""
    seconds: float
    """The time since the start of the compilation in seconds."""


_listener: ContextVar[Callable[[Progress], object] | None] = ContextVar("listener", default=None)
_program: ContextVar[tuple[str, float] | None] = ContextVar("program", default=None)


def progress(callback: Callable[[Progress], object]) -> AbstractContextManager[None]:
    """Call `callback` with a `Progress` for every part of a compilation inside the block.

    Compilations in other threads are not reported. An exception from the callback aborts the
    compilation; the next call starts it again. Raises `ReportingError` if `callback` is not
    callable.
    """
    if not callable(callback):
        raise ReportingError(f"progress calls a function of one Progress, got {callback!r}")
    return _listen(callback)


@contextmanager
def _listen(callback: Callable[[Progress], object]) -> Iterator[None]:
    token = _listener.set(callback)
    try:
        yield
    finally:
        _listener.reset(token)


@contextmanager
def report_compilation_of(program: str) -> Iterator[None]:
    """Attribute reports inside the block to the program of this name."""
    if _listener.get() is None:
        yield
        return
    token = _program.set((program, perf_counter()))
    try:
        yield
    finally:
        _program.reset(token)


def has_listener() -> bool:
    """Return whether a callback is registered and a compilation is running."""
    return _listener.get() is not None and _program.get() is not None


def report(stage: str, done: int, total: int) -> None:
    """Report to the callback, if there is one, that `done` of `total` parts of a stage are
    finished.
    """
    listener, program = _listener.get(), _program.get()
    if listener is not None and program is not None:
        name, began = program
        listener(Progress(name, stage, done, total, perf_counter() - began))
