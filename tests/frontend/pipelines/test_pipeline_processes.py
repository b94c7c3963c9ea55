"""Pipelines on several processes give the bits of one process."""

from pathlib import Path

import numpy as np
import pytest

import shardir as sd
from tests.backends.mpi.mpiexec_job import ROOT, CompletedJob, mpiexec
from tests.frontend.pipelines.models import place, transformer_arguments, transformer_loss

JOB = ROOT / "tests" / "frontend" / "pipelines" / "pipeline_job.py"


def run_job(count: int, schedule: str, folder: Path, *killed: str, **more: object) -> CompletedJob:
    environment = {"SHARDIR_CPU_DEVICES": "8", **more}
    options = ["-disable-auto-cleanup"] if killed else []
    return mpiexec(
        count,
        JOB,
        schedule,
        folder / "made",
        *killed,
        folder=folder,
        environment={key: str(value) for key, value in environment.items()},
        options=options,
    )


@pytest.mark.parametrize(
    ("count", "schedule"),
    [(2, "1f1b"), *(pytest.param(4, name, marks=pytest.mark.long) for name in ("1f1b", "zb-h1"))],
)
def test_processes_give_the_bits_of_one_process(count: int, schedule: str, tmp_path: Path) -> None:
    run_job(count, schedule, tmp_path).check()
    mesh = sd.make_mesh((4, 2), ("pipe", "data"))
    step = sd.value_and_grad(sd.pipeline(transformer_loss, microbatches=8, schedule="gpipe"))
    expected = sd.tree.leaves(sd.jit(step)(*place(mesh, *transformer_arguments(4))))
    for process in range(count):
        made = np.load(tmp_path / f"made.{process}.npz")
        for x, y in zip(made.values(), expected, strict=True):
            assert x.tobytes() == np.asarray(y).tobytes()
