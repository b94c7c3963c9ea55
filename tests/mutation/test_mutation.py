"""The command on a file with guards that its tests notice, do not notice, and do not reach."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from shardir.backends.cpu.codegen import cache_keys, object_cache
from shardir.backends.cpu.codegen.target import host_machine
from shardir.backends.cpu.schedule import schedule_cache
from shardir.text.parser import parse
from tests.mutation.__main__ import EXPLANATIONS, ROOT, read_explanations, read_survivors
from tests.mutation.caches import separate_caches
from tests.mutation.guards import find_guards
from tests.mutation.processes import ForkedProcess
from tests.mutation.runner import mirrored_tests

SOURCE = """\
def sign(x):
    if x < 0:
        return -1
    if x == 0:
        return 0
    if x != x:
        return 2
    return 1 if x > 0 and x > 0.5 else 3
"""
TESTS = """\
import os
from pathlib import Path
from signs import sign

runs = []

def test_negative():
    runs.append("negative")
    assert sign(-2) == -1

def test_zero():
    sign(0)

def test_that_depends_on_the_order():
    assert runs
    sign(0)

def test_that_ends_its_process():
    os._exit(0)

def test_positive():
    with Path("RUNS").open("a") as file:
        file.write("positive ")
    assert sign(5) == 1

def test_that_fails():
    assert sign(float("nan")) == 5
"""
SURVIVORS = [
    ("SURVIVED", "signs.py:4: if x == 0: return 0"),
    ("not covered", "signs.py:6: if x != x: return 2"),
    ("not covered", "signs.py:8: and: x > 0"),
    ("not covered", "signs.py:8: and: x > 0.5"),
]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    source = tmp_path / "signs.py"
    source.write_text(SOURCE, "utf-8")
    tests = TESTS.replace("RUNS", str(tmp_path / "runs.txt"))
    source.with_name("test_signs.py").write_text(tests, "utf-8")
    return source


def run_command(source: Path, *options: str) -> subprocess.CompletedProcess[str]:
    tests = str(source.with_name("test_signs.py"))
    command = [sys.executable, "-m", "tests.mutation", str(source), "--tests", tests, *options]
    return subprocess.run(command, capture_output=True, text=True, encoding="utf-8")


def test_the_command_lists_survivors(source: Path) -> None:
    done = run_command(source)
    assert "4 of 6 tests pass" in done.stdout
    head, survivors = done.stdout.split("\n4 of 5 mutants are not killed\n")
    (killed,) = (line for line in head.splitlines() if "signs.py:2:" in line)
    assert re.search(r"^killed +1 tests .*\[.*::test_negative\]$", killed)
    found = [re.split(r"  +", line) for line in survivors.splitlines()]
    assert [(line[0], line[-1].rpartition("/")[2]) for line in found] == SURVIVORS
    assert done.returncode == 1
    assert source.read_text("utf-8") == SOURCE
    assert read_survivors(done.stdout) == {each.key for each in find_guards(source)[1:]}


@pytest.mark.long
def test_a_recorded_test_runs_again_only_after_a_change(source: Path) -> None:
    tests, runs = source.with_name("test_signs.py"), source.with_name("runs.txt")
    options = "--match", "x != x", "--record", str(source.with_name("record"))
    for expected in (1, 1):
        assert "1 of 1 mutants are not killed" in run_command(source, *options).stdout
        assert len(runs.read_text("utf-8").split()) == expected
    tests.write_text(tests.read_text("utf-8").replace("test_zero", "test_nothing"), "utf-8")
    assert "1 of 1 mutants are not killed" in run_command(source, *options).stdout
    assert len(runs.read_text("utf-8").split()) == 2


PROPERTY_TEST = """\
from pathlib import Path
from hypothesis import given, strategies as st
from signs import sign

@given(st.lists(st.integers(100, 10**9), min_size=20))
def test_large_numbers(numbers):
    if any(sign(number) == 3 for number in numbers):
        with Path("RUNS").open("a") as file:
            file.write("failure ")
        raise AssertionError
"""


def test_the_first_example_that_fails_kills_a_mutant(source: Path) -> None:
    """Hypothesis repeats the example for its report, and tries no simpler ones."""
    runs = source.with_name("runs.txt")
    source.write_text("def sign(x):\n    if x >= 0:\n        return 1\n    return 3\n", "utf-8")
    test = PROPERTY_TEST.replace("RUNS", str(runs))
    source.with_name("test_signs.py").write_text(test, "utf-8")
    assert "0 of 1 mutants are not killed" in run_command(source).stdout
    assert len(runs.read_text("utf-8").split()) <= 3


CACHED = """\
from functools import cache

@cache
def sign(x):
    if x < 0:
        return -1
    return 1
"""
TESTS_OF_CACHED = """\
from signs import sign

KNOWN = sign(-2)

def test_negative():
    assert sign(-2) == -1
"""


def test_results_of_the_collection_are_computed_again(source: Path) -> None:
    source.write_text(CACHED, "utf-8")
    source.with_name("test_signs.py").write_text(TESTS_OF_CACHED, "utf-8")
    assert "0 of 1 mutants are not killed" in run_command(source).stdout


@pytest.mark.filterwarnings("ignore:os.fork:RuntimeWarning")  # JAX may have threads.
@pytest.mark.parametrize(
    "file", ["backends/cpu/schedule/arena.py", "backends/cpu/kernels/rules.py"]
)
def test_mutants_have_caches_of_their_own(
    file: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SHARDIR_CACHE_DIR", str(tmp_path / "user"))
    object_cache.cache_folder.cache_clear()
    machine, module = host_machine(), parse("func @f() -> () {\n  return\n}")

    def keys() -> list[str]:
        return [
            schedule_cache.schedule_key(module, 1, machine),
            cache_keys.cache_key(machine, "kernel", "add"),
        ]

    def keys_of_mutant() -> Iterator[object]:
        separate_caches({ROOT / file}, "a mutant")
        yield keys()
        for folder in ("user", "test"):
            os.environ["SHARDIR_CACHE_DIR"] = str(tmp_path / folder)
            object_cache.cache_folder.cache_clear()
            object_cache.save("key", b"code")
            yield object_cache.load("key")

    process = ForkedProcess(keys_of_mutant)
    own, unchanged = process.receive(), keys()
    assert [a == b for a, b in zip(own, unchanged, strict=True)] == [False, "schedule" in file]
    assert (process.receive(), process.receive()) == (None, b"code")
    process.end()
    object_cache.cache_folder.cache_clear()


def test_tests_mirror_the_packages_of_files() -> None:
    root = Path(__file__).parents[2]
    paths = [root / "passes/simplify/cse.py", root / "backends/cpu/schedule/arena.py"]
    expected = ["tests/stories", "tests/passes/simplify", "tests/backends/cpu/schedule"]
    assert mirrored_tests(paths, root) == expected


def test_each_explained_guard_exists() -> None:
    explained = read_explanations(EXPLANATIONS.read_text("utf-8"))
    assert all(explained.values())
    files = {key.partition(":")[0] for key in explained}
    found = {f"{file}: {guard.text}" for file in files for guard in find_guards(ROOT / file)}
    assert explained.keys() <= found
