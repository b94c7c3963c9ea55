"""The memory limit of the process."""

import os

from shardir.backends.cpu.threads import cgroups


def available_memory_bytes() -> int:
    """Return the bytes of the machine's memory, or the limit of the control group if that is
    less."""
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return min(total, cgroups.memory_limit_bytes() or total)
