"""Temporary signal handlers, and alarms."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

import pytest

Handler = Callable[[int, FrameType | None], object]


class Interrupted(Exception):
    """The exception that `interrupt` raises."""


def interrupt(number: int, frame: FrameType | None) -> None:
    raise Interrupted


@contextmanager
def install_handler(number: int, handler: Handler = interrupt) -> Iterator[None]:
    """Install `handler` for a signal inside of the block."""
    before = signal.signal(number, handler)
    try:
        yield
    finally:
        signal.signal(number, before)


@contextmanager
def alarm(seconds: float, handler: Handler = interrupt) -> Iterator[None]:
    """Call `handler` after the given number of seconds, unless the block has ended."""
    with install_handler(signal.SIGALRM, handler):
        signal.setitimer(signal.ITIMER_REAL, seconds)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)


def assert_another_thread_ends(work: Callable[[], object], before: Callable[[], object]) -> None:
    """Check that endless `work` lets another thread call `before` and send a signal."""
    main, begun = threading.main_thread().ident, threading.Event()
    assert main is not None

    def send() -> None:
        begun.wait()
        before()
        signal.pthread_kill(main, signal.SIGUSR1)

    def begin() -> None:
        begun.set()
        work()

    other = threading.Thread(target=send)
    with install_handler(signal.SIGUSR1):
        other.start()
        try:
            with pytest.raises(Interrupted):
                begin()
        finally:
            other.join()
