"""Run the tests of each mutant in a forked process, with the mutant's code in the loaded modules.

The first forked process runs all tests once and records which lines of the files each test
executes. Each mutant then gets the passing tests that execute its guard, shortest first, until one
fails. No file is written, so the checkout stays as it is; processes that a test starts with the
interpreter run the original code.
"""

import gc
import importlib
import os
import pickle
import selectors
import signal
import sys
import threading
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate
from pathlib import Path
from time import monotonic
from types import CodeType, FrameType, FunctionType
from typing import Any, cast

import pytest

from tests.mutation.guards import Guard, mutated_codes

SURVIVED, KILLED, NOT_LOADED = 0, 1, 2
"""Exit statuses of the process that runs a mutant's tests."""


@dataclass(frozen=True)
class Outcome:
    """The result for one mutant: `state` is killed, survived, not covered, or not loaded."""

    guard: Guard
    state: str
    tests: int
    seconds: float

    def __str__(self) -> str:
        spent = f"{self.tests:5} tests {self.seconds:6.1f} s"
        return f"{self.state:11} {spent}  {self.guard}"


@dataclass
class _Record:
    """The passing tests, their seconds, and the lines of each file that each test executes."""

    seconds: dict[int, float] = field(default_factory=dict)
    lines: dict[int, set[tuple[str, int]]] = field(default_factory=dict)
    modules: list[str] = field(default_factory=list)
    """The modules that tests import, so that the processes of mutants need not import them."""


