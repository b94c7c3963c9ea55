"""Pipelines on several processes give the bits of one process."""

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import shardir as sd
from tests.backends.distributed.launched_job import LIMIT_SECONDS, MPIEXEC, ROOT, launch_job
from tests.frontend.pipelines.models import MODELS, place_arguments
from tests.optional_dependencies import require

EIGHT_DEVICES = {"SHARDIR_CPU_DEVICES": "8"}
JOB = ROOT / "tests" / "frontend" / "pipelines" / "pipeline_job.py"


@pytest.mark.parametrize(
    ("count", "model", "schedule"),
    [
        (2, "stacked", "1f1b"),
        pytest.param(2, "listed", "zb-h1", marks=pytest.mark.long),
        *(
            pytest.param(count, "transformer", schedule, marks=pytest.mark.long)
            for count in (2, 4)
            for schedule in ("1f1b", "zb-h1")
        ),
    ],
)
def test_processes_give_the_bits_of_one_process(
    count: int, model: str, schedule: str, tmp_path: Path
) -> None:
    command = (JOB, model, schedule, tmp_path / "made")
    launch_job(count, *command, folder=tmp_path, environment=EIGHT_DEVICES).check()
    mesh = sd.make_mesh((4, 2), ("pipe", "data"))
    loss, _ = MODELS[model]
    step = sd.value_and_grad(sd.pipeline(loss, microbatches=8, schedule="gpipe"))
    expected = sd.tree.leaves(sd.jit(step)(*place_arguments(model, mesh, 4)))
    for process in range(count):
        made = np.load(tmp_path / f"made.{process}.npz")
        for x, y in zip(made.values(), expected, strict=True):
            assert x.tobytes() == np.asarray(y).tobytes()


@pytest.mark.long
@pytest.mark.parametrize("count", [2, 4])
def test_a_transformer_trains_on_text_in_processes(count: int, tmp_path: Path) -> None:
    """The example compares the losses with those of the same steps without a pipeline."""
    command = (ROOT / "examples" / "pipeline_transformer.py", "--processes")
    launch_job(count, *command, folder=tmp_path, environment=EIGHT_DEVICES).check()


@pytest.mark.long
def test_a_killed_process_ends_the_job_and_names_its_action(tmp_path: Path) -> None:
    require("mpi4py")
    # The monitor writes to the error output of the job, even after the launcher has ended.
    done = subprocess.run(
        [MPIEXEC, "-n", "2", sys.executable, JOB, "mlp", "1f1b", tmp_path / "made", "1"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), **EIGHT_DEVICES},
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
    )
    assert done.returncode == 9
    assert re.search(
        r"shardir: process 1 \(\S+\) was killed while rank 3 ran 3B0 of the pipeline "
        r"\(stage 3, microbatch 0\)",
        done.stderr,
    )
