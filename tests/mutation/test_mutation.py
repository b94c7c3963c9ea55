"""The command on a file with guards that its tests notice, do not notice, and do not reach."""

import re
import subprocess
import sys
from pathlib import Path

from tests.mutation.__main__ import EXPLANATIONS, ROOT, read_explanations, read_survivors
from tests.mutation.guards import guards
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
from signs import sign

def test_negative():
    assert sign(-2) == -1

def test_zero():
    sign(0)

def test_positive():
    assert sign(5) == 1

def test_that_fails():
    assert sign(float("nan")) == 5
"""
SURVIVORS = [
    ("SURVIVED", "signs.py:4: if x == 0: return 0"),
    ("not covered", "signs.py:6: if x != x: return 2"),
    ("SURVIVED", "signs.py:8: and: x > 0"),
    ("SURVIVED", "signs.py:8: and: x > 0.5"),
]


def test_the_command_lists_survivors(tmp_path: Path) -> None:
    source, tests = tmp_path / "signs.py", tmp_path / "test_signs.py"
    source.write_text(SOURCE, "utf-8")
    tests.write_text(TESTS, "utf-8")
    command = [sys.executable, "-m", "tests.mutation", str(source), "--tests", str(tests)]
    done = subprocess.run(command, capture_output=True, text=True, encoding="utf-8")
    assert "3 of 4 tests pass" in done.stdout
    head, survivors = done.stdout.split("\n4 of 5 mutants are not killed\n")
    assert [line.split()[0] for line in head.splitlines() if "signs.py:2:" in line] == ["killed"]
    found = [re.split(r"  +", line) for line in survivors.splitlines()]
    assert [(line[0], line[-1].rpartition("/")[2]) for line in found] == SURVIVORS
    assert done.returncode == 1
    assert source.read_text("utf-8") == SOURCE
    assert read_survivors(done.stdout) == {line[-1] for line in found}


def test_tests_mirror_the_packages_of_files() -> None:
    root = Path(__file__).parents[2]
    paths = [root / "passes/simplify/cse.py", root / "backends/cpu/schedule/arena.py"]
    expected = ["tests/stories", "tests/passes/simplify", "tests/backends/cpu/schedule"]
    assert mirrored_tests(paths, root) == expected


def test_each_explained_guard_exists() -> None:
    explained = read_explanations(EXPLANATIONS.read_text("utf-8"))
    assert all(explained.values())
    files = {key.partition(":")[0] for key in explained}
    found = {f"{file}: {guard.text}" for file in files for guard in guards(ROOT / file)}
    assert explained.keys() <= found
