"""How much memory there is."""

import os


def memory_of_machine() -> int:
    """Bytes that this process may use: the machine's, or its control group's if that is less."""
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    try:
        with open("/sys/fs/cgroup/memory.max") as file:
            given = file.read().strip()
    except OSError:
        return total
    return min(total, int(given)) if given.isdecimal() else total
