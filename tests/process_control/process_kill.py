"""Simulation of a process that is killed at a chosen file system call."""

from collections.abc import Callable
from typing import Any


class Killed(BaseException):
    """The process was killed."""


class ProcessKiller:
    """Kills at the call with a number, counted from 0, before or after the call.

    All later calls only raise `Killed`, so that exception handlers of the code under test have no
    effect, as in a killed process.
    """

    def __init__(self, at: int, after: bool) -> None:
        self.at, self.after = at, after
        self.names: list[str] = []
        self.has_killed = False

    def of(self, call: Callable[..., Any], name: str, torn: Any = None) -> Callable[..., Any]:
        """Wrap `call` as one of the counted calls; `torn` does half of it, to kill in its
        middle.
        """

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
