"""`shardir launch`, torchrun, and coordinator addresses: processes that start without MPI."""

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from shardir.frontend.cli.options import CommandError
from shardir.frontend.cli.process_launcher import find_free_port
from tests.backends.distributed.launched_job import LIMIT_SECONDS, ROOT, launch_job

PROGRAM = """
import sys
import numpy as np
import shardir as sd
from shardir.sharding import NamedSharding, PartitionSpec as P

sd.distributed.initialize({arguments})
x = sd.device_put(np.arange(8.0), NamedSharding(sd.make_mesh((8,), ("data",)), P("data")))
row = sd.process_index(), sd.process_count(), len(sd.local_devices()), float(x.sum()), sys.argv[1:]
sys.stdout.write(" ".join(map(str, row)) + "\\n")  # One write: the processes share the pipe.
"""


def run(*command: str | Path, **environment: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, *map(str, command)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_launched_processes_share_the_devices(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM.format(arguments=""), "utf-8")
    job = run("-m", "shardir", "launch", "-n", "2", program, "--steps", "3")
    out, err = job.communicate(timeout=LIMIT_SECONDS)
    assert job.returncode == 0, err
    assert sorted(out.splitlines()) == [f"{rank} 2 4 28.0 ['--steps', '3']" for rank in range(2)]


def test_processes_connect_through_a_coordinator_address(tmp_path: Path) -> None:
    port, jobs = find_free_port(), []
    for rank in range(2):
        program = tmp_path / f"program{rank}.py"
        arguments = f'"127.0.0.1:{port}", 2, {rank}'
        program.write_text(PROGRAM.format(arguments=arguments), "utf-8")
        jobs.append(run(program))
    for rank, job in enumerate(jobs):
        assert job.communicate(timeout=LIMIT_SECONDS) == (f"{rank} 2 4 28.0 []\n", "")


@pytest.mark.long
def test_torchrun_starts_processes(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM.format(arguments=""), "utf-8")
    done = launch_job(2, program, folder=tmp_path, launcher="torchrun").check()
    assert done.out == [f"{rank} 2 4 28.0 []\n" for rank in range(2)]


@pytest.mark.parametrize(
    ("launcher", "code", "report"),
    [
        ("launch", 137, "shardir launch: process 1 was ended by SIGKILL\n"),
        pytest.param("torchrun", 1, "(SIGKILL)", marks=pytest.mark.long),
    ],
)
def test_a_killed_process_is_named_with_the_collective(
    launcher: str, code: int, report: str, tmp_path: Path
) -> None:
    scenarios = Path(__file__).parent / "failure_scenarios.py"
    done = launch_job(2, scenarios, "is_killed", folder=tmp_path, launcher=launcher)
    host = socket.gethostname()
    assert done.code == code
    assert done.err[0].startswith(
        f"shardir: process 0 ({host}): all-gather %y.between_processes of total over data "
        f"(collective 1 of run 1) cannot finish: process 1 ({host}) was killed, or the connection "
        "was lost\n"
    )
    assert report in done.err[-1]


def test_the_exit_code_is_that_of_the_process_that_exits(tmp_path: Path) -> None:
    """The other processes, which wait for it, end with exit code 13 or 16."""
    scenarios = Path(__file__).parent / "failure_scenarios.py"
    done = launch_job(3, scenarios, "exits_with_a_code", folder=tmp_path, launcher="launch")
    assert (done.code, done.err[-1]) == (3, "shardir launch: process 1 ended with exit code 3\n")
    assert f"waits forever: process 1 ({socket.gethostname()}) has ended its program\n" in (
        done.err[0] + done.err[2]
    )
    assert done.err[1] == ""


@pytest.mark.parametrize(
    ("scripts", "code", "report"),
    [
        # A process that could not continue ends first, last, or alone.
        (["exit 13", "sleep 0.3; exit 3", "exit 16"], 3, "process 1 ended with exit code 3"),
        (["sleep 0.3; exit 13", "exit 3"], 3, "process 1 ended with exit code 3"),
        (["exit 16", "exit 0", "exit 13"], 13, "process 2 ended with exit code 13"),
        (["exit 0", "exit 16"], 16, "process 1 ended with exit code 16"),
        (["exit 13", "sleep 0.3; kill -KILL $$"], 137, "process 1 was ended by SIGKILL"),
        (["exit 13", "sleep 0.3; exit 0"], 13, "process 0 ended with exit code 13"),
        (["exit 0", "exit 0"], 0, ""),
    ],
)
def test_the_first_cause_is_reported(
    scripts: list[str], code: int, report: str, capfd: pytest.CaptureFixture[str]
) -> None:
    from shardir.frontend.cli import process_launcher

    cases = " ".join(f"{rank}) {script};;" for rank, script in enumerate(scripts))
    command = ["sh", "-c", f"case $SHARDIR_PROCESS_ID in {cases} esac"]
    assert process_launcher.launch(command, len(scripts)) == code
    assert capfd.readouterr().err == (f"shardir launch: {report}\n" if report else "")


def test_a_stopped_process_does_not_delay_the_end(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    from shardir.frontend.cli import process_launcher

    for name in ("CAUSE_SECONDS", "REPORT_SECONDS", "TERMINATION_SECONDS"):
        monkeypatch.setattr(process_launcher, name, 0.2)
    script = 'if [ "$SHARDIR_PROCESS_ID" = 0 ]; then exit 13; fi; kill -STOP $$'
    assert process_launcher.launch(["sh", "-c", script], 2) == 13
    assert capfd.readouterr().err == "shardir launch: process 0 ended with exit code 13\n"


def test_a_signal_ends_the_launcher_and_all_descendants(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    os.mkfifo(pids)
    script = f"sleep 1000 & echo $! > {pids}; wait"
    job = run("-m", "shardir", "launch", "-n", "1", "sh", "-c", script)
    descendant = int(pids.read_text("utf-8"))
    job.terminate()
    assert job.communicate(timeout=LIMIT_SECONDS) == ("", "")
    assert job.returncode == 143
    with pytest.raises(ProcessLookupError):
        os.kill(descendant, 0)


def test_a_signal_while_a_process_starts_ends_that_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from shardir.frontend.cli import process_launcher

    started = []

    class Slow(subprocess.Popen[bytes]):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            started.append(self.pid)
            signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr(subprocess, "Popen", Slow)
    assert process_launcher.launch(["sleep", "1000"], 2) == 143
    (process,) = started
    with pytest.raises(ProcessLookupError):
        os.kill(process, 0)


def test_an_ignored_signal_does_not_end_the_job() -> None:
    from shardir.frontend.cli import process_launcher

    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        assert process_launcher.launch(["sh", "-c", f"kill -HUP {os.getpid()}"], 1) == 0
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_program_that_cannot_be_started_is_an_error(tmp_path: Path) -> None:
    from shardir.frontend.cli.process_launcher import launch

    program = tmp_path / "program"
    program.write_bytes(b"")
    with pytest.raises(CommandError) as caught:
        launch([str(program)], 2)
    assert str(caught.value) == f"{program} cannot be started: Permission denied"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["-n", "2", "missing.py"],
            f"cannot run 'missing.py': the folder {os.getcwd()!r} has no such file",
        ),
        (["-n", "2", "/no/a.py"], "cannot run '/no/a.py': there is no folder '/no'"),
        (
            ["-n", "2", "no-such-command"],
            "there is no command 'no-such-command'; name a file that ends in .py, or a module with "
            "-m",
        ),
        (
            ["-n", "2", "--hosts", "2", "a.py"],
            "several hosts need --coordinator, the host and a port of host 0",
        ),
        (
            ["-n", "2", "--coordinator", "host0", "sh"],
            "--coordinator is 'host0'; it must be a host and a port, such as '10.0.0.1:1234'",
        ),
        (
            ["-n", "2", "--host-index", "1", "a.py"],
            "--host-index is 1; it must be from 0 to 0",
        ),
    ],
)
def test_invalid_commands_are_errors(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    from shardir.cli import main

    monkeypatch.setattr(sys, "argv", ["shardir", "launch", *words])
    with pytest.raises(SystemExit) as caught:
        main()
    assert caught.value.code == 1
    assert capsys.readouterr().err == f"error: {message}\n"
