"""The process of toulbar2 ends at the time limit, at Ctrl-C, and with its parent."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from shardir.passes.planning import exact
from shardir.passes.planning.automatic import solve_automatically
from shardir.passes.planning.exact import SolverProcess, solve_exactly
from shardir.passes.planning.problem import Edge, PlanningError, PlanningProblem
from shardir.passes.planning.search import solve_by_search
from shardir.passes.planning.solution import Incumbent, Solution

pytestmark = pytest.mark.needs("pytoulbar2")

NODES, STRATEGIES = 40, 8
START = (0,) * NODES


def hard_problem() -> PlanningProblem:
    """Return a problem that toulbar2 does not solve within minutes."""
    rng = np.random.default_rng(0)
    pairs = [(a, b) for a in range(NODES) for b in range(a) if rng.random() < 0.5]
    return PlanningProblem(
        "hard",
        np.zeros(NODES, np.int64),
        np.ones(NODES, np.int64),
        [rng.integers(0, 1000, STRATEGIES) for _ in range(NODES)],
        [np.ones(STRATEGIES, np.int64)] * NODES,
        [Edge(a, b, rng.integers(0, 1000, (STRATEGIES, STRATEGIES))) for a, b in pairs],
        None,
    )


def is_running(process: int) -> bool:
    try:
        state = Path(f"/proc/{process}/stat").read_text("utf-8").rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def wait_until_ended(process: int) -> bool:
    end = time.monotonic() + 30.0
    while is_running(process) and time.monotonic() < end:
        time.sleep(0.05)
    return not is_running(process)


def start_script(solve: str) -> subprocess.Popen[str]:
    """Start a script that solves the problem and prints the identifier of the toulbar2 process."""
    script = f"""
import threading
from pathlib import Path
from shardir.passes.planning import exact
from tests.passes.planning.test_interruption import START, hard_problem

class Process(exact.SolverProcess):
    def __init__(self, *arguments):
        super().__init__(*arguments)
        print(self._process.pid, flush=True)

exact.SolverProcess = Process
print({solve}.cost, flush=True)
"""
    return subprocess.Popen(
        [sys.executable, "-c", script],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[3],
    )


SOLVE = "exact.solve_exactly(hard_problem(), seconds=300, start=START)"


def test_the_time_limit_holds_within_a_step_of_toulbar2() -> None:
    begun = time.monotonic()
    solution = solve_exactly(hard_problem(), seconds=1.0, start=START)
    # toulbar2 takes minutes for the problem; other processes may delay this one by seconds.
    assert time.monotonic() - begun < 30.0
    assert solution.cost <= hard_problem().cost_of(START)  # type: ignore[operator]


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_closing_ends_the_process() -> None:
    process = SolverProcess(Incumbent(hard_problem(), 300.0, START))
    number = process._process.pid
    assert is_running(number)
    process.close()
    assert wait_until_ended(number)


def test_an_interrupted_process_sends_its_last_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exact, "STOP_SECONDS", 30.0)
    incumbent = Incumbent(hard_problem(), 300.0, START)
    process = SolverProcess(incumbent)
    try:
        while incumbent.lower_bound is None:
            process.receive(0.1)
        incumbent.lower_bound = None
        process.finish()
        monkeypatch.setattr(process, "receive", lambda seconds: pytest.fail("it has ended"))
        process.finish()
    finally:
        process.close()
    assert process.is_done
    assert process.failure is None
    assert incumbent.lower_bound is not None
    assert 0 < incumbent.lower_bound < incumbent.best[0]


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_interruption_returns_the_best_solution() -> None:
    with start_script(SOLVE) as parent:
        assert parent.stdout is not None
        process = int(parent.stdout.readline())
        time.sleep(0.5)
        begun = time.monotonic()
        parent.send_signal(signal.SIGINT)
        output, errors = parent.communicate(timeout=60)
    assert (parent.returncode, errors) == (0, "")
    assert int(output) > 0
    assert time.monotonic() - begun < 30.0
    assert wait_until_ended(process)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_the_process_ends_with_its_parent() -> None:
    with start_script(SOLVE) as parent:
        assert parent.stdout is not None
        process = int(parent.stdout.readline())
        assert is_running(process)
        parent.kill()
    assert wait_until_ended(process)


HOLD_LOCK = """
import ctypes
print("solving", flush=True)
ctypes.PyDLL(None).sleep(60)
"""
START_SOLVER = """
import pickle, subprocess, sys
solver = subprocess.Popen([sys.executable, "-P", sys.argv[1]], stdin=-1, stdout=-1, text=False)
pickle.dump({}, solver.stdin)
solver.stdin.flush()
assert solver.stdout.readline() == b"solving\\n"
print(solver.pid, flush=True)
solver.wait()
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs prctl")
def test_a_process_that_holds_the_interpreter_lock_ends_with_its_parent(tmp_path: Path) -> None:
    (tmp_path / "pytoulbar2.py").write_text(HOLD_LOCK, "utf-8")
    file = exact.__file__.replace("exact.py", "toulbar2_process.py")
    with subprocess.Popen(
        [sys.executable, "-c", START_SOLVER, file],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
    ) as parent:
        assert parent.stdout is not None
        process = int(parent.stdout.readline())
        assert is_running(process)
        parent.kill()
    assert wait_until_ended(process)


def test_a_process_that_ends_early_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", shutil.which("false"))
    message = "toulbar2 failed for the problem 'hard': the process ended unexpectedly"
    with pytest.raises(PlanningError) as error:
        solve_exactly(hard_problem(), seconds=300)
    assert str(error.value) == message
    with pytest.warns(RuntimeWarning, match=message):
        assert solve_exactly(hard_problem(), seconds=300, start=START).strategies == START


@pytest.mark.parametrize("solve", [solve_exactly, solve_by_search, solve_automatically])
def test_a_start_is_returned_without_any_time(solve: Callable[..., Solution]) -> None:
    assert solve(hard_problem(), seconds=1e-9, start=START).strategies == START
    with pytest.raises(PlanningError) as error:
        solve(hard_problem(), seconds=1e-9)
    assert str(error.value) == (
        "no solution was found in 1e-09 seconds; allow more time (--seconds)"
    )
