"""Configuration of all tests: the number of hypothesis examples, the story plug-in, and extras.

A test that needs an extra which is not installed is skipped. If the imports of a test file need the
extra, the whole file is skipped; if only the call of a test imports it, that test is skipped. A
test that starts a process which needs an extra has the mark `@pytest.mark.needs("sklearn")`.
"""

import gc
import os
import signal
import sys
from collections.abc import Generator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tests.optional_dependencies import missing_extra, reason_without, require
from tests.sampling import deselect_long_tests

pytest_plugins = ["shardir.frontend.stories.pytest_plugin"]

# On a machine with other work, drawing a program may take as long as these limits permit.
UNTIMED: dict[str, Any] = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("quick", max_examples=50, derandomize=True, **UNTIMED)
settings.register_profile("long", max_examples=2000, **UNTIMED)

OBJECTS_PER_COLLECTION = 20_000
"""The number of objects that tests create between two collections of the youngest generation."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--long",
        action="store_true",
        help="try two thousand random programs where otherwise fifty are tried, and run the "
        "tests that are otherwise left out (marks `long` and `sample`)",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "needs(*modules): modules of extras that a test needs")
    config.addinivalue_line("markers", "long: a test that only --long runs")
    sample = "sample(n, kind): without --long, one of n parametrizations runs, and one of each kind"
    config.addinivalue_line("markers", sample)
    settings.load_profile("long" if config.getoption("--long") else "quick")
    # Tests start hundreds of processes, and each one would compile every module that it imports.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.dont_write_bytecode = False
    # A shell starts background jobs with SIGINT ignored, which the programs of tests would inherit.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Exclude the tests themselves from garbage collection.

    Many tests call `gc.collect`. The thirty thousand test items are millions of objects, none of
    which ever becomes garbage, so that each collection would traverse them in vain.
    """
    gc.disable()
    try:
        found = yield
        if jax := sys.modules.get("jax"):
            # Tests compare JAX's results and run each compiled program once, so optimizations only
            # cost time: without them, the tests take half as long.
            jax.config.update("jax_disable_most_optimizations", True)
        return found
    finally:
        gc.enable()
        gc.collect()
        gc.freeze()
        # Python's default is a collection after each 700 objects, which took a tenth of the time.
        gc.set_threshold(OBJECTS_PER_COLLECTION, 20, 20)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    names_tests = any("::" in argument for argument in config.args)
    if not config.getoption("--long") and not names_tests:
        config.hook.pytest_deselected(items=deselect_long_tests(items))


class Module(pytest.Module):
    """A file of tests, skipped where it imports an extra that is not installed."""

    def _getobj(self) -> ModuleType:
        try:
            return super()._getobj()  # type: ignore[no-any-return, no-untyped-call]
        except Exception as error:
            if extra := missing_extra(error):
                pytest.skip(reason_without(extra), allow_module_level=True)
            raise


def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> pytest.Module:
    return Module.from_parent(parent, path=module_path)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    for mark in item.iter_markers("needs"):
        require(*mark.args)


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call() -> Generator[None, object, object]:
    try:
        return (yield)
    except Exception as error:
        if extra := missing_extra(error):
            pytest.skip(reason_without(extra))
        raise
