"""What code on disk is found by where a name says what it does.

A name says that only to those who know how the code is written. So a key also holds a fingerprint
of the files of this backend, and what the code was compiled for.
"""

import hashlib
from functools import cache
from pathlib import Path

from shardir.backends.cpu.native.llvm.target import host


def key_of(*words: str) -> str:
    """The key of what these words name."""
    machine = host()
    facts = machine.version, machine.cpu, machine.features, str(machine.caches)
    text = "\n".join((fingerprint(), *facts, *words))
    return hashlib.sha256(text.encode()).hexdigest()


@cache
def fingerprint() -> str:
    """A hash over what the files of this backend are: their names, sizes and times."""
    folder = Path(__file__).parent.parent
    files = sorted(folder.rglob("*.py"))
    facts = ((str(file.relative_to(folder)), file.stat()) for file in files)
    text = "\n".join(f"{name} {stat.st_size} {stat.st_mtime_ns}" for name, stat in facts)
    return hashlib.sha256(text.encode()).hexdigest()
