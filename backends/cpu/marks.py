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


_listening: dict[int, list[Mark]] = {}
"""Where those who want to know collect marks, by identity: any number at once."""


def mark(what: Any, begin: int) -> None:
    """Say that Python code worked for `what` since `begin`, if somebody wants to know."""
    if _listening:
        made = Mark(what, begin, time.monotonic_ns())
        for marks in [*_listening.values()]:
            marks.append(made)


@contextmanager
def marking() -> Iterator[list[Mark]]:
    """Collect marks of all threads while in the block."""
    marks: list[Mark] = []
    _listening[id(marks)] = marks
    try:
        yield marks
    finally:
        del _listening[id(marks)]
