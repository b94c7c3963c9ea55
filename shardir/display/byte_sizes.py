"""Formatting and parsing of byte counts."""

import re
from numbers import Integral

from shardir.errors import MachineError

_UNITS = {
    **{"": 1, "B": 1, "kB": 10**3, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12},
    **{"KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40},
}
MAX_SHOWN_BYTES = 1 << 80
"""Larger byte counts, which floats may not hold, are not shown exactly."""
_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?(?:e\d+)?)\s*([A-Za-z]*)\s*")


def show_bytes(count: float) -> str:
    """Return a byte count as text: `512 B`, `4.0 KiB`, `16.0 MiB`, ..."""
    if count < 1024:
        return f"{count:.0f} B"
    if count > MAX_SHOWN_BYTES:
        return f"more than {show_bytes(MAX_SHOWN_BYTES)}"
    for unit in ("KiB", "MiB", "GiB", "TiB"):
        count /= 1024
        if count < 1024:
            return f"{count:.1f} {unit}"
    return f"{count / 1024:.1f} PiB"


def parse_bytes(size: int | str) -> int:
    """Return the byte count of a size such as `80GiB`, `80 GB` or a number; raise `MachineError`
    for other text."""
    if isinstance(size, Integral) and not isinstance(size, bool) and size > 0:
        return int(size)
    match = _SIZE.fullmatch(size) if isinstance(size, str) else None
    if match is None or match[2] not in _UNITS or not 0 < float(match[1]) < float("inf"):
        raise MachineError(f"{size!r} is not a memory size; write it as 80GiB, 80GB or 80e9")
    return round(float(match[1]) * _UNITS[match[2]])
