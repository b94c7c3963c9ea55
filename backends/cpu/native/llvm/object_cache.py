"""Object code on disk, so that what was compiled once is only loaded afterwards.

What lies there is executed. So the folder belongs to the user and nobody else may write into it, or
it is not used; a file is a regular file of the user's; and it begins with a checksum of its key and
of what follows. `load` removes a file that was cut short or damaged, that lies under another key
than it was saved under, or that cannot be read, and returns None. Files appear whole or not at
all, whoever else writes at the same time. Beyond `LIMIT_BYTES` or `MOST_FILES` those that were not
used for longest go. A disk that is full, or a folder that cannot be written, costs time and nothing
else.
"""

import hashlib
import os
import stat
import tempfile
import time
from functools import cache
from itertools import count
from pathlib import Path

LIMIT_BYTES = 512 << 20
"""How much code is kept; somewhat more between two looks at it."""
MOST_FILES = 30_000
"""How many files are kept: the schedules of programs are small, and folders grow slow."""
LOOK_EVERY = 64
"""Files saved between two looks at how much there is."""
FRESH_SECONDS = 3600.0
"""A file used within this time is not marked as used again; a temporary one is still written."""

_DIGEST = hashlib.sha256
_saved = count()


@cache
def folder() -> Path | None:
    """Where the code lies: `SHARDIR_CACHE_DIR`, or the user's cache folder; `None`: nowhere."""
    given = os.environ.get("SHARDIR_CACHE_DIR")
    if given == "":
        return None
    try:
        base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        # Absolute: it stays where it is when the process changes its folder.
        place = (Path(given) if given else Path(base) / "shardir").absolute()
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = place.stat()
    except (OSError, RuntimeError):  # RuntimeError: nobody knows where the user is at home.
        return None
    return place if _is_ours(found) and stat.S_ISDIR(found.st_mode) else None


def load(key: str) -> bytes | None:
    """Return the code saved under a key, or None where there is none that can be trusted.

    A file that cannot be trusted is removed, where the folder can be written.
    """
    place = folder()
    if place is None:
        return None
    file = place / f"{key}.o"
    try:
        whole, used_at = _read(file)
    except FileNotFoundError:
        return None
    except (OSError, MemoryError):
        _remove(file)
        return None
    size = _DIGEST().digest_size
    code = whole[size:]
    if whole[:size] != _checksum(key, code):
        _remove(file)
        return None
    if time.time() - used_at > FRESH_SECONDS:
        try:
            os.utime(file)
        except OSError:  # Of a disk that is only read, nothing is ever thrown away either.
            return code
    return code


def discard(key: str) -> None:
    """Remove what is saved under a key, because its reader cannot use it."""
    place = folder()
    if place is not None:
        _remove(place / f"{key}.o")


def _read(file: Path) -> tuple[bytes, float]:
    """Return what a file holds and when it was last used.

    Raises `OSError` where it cannot be read, or others may have written it.
    """
    handle = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)  # A pipe would wait.
    with os.fdopen(handle, "rb") as opened:
        facts = os.fstat(handle)
        if not (_is_ours(facts) and stat.S_ISREG(facts.st_mode)):
            raise PermissionError(f"{file} is not a file that only this user may write")
        return opened.read(), facts.st_mtime


def _checksum(key: str, code: bytes) -> bytes:
    """Return the checksum of code under a key: the same code under another key has another one."""
    digest = _DIGEST(f"{len(key)}:{key}".encode())
    digest.update(code)
    return digest.digest()


def holds(key: str) -> bool:
    """Whether there is a file for a key; `load` may still not trust it."""
    place = folder()
    return place is not None and (place / f"{key}.o").exists()


def save(key: str, code: bytes) -> None:
    """Keep code under a key."""
    place = folder()
    if place is None:
        return
    temporary = None
    try:
        # The name's end keeps others from taking it for code; its owner alone may read it.
        handle, temporary = tempfile.mkstemp(dir=place, suffix=".part")
        with os.fdopen(handle, "wb") as file:
            file.write(_checksum(key, code) + code)
        os.replace(temporary, place / f"{key}.o")
    except OSError:
        if temporary is not None:
            _remove(Path(temporary))
        return
    if next(_saved) % LOOK_EVERY == 0:
        evict(place, LIMIT_BYTES)


def evict(place: Path, limit: int) -> None:
    """Remove what was not used for longest where a folder holds more bytes than `limit`, or too
    many files."""
    files = []
    try:
        found = list(place.iterdir())
    except OSError:  # Somebody removed the folder.
        return
    for file in found:
        try:
            facts = file.stat()
        except OSError:  # Another process was faster.
            continue
        if file.suffix == ".o":
            files.append((facts.st_mtime, facts.st_size, file))
        elif file.suffix == ".part" and time.time() - facts.st_mtime > FRESH_SECONDS:
            _remove(file)
    total, count = sum(size for _, size, _ in files), len(files)
    if total <= limit and count <= MOST_FILES:
        return
    # To three quarters, so that the next files do not make another round necessary.
    for _, size, file in sorted(files):
        if total <= limit * 3 // 4 and count <= MOST_FILES * 3 // 4:
            return
        _remove(file)
        total -= size
        count -= 1


def _is_ours(facts: os.stat_result) -> bool:
    """Whether a file or folder is the user's, and no other user may write it."""
    return facts.st_uid == os.getuid() and not facts.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def _remove(file: Path) -> None:
    try:
        file.unlink()
    except OSError:  # It is gone, or stays.
        return
