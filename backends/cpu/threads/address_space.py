"""Limits of the address space of the process (`ulimit -v`).

LLVM ends the process if an allocation fails, and Python waits forever for a thread whose start ran
out of memory. So neither is started if too little address space is left.
"""

import ctypes
import os
import sys

THREAD_BYTES = 24 << 20
"""Address space that a thread may take to start: its stack, and reservations of Python and libc."""
MAX_COMPILE_BYTES = 32 << 20
"""Address space that LLVM may take to compile the kernels of a program."""
LLVM_LIBRARY_BYTES = 152 << 20
"""Address space that the import of llvmlite takes at least; measured on x86-64."""
STARTUP_BYTES = 176 << 20
"""Address space that the runtime takes to start: compiler, scratch memory, blocks, threads."""


_M_ARENA_MAX = -8
"""The parameter of `mallopt` that limits the number of arenas, from `malloc.h`."""


def address_space_left() -> int | None:
    """Return how many bytes of address space the process may still take.

    Returns `None` if there is no limit, or if the system does not report one.
    """
    if not sys.platform.startswith("linux"):
        return None
    import resource  # The module does not exist on Windows.

    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit == resource.RLIM_INFINITY:
        return None
    try:
        with open("/proc/self/statm", "rb") as file:
            pages = int(file.read().split()[0])
    except (OSError, ValueError):
        return None
    return max(0, limit - pages * os.sysconf("SC_PAGE_SIZE"))


def is_too_little_for(nbytes: int) -> bool:
    """Return whether the process may not take `nbytes` more bytes of address space."""
    left = address_space_left()
    return left is not None and left < nbytes


def limit_malloc_arenas() -> None:
    """Let the threads of the process share one malloc arena if its address space is limited.

    Otherwise glibc reserves 64 MiB of address space for each thread.
    """
    if address_space_left() is None:
        return
    try:
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, 1)
    except AttributeError:  # Other C libraries have no arenas for each thread.
        return
