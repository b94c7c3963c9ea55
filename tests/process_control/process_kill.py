"""Processes that are killed at a chosen file system call."""

from collections.abc import Callable
from typing import Any


class Killed(BaseException):
    """The process does not live any longer."""


class Killer:
    """Ends a process at a call, counted from 0, before or after the call is done.

    From then on no call through it does anything but raise `Killed`, so what a writer does when it
    sees an exception has no effect, as in a process that is gone.
    """

    def __init__(self, at: int, after: bool) -> None:
        self.at, self.after = at, after
        self.names: list[str] = []
        self.has_killed = False

    def of(self, call: Callable[..., Any], name: str, torn: Any = None) -> Callable[..., Any]:
        """`call` as one of the calls. `torn` does half of it, where killing after the call is
        killing in its middle."""

        def counted(*args: Any, **options: Any) -> Any:
            if self.has_killed:
                raise Killed
            self.names.append(name)
            self.has_killed = len(self.names) == self.at + 1
            if not self.has_killed:
                return call(*args, **options)
            if self.after:
                (torn or call)(*args, **options)
            raise Killed

        return counted
