"""A failure of one process ends the job with a message and without delay."""

import os
import re
from pathlib import Path

import pytest

from tests.backends.distributed import two_process_errors
from tests.backends.distributed.launched_job import (
    LAUNCHER,
    LAUNCHER_NAME,
    ROOT,
    CompletedJob,
    launch_job,
)

SCENARIOS = ROOT / "tests" / "backends" / "distributed" / "failure_scenarios.py"

of_mpi = pytest.mark.skipif(LAUNCHER != "mpiexec", reason="the watchdog exists for MPI only")
SIGALRM_EXIT_CODES = {14, 15}
"""The exit codes of the launcher for a process that ends by SIGALRM: 14, or 14 combined with the
bits of SIGKILL (9) if the launcher killed other processes."""


def run_scenario(scenario: str, folder: Path, count: int = 2, **environment: str) -> CompletedJob:
    """Run a scenario; it must end before the timeout of 300 seconds."""
    done = launch_job(count, SCENARIOS, scenario, folder=folder, environment=environment)
    assert "timed out after 300 s" not in done.errors
    return done


@pytest.mark.parametrize(
    ("scenario", "message"),
    [
        ("raises", "ValueError: no such file: weights.npy"),
        ("raises_in_a_thread", "IndexError: list index out of range"),
    ],
)
def test_an_exception_ends_the_job(scenario: str, message: str, tmp_path: Path) -> None:
    done = run_scenario(scenario, tmp_path)
    assert done.code == 1
    assert message in done.err[1]
    name = message.partition(":")[0]
    assert f"ends the job, because of the {name} above" in done.err[1]


def test_an_exception_in_a_script_for_jax_ends_the_job(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "import jax, time\njax.distributed.initialize()\n"
        "if jax.process_index() == 1:\n    raise ValueError('no such file')\ntime.sleep(1000)\n",
        "utf-8",
    )
    done = launch_job(2, "-m", "shardir", "as-jax", script, folder=tmp_path)
    assert done.code == 1
    assert "ValueError: no such file\n" in done.err[1]
    assert "ends the job, because of the ValueError above" in done.err[1]


@of_mpi
def test_a_process_that_ends_before_it_joins_ends_the_job(tmp_path: Path) -> None:
    done = run_scenario("ends_before_it_joins", tmp_path)
    assert done.code in SIGALRM_EXIT_CODES
    assert "ModuleNotFoundError: No module named 'dataset'" in done.err[1]
    assert (
        "distributed.initialize() would wait forever: process 1 ended before calling it; every "
        "process of the job must call it\n"
    ) in done.err[0]


@of_mpi
@pytest.mark.long
def test_joining_times_out(tmp_path: Path) -> None:
    done = run_scenario("joins_too_late", tmp_path, SHARDIR_COMM_TIMEOUT="2")
    assert done.code in SIGALRM_EXIT_CODES
    assert "): distributed.initialize() timed out after 2 s, waiting for the other" in done.err[0]


@pytest.mark.parametrize(("scenario", "code"), [("is_killed", 9), ("exits_immediately", 3)])
def test_a_killed_or_exited_process_ends_the_job(scenario: str, code: int, tmp_path: Path) -> None:
    is_signal = scenario == "is_killed" and LAUNCHER == "launch"
    assert run_scenario(scenario, tmp_path).code == (128 + code if is_signal else code)


def test_a_process_that_ends_early_ends_the_job(tmp_path: Path) -> None:
    done = run_scenario("ends_early", tmp_path)
    assert done.code == 13
    where = "all-gather %y.between_processes of total over data (collective 1 of run 1)"
    assert f"{where} waits forever" in done.err[0]
    assert "process 1 (" in done.err[0]
    assert "has ended its program" in done.err[0]


def test_a_deadlock_is_reported(tmp_path: Path) -> None:
    done = run_scenario("skips_a_run", tmp_path)
    assert done.code == 13
    assert "waits forever" in done.errors
    assert "all processes must run the same programs in the same order" in done.errors
    assert "the start of max" in done.errors
    assert (
        "all-gather %y.between_processes of total over data (collective 1 of run 1)" in done.errors
    )


