"""Warnings about few file descriptors and a missing /proc; no process is started."""

import resource
import warnings
from pathlib import Path

import pytest

from shardir.frontend.distributed.process_limits_check import (
    warn_of_few_open_files,
    warn_of_missing_process_folder,
)


def limit_open_files(monkeypatch: pytest.MonkeyPatch, limit: int) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (limit, resource.RLIM_INFINITY))


@pytest.mark.parametrize(("processes", "limit"), [(2, 40), (64, 1024), (2, resource.RLIM_INFINITY)])
def test_enough_file_descriptors_give_no_warning(
    monkeypatch: pytest.MonkeyPatch, processes: int, limit: int
) -> None:
    limit_open_files(monkeypatch, limit)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_of_few_open_files(processes)


def test_few_file_descriptors_give_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    limit_open_files(monkeypatch, 20)
    with pytest.warns(RuntimeWarning) as found:
        warn_of_few_open_files(2)
    assert str(found[0].message) == (
        "a process may open 20 files, and MPI may fail to start 2 processes on this machine; it "
        "needs about 40: raise the limit (ulimit -n 1024)"
    )


def test_a_missing_process_folder_gives_a_warning(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    folder = str(tmp_path / "none")
    monkeypatch.setattr("sys.platform", "linux")
    with pytest.warns(RuntimeWarning) as found:
        warn_of_missing_process_folder(folder)
    assert str(found[0].message) == (
        f"{folder} does not exist, and MPI may fail to start; mount /proc (mount -t proc proc "
        "/proc)"
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_of_missing_process_folder(str(tmp_path))
        monkeypatch.setattr("sys.platform", "darwin")
        warn_of_missing_process_folder(folder)
