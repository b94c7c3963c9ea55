"""Detect whether the native backend can run on this host, and why not."""

import platform
import re
import sys
from functools import cache

from shardir.backends.cpu.threads.address_space import (
    LLVM_LIBRARY_BYTES,
    STARTUP_BYTES,
    address_space_left,
    is_too_little_for,
    limit_malloc_arenas,
)
from shardir.caller_warnings import warn_caller
from shardir.display.byte_sizes import show_bytes

SUPPORTED_SYSTEMS = ("linux", "darwin")
SUPPORTED_MACHINES = ("x86_64", "amd64", "aarch64", "arm64")
MIN_LLVMLITE_VERSION = (0, 45)
"""The version that pyproject.toml requires; an environment may hold an older one."""


@cache
def unavailable_reason() -> str | None:
    """Return why the native backend cannot run here and what to do about it; `None` if it can."""
    if sys.implementation.name != "cpython":
        return (
            f"Python is {sys.implementation.name}, not CPython, whose C API compiled programs call"
        )
    if not sys.platform.startswith(SUPPORTED_SYSTEMS):
        return f"the system is {sys.platform}; compiled programs run on Linux and macOS only"
    if platform.machine().lower() not in SUPPORTED_MACHINES:
        return (
            f"the processor is {platform.machine()}; compiled programs run on x86-64 and ARM64 only"
        )
    imported_bytes = 0 if "llvmlite.binding" in sys.modules else LLVM_LIBRARY_BYTES
    # NumPy needs the address space that an import in vain would take.
    if is_too_little_for(imported_bytes + STARTUP_BYTES):
        return _limit_reason(imported_bytes + STARTUP_BYTES)
    try:
        import llvmlite.binding
    except (ImportError, OSError) as error:
        return f"llvmlite cannot be imported ({error}); pip install llvmlite"
    assert llvmlite.binding is not None
    found = re.match(r"(\d+)\.(\d+)", llvmlite.__version__)
    if found is not None and tuple(map(int, found.groups())) < MIN_LLVMLITE_VERSION:
        return f"llvmlite is {llvmlite.__version__}, which is too old; pip install -U llvmlite"
    if is_too_little_for(STARTUP_BYTES):
        return _limit_reason(STARTUP_BYTES)
    limit_malloc_arenas()
    return None


def _limit_reason(needed: int) -> str:
    return (
        f"the address space of this process is limited (ulimit -v), and only "
        f"{show_bytes(address_space_left() or 0)} are left, but compiled programs need "
        f"{show_bytes(needed)} to start; raise the limit"
    )


@cache
def _warn_once(reason: str) -> None:
    warn_caller(f"programs run on NumPy, which is several times slower: {reason}", RuntimeWarning)


def is_available() -> bool:
    """Return whether the native backend can run here; warn once with the reason if it cannot."""
    reason = unavailable_reason()
    if reason is not None:
        _warn_once(reason)
    return reason is None
