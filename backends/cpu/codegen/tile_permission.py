"""The permission of a process to use the tile registers of AMX.

Linux keeps the state of these registers (8 KiB for each thread) only for processes that request it.
"""

import ctypes
import platform
import sys

ARCH_PRCTL = 158
"""The number of the system call `arch_prctl` on x86-64."""
ARCH_REQ_XCOMP_PERM = 0x1023
"""The code of a request for a component of the extended state."""
XTILEDATA = 18
"""The component of the extended state that holds the contents of tiles."""


def request_tile_registers() -> bool:
    """Request the tile registers for all threads of this process and for processes that it forks;
    return whether the system grants them.

    Linux before 5.16, other systems and some sandboxes do not. Linux also refuses if a thread has a
    stack for signals that is too small for the registers.
    """
    if not sys.platform.startswith("linux") or platform.machine() != "x86_64":
        return False
    try:
        syscall = ctypes.CDLL(None).syscall
    except (OSError, AttributeError):  # A C library that is linked statically.
        return False
    syscall.restype = ctypes.c_long
    numbers = (ARCH_PRCTL, ARCH_REQ_XCOMP_PERM, XTILEDATA)
    return bool(syscall(*(ctypes.c_long(each) for each in numbers)) == 0)
