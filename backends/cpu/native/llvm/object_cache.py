"""Object code on disk, so that what was compiled once is only loaded afterwards.

The folder is readable and writable by its owner alone, because what lies in it is executed; a
folder of somebody else's is not used. Files appear whole or not at all. A disk that is full, or a
folder that cannot be written, costs time and nothing else.
"""

import os
import stat
import tempfile
from functools import cache
from pathlib import Path


@cache
def folder() -> Path | None:
    """Where the code lies: `SHARDIR_CACHE_DIR`, or the user's cache folder; `None`: nowhere."""
    given = os.environ.get("SHARDIR_CACHE_DIR")
    if given == "":
        return None
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    place = Path(given) if given else Path(base) / "shardir"
    try:
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = place.stat()
    except OSError:
        return None
    private = not found.st_mode & (stat.S_IRWXG | stat.S_IRWXO)
    return place if found.st_uid == os.getuid() and private else None


def load(key: str) -> bytes | None:
    """The code kept under a key."""
    place = folder()
    if place is None:
        return None
    try:
        return (place / f"{key}.o").read_bytes()
    except OSError:
        return None


def save(key: str, code: bytes) -> None:
    """Keep code under a key."""
    place = folder()
    if place is None:
        return
    try:
        handle, name = tempfile.mkstemp(dir=place)
        with os.fdopen(handle, "wb") as file:
            file.write(code)
        os.replace(name, place / f"{key}.o")
    except OSError:
        return
