"""The Ray program of docs/distributed.md: two actors are two processes of one job."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "distributed.md"


def run(program: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a program that starts a Ray cluster of two processes on this machine."""
    file = folder / "ray_job.py"
    file.write_text(
        f"import ray\nray.init(num_cpus=2, include_dashboard=False)\n{program}", "utf-8"
    )
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    return subprocess.run(
        [sys.executable, str(file)],
        capture_output=True,
        text=True,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path},
        timeout=600,
    )


@pytest.fixture(scope="module")
def program() -> str:
    found = re.search(
        r"^```python\n# ray_job\.py\n(.*?)^```$", PAGE.read_text("utf-8"), re.M | re.S
    )
    assert found
    return found[1]


@pytest.mark.long
@pytest.mark.needs("ray")
def test_two_actors_are_one_job(program: str, tmp_path: Path) -> None:
    ran = run(program, tmp_path)
    assert ran.stdout.splitlines()[-1:] == ["[28.0, 28.0]"], ran.stderr


@pytest.mark.long
@pytest.mark.needs("ray")
def test_a_dead_actor_ends_the_job(program: str, tmp_path: Path) -> None:
    end = "        return float(sd.jit(snp.sum)(x))\n"
    assert end in program
    ran = run(
        program.replace(end, f"        index == 1 and __import__('os')._exit(3)\n{end}"), tmp_path
    )
    assert "ActorDiedError" in ran.stderr
    assert re.search(
        r"shardir: process 0 \(.*\): .*: process 1 \(.*\) was killed", ran.stderr + ran.stdout
    )
