"""Where the words lie that threads share, and what a table of phases looks like in memory.

Offsets are bytes. What different threads write lies on lines of its own, 128 bytes apart, because
some processors fetch cache lines in pairs.
"""

from shardir.backends.cpu.native.data import SCRATCH_BYTES as SCRATCH_BYTES

STATE = 0
"""epoch << 32 | tasks not yet claimed of the phase that is open. The one word that is contended."""
EPOCH = STATE + 4
"""The upper half of `STATE`: sleeping workers wait for it to change (both ends little-endian)."""
DONE = 128
"""How many tasks of the open phase have ended."""
WAITING = DONE + 8
"""Whether the caller sleeps until `DONE` changes."""
JOB_KERNEL = 256
JOB_RECORD = JOB_KERNEL + 8
JOB_END = JOB_KERNEL + 16
JOB_BASES = JOB_KERNEL + 24
JOB_ENTRY = JOB_KERNEL + 32
"""The open phase: written by the caller before it opens one, read by who has claimed a task."""
SLEEPERS = 384
"""How many workers sleep, or are about to."""
STOP = 512
"""Whether workers should end."""
STARTED = STOP + 8
"""Whether workers were started; where not, an entry calls `STARTER` first."""
STARTER = STOP + 16
"""The Python function that starts workers."""
SCRATCH = STOP + 24
"""The address of all scratch memory."""
SPIN = STOP + 32
"""Nanoseconds that a thread looks for work before it sleeps."""
RINGS = STOP + 40
"""Where tasks are recorded for profiles; 0: nowhere."""
CALLERS_SCRATCH = STOP + 48
"""The address of the scratch memory of callers other than that which owns the workers."""
BUSY = 640
"""A bit for each caller inside: bit 0 owns the workers."""
MUTEX = 768
CONDITION = 896
"""For systems without a futex."""
CONTROL_BYTES = 1024

MAX_WORKERS = 64
CALLERS = 32
LANES = MAX_WORKERS + CALLERS - 1
"""Threads that run tasks at once, each with scratch of its own: workers, then callers who found the
workers taken."""

ENTRY_KERNEL = 0
ENTRY_RECORD = 8
ENTRY_FIRST = 16
ENTRY_TASKS = 24
ENTRY_FLAGS = 32
ENTRY_BYTES = 64
"""A row of a table of phases; one phase may take several, each with some of its tasks."""

PARALLEL = 1
"""Worth sharing with workers that are awake."""
WAKE = 2
"""Worth waking workers that sleep."""
CHECK = 4
"""After it, Python's signal handlers get their turn."""
RELEASE = 8
"""Of a whole program: other Python threads may run meanwhile."""
STEPS = 16
"""Of a whole program: its table is not of phases but of instructions, see `looping`."""

PROGRAM_CONTROL = 0
PROGRAM_TABLE = 8
PROGRAM_ENTRIES = 16
PROGRAM_SLOTS = 24
PROGRAM_FLAGS = 32
PROGRAM_REGISTERS = 40
PROGRAM_BYTES = 64
"""What an entry from Python finds behind its `self`."""

RING_RECORDS = 1 << 16
RING_FIELDS = 4
RING_BYTES = 8 * RING_FIELDS * (RING_RECORDS + 1)
"""A lane's record of tasks: a count, three words unused, then (entry, task, begin, end) each."""
