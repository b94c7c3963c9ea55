"""What a fork waits for, so that the child finds nothing locked by threads that it does not have.

Much of this library is imported by the first calls, on whatever thread these are. A module whose
import another thread has begun would stay locked in the child; and what it has Python call at forks
(`os.register_at_fork`) would be called for the second half of this one alone. So one fork waits for
imports and locks until there are no more.
"""

import _imp
import os
from collections.abc import Callable
from contextlib import suppress
from importlib import _bootstrap, import_module
from threading import RLock, get_ident
from typing import NamedTuple

IMPORTED = (__name__.partition(".")[0], "llvmlite", "numpy")
"""What first calls import: this library, what it asks for when needed, and what NumPy does."""


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
    """Have forks call `acquire` before, and `release` afterwards, in the child another function if
    there is one."""
    _holds.append(_Hold(acquire, release, release_in_child or release))


def _before() -> None:
    _one.acquire()
    _imp.acquire_lock()  # Nobody begins an import.
    while (begun := _begun()) or len(_held) < len(_holds):
        _imp.release_lock()
        _let_go()
        for name in begun:
            with suppress(Exception):  # It is told to who imports the module.
                import_module(name)
        # All again, since others take them in this order, too.
        for hold in reversed([*_holds]):
            hold.acquire()
            _held.append(hold)
        _imp.acquire_lock()


def _begun() -> list[str]:
    """The modules of `IMPORTED` that other threads are importing: CPython's locks say so."""
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
    with suppress(RuntimeError):  # What the handler of a signal raised ended the waiting.
        _imp.release_lock()


def _after_in_child() -> None:
    _let_import()
    while _held:
        _held.pop().release_in_child()
    _one.release()


os.register_at_fork(before=_before, after_in_parent=_after, after_in_child=_after_in_child)
