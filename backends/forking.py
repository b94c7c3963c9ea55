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

IMPORTED = (__name__.partition(".")[0], "llvmlite", "numpy")
"""The packages that first calls import: this library, its lazily imported dependencies, NumPy."""


class _Hold(NamedTuple):
    acquire: Callable[[], object]
    release: Callable[[], object]
    release_in_child: Callable[[], object]


_one = RLock()
_holds: list[_Hold] = []
_held: list[_Hold] = []


def held_by_forks(
    acquire: Callable[[], object],
    release: Callable[[], object],
    release_in_child: Callable[[], object] | None = None,
) -> None:
    """Register functions that forks call: `acquire` before, `release` afterwards in the parent, and
    in the child `release_in_child` if it is given, otherwise `release`."""
    _holds.append(_Hold(acquire, release, release_in_child or release))


def _before() -> None:
    _one.acquire()
    _imp.acquire_lock()  # No other thread can start an import.
    while (begun := _begun()) or len(_held) < len(_holds):
        _imp.release_lock()
        _let_go()
        for name in begun:
            with suppress(Exception):  # The thread that imports the module gets the error.
                import_module(name)
        # Acquire all of them again in one order, in which other threads acquire them, too.
        for hold in reversed([*_holds]):
            hold.acquire()
            _held.append(hold)
        _imp.acquire_lock()


def _begun() -> list[str]:
    """Return the modules of `LAZILY_IMPORTED_PACKAGES` that other threads are importing, from
    CPython's module locks."""
    locks = {name: lock() for name, lock in [*getattr(_bootstrap, "_module_locks", {}).items()]}
    others = (None, get_ident())
    return [
        name
        for name, lock in locks.items()
        if name.partition(".")[0] in IMPORTED and getattr(lock, "owner", None) not in others
    ]


def _let_go() -> None:
    while _held:
        _held.pop().release()


def _after() -> None:
    _let_import()
    _let_go()
    _one.release()


def _let_import() -> None:
    # A signal handler raised an exception while the lock was being acquired.
    with suppress(RuntimeError):
        _imp.release_lock()


def _after_in_child() -> None:
    _let_import()
    while _held:
        _held.pop().release_in_child()
    _one.release()


os.register_at_fork(before=_before, after_in_parent=_after, after_in_child=_after_in_child)
