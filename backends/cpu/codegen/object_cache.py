"""A disk cache of object code, from which later processes load code instead of compiling it.

The contents are executed. Therefore the folder must belong to the user and must not be writable by
others, or it is not used; each entry is a regular file of the user, and begins with a checksum of
its key and of its contents. `load` removes a file that is truncated or damaged, that was saved
under another key, or that cannot be read, and returns None. Files appear atomically, even with
concurrent writers. Beyond `MAX_CACHE_BYTES` or `MAX_CACHE_FILES` the least recently used files are
removed. A full disk or a read-only folder costs time only.
"""

import hashlib
import os
import stat
import tempfile
import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path

MAX_CACHE_BYTES = 512 << 20
"""Size limit of the cache; it may be exceeded between two evictions."""
MAX_CACHE_FILES = 30_000
"""Limit on the number of files: schedules are small, and large folders are slow."""
EVICTION_INTERVAL_FILES = 64
"""Minimum number of files that a process saves between two evictions."""
SHARE_OF_ROOM = 8
"""A process starts the next eviction when it has saved 1 / `SHARE_OF_ROOM` of the free space."""
TOUCH_INTERVAL_SECONDS = 3600.0
"""A file that was used within this time is not touched again; a temporary file of this age is not
removed yet."""

_DIGEST = hashlib.sha256


@dataclass(slots=True)
class _Looks:
    """The time of the next eviction, which needs one system call for each file of the folder.

    Threads that save in parallel may miss a count of each other, which only delays the eviction.
    """

    files: int
    """Files that may be saved before the next eviction."""
    nbytes: int = 0
    """Bytes that may be saved before it, after at least `EVICTION_INTERVAL_FILES` files."""
    saved: int = 0

    def is_due(self, nbytes: int) -> bool:
        """Count a saved file; return whether an eviction is due."""
        self.saved += 1
        self.files -= 1
        self.nbytes -= nbytes
        return self.files <= 0 or (self.nbytes < 0 and self.saved >= EVICTION_INTERVAL_FILES)

    def plan(self, files: int, nbytes: int) -> None:
        """Plan the next eviction, given the free space in files and bytes."""
        self.files = max(EVICTION_INTERVAL_FILES, files // SHARE_OF_ROOM)
        self.nbytes, self.saved = nbytes // SHARE_OF_ROOM, 0


def _first_looks() -> _Looks:
    """Return a random start, so that many short processes evict as often as one long process."""
    return _Looks(1 + os.urandom(1)[0] % EVICTION_INTERVAL_FILES)


_looks = _first_looks()


@cache
def cache_folder() -> Path | None:
    """Return the cache folder, `SHARDIR_CACHE_DIR` or the user's; `None` if there is none to
    use."""
    given = os.environ.get("SHARDIR_CACHE_DIR")
    if given == "":
        return None
    try:
        base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        # The path is absolute: it stays valid when the process changes its working directory.
        place = (Path(given) if given else Path(base) / "shardir").absolute()
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = place.stat()
    except (OSError, RuntimeError):  # RuntimeError: the home folder is unknown.
        return None
    return place if _is_private(found) and stat.S_ISDIR(found.st_mode) else None


def load(key: str) -> bytes | None:
    """Return the code saved under a key, or None if no trusted entry exists.

    An entry that cannot be trusted is removed, if the folder is writable.
    """
    place = cache_folder()
    if place is None:
        return None
    file = place / f"{key}.o"
    try:
        contents, used_at = _read(file)
    except FileNotFoundError:
        return None
    except (OSError, MemoryError):
        _remove(file)
        return None
    size = _DIGEST().digest_size
    code = contents[size:]
    if contents[:size] != _checksum(key, code):
        _remove(file)
        return None
    if time.time() - used_at > TOUCH_INTERVAL_SECONDS:
        try:
            os.utime(file)
        except OSError:  # A read-only disk: nothing is evicted from it.
            return code
    return code


def discard(key: str) -> None:
    """Remove the entry of a key, because its reader cannot use it."""
    place = cache_folder()
    if place is not None:
        _remove(place / f"{key}.o")


def _read(file: Path) -> tuple[bytes, float]:
    """Return the contents of a file and the time of its last use.

    Raises `OSError` if the file cannot be read, or if other users may have written it.
    """
    # Opening a pipe would block.
    handle = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    with os.fdopen(handle, "rb") as opened:
        facts = os.fstat(handle)
        if not (_is_private(facts) and stat.S_ISREG(facts.st_mode)):
            raise PermissionError(f"{file} is not a file that only this user may write")
        return opened.read(), facts.st_mtime


def _checksum(key: str, code: bytes) -> bytes:
    """Return the checksum of code under a key; the same code has another checksum under another
    key."""
    digest = _DIGEST(f"{len(key)}:{key}".encode())
    digest.update(code)
    return digest.digest()


def contains(key: str) -> bool:
    """Return whether a file exists for a key; `load` may still reject it."""
    place = cache_folder()
    return place is not None and (place / f"{key}.o").exists()


def save(key: str, code: bytes) -> None:
    """Save code under a key."""
    place = cache_folder()
    if place is None:
        return
    temporary = None
    try:
        # The suffix marks the file as incomplete; only its owner can read it.
        handle, temporary = tempfile.mkstemp(dir=place, suffix=".part")
        with os.fdopen(handle, "wb") as file:
            file.write(_checksum(key, code) + code)
        os.replace(temporary, place / f"{key}.o")
    except OSError:
        if temporary is not None:
            _remove(Path(temporary))
        return
    if _looks.is_due(len(code)):
        files, nbytes = evict(place, MAX_CACHE_BYTES)
        _looks.plan(MAX_CACHE_FILES - files, MAX_CACHE_BYTES - nbytes)


def evict(place: Path, limit: int) -> tuple[int, int]:
    """Remove the least recently used files if a folder exceeds `limit` bytes or the limit of files.

    Return the number of remaining files of code, and their bytes.
    """
    files = []
    try:
        with os.scandir(place) as found:
            for entry in found:
                try:
                    facts = entry.stat()
                except OSError:  # Another process removed the file.
                    continue
                if entry.name.endswith(".o"):
                    files.append((facts.st_mtime, facts.st_size, entry.path))
                elif (
                    entry.name.endswith(".part")
                    and time.time() - facts.st_mtime > TOUCH_INTERVAL_SECONDS
                ):
                    _remove(entry.path)
    except OSError:  # Another process removed the folder.
        return 0, 0
    total, count = sum(size for _, size, _ in files), len(files)
    if total <= limit and count <= MAX_CACHE_FILES:
        return count, total
    # Shrink to three quarters, so that the next files do not cause another eviction.
    for _, size, file in sorted(files):
        if total <= limit * 3 // 4 and count <= MAX_CACHE_FILES * 3 // 4:
            break
        _remove(file)
        total -= size
        count -= 1
    return count, total


def _is_private(facts: os.stat_result) -> bool:
    """Return whether a file or folder belongs to the user, and no other user may write it."""
    return facts.st_uid == os.getuid() and not facts.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def _remove(file: str | Path) -> None:
    try:
        os.unlink(file)
    except OSError:  # It is gone, or stays.
        return
