"""Handlers of signals for a while, and alarms."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

Handler = Callable[[int, FrameType | None], object]


class Interrupted(Exception):
    """What `interrupt` raises."""


def interrupt(number: int, frame: FrameType | None) -> None:
    raise Interrupted


@contextmanager
def handled(number: int, handler: Handler = interrupt) -> Iterator[None]:
    """Inside, `handler` gets the signals of a number."""
    before = signal.signal(number, handler)
    try:
        yield
    finally:
        signal.signal(number, before)


@contextmanager
def alarm(seconds: float, handler: Handler = interrupt) -> Iterator[None]:
    """`handler` is called after so many seconds, unless what is in here has ended."""
    with handled(signal.SIGALRM, handler):
        signal.setitimer(signal.ITIMER_REAL, seconds)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
