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

from shardir.backends.cpu.codegen.compiler import LINK_LOCK
from shardir.backends.cpu.dispatch.program_table import LoadedProgram, loaded_programs
from shardir.backends.cpu.errors import OutOfMemoryError
from shardir.backends.cpu.threads import shared_memory_layout as at
from shardir.backends.cpu.threads.memory_mapping import map_memory
from shardir.backends.cpu.threads.workers import WorkerPool, worker_pool
from shardir.backends.fork_handlers import register_fork_lock


class RecordedTask(NamedTuple):
    """One task of a phase of a program and its thread: 0 is the caller, then come workers, then
    callers that ran alone. Times in nanoseconds."""

    thread: int
    program: LoadedProgram
    phase: int
    task: int
    begin: int
    end: int


@final
class TaskRecording:
    """The tasks recorded so far; `take` returns and clears them.

    `dropped_tasks` counts the tasks since the previous call that the rings overwrote.
    """

    def __init__(self, rings: npt.NDArray[np.int64]) -> None:
        self._rings = rings
        self._consumed = self._counts()
        self.dropped_tasks = 0

    def take(self) -> list[RecordedTask]:
        """Return the tasks in order of their begin."""
        known = _ProgramIndex()
        tasks = []
        before, self._consumed, self.dropped_tasks = self._consumed, self._counts(), 0
        for lane, (read, count) in enumerate(zip(before, self._consumed, strict=True)):
            first = max(read, count - at.RING_RECORDS)
            self.dropped_tasks += first - read
            thread = lane if lane < at.MAX_WORKERS else lane - at.MAX_WORKERS + 1000
            rows = self._rings[lane, np.arange(first, count) % at.RING_RECORDS + 1]
            for entry, task, begin, end in rows.tolist():
                found = known.find(entry)
                if found is not None:
                    tasks.append(RecordedTask(thread, *found, task, begin, end))
        return sorted(tasks, key=lambda each: each.begin)

    def _counts(self) -> list[int]:
        counts: list[int] = self._rings[:, 0, 0].tolist()
        return counts


class _ProgramIndex:
    """Maps a row of a phase table to its program and phase."""

    def __init__(self) -> None:
        with LINK_LOCK:
            found = sorted(loaded_programs.items(), key=itemgetter(0))
        self._tables = [table for table, _ in found]
        self._programs = [program for _, program in found]
        self._found: dict[int, tuple[LoadedProgram, int] | None] = {}

    def find(self, entry: int) -> tuple[LoadedProgram, int] | None:
        try:
            return self._found[entry]
        except KeyError:
            found = self._found[entry] = self._search(entry)
            return found

    def _search(self, entry: int) -> tuple[LoadedProgram, int] | None:
        which = int(np.searchsorted(self._tables, entry, side="right")) - 1
        if which < 0:
            return None
        program = self._programs[which]
        row = (entry - self._tables[which]) // at.ENTRY_BYTES
        return (program, program.rows[row][0]) if row < len(program.rows) else None


_ring_buffers: dict[int, npt.NDArray[np.int64]] = {}
"""By pool: rings are never freed, because a thread may still write to them."""
_open_recordings: dict[int, int] = {}
"""By pool, the number of open recordings."""
_recording_lock = RLock()
register_fork_lock(_recording_lock.acquire, _recording_lock.release)


@contextmanager
def record_tasks(workers: WorkerPool | None = None) -> Iterator[TaskRecording]:
    """Record tasks inside of the block. Raises `OutOfMemoryError` if the rings cannot be mapped."""
    shared = worker_pool() if workers is None else workers
    with _recording_lock:
        rings = _ring_buffers.get(shared.control)
        if rings is None:
            rings = _ring_buffers[shared.control] = _map_ring_buffers()
        result = TaskRecording(rings)
        _open_recordings[shared.control] = _open_recordings.get(shared.control, 0) + 1
        shared.record(rings.ctypes.data)
    try:
        yield result
    finally:
        with _recording_lock:
            _open_recordings[shared.control] -= 1
            if not _open_recordings[shared.control]:
                shared.record(0)


def _map_ring_buffers() -> npt.NDArray[np.int64]:
    nbytes = at.MAX_THREADS * at.RING_BYTES
    address = map_memory(nbytes, huge=False)
    if address is None:
        raise OutOfMemoryError(
            "no address space is left to record tasks; "
            "allow this process more address space (ulimit -v)"
        )
    memory = _WordsInterface(address, (at.MAX_THREADS, at.RING_RECORDS + 1, at.RING_FIELDS))
    return np.asarray(memory)


class _WordsInterface:
    """Memory with NumPy's array interface."""

    def __init__(self, address: int, shape: tuple[int, ...]) -> None:
        self.__array_interface__ = {
            "data": (address, False),
            "shape": shape,
            "typestr": "<i8",
            "version": 3,
        }
