"""The limits of the control groups of this process on Linux: the least from its own to the root.

Version 2 has one hierarchy for all controllers, version 1 one for each. In a container the root may
be the group that the host assigned.
"""

from collections.abc import Iterator
from functools import cache
from pathlib import Path, PurePosixPath

TREES = "/sys/fs/cgroup"
OWN = "/proc/self/cgroup"


def memory() -> int | None:
    """Return the memory limit in bytes; `None` if no group has one."""
    names = ("memory.max", "memory.limit_in_bytes")
    texts = (_text(group / name) for group in _groups("memory") for name in names)
    return min((int(text) for text in texts if text.isdecimal()), default=None)


@cache
def cores() -> int | None:
    """Return the CPU quota in cores, rounded up; `None` if there is none."""
    found = []
    for group in _groups("cpu"):
        second = _text(group / "cpu.max")
        first = f"{_text(group / 'cpu.cfs_quota_us')} {_text(group / 'cpu.cfs_period_us')}"
        for words in (second.split(), first.split()):
            if len(words) == 2 and all(word.isdecimal() for word in words) and int(words[1]):
                found.append(max(1, -(-int(words[0]) // int(words[1]))))
    return min(found, default=None)


def _groups(kind: str) -> Iterator[Path]:
    """Yield the folders of the groups of a controller (`cpu`, `memory`), from the own group to the
    root."""
    for line in _text(Path(OWN)).splitlines():
        _, kinds, path = line.split(":", 2)
        if not kinds or kind in kinds.split(","):
            tree = Path(TREES, kind if kinds else "")
            own = PurePosixPath(path)
            for place in (own, *own.parents):
                yield tree / str(place).lstrip("/")


def _text(file: Path) -> str:
    """Return the contents of a file, empty if it cannot be read."""
    try:
        return file.read_text(encoding="utf-8").strip()
    except (OSError, ValueError):
        return ""
