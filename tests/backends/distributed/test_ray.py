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
    # Ray ends the other actor, and drops what it printed last, as soon as this program ends.
    replacements = {
        "    def run(self, address, count, index):\n": "    def run(self, address, count, index):\n"
        "        os.dup2(os.open(f'{folder}/{index}.txt', os.O_CREAT | os.O_WRONLY), 2)\n",
        "        return float(sd.jit(snp.sum)(x))\n": "        index == 1 and os._exit(3)\n"
        "        return float(sd.jit(snp.sum)(x))\n",
        "print(ray.get([": "runs = [",
        "for index, each in enumerate(processes)]))\n": "for index, each in enumerate(processes)]\n"
        "ray.wait(runs, num_returns=2)\n"
        "ray.get(runs)\n",
    }
    for text, replacement in replacements.items():
        assert text in program
        program = program.replace(text, replacement)
    ran = run(f"import os\nfolder = {str(tmp_path)!r}\n{program}", tmp_path)
    assert "ActorDiedError" in ran.stderr
    assert re.search(
        r"shardir: process 0 \(.*\)(: .*| stops): process 1 \(.*\) was killed",
        (tmp_path / "0.txt").read_text("utf-8"),
    )
