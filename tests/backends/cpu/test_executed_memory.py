"""The memory that runs take, compared with `memory_analysis`."""

import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARK = Path(__file__).parents[3] / "benchmarks/memory.py"


@pytest.mark.long
@pytest.mark.skipif(sys.platform != "linux", reason="reads the memory of a process from /proc")
def test_the_executed_peak_of_each_program_differs_by_at_most_one_percent() -> None:
    run = subprocess.run([sys.executable, str(BENCHMARK)], capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr
