"""Run NumPy work on several threads: NumPy releases the interpreter lock while it computes."""

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from itertools import count
from threading import Condition

import numpy as np

from shardir.backends.cpu.threads.address_space import THREAD_BYTES, is_too_little_for


@cache
def _helper_pool() -> ThreadPoolExecutor:
    """Return the pool of helper threads, which never wait for each other."""
    return ThreadPoolExecutor(max_workers=os.cpu_count() or 1, thread_name_prefix="shardir-host")


os.register_at_fork(after_in_child=_helper_pool.cache_clear)


def thread_count() -> int:
    """Return the number of threads that share work, the caller included, as in the native
    backend."""
    try:
        # The module imports llvmlite, an optional dependency.
        from shardir.backends.cpu.threads.workers import worker_count
    except ImportError:
        return os.cpu_count() or 1
    return worker_count()


def split_range(size: int, each: int) -> Iterator[slice]:
    """Yield slices of length `each` that cover `range(size)`; the last one may be shorter."""
    for start in range(0, size, max(each, 1)):
        yield slice(start, min(start + max(each, 1), size))


def run_on_threads(work: Callable[[slice], object], pieces: Sequence[slice]) -> None:
    """Run `work` on all pieces, each on one thread; the caller takes part.

    The caller does all of the work if no thread can be started, or if Python is shutting down.
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
        except BaseException as error:  # Raised again by the caller.
            errors.append(error)
        finally:
            with change:
                inside -= 1
                change.notify_all()

    # A task that got no thread of its own may still run on another one, so that futures do not show
    # which tasks are running.
    with suppress(RuntimeError):
        for _ in range(min(thread_count(), len(pieces)) - 1):
            if is_too_little_for(THREAD_BYTES):
                break
            _helper_pool().submit(help_out)
    try:
        run()
    finally:
        with change:
            # A helper that has not begun by now has nothing left to do.
            closed = True
            change.wait_for(lambda: not inside)
    if errors:
        raise errors[0]
