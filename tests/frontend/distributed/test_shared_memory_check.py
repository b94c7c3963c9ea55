"""The warning about shared memory, over folders of several sizes; no process is started."""

import os
import warnings
from pathlib import Path

import pytest

from shardir.frontend.distributed import connect
from shardir.frontend.distributed.launcher_environment import LauncherInfo
from shardir.frontend.distributed.process_limits_check import warn_of_little_shared_memory

PAGE_BYTES = 4096


def folder_with(
    monkeypatch: pytest.MonkeyPatch, folder: Path, free_bytes: int, flags: int = 0
) -> str:
    """Return the path of a folder whose file system reports `free_bytes`."""
    pages = free_bytes // PAGE_BYTES
    facts = os.statvfs_result(
        (PAGE_BYTES, PAGE_BYTES, 2 * pages, pages, pages, 0, 0, 0, flags, 255)
    )
    monkeypatch.setattr(os, "statvfs", lambda _: facts)
    return str(folder)


@pytest.mark.parametrize(("processes", "mebibytes"), [(2, 20), (8, 64), (16, 104)])
def test_enough_shared_memory_gives_no_warning(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, processes: int, mebibytes: int
) -> None:
    folder = folder_with(monkeypatch, tmp_path, mebibytes << 20)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_of_little_shared_memory(processes, folder)


def test_the_default_of_a_container_is_too_little_for_sixteen_processes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    folder = folder_with(monkeypatch, tmp_path, 64 << 20)
    with pytest.warns(RuntimeWarning) as found:
        warn_of_little_shared_memory(16, folder)
    assert str(found[0].message) == (
        f"{folder} has 64.0 MiB free, and MPI may fail to start 16 processes on this machine; "
        f"mount {folder} writable with at least 104 MiB (docker run --shm-size=104m)"
    )


def test_a_read_only_folder_gives_a_warning(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    folder = folder_with(monkeypatch, tmp_path, 1 << 30, os.ST_RDONLY)
    with pytest.warns(RuntimeWarning) as found:
        warn_of_little_shared_memory(1, folder)
    assert str(found[0].message) == (
        f"{folder} is not writable, and MPI may fail to start 1 process on this machine; "
        f"mount {folder} writable with at least 14 MiB (docker run --shm-size=14m)"
    )


def test_a_system_without_the_folder_gives_no_warning(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_of_little_shared_memory(16, str(tmp_path / "shm"))


@pytest.mark.parametrize(
    ("variables", "rank", "counts"),
    [
        ({"MPI_LOCALRANKID": "0", "MPI_LOCALNRANKS": "3"}, 4, [3]),
        ({"MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "3"}, 0, []),
        ({}, 0, [1]),
        ({}, 1, []),
    ],
)
def test_one_process_of_each_machine_checks_its_shared_memory(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], rank: int, counts: list[int]
) -> None:
    for name in ("MPI_LOCALRANKID", "MPI_LOCALNRANKS"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    checked: list[int] = []
    monkeypatch.setattr(connect, "warn_of_little_shared_memory", checked.append)
    connect._warn_before_start(LauncherInfo("mpiexec", 6, rank))
    assert checked == counts