@pytest.mark.parametrize("scenario", ["is_busy", "is_cut_off"])
def test_a_collective_times_out(scenario: str, tmp_path: Path) -> None:
    done = run_scenario(scenario, tmp_path, SHARDIR_COMM_TIMEOUT="2")
    assert done.code == 13
    (line,) = (line for line in done.err[0].splitlines() if line.startswith("shardir: "))
    host = line.partition("(")[2].partition(")")[0]
    assert line == (
        f"shardir: process 0 ({host}): all-gather %y.between_processes of total over data "
        f"(collective 1 of run 1) timed out after 2 s, "
        f"waiting for process 1 ({host}); if others need longer, set "
        "SHARDIR_COMM_TIMEOUT to more seconds"
    )
    assert "before that, this process finished:\n" in done.err[0]
    assert (
        "  all-gather %y.between_processes of total over data (collective 1 of run 0)\n"
        in done.err[0]
    )


@pytest.mark.long
def test_the_end_of_a_program_times_out(tmp_path: Path) -> None:
    done = run_scenario("is_cut_off_at_the_end", tmp_path, SHARDIR_COMM_TIMEOUT="2")
    assert done.code == 13
    host = done.err[0].partition("process 0 (")[2].partition(")")[0]
    assert (
        f"shardir: process 0 ({host}): the end of the program timed out after 2 s, in which "
        f"no message arrived from process 1 ({host}); if it needs longer, set SHARDIR_COMM_TIMEOUT"
    ) in done.err[0]


@pytest.mark.long
def test_a_process_may_finish_later_without_the_others(tmp_path: Path) -> None:
    done = run_scenario("has_work_left", tmp_path, SHARDIR_COMM_TIMEOUT="6").check()
    assert done.out == ["", "done\n"]


@pytest.mark.long
def test_a_process_without_stderr_ends_the_job(tmp_path: Path) -> None:
    done = run_scenario("loses_stderr", tmp_path, SHARDIR_COMM_TIMEOUT="2")
    assert done.code == 13


def test_a_process_ends_after_its_launcher(tmp_path: Path) -> None:
    done = run_scenario("loses_its_launcher", tmp_path)
    assert done.code == 13
    assert ") has lost its launcher\n" in done.err[0]


def test_processes_that_disagree_end_the_job(tmp_path: Path) -> None:
    done = run_scenario("other_shapes", tmp_path)
    assert done.code == 1
    assert "DisagreementError: the processes disagree about total: its arguments d" in done.errors
    assert "ends the job, because of the DisagreementError above" in done.errors


def test_errors_are_raised_in_both_processes(tmp_path: Path) -> None:
    done = launch_job(
        2, "-m", "tests.backends.distributed.two_process_errors", folder=tmp_path
    ).check()
    assert done.out == [f"all {len(two_process_errors.CHECKS)}\n"] * 2


def test_a_later_disagreement_states_the_difference(tmp_path: Path) -> None:
    done = run_scenario("other_shapes_later", tmp_path)
    assert done.code == 13
    # On a busy machine either process may be the first to detect the deadlock.
    reporter = 1 if done.err[1] else 0
    here, there = (f"process {process}" for process in (reporter, 1 - reporter))
    text = re.sub(r" \([^ )]+\)( has | is at |: )", r"\1", done.err[reporter])
    collective = "all-gather %y.between_processes of total over data (collective 1 of run 1)"
    start = "the start of total"
    waits, where = (start, collective) if reporter else (collective, start)
    declared = ["f32[1] of f32[8@data]", "f32[2] of f32[16@data]"]
    assert (
        f"shardir: {here}: {waits} waits forever: {there} is at {where}; the processes "
        f"disagree about total: its arguments differ; {here} has '%x: {declared[reporter]}', "
        f"and {there} has '%x: {declared[1 - reporter]}'; every process must"
    ) in text


def test_processes_that_do_not_initialize_get_a_warning(tmp_path: Path) -> None:
    done = run_scenario("does_not_join", tmp_path).check()
    assert done.out == ["28.0\n"] * 2
    for process, text in enumerate(done.err[:2]):
        assert text.count("Warning") == 1
        assert (
            f"RuntimeWarning: {LAUNCHER_NAME} started 2 processes, and process {process} runs "
            "alone: each process computes everything; to share the work, call "
            "shardir.distributed.initialize() before any array, mesh or device\n"
        ) in text


@pytest.mark.long
def test_oversubscribed_processes_yield_their_core(tmp_path: Path) -> None:
    cores = len(os.sched_getaffinity(0))
    count = min(cores + 1, 8)
    done = run_scenario("oversubscribes_cores", tmp_path, count).check()
    assert done.out == ["yields\n" if count > cores else "busy\n"] * count
