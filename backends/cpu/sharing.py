"""NumPy's work on several threads: it gives up the interpreter while it computes."""

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from itertools import count
from threading import Condition

import numpy as np

from shardir.backends.cpu.address_space import THREAD_BYTES, is_too_little_for


@cache
def _threads() -> ThreadPoolExecutor:
    """Those who help; they wait for nobody, so that there are always some who get done."""
    return ThreadPoolExecutor(max_workers=os.cpu_count() or 1, thread_name_prefix="shardir-host")


os.register_at_fork(after_in_child=_threads.cache_clear)


def thread_count() -> int:
    """How many threads share work, the caller included: as many as machine code has."""
    try:
        from shardir.backends.cpu.native.runtime.workers import worker_count
    except ImportError:
        return os.cpu_count() or 1
    return worker_count()


def parts(size: int, each: int) -> Iterator[slice]:
    """All of `size`, `each` at a time."""
    for start in range(0, size, max(each, 1)):
        yield slice(start, min(start + max(each, 1), size))


def share(work: Callable[[slice], object], pieces: Sequence[slice]) -> None:
    """Do the work of all pieces, each whole and on one thread. The caller takes part.

    Where no thread can be had, or Python is ending, it does all of it.
    """
    following, change = count(), Condition()
    inside, closed = 0, False
    errors: list[BaseException] = []

    def run() -> None:
        with np.errstate(all="ignore"):
            while (number := next(following)) < len(pieces) and not errors:
                work(pieces[number])

    def help_out() -> None:
        nonlocal inside
        with change:
            if closed:
                return
            inside += 1
        try:
            run()
        except BaseException as error:  # Raised again where it is waited for.
            errors.append(error)
        finally:
            with change:
                inside -= 1
                change.notify_all()

    # One that could not be given a thread may still be run by another, so that futures do not
    # tell who is inside.
    with suppress(RuntimeError):
        for _ in range(min(thread_count(), len(pieces)) - 1):
            if is_too_little_for(THREAD_BYTES):
                break
            _threads().submit(help_out)
    try:
        run()
    finally:
        with change:
            # Whoever has not begun by now has nothing left to do.
            closed = True
            change.wait_for(lambda: not inside)
    if errors:
        raise errors[0]
