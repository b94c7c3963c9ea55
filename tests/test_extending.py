"""The guide to extensions: its files are short, and its package works when it is installed."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.test_documents import BLOCK, FILE_NAME

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "examples/octave_target"
FILES = {
    named[1]: match[2]
    for match in BLOCK.finditer((ROOT / "docs/extending.md").read_text(encoding="utf-8"))
    if (named := FILE_NAME.match(match[2]))
}
"""The files that the guide shows."""
MAX_FILES = 4
MAX_LINES = 25
"""The largest number of lines of a pointwise operation with rules for all targets; empty lines and
the line with the name of the file are not counted."""


def test_a_pointwise_operation_is_short() -> None:
    files = [text for name, text in FILES.items() if re.match(r"softsign\w*\.py", name)]
    lines = [line for text in files for line in text.splitlines()[1:] if line.strip()]
    assert len(files) <= MAX_FILES
    assert len(lines) <= MAX_LINES


@pytest.mark.parametrize("name", ["octave_target.py", "pyproject.toml"])
def test_the_guide_shows_the_files_of_the_example(name: str) -> None:
    assert FILES[name].partition("\n")[2] == (PACKAGE / name).read_text(encoding="utf-8")


def test_the_example_is_found_when_it_is_installed(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    for name in ("octave_target.py", "pyproject.toml"):
        (source / name).write_text((PACKAGE / name).read_text("utf-8"), encoding="utf-8")
    site = tmp_path / "site"
    install = ["install", "-q", "--no-deps", "--no-build-isolation", "--target", str(site)]
    subprocess.run(
        [sys.executable, "-m", "pip", *install, str(source)], check=True, capture_output=True
    )
    for name in ("negations.ir", "program.ir"):
        (tmp_path / name).write_text(FILES[name], encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "shardir", "emit", "negations.ir"]
        + ["--target", "octave", "-o", "out"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(site)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.stdout, done.stderr) == (f"out{os.sep}f.m\n", "")
