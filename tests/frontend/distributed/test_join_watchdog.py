"""The watchdog that ends a process which waits for processes that do not join."""

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from shardir.frontend.distributed import join_watchdog
from shardir.frontend.distributed.join_timeout import limit_join_time
from shardir.frontend.distributed.launcher_environment import LauncherInfo

PROXY, SHELL = 100, 200


def processes(root: Path, ranks: Sequence[int], dead: Sequence[int] = ()) -> Path:
    """Write a /proc of a launcher that has started some ranks, the first of them from a shell."""
    children = []
    for rank in ranks:
        pid = SHELL if rank == 0 else 300 + rank
        children.append(str(pid))
        folder = root / str(pid)
        folder.mkdir(parents=True)
        state = "Z" if rank in dead else "S"
        (folder / "stat").write_text(f"{pid} (py (thon)) {state} {PROXY} 1 1", "utf-8")
        (folder / "environ").write_bytes(b"HOME=/\0PMI_RANK=%d\0" % rank)
        (folder / "comm").write_text("sh\n", "utf-8")
    inner = root / "201"
    inner.mkdir()
    (inner / "stat").write_text(f"201 (python) R {SHELL} 1 1", "utf-8")
    tasks = root / str(PROXY) / "task" / str(PROXY)
    tasks.mkdir(parents=True)
    (tasks / "children").write_text(" ".join(children) + " ", "utf-8")
    (root / str(PROXY) / "comm").write_text("hydra_pmi_proxy\n", "utf-8")
    (root / str(PROXY) / "stat").write_text(f"{PROXY} (hydra_pmi_proxy) S 1 1 1", "utf-8")
    return root


def test_missing_ranks_on_one_machine(tmp_path: Path) -> None:
    root = processes(tmp_path, [0, 2, 3], dead=[3])
    assert join_watchdog.find_missing_ranks(201, 4, 4, root) == [1, 3]
    assert join_watchdog.find_missing_ranks(201, 4, 8, root) == [
        -1,
        -1,
    ]  # four of eight ranks are on another machine
    assert join_watchdog.find_missing_ranks(201, 2, 2, root) == ()
    assert join_watchdog.find_missing_ranks(999, 4, 4, root) == ()  # not started by this launcher


def test_no_rank_is_missing_without_information(tmp_path: Path) -> None:
    assert join_watchdog.find_missing_ranks(os.getpid(), 2, 2, tmp_path) == ()
    assert join_watchdog.find_missing_ranks(os.getpid(), 2, 2, Path("/proc")) == ()


def test_the_join_fails_if_a_rank_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(join_watchdog, "MISSING_GRACE_SECONDS", 0.0)
    assert join_watchdog.wait_for_join(100, lambda: [1], lambda _: False) == (
        "distributed.initialize() would wait forever: process 1 ended before calling it; every "
        "process of the job must call it"
    )
    assert "processes 1, 2 ended" in join_watchdog.wait_for_join(
        100, lambda: [1, 2], lambda _: False
    )
    assert "another process of this host" in join_watchdog.wait_for_join(
        100, lambda: [-1], lambda _: False
    )
    assert "2 other processes of this host" in join_watchdog.wait_for_join(
        100, lambda: [-1] * 2, lambda _: False
    )


def test_the_wait_ends_at_the_timeout_or_when_all_ranks_joined() -> None:
    assert join_watchdog.wait_for_join(0.01, tuple, lambda _: False) == (
        "distributed.initialize() timed out after 0.01 s, waiting for the other processes; every "
        "process of the job must call it; if they need longer until then, set SHARDIR_COMM_TIMEOUT "
        "to more seconds"
    )
    assert join_watchdog.wait_for_join(100, lambda: [1], lambda _: True) == ""
    looks = iter([[1], [], [1], []])  # a short-lived process of the launcher
    assert (
        join_watchdog.wait_for_join(100, lambda: next(looks), lambda _: next(looks, None) is None)
        == ""
    )


def test_a_process_that_waits_too_long_is_terminated() -> None:
    sleeps = [sys.executable, "-c", "import time; time.sleep(60)"]
    with subprocess.Popen(sleeps) as waiting:
        words = [str(waiting.pid), "3", "4", "0", "0.2"]
        command = [sys.executable, "-I", "-S", join_watchdog.__file__, *words]
        pipe = subprocess.PIPE
        with subprocess.Popen(command, stdin=pipe, stderr=pipe, text=True) as watcher:
            assert waiting.wait(60) == -signal.SIGALRM
            _, told = watcher.communicate(timeout=60)
    assert told.startswith("shardir: process 3 (")
    assert "): distributed.initialize() timed out after 0.2 s" in told


def test_a_process_that_joins_is_not_terminated(capfd: pytest.CaptureFixture[str]) -> None:
    with limit_join_time(LauncherInfo("mpiexec", 2, 0), 100):
        pass
    assert capfd.readouterr().err == ""
