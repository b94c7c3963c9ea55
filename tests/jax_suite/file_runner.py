"""Runs one test file of JAX against one library, and records the outcome of each test instance."""

import builtins
import re
import signal
import sys
import unittest
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from tests.jax_suite.jax_facade import Facade, loading, root_of

PASSED = "passed"
SKIPPED = "skipped"

INTERNAL = re.compile(
    r"as_text|compiler_ir|make_jaxpr|\.jaxpr\b|\beqns\b|invars|outvars|\.primitive\b|[Hh][Ll][Oo]|mlir"
    r"|xla_|cost_analysis|memory_kind|donat|callback|infeed|assertCacheMisses|_cache_size"
    r"|count_(?:jit|pjit|primitive|device_put|pmap|cached|jax|subjaxpr|fused|aot)"
    r"|\.Explicit|explicit_mesh|out_sharding|typeof|get_abstract_mesh|check_vma=True|\.vma\b|pvary"
    r"|pcast|unreduced"
)
"""Words in a test that make it one of the compiler's insides or of types that carry shardings."""


def load(path: Path, library: Any, stubs: Mapping[str, Any]) -> dict[str, type[unittest.TestCase]]:
    """Return the test classes of the file at `path`, which sees `library` under the name `jax`."""
    module = ModuleType(f"of_jax_{path.stem}")
    sys.modules[module.__name__] = module
    inside = {**vars(builtins), "__import__": _importer(root_of(library, stubs))}
    vars(module).update(__file__=str(path), __builtins__=inside)
    with loading():
        exec(compile(path.read_text(encoding="utf-8"), str(path), "exec"), vars(module))
    return {
        name: value
        for name, value in vars(module).items()
        if isinstance(value, type) and issubclass(value, unittest.TestCase)
    }


def _importer(root: Facade) -> Callable[..., Any]:
    real = builtins.__import__

    def bring(
        name: str, scope: Any = None, local: Any = None, expected: Any = (), level: int = 0
    ) -> Any:
        if level or (name != "jax" and not name.startswith("jax.")):
            return real(name, scope, local, expected, level)
        found: Any = root
        for part in name.split(".")[1:]:
            found = getattr(found, part)
        return found if expected else root

    return bring


class Outcomes(unittest.TestResult):
    """The outcome of every test: `passed`, `skipped`, or the last line of its error."""

    def __init__(self) -> None:
        super().__init__()
        self.found: dict[str, str] = {}

    def addSuccess(self, test: unittest.TestCase) -> None:
        self.found.setdefault(_name(test), PASSED)

    def addSkip(self, test: unittest.TestCase, reason: str) -> None:
        self.found[_name(test)] = SKIPPED

    def addFailure(self, test: unittest.TestCase, err: Any) -> None:
        self.found[_name(test)] = _brief(err[1])

    addError = addFailure

    def addSubTest(self, test: unittest.TestCase, subtest: unittest.TestCase, err: Any) -> None:
        if err is not None:
            self.found[_name(test)] = _brief(err[1])


def _name(test: unittest.TestCase) -> str:
    return f"{type(test).__name__}.{test._testMethodName}"


def _brief(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {' '.join(lines)[:160]}"


class TimeLimit(BaseException):
    """A test exceeded its time limit."""


@contextmanager
def limit_seconds(seconds: int) -> Iterator[None]:
    """Raise a `TimeLimit` inside of the block after the given number of seconds, unless it is 0."""

    def stop(*args: object) -> None:
        raise TimeLimit(f"it takes longer than {seconds} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def run_file(
    path: Path,
    library: Any,
    stubs: Mapping[str, Any],
    chosen: Callable[[str], object],
    limit: int = 0,
) -> dict[str, str]:
    """Return the outcome of each test instance of the file whose name is `chosen`.

    Other instances are not run, because the state that they leave behind could affect later tests.
    Each instance has `limit` seconds, unless `limit` is 0.
    """
    result = Outcomes()
    for case in load(path, library, stubs).values():
        for test in unittest.defaultTestLoader.loadTestsFromTestCase(case):
            if isinstance(test, unittest.TestCase) and chosen(_name(test)):
                try:
                    with limit_seconds(limit):
                        test.run(result)
                except TimeLimit as error:
                    result.found[_name(test)] = _brief(error)
    return result.found


def make_public_name_filter(path: Path) -> Callable[[str], bool]:
    """Return a predicate of `Class.test`: the source of the test has no word of `INTERNAL`."""
    text = path.read_text(encoding="utf-8")
    bodies = re.split(r"^  def (test\w+)\(", text, flags=re.MULTILINE)
    wrong = {
        name for name, body in zip(bodies[1::2], bodies[2::2], strict=True) if INTERNAL.search(body)
    }

    def has_public_names_only(name: str) -> bool:
        method = name.partition(".")[2]
        return not any(re.fullmatch(rf"{word}(?:\d+|_.*)?", method) for word in wrong)

    return has_public_names_only
