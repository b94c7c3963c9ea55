"""Starting a thread, where one can be had; and having LLVM's work done on threads of its own."""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from threading import Condition, Thread, get_ident
from typing import TypeVar

from shardir.backends.cpu.address_space import THREAD_BYTES, is_too_little_for
from shardir.backends.forking import held_by_forks

Made = TypeVar("Made")

_inside: list[int] = []
_left = Condition()
"""The threads that are in LLVM, and the news that one has left it."""


@contextmanager
def inside() -> Iterator[None]:
    """This thread is in LLVM while in the block: LLVM has locks of its own, and a forked child
    would wait for ever for one that another thread held. So forks wait for who is inside."""
    with _left:
        _inside.append(get_ident())
    try:
        yield
    finally:
        with _left:
            _inside.remove(get_ident())
            _left.notify_all()


def _before_fork() -> None:
    """Wait until nobody else is inside: the handler of a signal may fork wherever it interrupts."""
    _left.acquire()
    mine = get_ident()
    _left.wait_for(lambda: all(each == mine for each in _inside))


held_by_forks(_before_fork, _left.release)


def started(thread: Thread) -> bool:
    """Start a thread; false where the system has none to give, or Python is ending.

    A thread that gets no memory while it begins is waited for in vain, so that none begins where
    there is too little address space.

    Before Python 3.12 one that is started while Python ends would be waited for in vain.
    """
    if sys.is_finalizing() or is_too_little_for(THREAD_BYTES):
        return False
    try:
        thread.start()
    except RuntimeError:
        return False
    except KeyError as error:
        # CPython's `start` stumbles over what the handler of a signal raises in there.
        raise error.__context__ or error from None
    return True


def done_apart(works: Sequence[Callable[[], Made]]) -> list[Made]:
    """What each of the works in LLVM returns, all at once; raises what one of them raises.

    No part is the caller's: that may be Python's main thread, and what the handler of a signal
    raises there, Ctrl-C for one, would leave LLVM's objects owned twice, and its lock taken.
    """
    made: dict[int, Made] = {}
    errors: list[BaseException] = []

    def do(number: int) -> None:
        try:
            with inside():
                made[number] = works[number]()
        except BaseException as error:  # Raised again where it is wanted.
            errors.append(error)

    threads = [Thread(target=do, args=(number,)) for number in range(len(works))]
    working = []
    try:
        for number, thread in enumerate(threads):
            if started(thread):
                working.append(thread)
            else:
                do(number)
        _wait(working)
    except BaseException:
        _wait(working)  # Locks are held until they have ended.
        raise
    if errors:
        raise errors[0]
    return [made[number] for number in range(len(works))]


def _wait(threads: Sequence[Thread]) -> None:
    for thread in threads:
        thread.join()
