"""What the control groups of this process allow it, on Linux: the least from its own to the root.

Version 2 has one tree of groups for all kinds of limits, version 1 one for each kind. In a
container the root may be what the group is outside.
"""

from collections.abc import Iterator
from functools import cache
from pathlib import Path, PurePosixPath

TREES = "/sys/fs/cgroup"
OWN = "/proc/self/cgroup"


def memory() -> int | None:
    """Bytes that this process may have; `None`: no group says so."""
    names = ("memory.max", "memory.limit_in_bytes")
    texts = (_text(group / name) for group in _groups("memory") for name in names)
    return min((int(text) for text in texts if text.isdecimal()), default=None)


@cache
def cores() -> int | None:
    """The cores whose time this process may use up, a part of one counted whole; `None`: all."""
    found = []
    for group in _groups("cpu"):
        second = _text(group / "cpu.max")
        first = f"{_text(group / 'cpu.cfs_quota_us')} {_text(group / 'cpu.cfs_period_us')}"
        for words in (second.split(), first.split()):
            if len(words) == 2 and all(word.isdecimal() for word in words) and int(words[1]):
                found.append(max(1, -(-int(words[0]) // int(words[1]))))
    return min(found, default=None)


def _groups(kind: str) -> Iterator[Path]:
    """The folders of the groups that limit a kind (`cpu`, `memory`), each after those in it."""
    for line in _text(Path(OWN)).splitlines():
        _, kinds, path = line.split(":", 2)
        if not kinds or kind in kinds.split(","):
            tree = Path(TREES, kind if kinds else "")
            own = PurePosixPath(path)
            for place in (own, *own.parents):
                yield tree / str(place).lstrip("/")


def _text(file: Path) -> str:
    """What is in a file, nothing where there is none."""
    try:
        return file.read_text(encoding="utf-8").strip()
    except (OSError, ValueError):
        return ""
