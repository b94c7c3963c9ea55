"""Record which thread ran which task when, for profiles.

While `record_tasks` is active, every task of every program of a pool is written to a ring buffer of
its thread, with begin and end times of `time.monotonic_ns`. A ring holds the last 65,536 tasks and
counts all of them, so that each recording tracks how much of it was consumed.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from operator import itemgetter
from threading import RLock
from typing import NamedTuple, final

import numpy as np
import numpy.typing as npt

from shardir.backends.cpu.native.llvm.compiler import lock
from shardir.backends.cpu.native.runtime import control as at
from shardir.backends.cpu.native.runtime.errors import OutOfMemoryError
from shardir.backends.cpu.native.runtime.mapping import map_memory
from shardir.backends.cpu.native.runtime.program import Program, programs
from shardir.backends.cpu.native.runtime.workers import Pool, pool
from shardir.backends.forking import held_by_forks


class Task(NamedTuple):
    """One task of a phase of a program and its thread: 0 is the caller, then come workers, then
    callers that ran alone. Times in nanoseconds."""

    thread: int
    program: Program
    phase: int
    task: int
    begin: int
    end: int


@final
class Recording:
    """The tasks recorded so far; `take` returns and clears them.

    `lost` counts the tasks since the previous call that the rings overwrote.
    """

    def __init__(self, rings: npt.NDArray[np.int64]) -> None:
        self._rings = rings
        self._read = self._counts()
        self.lost = 0

    def take(self) -> list[Task]:
        """Return the tasks in order of their begin."""
        known = _Programs()
        tasks = []
        before, self._read, self.lost = self._read, self._counts(), 0
        for lane, (read, count) in enumerate(zip(before, self._read, strict=True)):
            first = max(read, count - at.RING_RECORDS)
            self.lost += first - read
            thread = lane if lane < at.MAX_WORKERS else lane - at.MAX_WORKERS + 1000
            rows = self._rings[lane, np.arange(first, count) % at.RING_RECORDS + 1]
            for entry, task, begin, end in rows.tolist():
                found = known.find(entry)
                if found is not None:
                    tasks.append(Task(thread, *found, task, begin, end))
        return sorted(tasks, key=lambda each: each.begin)

    def _counts(self) -> list[int]:
        counts: list[int] = self._rings[:, 0, 0].tolist()
        return counts


class _Programs:
    """Maps a row of a phase table to its program and phase."""

    def __init__(self) -> None:
        with lock:
            found = sorted(programs.items(), key=itemgetter(0))
        self._tables = [table for table, _ in found]
        self._programs = [program for _, program in found]
        self._found: dict[int, tuple[Program, int] | None] = {}

    def find(self, entry: int) -> tuple[Program, int] | None:
        try:
            return self._found[entry]
        except KeyError:
            found = self._found[entry] = self._search(entry)
            return found

    def _search(self, entry: int) -> tuple[Program, int] | None:
        which = int(np.searchsorted(self._tables, entry, side="right")) - 1
        if which < 0:
            return None
        program = self._programs[which]
        row = (entry - self._tables[which]) // at.ENTRY_BYTES
        return (program, program.rows[row][0]) if row < len(program.rows) else None


_rings: dict[int, npt.NDArray[np.int64]] = {}
"""By pool: rings are never freed, because a thread may still write to them."""
_recording: dict[int, int] = {}
"""By pool, the number of open recordings."""
_changing = RLock()
held_by_forks(_changing.acquire, _changing.release)


@contextmanager
def recording(workers: Pool | None = None) -> Iterator[Recording]:
    """Record tasks inside of the block. Raises `OutOfMemoryError` if the rings cannot be mapped."""
    shared = pool() if workers is None else workers
    with _changing:
        rings = _rings.get(shared.control)
        if rings is None:
            rings = _rings[shared.control] = _map_rings()
        result = Recording(rings)
        _recording[shared.control] = _recording.get(shared.control, 0) + 1
        shared.record(rings.ctypes.data)
    try:
        yield result
    finally:
        with _changing:
            _recording[shared.control] -= 1
            if not _recording[shared.control]:
                shared.record(0)


def _map_rings() -> npt.NDArray[np.int64]:
    nbytes = at.LANES * at.RING_BYTES
    address = map_memory(nbytes, huge=False)
    if address is None:
        raise OutOfMemoryError(
            "no address space is left to record tasks; "
            "allow this process more address space (ulimit -v)"
        )
    memory = _Words(address, (at.LANES, at.RING_RECORDS + 1, at.RING_FIELDS))
    return np.asarray(memory)


class _Words:
    """Memory with NumPy's array interface."""

    def __init__(self, address: int, shape: tuple[int, ...]) -> None:
        self.__array_interface__ = {
            "data": (address, False),
            "shape": shape,
            "typestr": "<i8",
            "version": 3,
        }
