"""Cache keys of code on disk.

A kernel name identifies code only for one version of its generator. So a key also contains a
fingerprint of the files of this backend, and the target machine.
"""

import hashlib
import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from time import time_ns

from shardir.backends.cpu.codegen.target import HostDescription
from shardir.ir.operation import OPS
from shardir.plugins.registry import load_entry_points

_extension_sources: dict[str, str] = {}


def load_extension_rules() -> None:
    """Import the rules of installed packages if there are operations of other packages."""
    if OPS.has_extensions:
        load_entry_points("shardir.rules.cpu")


def add_extension_source(path: str) -> None:
    """Add a file of another package with rules of this backend to all later cache keys."""
    try:
        found = os.stat(path)
    except OSError:  # The file name of code that a program makes, such as <stdin>.
        _extension_sources[path] = f"{path} {os.getpid()} {time_ns()}"
    else:
        _extension_sources[path] = f"{path} {found.st_size} {found.st_mtime_ns}"


def extension_sources() -> tuple[str, ...]:
    """Return the names, sizes and times of the files of other packages with rules."""
    load_extension_rules()
    return tuple(_extension_sources.values())


def cache_key(machine: HostDescription, *words: str) -> str:
    """Return the cache key of these words, for code of a machine."""
    text = "\n".join((fingerprint(), *extension_sources(), *machine.words(), *words))
    return hashlib.sha256(text.encode()).hexdigest()


@cache
def fingerprint() -> str:
    """Return a hash of the names, sizes and times of the files of this backend."""
    facts = list_source_files(Path(__file__).parent.parent)
    return hashlib.sha256("\n".join(facts).encode()).hexdigest()


def list_source_files(folder: Path | str, deep: bool = True) -> Iterator[str]:
    """Yield path, size and time of the Python files in a folder, recursively if `deep`."""
    with os.scandir(folder) as entries:
        for entry in sorted(entries, key=lambda each: each.name):
            if entry.name.endswith(".py"):
                found = entry.stat()
                yield f"{entry.path} {found.st_size} {found.st_mtime_ns}"
            elif deep and entry.is_dir() and entry.name != "__pycache__":
                yield from list_source_files(entry.path)
