"""Timestamps that Python code records while a profile is made."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Mark:
    """Python code that ran for `what`, in times of `time.monotonic_ns`."""

    what: Any
    begin: int
    end: int


_listening: dict[int, list[Mark]] = {}
"""The lists of all open recordings by their identity; there may be any number."""


def mark(what: Any, begin: int) -> None:
    """Record that Python code worked for `what` since `begin`, if a recording is open."""
    if _listening:
        result = Mark(what, begin, time.monotonic_ns())
        for marks in [*_listening.values()]:
            marks.append(result)


@contextmanager
def marking() -> Iterator[list[Mark]]:
    """Record the marks of all threads inside of the block."""
    marks: list[Mark] = []
    _listening[id(marks)] = marks
    try:
        yield marks
    finally:
        del _listening[id(marks)]
