"""Run functions and tests in forked processes, whose changes to loaded modules end with them."""

import os
import pickle
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from select import select
from time import monotonic
from typing import Any

import pytest


@dataclass(eq=False)
class ForkedProcess:
    """A process that runs a function. `end` becomes readable when the process ends."""

    function: Callable[[], object]
    pid: int = field(init=False)
    end: int = field(init=False)
    begin: float = field(init=False, default_factory=monotonic)

    def __post_init__(self) -> None:
        self.end, writable = os.pipe()
        sys.stdout.flush()
        sys.stderr.flush()
        self.pid = os.fork()
        if not self.pid:
            self._run(writable)
        os.close(writable)
        # The child does this too: whichever comes first.
        with suppress(OSError):
            os.setpgid(self.pid, self.pid)

    def _run(self, writable: int) -> None:
        """Run the function and write its pickled result, without the output of the tests."""
        status = 1
        try:
            os.close(self.end)
            os.setpgid(0, 0)
            nowhere = os.open(os.devnull, os.O_RDWR)
            for stream in (0, 1, 2):
                os.dup2(nowhere, stream)
            result = pickle.dumps(self.function())
            with os.fdopen(writable, "wb") as pipe:
                pipe.write(result)
            status = 0
        finally:
            os._exit(status)

    @property
    def seconds(self) -> float:
        return monotonic() - self.begin

    @property
    def has_ended(self) -> bool:
        return bool(select([self.end], [], [], 0)[0])

    def result(self) -> Any:
        """Wait for the result of the function and return it, or None if the process crashed."""
        try:
            with os.fdopen(self.end, "rb") as stream:
                return pickle.load(stream)
        except EOFError:
            return None
        finally:
            self._reap()

    def kill(self) -> None:
        """End the process and those that it started in its group."""
        os.close(self.end)
        os.killpg(self.pid, signal.SIGKILL)
        self._reap()

    def _reap(self) -> None:
        os.waitpid(self.pid, 0)
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)


def wait_for_any(processes: Sequence[ForkedProcess], seconds: float) -> None:
    """Wait until one of the processes ends, at most for some seconds."""
    select([each.end for each in processes], [], [], seconds)


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
