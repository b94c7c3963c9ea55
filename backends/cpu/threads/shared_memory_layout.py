"""The layout of the memory that threads share, and of phase tables.

Offsets are in bytes. Words that different threads write are 128 bytes apart, because some
processors fetch cache lines in pairs.
"""

from shardir.backends.cpu.kernel_api import SCRATCH_BYTES_PER_WORKER as SCRATCH_BYTES_PER_WORKER

STATE = 0
"""epoch << 32 | unclaimed tasks of the open phase. Only this word is contended."""
EPOCH = STATE + 4
"""The upper half of the state word: sleeping workers wait for it to change (little-endian)."""
DONE = 128
"""The number of tasks of the open phase that have ended."""
WAITING = DONE + 8
"""True if the caller sleeps until the count of ended tasks changes."""
JOB_KERNEL = 256
JOB_RECORD = JOB_KERNEL + 8
JOB_END = JOB_KERNEL + 16
JOB_BASES = JOB_KERNEL + 24
JOB_ENTRY = JOB_KERNEL + 32
"""The open phase: the caller writes it before opening, threads that claimed a task read it."""
SLEEPERS = 384
"""The number of workers that sleep or are about to sleep."""
STOP = 512
"""True if workers should end."""
STARTED = STOP + 8
"""True if workers were started; otherwise an entry point calls `STARTER` first."""
STARTER = STOP + 16
"""The Python function that starts workers."""
SCRATCH = STOP + 24
"""The address of all scratch memory."""
SPIN = STOP + 32
"""Nanoseconds that a thread spins before it sleeps."""
RINGS = STOP + 40
"""The address of the ring buffers that record tasks for profiles; 0 if none."""
CALLERS_SCRATCH = STOP + 48
"""The address of the scratch memory of callers other than the one that owns the workers."""
COUNT = STOP + 56
"""The number of workers, the caller included."""
BUSY = 640
"""A bit for each active caller: bit 0 owns the workers."""
MUTEX = 768
CONDITION = 896
"""A mutex and a condition variable for systems without a futex."""
CONTROL_BYTES = 1024

MAX_WORKERS = 64
MAX_CALLERS = 32
MAX_THREADS = MAX_WORKERS + MAX_CALLERS - 1
"""Threads that can run tasks concurrently, each with scratch memory of its own: workers, then
callers that found the workers busy."""

ENTRY_KERNEL = 0
ENTRY_RECORD = 8
ENTRY_FIRST = 16
ENTRY_TASKS = 24
ENTRY_FLAGS = 32
ENTRY_MAX_WORKERS = 40
ENTRY_BYTES = 64
"""The layout of a row of a phase table; a phase may have several rows, each with some tasks."""

FLAG_PARALLEL = 1
"""The phase is worth sharing with workers that are awake."""
FLAG_WAKE = 2
"""The phase is worth waking workers that sleep."""
FLAG_CHECK_SIGNALS = 4
"""Python's signal handlers run after the row."""
FLAG_RELEASE_GIL = 8
"""Of a program: it releases the GIL while it runs."""
FLAG_INSTRUCTIONS = 16
"""Of a program: its table holds instructions instead of phases, see `control_interpreter`."""
FLAG_OWN_WORKERS = 32
"""Of a caller: it waits until it owns the workers."""

PROGRAM_CONTROL = 0
PROGRAM_TABLE = 8
PROGRAM_ENTRIES = 16
PROGRAM_SLOTS = 24
PROGRAM_FLAGS = 32
PROGRAM_REGISTERS = 40
PROGRAM_BYTES = 64
"""The layout of a program header, which an entry point finds through its `self`."""

RING_RECORDS = 1 << 16
RING_FIELDS = 4
RING_BYTES = 8 * RING_FIELDS * (RING_RECORDS + 1)
"""The ring buffer of a thread: a count, three unused words, then (entry, task, begin, end) rows."""
