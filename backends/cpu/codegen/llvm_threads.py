"""Start threads, and run LLVM's work on threads of its own."""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from threading import Condition, Thread, get_ident
from typing import TypeVar

from shardir.backends.cpu.threads.address_space import THREAD_BYTES, is_too_little_for
from shardir.backends.fork_handlers import register_fork_lock

Result = TypeVar("Result")

_threads_in_llvm: list[int] = []
_left_llvm = Condition()
"""The threads that run inside of LLVM, and the condition that one of them has left it."""


@contextmanager
def block_forks() -> Iterator[None]:
    """Delay forks while this thread runs inside of LLVM.

    LLVM has locks of its own; a forked child would wait forever for one that another thread held.
    """
    with _left_llvm:
        _threads_in_llvm.append(get_ident())
    try:
        yield
    finally:
        with _left_llvm:
            _threads_in_llvm.remove(get_ident())
            _left_llvm.notify_all()


def _wait_for_other_threads() -> None:
    """Wait until no other thread is inside of LLVM: a signal handler may fork while this one is."""
    _left_llvm.acquire()
    mine = get_ident()
    _left_llvm.wait_for(lambda: all(each == mine for each in _threads_in_llvm))


register_fork_lock(_wait_for_other_threads, _left_llvm.release)


def try_start_thread(thread: Thread) -> bool:
    """Start a thread; return False if the system cannot start one, or if Python is shutting down.

    `Thread.start` would wait forever for a thread that runs out of memory while it starts; so none
    is started if too little address space is left. Before Python 3.12 it would also wait forever
    for a thread that is started during shutdown.
    """
    if sys.is_finalizing() or is_too_little_for(THREAD_BYTES):
        return False
    try:
        thread.start()
    except RuntimeError:
        return False
    except KeyError as error:
        # CPython's `start` fails with KeyError if a signal handler raises inside of it.
        raise error.__context__ or error from None
    return True


def run_on_llvm_threads(works: Sequence[Callable[[], Result]]) -> list[Result]:
    """Run all `works` in LLVM concurrently and return their results; raise any of their errors.

    None of them runs on the caller's thread: on Python's main thread an exception of a signal
    handler, such as Ctrl-C, would leave LLVM's objects with two owners and its lock held.
    """
    result: dict[int, Result] = {}
    errors: list[BaseException] = []

    def do(number: int) -> None:
        try:
            with block_forks():
                result[number] = works[number]()
        except BaseException as error:  # Raised again by the caller.
            errors.append(error)

    threads = [Thread(target=do, args=(number,)) for number in range(len(works))]
    working = []
    try:
        for number, thread in enumerate(threads):
            if try_start_thread(thread):
                working.append(thread)
            else:
                do(number)
        _join_all(working)
    except BaseException:
        _join_all(working)  # The caller's locks stay held until all threads have ended.
        raise
    if errors:
        raise errors[0]
    return [result[number] for number in range(len(works))]


def _join_all(threads: Sequence[Thread]) -> None:
    for thread in threads:
        thread.join()
