"""What code on disk is found by where a name says what it does.

A name says that only to those who know how the code is written. So a key also holds a fingerprint
of the files of this backend, and what the code was compiled for.
"""

import hashlib
import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from shardir.backends.cpu.native.llvm.target import host


def key_of(*words: str) -> str:
    """The key of what these words name."""
    machine = host()
    text = "\n".join((fingerprint(), *machine.words(), *words))
    return hashlib.sha256(text.encode()).hexdigest()


@cache
def fingerprint() -> str:
    """A hash over what the files of this backend are: their names, sizes and times."""
    facts = facts_of(Path(__file__).parent.parent)
    return hashlib.sha256("\n".join(facts).encode()).hexdigest()


def facts_of(folder: Path | str, deep: bool = True) -> Iterator[str]:
    """What the files of Python in a folder are, and in the folders in it if that is `deep`."""
    with os.scandir(folder) as entries:
        for entry in sorted(entries, key=lambda each: each.name):
            if entry.name.endswith(".py"):
                found = entry.stat()
                yield f"{entry.path} {found.st_size} {found.st_mtime_ns}"
            elif deep and entry.is_dir() and entry.name != "__pycache__":
                yield from facts_of(entry.path)
