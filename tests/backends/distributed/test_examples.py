"""The examples print the same on several processes as on one."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import settings

from tests.backends.distributed.launched_job import LIMIT_SECONDS, ROOT, launch_job

pytestmark = pytest.mark.sample(3)

SEEDS = sorted(path.stem for path in (ROOT / "examples" / "seeds").glob("*.py"))
IS_LONG_RUN = settings().max_examples > 200
DEFAULT_JOBS = [("collective_operations", 2), ("pmap_quickstart", 2)]
PAGE = ROOT / "docs" / "distributed.md"
TIME_PATTERN = re.compile(r"[\d.]+ ms")


def output_of_one_process(path: Path) -> str:
    """Return the output of an example that runs as one process."""
    done = subprocess.run(
        [sys.executable, str(path)], capture_output=True, text=True, timeout=LIMIT_SECONDS
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    ("seed", "count"), [(s, n) for s in SEEDS for n in (2, 4)] if IS_LONG_RUN else DEFAULT_JOBS
)
def test_a_seed_example_prints_the_same(seed: str, count: int, tmp_path: Path) -> None:
    path = ROOT / "examples" / "seeds" / f"{seed}.py"
    done = launch_job(count, path, folder=tmp_path).check()
    assert TIME_PATTERN.sub("... ms", done.out[0]) == TIME_PATTERN.sub(
        "... ms", output_of_one_process(path)
    )


@pytest.mark.long
@pytest.mark.parametrize("count", [2, 4])
def test_the_digits_example_trains(count: int, tmp_path: Path) -> None:
    epochs = "15" if IS_LONG_RUN else "8"
    done = launch_job(
        count, ROOT / "examples" / "digits.py", "--epochs", epochs, folder=tmp_path
    ).check()
    assert "the placements agree" in done.out[0]


def test_the_page_about_processes_shows_the_output(tmp_path: Path) -> None:
    """The Python blocks of the page are one program, which every process runs."""
    # Blocks that begin with the name of a file are other programs.
    pattern = r"^```(python|text)\n(?!# \w+\.py\n)(.*?)^```$"
    blocks = re.findall(pattern, PAGE.read_text("utf-8"), re.M | re.S)
    program = tmp_path / "page.py"
    folder = f"import os\nos.chdir({str(tmp_path)!r})\n"
    program.write_text(
        folder + "\n".join(body for kind, body in blocks if kind == "python"), "utf-8"
    )
    done = launch_job(2, program, folder=tmp_path).check()
    assert done.out[0] == "".join(body for kind, body in blocks if kind == "text")
