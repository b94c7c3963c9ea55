"""The checks of distributed arrays pass for any number of processes."""

from pathlib import Path

import numpy as np
from hypothesis import settings

import shardir as sd
from shardir.checkpoints import load
from tests.backends.distributed import process_errors
from tests.backends.distributed.distributed_arrays import CHECKS, W
from tests.backends.distributed.launched_job import launch_job

# The devices of two and of four processes are blocks of the mesh, those of three are not.
COUNTS = (2, 4, 3) if settings().max_examples > 200 else (2, 3)


def test_checks_of_distributed_arrays_pass(tmp_path: Path) -> None:
    written = tmp_path / "written"
    written.mkdir()
    # Each job also reads the checkpoints of the previous jobs.
    for count in COUNTS:
        done = launch_job(
            count, "-m", "tests.backends.distributed.distributed_arrays", written, folder=tmp_path
        ).check()
        assert done.out == [f"all {len(CHECKS)}\n"] * count
    for path in written.iterdir():
        np.testing.assert_array_equal(np.asarray(load(path, {"w": W})["w"]), W)
    assert sd.process_count() == 1


def test_errors_are_raised_in_all_processes(tmp_path: Path) -> None:
    made = tmp_path / "made"
    made.mkdir()
    done = launch_job(
        3, "-m", "tests.backends.distributed.process_errors", made, folder=tmp_path
    ).check()
    assert done.out == [f"all {len(process_errors.CHECKS)}\n"] * 3
