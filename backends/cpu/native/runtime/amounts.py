"""The memory limit of the process."""

import os

from shardir.backends.cpu.native.runtime import control_groups


def memory_of_machine() -> int:
    """Return the bytes of the machine's memory, or the limit of the control group if that is
    less."""
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return min(total, control_groups.memory() or total)
