"""Load phases as a Python function that runs them.

    run = load_program(phases, slots)
    run(*addresses)          # of slots 1, 2, ..., slots - 1

`run` is a built-in function over native code: a call costs some hundred nanoseconds, releases the
GIL if the phases are estimated to take more than 20 us, shares phases with the workers where that
pays off, and returns None. Slot 0, the scratch memory, is filled in. Any number of threads may call
it concurrently. Addresses are integers; the memory behind them must live until the call returns.
"""

import ctypes
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, final
from weakref import WeakValueDictionary

from shardir.backends.cpu.codegen import kernel_table
from shardir.backends.cpu.codegen.compiler import LINK_LOCK
from shardir.backends.cpu.codegen.target import HostDescription, host_machine
from shardir.backends.cpu.dispatch.entry_point import make_builtin_function
from shardir.backends.cpu.kernel_api import (
    MIN_ROW_TASKS_PER_WORKER,
    SIGNAL_CHECK_INTERVAL_NANOSECONDS,
    Phase,
)
from shardir.backends.cpu.threads import shared_memory_layout as at
from shardir.backends.cpu.threads.workers import WorkerPool, worker_pool

RunProgram = Callable[..., None]
PhaseCauses = Sequence[object] | Callable[[], Sequence[object]]

MIN_SHARED_NANOSECONDS = 60_000.0
"""Nanoseconds from which a phase is shared with workers that are awake."""
MIN_WAKE_NANOSECONDS = 200_000.0
"""Nanoseconds of remaining shared work from which workers are woken, which takes 30 to 170 us."""
MAX_ROWS_PER_PHASE = 1 << 16
"""Maximum rows of one phase. Only phases of hours reach it, such as those of arrays that no memory
can hold: their allocation fails after the table is built."""
MIN_GIL_RELEASE_NANOSECONDS = 20_000.0
"""Nanoseconds from which a program releases the GIL."""


@final
class LoadedProgram:
    """The objects that a program's function keeps alive: its table, and its phases for display."""

    __slots__ = ("__weakref__", "_causes", "_memory", "address", "phases", "pool", "rows")

    def __init__(
        self,
        phases: Sequence[Phase],
        slots: int,
        workers: WorkerPool,
        causes: PhaseCauses,
        machine: HostDescription,
    ) -> None:
        self.phases, self.pool, self._causes = tuple(phases), workers, causes
        self.rows = table_rows(self.phases, workers.count)
        code = kernel_table.kernel_addresses((phase.kernel for phase in self.phases), machine)
        words = _table_words(self.phases, self.rows)
        self._memory = (ctypes.c_int64 * (len(words) + 8))()
        self.address = ctypes.addressof(self._memory)
        table = self.address + at.PROGRAM_BYTES
        records = table + at.ENTRY_BYTES * len(self.rows)
        starts = {}
        for number, phase in enumerate(self.phases):
            starts[number] = records
            records += 8 * len(phase.record)
        for row, (number, *_) in enumerate(self.rows):
            start = row * (at.ENTRY_BYTES // 8)
            words[start + at.ENTRY_KERNEL // 8] = code[self.phases[number].kernel.name]
            words[start + at.ENTRY_RECORD // 8] = starts[number]
        flags = (
            at.FLAG_RELEASE_GIL
            if sum(phase.cost for phase in phases) > MIN_GIL_RELEASE_NANOSECONDS
            else 0
        )
        for *_, more in self.rows:
            flags |= more & at.FLAG_PARALLEL
        header = (workers.control, table, len(self.rows), slots, flags, 0, 0, 0)
        self._memory[:] = [*header, *words]
        with LINK_LOCK:
            loaded_programs[table] = self

    @property
    def causes(self) -> Sequence[object]:
        """The cause of each phase; empty if none were given."""
        if callable(self._causes):
            self._causes = self._causes()
        return self._causes


loaded_programs: WeakValueDictionary[int, LoadedProgram] = WeakValueDictionary()
"""All live programs by the address of their table; access requires the lock of the compiler."""


def load_program(
    phases: Sequence[Phase],
    slots: int,
    workers: WorkerPool | None = None,
    causes: PhaseCauses = (),
    machine: HostDescription | None = None,
) -> RunProgram:
    """Return a function that runs phases on buffers, given the addresses of slots 1 to `slots - 1`.

    Kernels that are new to this process are compiled for `machine`, by default this host, on which
    they run. `workers` default to those of this process; `causes`, one for each phase or a function
    that returns them, identify phases in profiles.
    Raises `KeyError` for an import that no library provides; the function raises `TypeError` for a
    wrong number of addresses or for one that is not an integer.
    """
    shared = worker_pool() if workers is None else workers
    program = LoadedProgram(phases, slots, shared, causes, machine or host_machine())
    result: RunProgram = make_builtin_function(shared.code["entry"], program.address, program)
    return result


def program_address(program: Any) -> int:
    """Return the address of a program's table, from its function."""
    address: int = program.__self__
    return address


TableRow = tuple[int, int, int, int]
"""(index of the phase, first task, number of tasks, flags)"""


def table_rows(phases: Sequence[Phase], workers: int) -> list[TableRow]:
    """Return the rows of a table: long phases are split, and cheap ones are not shared."""
    to_come = 0.0
    shared = []
    for phase in reversed(phases):
        is_shared = phase.tasks > 1 and phase.cost >= MIN_SHARED_NANOSECONDS
        to_come += phase.cost if is_shared else 0.0
        waking = at.FLAG_WAKE if to_come >= MIN_WAKE_NANOSECONDS else 0
        shared.append(at.FLAG_PARALLEL | waking if is_shared else 0)
    rows: list[TableRow] = []
    since = 0.0
    for number, (phase, flags) in enumerate(zip(phases, reversed(shared), strict=True)):
        threads = workers if flags else 1
        duration = phase.cost / threads
        most = phase.tasks // (threads * MIN_ROW_TASKS_PER_WORKER) if threads > 1 else phase.tasks
        most = min(most, MAX_ROWS_PER_PHASE)
        parts = max(1, min(most, int(duration / SIGNAL_CHECK_INTERVAL_NANOSECONDS)))
        rounds = -(-phase.tasks // threads)
        bounds = [min(phase.tasks, rounds * part // parts * threads) for part in range(parts + 1)]
        for first, end in pairwise(bounds):
            since += duration / parts
            check = at.FLAG_CHECK_SIGNALS if since >= SIGNAL_CHECK_INTERVAL_NANOSECONDS else 0
            since = 0.0 if check else since
            rows.append((number, first, end - first, flags | check))
    return rows


def _table_words(phases: Sequence[Phase], rows: Sequence[TableRow]) -> list[int]:
    """Return the table and the records as words, with addresses of 0."""
    words = []
    for number, first, tasks, flags in rows:
        max_workers = phases[number].max_workers or at.MAX_WORKERS
        words += [0, 0, first, tasks, flags, max_workers, 0, 0]
    words += [_to_signed(word) for phase in phases for word in phase.record]
    return words


def _to_signed(word: int) -> int:
    return word - (1 << 64) if word >= 1 << 63 else word
