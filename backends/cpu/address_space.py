"""How much address space the process may still take, where it is limited (`ulimit -v`).

LLVM ends the process where it gets no memory, and Python waits for ever for a thread that got none
while it began. So neither is begun where too little is left.
"""

import ctypes
import os
import sys

THREAD_BYTES = 24 << 20
"""What a thread may take while it begins: its stack, and what Python and the C library reserve."""
COMPILE_BYTES = 32 << 20
"""What LLVM may take to compile the kernels of a program."""
START_BYTES = 176 << 20
"""What the runtime takes to begin with: the compiler, scratch memory, blocks, and threads."""


_M_ARENA_MAX = -8
"""Of `mallopt`, from `malloc.h`."""


def address_space_left() -> int | None:
    """Return how many bytes of address space the process may still take; `None`: no limit, or the
    system does not say."""
    if not sys.platform.startswith("linux"):
        return None
    import resource  # There is none on Windows.

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
    """Return whether the process may not take so many bytes of address space any more."""
    left = address_space_left()
    return left is not None and left < nbytes


def share_heaps() -> None:
    """Let the threads of the process share one heap if its address space is limited.

    Otherwise the C library of Linux reserves 64 MiB of address space for each thread.
    """
    if address_space_left() is None:
        return
    try:
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, 1)
    except AttributeError:  # Other C libraries have one heap anyway.
        return
