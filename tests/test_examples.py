"""The examples run, and print the results that they state."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.optional_dependencies import extras_in, require

ROOT = Path(__file__).parents[1]
EXAMPLES = sorted((ROOT / "examples").rglob("*.py"))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: str(path.relative_to(ROOT)))
def test_an_example_runs(path: Path, tmp_path: Path) -> None:
    require(*extras_in(path.read_text("utf-8")))
    done = subprocess.run(
        [sys.executable, str(path)],
        cwd=tmp_path,
        # Examples draw pictures of shardings, which an ASCII terminal cannot show.
        env={**os.environ, "PYTHONUTF8": "1"},
        capture_output=True,
        encoding="utf-8",
        timeout=300,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr
