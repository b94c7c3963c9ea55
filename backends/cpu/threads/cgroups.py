"""The limits of the control groups of this process on Linux: the least from its own to the root.

Version 2 has one hierarchy for all controllers, version 1 one for each. In a container the root may
be the group that the host assigned.
"""

import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path, PurePosixPath

CGROUP_ROOT = "/sys/fs/cgroup"
OWN_CGROUP_FILE = "/proc/self/cgroup"


def memory_limit_bytes() -> int | None:
    """Return the memory limit in bytes; `None` if no group has one."""
    names = ("memory.max", "memory.limit_in_bytes")
    texts = (_read_text(group / name) for group in _limiting_groups("memory") for name in names)
    return min((int(text) for text in texts if text.isdecimal()), default=None)


def available_memory_bytes() -> int:
    """Return the bytes of the machine's memory, or the limit of the control group if that is
    less."""
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return min(total, memory_limit_bytes() or total)


@cache
def core_limit() -> int | None:
    """Return the CPU quota in cores, rounded up; `None` if there is none."""
    found = []
    for group in _limiting_groups("cpu"):
        second = _read_text(group / "cpu.max")
        first = (
            f"{_read_text(group / 'cpu.cfs_quota_us')} {_read_text(group / 'cpu.cfs_period_us')}"
        )
        for words in (second.split(), first.split()):
            if len(words) == 2 and all(word.isdecimal() for word in words) and int(words[1]):
                found.append(max(1, -(-int(words[0]) // int(words[1]))))
    return min(found, default=None)


def _limiting_groups(kind: str) -> Iterator[Path]:
    """Yield the folders of the groups of a controller (`cpu`, `memory`), from the own group to the
    root."""
    for line in _read_text(Path(OWN_CGROUP_FILE)).splitlines():
        _, kinds, path = line.split(":", 2)
        if not kinds or kind in kinds.split(","):
            tree = Path(CGROUP_ROOT, kind if kinds else "")
            own = PurePosixPath(path)
            for place in (own, *own.parents):
                yield tree / str(place).lstrip("/")


def _read_text(file: Path) -> str:
    """Return the contents of a file, empty if it cannot be read."""
    try:
        return file.read_text(encoding="utf-8").strip()
    except (OSError, ValueError):
        return ""
