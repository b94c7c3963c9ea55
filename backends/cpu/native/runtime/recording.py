"""Who ran which task when: what profiles are made of.

While `recording` is on, every task of every program of a pool is written into a ring of the thread
that ran it, with its begin and end on the clock of `time.monotonic_ns`. A ring holds the last
65,536 tasks.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from operator import itemgetter
from typing import NamedTuple, final

import numpy as np
import numpy.typing as npt

from shardir.backends.cpu.native.llvm.compiler import lock
from shardir.backends.cpu.native.runtime import control as at
from shardir.backends.cpu.native.runtime.errors import OutOfMemoryError
from shardir.backends.cpu.native.runtime.mapping import map_memory
from shardir.backends.cpu.native.runtime.program import Program, programs
from shardir.backends.cpu.native.runtime.workers import Pool, pool


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
    """What was recorded so far; `take` hands it out and begins anew."""

    def __init__(self, rings: npt.NDArray[np.int64]) -> None:
        self._rings = rings
        self._clear()

    def take(self) -> list[Task]:
        """The tasks in order of their begins."""
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
        self._clear()
        return sorted(tasks, key=lambda each: each.begin)

    def _clear(self) -> None:
        self._rings[:, 0, 0] = 0


class _Programs:
    """Which program and phase a row of a table belongs to."""

    def __init__(self) -> None:
        with lock:
            found = sorted(programs.items(), key=itemgetter(0))
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


@contextmanager
def recording(workers: Pool | None = None) -> Iterator[Recording]:
    """Record tasks while in the block. Raises `OutOfMemoryError` where there is no room for it."""
    shared = pool() if workers is None else workers
    rings = _rings.get(shared.control)
    if rings is None:
        rings = _rings[shared.control] = _map_rings()
    made = Recording(rings)
    before = shared.record(rings.ctypes.data)
    try:
        yield made
    finally:
        shared.record(before)


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
