"""Who ran which task when: what profiles are made of.

While `recording` is on, every task of every program of a pool is written into a ring of the thread
that ran it, with its begin and end on the clock of `time.monotonic_ns`. A ring holds the last
65,536 tasks. Python code that works between native calls adds marks of its own.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import numpy.typing as npt

from shardir.backends.cpu.native.runtime import control as at
from shardir.backends.cpu.native.runtime.errors import OutOfMemoryError
from shardir.backends.cpu.native.runtime.mapping import map_memory
from shardir.backends.cpu.native.runtime.program import Program, programs
from shardir.backends.cpu.native.runtime.workers import Pool, pool


@dataclass(frozen=True, slots=True)
class Task:
    """One task of a phase of a program, run by a thread: 0 is the caller, then come workers, then
    callers who ran alone. Times in nanoseconds."""

    thread: int
    program: Program
    phase: int
    task: int
    begin: int
    end: int


@dataclass(frozen=True, slots=True)
class Mark:
    """Python code that ran between native calls, for `what`."""

    what: Any
    begin: int
    end: int


@final
class Recording:
    """What was recorded so far; `take` hands it out and begins anew."""

    def __init__(self, rings: npt.NDArray[np.int64]) -> None:
        self._rings = rings
        self.marks: list[Mark] = []
        self._clear()

    def take(self) -> tuple[list[Task], list[Mark]]:
        """Tasks and marks in order of their begins."""
        known = _Programs()
        tasks = []
        for lane in range(at.LANES):
            count = int(self._rings[lane, 0, 0])
            rows = self._rings[lane, 1 : 1 + min(count, at.RING_RECORDS)]
            thread = lane if lane < at.MAX_WORKERS else lane - at.MAX_WORKERS + 1000
            for entry, task, begin, end in rows.tolist():
                found = known.find(entry)
                if found is not None:
                    tasks.append(Task(thread, *found, task, begin, end))
        marks, self.marks = self.marks, []
        self._clear()
        tasks.sort(key=lambda each: each.begin)
        return tasks, marks

    def _clear(self) -> None:
        self._rings[:, 0, 0] = 0


class _Programs:
    """Which program and phase a row of a table belongs to."""

    def __init__(self) -> None:
        found = sorted(programs.items())
        self._tables = [table for table, _ in found]
        self._programs = [program for _, program in found]

    def find(self, entry: int) -> tuple[Program, int] | None:
        which = int(np.searchsorted(self._tables, entry, side="right")) - 1
        if which < 0:
            return None
        program = self._programs[which]
        row = (entry - self._tables[which]) // at.ENTRY_BYTES
        return (program, program.rows[row][0]) if row < len(program.rows) else None


_rings: dict[int, npt.NDArray[np.int64]] = {}
"""By pool: a thread may still write into rings that nobody reads any more."""

current: Recording | None = None
"""Where Python code adds marks; `None`: nobody records."""


@contextmanager
def recording(workers: Pool | None = None) -> Iterator[Recording]:
    """Record tasks while in the block. Raises `OutOfMemoryError` where there is no room for it."""
    global current
    shared = pool() if workers is None else workers
    rings = _rings.get(shared.control)
    if rings is None:
        rings = _rings[shared.control] = _map_rings()
    before, current = current, Recording(rings)
    shared.record(rings.ctypes.data)
    try:
        yield current
    finally:
        current = before
        if before is None:
            shared.record(0)


def mark(what: Any, begin: int) -> None:
    """Say that Python code worked for `what` since `begin`, if somebody records."""
    if current is not None:
        current.marks.append(Mark(what, begin, time.monotonic_ns()))


def _map_rings() -> npt.NDArray[np.int64]:
    nbytes = at.LANES * at.RING_BYTES
    address = map_memory(nbytes)
    if address is None:
        raise OutOfMemoryError(
            "no address space to record tasks in; allow this process more (ulimit -v)"
        )
    memory = _Words(address, (at.LANES, at.RING_RECORDS + 1, at.RING_FIELDS))
    return np.asarray(memory)


class _Words:
    """Memory as NumPy takes it."""

    def __init__(self, address: int, shape: tuple[int, ...]) -> None:
        self.__array_interface__ = {
            "data": (address, False),
            "shape": shape,
            "typestr": "<i8",
            "version": 3,
        }
