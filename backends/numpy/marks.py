"""Timestamps that Python code records while a profile is made."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Mark:
    """Python code that ran for `subject`, in times of `time.monotonic_ns`."""

    subject: Any
    begin: int
    end: int


_open_recordings: dict[int, list[Mark]] = {}
"""The lists of all open recordings by their identity; there may be any number."""


def record_mark(what: object, begin: int) -> None:
    """Record that Python code worked for `what` since `begin`, if a recording is open."""
    if _open_recordings:
        result = Mark(what, begin, time.monotonic_ns())
        for marks in [*_open_recordings.values()]:
            marks.append(result)


@contextmanager
def record_marks() -> Iterator[list[Mark]]:
    """Record the marks of all threads inside of the block."""
    marks: list[Mark] = []
    _open_recordings[id(marks)] = marks
    try:
        yield marks
    finally:
        del _open_recordings[id(marks)]
