"""Run functions and tests in forked processes, whose changes to loaded modules end with them."""

import os
import signal
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, Pipe
from time import monotonic
from typing import Any

import pytest


@dataclass(eq=False)
class ForkedProcess:
    """A process that sends the results of a function to this one."""

    function: Callable[[], Iterable[object]]
    pid: int = field(init=False)
    results: "Connection[Any, Any]" = field(init=False)
    """The end of a pipe, which can be read when there is a result, and when the process ends."""
    begin: float = field(init=False, default_factory=monotonic)

    def __post_init__(self) -> None:
        self.results, sender = Pipe(duplex=False)
        sys.stdout.flush()
        sys.stderr.flush()
        self.pid = os.fork()
        if not self.pid:
            self._run(sender)
        sender.close()
        # The child does this too: whichever comes first.
        with suppress(OSError):
            os.setpgid(self.pid, self.pid)

    def _run(self, sender: "Connection[Any, Any]") -> None:
        """Send the results of the function, without the output of the tests."""
        try:
            self.results.close()
            os.setpgid(0, 0)
            nowhere = os.open(os.devnull, os.O_RDWR)
            for stream in (0, 1, 2):
                os.dup2(nowhere, stream)
            for result in self.function():
                sender.send(result)
        finally:
            os._exit(0)

    @property
    def seconds(self) -> float:
        return monotonic() - self.begin

    def receive(self, seconds: float | None = None) -> Any:
        """Return the next result, or None if there is none within some seconds or no further one,
        for example because the process crashed."""
        try:
            return self.results.recv() if self.results.poll(seconds) else None
        except EOFError:
            return None

    def end(self) -> None:
        """End the process, and those that it started in its group."""
        self.results.close()
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)


def passes(session: pytest.Session, item: pytest.Item, after: pytest.Item | None) -> bool:
    """Run one test; return True if it passes and is not skipped. `after` is the next test."""
    reports: list[pytest.TestReport] = []
    listener = _Listener(reports)
    session.config.pluginmanager.register(listener)
    try:
        session.config.hook.pytest_runtest_protocol(item=item, nextitem=after)
    finally:
        session.config.pluginmanager.unregister(listener)
    return all(report.passed for report in reports)


@dataclass(eq=False)
class _Listener:
    reports: list[pytest.TestReport]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.reports.append(report)
