"""How much memory there is."""

import os

from shardir.backends.cpu.native.runtime import control_groups


def memory_of_machine() -> int:
    """Bytes that this process may use: the machine's, or its control group's if that is less."""
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return min(total, control_groups.memory() or total)
