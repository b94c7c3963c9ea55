"""Run the tests of each mutant in a forked process, with the mutant's code in the loaded modules.

Each mutant gets the passing tests in which its guard decides, until one fails. A test that fails
without a mutation too, since it ran in another order, kills no mutant. No file is written, so the
checkout stays as it is; processes that a test starts with the interpreter run the original code.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate
from multiprocessing.connection import wait
from pathlib import Path

import pytest
from hypothesis import Phase, settings

from shardir.text.parser import parse
from tests.mutation.caches import separate_caches
from tests.mutation.guards import Guard
from tests.mutation.mutants import install, mutated_codes
from tests.mutation.processes import ForkedProcess, passes
from tests.mutation.record import (
    clear_caches,
    complete_record,
    loaded_functions,
    read_record,
    write_record,
)

PROGRAM = "func @main(%x: f32[2]) -> (f32[2]) {\n  %y = neg(%x) : f32[2]\n  return %y\n}\n"
"""The command parses this program before it forks, because the first call of `parse` in a process
takes as long as most tests: it generates the parser from the grammar."""


@dataclass(frozen=True)
class Outcome:
    """The result for one mutant: `state` is killed, survived, not covered, too slow or not loaded.

    `killer` is the test that failed.
    """

    guard: Guard
    state: str
    tests: int
    seconds: float
    killer: str = ""

    def __str__(self) -> str:
        spent = f"{self.tests:5} tests {self.seconds:6.1f} s"
        return f"{self.state:11} {spent}  {self.guard}" + f"  [{self.killer}]" * bool(self.killer)


@dataclass(frozen=True)
class Limits:
    """How much a run may take. `budget` limits the tests of one mutant, by their recorded seconds,
    and `seconds` the process of one mutant."""

    jobs: int
    seconds: float
    budget: float


@dataclass(eq=False)
class _Mutant:
    guard: Guard
    tests: list[int]
    process: ForkedProcess


@dataclass(eq=False)
class MutationPlugin:
    """A pytest plug-in that runs the collected tests once per mutant instead of once."""

    guards: Sequence[Guard]
    limits: Limits
    record_file: Path | None
    report: Callable[[Outcome], None]
    _repeatable: set[int] = field(default_factory=set)
    """The tests that pass without a mutation as the only test of a process."""
    _unrepeatable: set[int] = field(default_factory=set)

    @pytest.hookimpl(trylast=True)
    def pytest_configure(self) -> None:
        """Let property tests end at the first example that fails: the search for the simplest one
        can take minutes."""
        phases = (Phase.explicit, Phase.generate)
        settings.register_profile("mutation", settings.default, phases=phases)
        settings.load_profile("mutation")

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Run the tests of every mutant, and report each outcome."""
        self._session = session
        self._record = read_record(self.record_file, self.guards)
        recorded = {guard.path for guard in self._record.guards}
        functions = loaded_functions(recorded)
        clear_caches(recorded)
        parse(PROGRAM)
        complete_record(self._record, session, functions, self.limits.seconds)
        if self.record_file:
            write_record(self._record, self.record_file)
        print(self._record.summary(session.items), flush=True)
        mutated = {guard.path for guard in self.guards}
        self._functions = loaded_functions(mutated, sorted(self._record.modules))
        pending = list(reversed(self.guards))
        running: list[_Mutant] = []
        while pending or running:
            while pending and len(running) < self.limits.jobs:
                running += self._start(pending.pop())
            wait([each.process.results for each in running], 1.0)
            for mutant in list(running):
                is_late = mutant.process.seconds > self.limits.seconds
                if is_late or mutant.process.results.poll():
                    running.remove(mutant)
                    running += self._finish(mutant)
        return True

    def _start(self, guard: Guard) -> list[_Mutant]:
        """Start the process of a mutant, unless no test covers its guard."""
        covering = self._record.covering(guard, self._session.items)
        tests = [each for each in covering if each not in self._unrepeatable]
        recorded = (self._record.tests[self._session.items[at].nodeid] for at in tests)
        seconds = accumulate(test.seconds for test in recorded)
        # The first test belongs to the result in any case.
        tests = tests[: max(1, bisect_right(list(seconds), self.limits.budget))]
        if not tests:
            self.report(Outcome(guard, "not covered", 0, 0.0))
            return []
        process = ForkedProcess(partial(self._first_failure, guard, tests))
        return [_Mutant(guard, tests, process)]

    def _first_failure(self, guard: Guard, tests: Sequence[int]) -> Iterator[int | str]:
        """Yield the first test that fails without a guard, or the state of the mutant."""
        separate_caches({guard.path}, str(guard))
        if not install(mutated_codes(guard), self._functions):
            yield "not loaded"
            return
        for at, after in zip(tests, [*tests[1:], None], strict=True):
            following = None if after is None else self._session.items[after]
            if not passes(self._session, self._session.items[at], following):
                yield at
                return
        yield "SURVIVED"

    def _finish(self, mutant: _Mutant) -> list[_Mutant]:
        """Report the outcome of a mutant, or start it again without an unrepeatable test."""
        guard, tests, seconds = mutant.guard, len(mutant.tests), mutant.process.seconds
        result = mutant.process.receive() if mutant.process.results.poll() else "too slow"
        mutant.process.end()
        if isinstance(result, str):
            self.report(Outcome(guard, result, tests, seconds))
        elif result is None:
            self.report(Outcome(guard, "killed", tests, seconds, "the process crashed"))
        elif self._is_repeatable(result):
            ran = mutant.tests.index(result) + 1
            killer = self._session.items[result].nodeid
            self.report(Outcome(guard, "killed", ran, seconds, killer))
        else:
            return self._start(guard)
        return []

    def _is_repeatable(self, test: int) -> bool:
        """Return True if a test passes as the only test of a process without a mutation."""
        if test not in self._repeatable | self._unrepeatable:
            item = self._session.items[test]
            process = ForkedProcess(lambda: [passes(self._session, item, None)])
            is_passing = process.receive(self.limits.seconds)
            process.end()
            (self._repeatable if is_passing else self._unrepeatable).add(test)
        return test in self._repeatable


def mirrored_tests(paths: Sequence[Path], root: Path) -> list[str]:
    """Return the folders of tests that mirror the packages of source files, and the stories."""
    folders = {"tests/stories": None}
    for path in paths:
        package = path.relative_to(root).parent
        while not (root / "tests" / package).is_dir():
            package = package.parent
        folders[f"tests/{package}"] = None
    return list(folders)
