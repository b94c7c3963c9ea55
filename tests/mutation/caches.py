"""Separate the caches on disk of a process from those of unchanged code.

The keys of these caches contain the source files, which a mutant does not change. Without this, a
mutant would load what unchanged code compiled, and unchanged code what a mutant compiled.
"""

from pathlib import Path

from shardir.backends.cpu.codegen import cache_keys, object_cache
from shardir.backends.cpu.schedule import schedule_cache

ROOT = Path(__file__).resolve().parents[2]
WITHOUT_KERNELS = [
    ROOT / folder
    for folder in ("frontend", "passes", "backends/cpu/schedule", "backends/cpu/dispatch")
]
"""Folders whose code does not determine the machine code of kernels."""


def separate_caches(changed: set[Path], word: str) -> None:
    """Let this process save nothing in the cache of the user, and load only kernels that do not
    depend on changed files. A cache in a folder of a test is used as usual.

    `word` distinguishes the change from other ones.
    """
    save, folder_of_user = object_cache.save, object_cache.cache_folder()

    def save_elsewhere(key: str, code: bytes) -> None:
        if object_cache.cache_folder() != folder_of_user:
            save(key, code)

    object_cache.save = save_elsewhere
    schedule_cache.source_fingerprint = lambda: word  # type: ignore[assignment]
    if any(not any(map(path.is_relative_to, WITHOUT_KERNELS)) for path in changed):
        cache_keys.fingerprint = lambda: word  # type: ignore[assignment]