class MutationPlugin:
    """A pytest plug-in that runs the collected tests once per mutant instead of once."""

    def __init__(
        self,
        guards: Sequence[Guard],
        jobs: int,
        limit: float,
        budget: float,
        report: Callable[[Outcome], None],
    ) -> None:
        self.guards = guards
        self.jobs = jobs
        self.limit = limit
        self.budget = budget
        self.report = report

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Run the tests of every mutant, and report each outcome."""
        record = _recorded(session, {str(guard.path) for guard in self.guards})
        pending = list(reversed(self.guards))
        running: dict[int, tuple[Guard, int, float, int]] = {}
        with selectors.DefaultSelector() as selector:
            while pending or running:
                while pending and len(running) < self.jobs:
                    guard = pending.pop()
                    chosen = _covering(record, guard, self.budget)
                    if not chosen:
                        self.report(Outcome(guard, "not covered", 0, 0.0))
                        continue
                    pid, end = _start(partial(_run_mutant, session, guard, chosen))
                    selector.register(end, selectors.EVENT_READ, pid)
                    running[pid] = guard, len(chosen), monotonic(), end
                ended = {key.data for key, _ in selector.select(1.0)} if running else set()
                for pid, (guard, tests, begin, end) in list(running.items()):
                    late = monotonic() - begin > self.limit
                    if late:
                        os.killpg(pid, signal.SIGKILL)
                    elif pid not in ended:
                        continue
                    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
                    selector.unregister(end)
                    os.close(end)
                    del running[pid]
                    state = "too slow" if late else _STATES.get(status, "killed")
                    self.report(Outcome(guard, state, tests, monotonic() - begin))
        return True


_STATES = {SURVIVED: "SURVIVED", KILLED: "killed", NOT_LOADED: "not loaded"}


def _start(function: Callable[[], int]) -> tuple[int, int]:
    """Run a function in a forked process; return the process and a pipe that closes at its end."""
    end, writable = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid:
        os.close(writable)
        os.setpgid(pid, pid)
        return pid, end
    status = KILLED
    try:
        os.close(end)
        os.setpgid(0, 0)
        os.set_inheritable(writable, False)
        nowhere = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(nowhere, stream)
        status = function()
    finally:
        os._exit(status)


def _recorded(session: pytest.Session, files: set[str]) -> _Record:
    """Run all tests once in a forked process, and return which of them execute which lines."""
    readable, writable = os.pipe()

    def record() -> int:
        made = _Record()
        for at in range(len(session.items)):
            hits: set[tuple[str, int]] = set()
            begin = monotonic()
            if _passes(session, session.items[at], _next(session.items, at), _tracer(files, hits)):
                made.seconds[at] = monotonic() - begin
                made.lines[at] = hits
        made.modules = [name for name in sys.modules if name.startswith("shardir.")]
        with os.fdopen(writable, "wb") as stream:
            pickle.dump(made, stream)
        return 0

    pid, end = _start(record)
    os.close(writable)
    with os.fdopen(readable, "rb") as stream:
        data = stream.read()
    os.waitpid(pid, 0)
    os.close(end)
    if not data:
        raise RuntimeError("the process that records the lines of each test ended early")
    made = cast(_Record, pickle.loads(data))
    for name in made.modules:
        importlib.import_module(name)
    total = sum(made.seconds.values())
    print(f"{len(made.seconds)} of {len(session.items)} tests pass, in {total:.0f} s", flush=True)
    return made


def _next(items: Sequence[pytest.Item], at: int) -> pytest.Item | None:
    return items[at + 1] if at + 1 < len(items) else None


_Tracer = Callable[[FrameType, str, Any], Any]


def _tracer(files: set[str], hits: set[tuple[str, int]]) -> _Tracer:
    real: dict[str, str | None] = {}

    def trace_lines(frame: FrameType, event: str, _: Any) -> Any:
        hits.add((cast(str, real[frame.f_code.co_filename]), frame.f_lineno))
        return trace_lines

    def trace_call(frame: FrameType, event: str, _: Any) -> Any:
        name = frame.f_code.co_filename
        if name not in real:
            path = os.path.realpath(name)
            real[name] = path if path in files else None
        return trace_lines if real[name] else None

    return trace_call


def _passes(
    session: pytest.Session, item: pytest.Item, after: pytest.Item | None, tracer: _Tracer | None
) -> bool:
    """Run one test; return True if it passes and is not skipped."""
    reports: list[pytest.TestReport] = []
    listener = _Listener(reports)
    session.config.pluginmanager.register(listener)
    if tracer:
        threading.settrace(tracer)
        sys.settrace(tracer)
    try:
        session.config.hook.pytest_runtest_protocol(item=item, nextitem=after)
    finally:
        if tracer:
            sys.settrace(None)
            threading.settrace(None)
        session.config.pluginmanager.unregister(listener)
    return all(report.passed for report in reports)


@dataclass(eq=False)
class _Listener:
    reports: list[pytest.TestReport]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.reports.append(report)


def _covering(record: _Record, guard: Guard, budget: float) -> list[int]:
    """Return the tests that execute the lines of a guard, shortest first, within a sum of seconds.

    The first test belongs to the result in any case.
    """
    expected = {(str(guard.path), line) for line in guard.lines}
    covering = [at for at, hits in record.lines.items() if not expected.isdisjoint(hits)]
    covering.sort(key=lambda at: record.seconds[at])
    sums = list(accumulate(record.seconds[at] for at in covering))
    return covering[: max(1, bisect_right(sums, budget))]


def _run_mutant(session: pytest.Session, guard: Guard, tests: Sequence[int]) -> int:
    changes = mutated_codes(guard)
    if not _install(changes):
        return NOT_LOADED
    for at, test in enumerate(tests):
        after = session.items[tests[at + 1]] if at + 1 < len(tests) else None
        if not _passes(session, session.items[test], after, None):
            return KILLED
    return SURVIVED


def _install(changes: Iterable[tuple[CodeType, CodeType]]) -> int:
    """Replace the code of all functions that have the code before; return their number."""
    gc.unfreeze()  # `tests/conftest.py` freezes the objects that exist after collection.
    functions = [each for each in gc.get_objects() if isinstance(each, FunctionType)]
    gc.freeze()
    count = 0
    for before, after in changes:
        for function in functions:
            if _is_same(function.__code__, before):
                function.__code__ = after
                count += 1
    return count


def _is_same(loaded: CodeType, compiled: CodeType) -> bool:
    """Return True if a loaded code object is the compiled one. Code objects that have run are not
    equal to others, because they contain caches."""
    return (
        loaded.co_qualname == compiled.co_qualname
        and loaded.co_firstlineno == compiled.co_firstlineno
        and loaded.co_code == compiled.co_code
        and os.path.realpath(loaded.co_filename) == compiled.co_filename
    )


def mirrored_tests(paths: Sequence[Path], root: Path) -> list[str]:
    """Return the folders of tests that mirror the packages of source files, and the stories."""
    folders = {"tests/stories": None}
    for path in paths:
        package = path.relative_to(root).parent
        while not (root / "tests" / package).is_dir():
            package = package.parent
        folders[f"tests/{package}"] = None
    return list(folders)
