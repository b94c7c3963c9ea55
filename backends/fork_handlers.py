"""Fork handlers: a fork waits until no other thread holds an import lock or a lock of this library.

Much of this library is imported by the first calls, on any thread. A module that another thread is
importing would stay locked in the child, and functions that it passes to `os.register_at_fork`
would be called only after the fork, not before it. Therefore a fork waits for imports and locks.
"""

import _imp
import os
from collections.abc import Callable
from contextlib import suppress
from importlib import _bootstrap, import_module
from threading import RLock, get_ident
from typing import NamedTuple

LAZILY_IMPORTED_PACKAGES = (__name__.partition(".")[0], "llvmlite", "numpy")
"""The packages that first calls import: this library, its lazily imported dependencies, NumPy."""


class _ForkLock(NamedTuple):
    acquire: Callable[[], object]
    release: Callable[[], object]
    release_in_child: Callable[[], object]


_fork_lock = RLock()
_registered_locks: list[_ForkLock] = []
_acquired_locks: list[_ForkLock] = []


def register_fork_lock(
    acquire: Callable[[], object],
    release: Callable[[], object],
    release_in_child: Callable[[], object] | None = None,
) -> None:
    """Register functions that forks call: `acquire` before, `release` afterwards in the parent, and
    in the child `release_in_child` if it is given, otherwise `release`."""
    _registered_locks.append(_ForkLock(acquire, release, release_in_child or release))


def _before_fork() -> None:
    _fork_lock.acquire()
    _imp.acquire_lock()  # No other thread can start an import.
    while (begun := _modules_being_imported()) or len(_acquired_locks) < len(_registered_locks):
        _imp.release_lock()
        _release_all()
        for name in begun:
            with suppress(Exception):  # The thread that imports the module gets the error.
                import_module(name)
        # Acquire all of them again in one order, in which other threads acquire them, too.
        for hold in reversed([*_registered_locks]):
            hold.acquire()
            _acquired_locks.append(hold)
        _imp.acquire_lock()


def _modules_being_imported() -> list[str]:
    """Return the modules of `LAZILY_IMPORTED_PACKAGES` that other threads are importing, from
    CPython's module locks."""
    locks = {name: lock() for name, lock in [*getattr(_bootstrap, "_module_locks", {}).items()]}
    others = (None, get_ident())
    return [
        name
        for name, lock in locks.items()
        if name.partition(".")[0] in LAZILY_IMPORTED_PACKAGES
        and getattr(lock, "owner", None) not in others
    ]


def _release_all() -> None:
    while _acquired_locks:
        _acquired_locks.pop().release()


def _after_fork_in_parent() -> None:
    _release_import_lock()
    _release_all()
    _fork_lock.release()


def _release_import_lock() -> None:
    # A signal handler raised an exception while the lock was being acquired.
    with suppress(RuntimeError):
        _imp.release_lock()


def _after_fork_in_child() -> None:
    _release_import_lock()
    while _acquired_locks:
        _acquired_locks.pop().release_in_child()
    _fork_lock.release()


os.register_at_fork(
    before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child
)
