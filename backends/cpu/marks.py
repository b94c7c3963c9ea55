"""Marks that Python code leaves while a profile is made: what it worked for, and when."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Mark:
    """Python code that ran for `what`; times of `time.monotonic_ns`."""

    what: Any
    begin: int
    end: int


_current: list[Mark] | None = None


def mark(what: Any, begin: int) -> None:
    """Say that Python code worked for `what` since `begin`, if somebody wants to know."""
    if _current is not None:
        _current.append(Mark(what, begin, time.monotonic_ns()))


@contextmanager
def marking() -> Iterator[list[Mark]]:
    """Collect marks of all threads while in the block."""
    global _current
    before, _current = _current, []
    try:
        yield _current
    finally:
        _current = before
