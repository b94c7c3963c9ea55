"""Record which guards decide in which tests, and keep the record in a file for later runs.

The recording process runs the tests once, with functions that report their guards. Functions
without guards run unchanged, so recording takes about as long as the tests.
"""

import gc
import hashlib
import importlib
import os
import pickle
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from time import monotonic
from types import FunctionType
from typing import TypeVar, cast

import pytest

from tests.mutation.caches import separate_caches
from tests.mutation.guards import Guard
from tests.mutation.mutants import install, recording_codes, report_guards
from tests.mutation.processes import ForkedProcess, passes

ROOT = Path(__file__).resolve().parents[2]
_Kind = TypeVar("_Kind")
PACKAGES = ("shardir", "passes", "frontend", "backends")


@dataclass(frozen=True)
class RecordedTest:
    """The duration of a test without a mutation, and the guards that decide in it."""

    digest: str
    """The digest of the file of the test."""
    is_passing: bool
    seconds: float
    guards: frozenset[Guard]


@dataclass
class Record:
    """Which guards decide in which tests."""

    sources: str
    """The digest of the packages for which the record holds."""
    guards: frozenset[Guard]
    tests: dict[str, RecordedTest] = field(default_factory=dict)
    modules: set[str] = field(default_factory=set)
    """The modules that tests import, so that the processes of mutants need not import them."""

    def covering(self, guard: Guard, items: Sequence[pytest.Item]) -> list[int]:
        """Return the positions of the passing tests in which a guard decides.

        The tests of the module of the same name come first, then the shortest ones.
        """
        found: list[tuple[bool, float, int]] = []
        for at, item in enumerate(items):
            test = self.tests[item.nodeid]
            if test.is_passing and guard in test.guards:
                is_namesake = item.path.stem == f"test_{guard.path.stem}"
                found.append((not is_namesake, test.seconds, at))
        return [at for *_, at in sorted(found)]

    def summary(self, items: Sequence[pytest.Item]) -> str:
        """Return how many of the collected tests pass, and how long they take."""
        tests = [self.tests[item.nodeid] for item in items]
        passing = [test.seconds for test in tests if test.is_passing]
        return f"{len(passing)} of {len(items)} tests pass, in {sum(passing):.0f} s"


def read_record(path: Path | None, guards: Sequence[Guard]) -> Record:
    """Return the record in a file if it holds for these guards and the current sources.

    Return an empty record otherwise.
    """
    files = {file for package in PACKAGES for file in (ROOT / package).rglob("*.py")}
    sources = _digest({file.resolve() for file in files} | {guard.path for guard in guards})
    if path and path.exists():
        record = cast(Record, pickle.loads(path.read_bytes()))
        if record.sources == sources and record.guards.issuperset(guards):
            return record
    return Record(sources, frozenset(guards))


def write_record(record: Record, path: Path) -> None:
    """Write a record to a file, for `read_record`."""
    path.write_bytes(pickle.dumps(record))


def complete_record(
    record: Record, session: pytest.Session, functions: Sequence[FunctionType], limit: float
) -> None:
    """Run the collected tests that a record lacks in a forked process, and add them to it.

    A record lacks a test whose file has changed since the test was recorded. A test that ends the
    process, or takes more than `limit` seconds, counts as failed; for example, a test waits forever
    for a thread of JAX if its module has started JAX before the fork.
    """
    digests = {path: _digest({path}) for path in {item.path for item in session.items}}
    missing = [
        item
        for item in session.items
        if item.nodeid not in record.tests or record.tests[item.nodeid].digest != digests[item.path]
    ]
    while missing:
        tests = partial(_recorded_tests, record.guards, session, list(missing), functions)
        process, is_running = ForkedProcess(tests), True
        while missing and is_running:
            item, found = missing.pop(0), process.receive(limit)
            is_passing, seconds, guards, modules = found or (False, limit, frozenset(), set())
            test = RecordedTest(digests[item.path], is_passing, seconds, guards)
            record.tests[item.nodeid] = test
            record.modules |= modules
            is_running = found is not None
        process.end()


def _recorded_tests(
    guards: frozenset[Guard],
    session: pytest.Session,
    items: Sequence[pytest.Item],
    functions: Sequence[FunctionType],
) -> Iterator[tuple[bool, float, frozenset[Guard], set[str]]]:
    """Run tests; yield whether each one passes, its duration, the guards that decide in it, and the
    modules that it loads."""
    numbered = sorted(guards, key=str)
    separate_caches({guard.path for guard in guards}, "recorded")
    for path in {guard.path for guard in guards}:
        here = [each for each in enumerate(numbered) if each[1].path == path]
        install(recording_codes(path, here), functions)
    decided: set[int] = set()
    report_guards(decided.add)
    loaded = set(sys.modules)
    for item, after in zip(items, [*items[1:], None], strict=True):
        decided.clear()
        begin = monotonic()
        is_passing = passes(session, item, after)
        seconds, found = monotonic() - begin, frozenset(numbered[at] for at in decided)
        added = {name for name in sys.modules.keys() - loaded if name.startswith("shardir.")}
        yield is_passing, seconds, found, added
        loaded |= added


def loaded_functions(files: set[Path], modules: Iterable[str] = ()) -> list[FunctionType]:
    """Import files of the packages, and further modules; return the functions of the files."""
    for name in (*(_module(each) for each in files if each.is_relative_to(ROOT)), *modules):
        # Modules for an extra that is not installed are not loaded.
        with suppress(ImportError):
            importlib.import_module(name)
    return [each for each in _loaded_objects(FunctionType) if _file(each) in files]


def clear_caches(files: set[Path]) -> None:
    """Clear the caches of the loaded functions of files, which have results of unchanged code."""
    for each in _loaded_objects(_Cache):
        if isinstance(each.__wrapped__, FunctionType) and _file(each.__wrapped__) in files:
            each.cache_clear()


_Cache = type(cache(len))


def _loaded_objects(kind: type[_Kind]) -> list[_Kind]:
    gc.unfreeze()  # `tests/conftest.py` freezes the objects that exist after collection.
    # `isinstance` reads the attribute `__class__`, which some objects of torch deprecate.
    found = [each for each in gc.get_objects() if type(each) is kind]
    gc.freeze()
    return found


def _file(function: FunctionType) -> Path:
    return Path(os.path.realpath(function.__code__.co_filename))


def _module(path: Path) -> str:
    """Return the name of the module of a file in a package."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    name = ".".join(parts if parts[0] == "shardir" else ("shardir", *parts))
    return name.removesuffix(".__init__")


def _digest(paths: set[Path]) -> str:
    digest = hashlib.sha256()
    for path in sorted(paths):
        digest.update(path.read_bytes())
    return digest.hexdigest()
