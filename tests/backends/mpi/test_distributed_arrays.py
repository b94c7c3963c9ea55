"""What arrays of several processes promise holds for any number of processes."""

from pathlib import Path

import numpy as np
from hypothesis import settings

import shardir as sd
from shardir.checkpoints import load
from tests.backends.mpi import process_errors
from tests.backends.mpi.distributed_arrays import CLAIMS, W
from tests.backends.mpi.mpiexec_job import mpiexec

# Two processes have blocks of the mesh, as four have; three have none.
COUNTS = (2, 4, 3) if settings().max_examples > 200 else (2, 3)


def test_claims_about_arrays(tmp_path: Path) -> None:
    written = tmp_path / "written"
    written.mkdir()
    # Each reads the checkpoints of those before it.
    for count in COUNTS:
        done = mpiexec(
            count, "-m", "tests.backends.mpi.distributed_arrays", written, folder=tmp_path
        ).check()
        assert done.out == [f"all {len(CLAIMS)}\n"] * count
    for path in written.iterdir():
        np.testing.assert_array_equal(np.asarray(load(path, {"w": W})["w"]), W)
    assert sd.process_count() == 1


def test_mistakes_are_refused_in_all_processes(tmp_path: Path) -> None:
    made = tmp_path / "made"
    made.mkdir()
    done = mpiexec(3, "-m", "tests.backends.mpi.process_errors", made, folder=tmp_path).check()
    assert done.out == [f"all {len(process_errors.CLAIMS)}\n"] * 3
