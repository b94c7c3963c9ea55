"""Who ran which task when: what profiles are made of.

While `recording` is on, every task of every program of a pool is written into a ring of the thread
that ran it, with its begin and end on the clock of `time.monotonic_ns`. A ring holds the last
65,536 tasks, and counts all of them: each who records knows how far it has read.
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
    """One task of a phase of a program, run by a thread: 0 is the caller, then come workers, then
    callers who ran alone. Times in nanoseconds."""

    thread: int
    program: Program
    phase: int
    task: int
    begin: int
    end: int


@final
class Recording:
    """What was recorded so far; `take` hands it out and begins anew.

    `lost` are the tasks that a thread ran before its last 65,536 between the last two.
    """

    def __init__(self, rings: npt.NDArray[np.int64]) -> None:
        self._rings = rings
        self._read = self._counts()
        self.lost = 0

    def take(self) -> list[Task]:
        """The tasks in order of their begins."""
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
    """Which program and phase a row of a table belongs to."""

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
"""By pool: a thread may still write into rings that nobody reads any more."""
_recording: dict[int, int] = {}
"""By pool, how many record."""
_changing = RLock()
held_by_forks(_changing.acquire, _changing.release)


@contextmanager
def recording(workers: Pool | None = None) -> Iterator[Recording]:
    """Record tasks while in the block. Raises `OutOfMemoryError` where there is no room for it."""
    shared = pool() if workers is None else workers
    with _changing:
        rings = _rings.get(shared.control)
        if rings is None:
            rings = _rings[shared.control] = _map_rings()
        made = Recording(rings)
        _recording[shared.control] = _recording.get(shared.control, 0) + 1
        shared.record(rings.ctypes.data)
    try:
        yield made
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
