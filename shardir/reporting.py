"""How far the compilation of a program is, for whoever asked to be told.

Whoever does a part of it calls `report`; nobody has to know who listens.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from time import perf_counter

from shardir.errors import ShardirError


class ReportingError(ShardirError, TypeError):
    """What was to be told how far a compilation is cannot be told."""


@dataclass(frozen=True, slots=True)
class Progress:
    """Of the program, `done` parts of `total` of a stage are done, `seconds` after it was begun.

    Stages are the passes (of each its number among them), then `kernels`: machine code.
    """

    program: str
    stage: str
    done: int
    total: int
    seconds: float


_listener: ContextVar[Callable[[Progress], object] | None] = ContextVar("listener", default=None)
_program: ContextVar[tuple[str, float] | None] = ContextVar("program", default=None)


@contextmanager
def progress(callback: Callable[[Progress], object]) -> Iterator[None]:
    """Call `callback` with a `Progress` for every part of a compilation, while in the block.

    Programs that other threads compile are not reported. What the callback raises ends the
    compilation; the next call begins it anew. Raises `ReportingError` for what cannot be called.
    """
    if not callable(callback):
        raise ReportingError(f"progress calls a function of one Progress, got {callback!r}")
    token = _listener.set(callback)
    try:
        yield
    finally:
        _listener.reset(token)


@contextmanager
def compiling(program: str) -> Iterator[None]:
    """What is reported in the block is about the program of this name."""
    if _listener.get() is None:
        yield
        return
    token = _program.set((program, perf_counter()))
    try:
        yield
    finally:
        _program.reset(token)


def is_heard() -> bool:
    """Whether anybody listens."""
    return _listener.get() is not None and _program.get() is not None


def report(stage: str, done: int, total: int) -> None:
    """Say that so many parts of a stage are done, if anybody listens."""
    listener, program = _listener.get(), _program.get()
    if listener is not None and program is not None:
        name, began = program
        listener(Progress(name, stage, done, total, perf_counter() - began))
