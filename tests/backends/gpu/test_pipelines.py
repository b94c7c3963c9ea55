"""Pipelines in emitted programs give the values of the unpipelined step."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import shardir as sd
from shardir.backends.emission import EmissionError
from shardir.backends.gpu.vendored.comm import CommError
from shardir.backends.gpu.vendored.device_mesh import Mesh
from shardir.backends.gpu.vendored.pipeline_runtime import (
    Combined,
    Pass,
    Pipeline,
    Sent,
    run_pipeline,
)
from shardir.backends.gpu.vendored.pipeline_schedule import read_row, read_rows
from shardir.backends.gpu.vendored.threads import LocalComm, run_threads
from shardir.backends.gpu.vendored.worker import RunOptions, Worker
from tests.backends.gpu.program_execution import RUNTIME
from tests.frontend.pipelines.models import MODELS, place_arguments
from tests.frontend.pipelines.random_pipelines import random_case


def emit_step(
    model: str, schedule: str, folder: Path, stages: int = 2, gradient: bool = True
) -> list[np.ndarray]:
    """Write the program of a step, and return the results of the unpipelined step."""
    loss, _ = MODELS[model]
    with sd.cpu_devices(2 * stages):
        mesh = sd.make_mesh((stages, 2), ("pipe", "data"))
        arguments = place_arguments(model, mesh, stages)
        piped = sd.pipeline(loss, microbatches=4, schedule=schedule)
        step, plain = map(sd.value_and_grad, (piped, loss)) if gradient else (piped, loss)
        sd.jit(step).lower(*arguments).emit("gpu", folder, selftest=True, arguments=arguments)
        expected = sd.jit(plain)(*arguments)
        return [np.asarray(leaf) for leaf in sd.tree.leaves(expected)]


def run_program(folder: Path, *launcher: str) -> subprocess.CompletedProcess[str]:
    """Run the program with a launcher, and write its results into its folder."""
    (program,) = folder.glob("*.py")
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [sys.executable, *launcher, str(program), "--device", "cpu", "--results", str(folder)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
    )


def assert_results(folder: Path, expected: list[np.ndarray]) -> None:
    """Compare the results that a program wrote with those expected."""
    paths = sorted((folder / "selftest" / "results").glob("*.npy"))
    made = [np.load(folder / path.name) for path in paths]
    assert len(made) == len(expected)
    for x, y in zip(made, expected, strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-6, atol=1e-6 * np.abs(y).max())


@pytest.mark.parametrize(
    ("model", "schedule"),
    [
        ("stacked", "1f1b"),
        pytest.param("stacked", "zb-h1", marks=pytest.mark.long),
        pytest.param("transformer", "1f1b", marks=pytest.mark.long),
        pytest.param("listed", "1f1b", marks=pytest.mark.long),
    ],
)
def test_threads_compute_the_unpipelined_step(model: str, schedule: str, tmp_path: Path) -> None:
    check_threads(emit_step(model, schedule, tmp_path), tmp_path)


# Schedules in which a row has two stages, the second ones in reverse order, and any others.
@pytest.mark.sample(40)
@pytest.mark.parametrize(
    ("seed", "schedule", "ranks"),
    [
        *((seed, name, ranks) for seed in range(5) for name in ("zbv", "dualpipev")
          for ranks in (2, 4)),
        *((seed, None, None) for seed in range(20)),
    ],
)  # fmt: skip
def test_threads_compute_random_pipelines(
    seed: int, schedule: str | None, ranks: int | None, tmp_path: Path
) -> None:
    check_threads(emit_case(seed, schedule, ranks, tmp_path), tmp_path)


def emit_case(seed: int, schedule: str | None, ranks: int | None, folder: Path) -> list[np.ndarray]:
    """Write the program of a random pipeline, and return the results of the unpipelined step."""
    with sd.cpu_devices(16):
        case = random_case(seed, schedule, ranks)
        step = case.step(case.pipelined())
        step.lower(*case.arguments).emit("gpu", folder, selftest=True, arguments=case.arguments)
        return [np.asarray(x) for x in sd.tree.leaves(case.step(case.loss)(*case.arguments))]


def test_threads_compute_a_loss_without_gradients(tmp_path: Path) -> None:
    check_threads(emit_step("mlp", "gpipe", tmp_path, gradient=False), tmp_path)


def check_threads(expected: list[np.ndarray], tmp_path: Path) -> None:
    """Run the program in a folder with threads, and compare its results with those expected."""
    (path,) = tmp_path.glob("*.py")
    text = path.read_text("utf-8").replace("from shardir_runtime", f"from {RUNTIME}")
    namespace: dict[str, Any] = {"__name__": "program", "__file__": str(path)}
    exec(compile(text, str(path), "exec"), namespace)
    main, program = namespace["main"], namespace["PROGRAM"]
    options = RunOptions(results=tmp_path)
    run_threads(
        program.devices,
        ["cpu"] * program.devices.size,
        lambda comm: Worker(main, program, comm, options).work(),
    )
    assert_results(tmp_path, expected)


@pytest.mark.long
def test_gloo_processes_compute_the_unpipelined_step(tmp_path: Path) -> None:
    expected = emit_step("stacked", "1f1b", tmp_path)
    check_processes(expected, tmp_path, 4)


@pytest.mark.long
@pytest.mark.parametrize(("schedule", "ranks"), [("zbv", 2), ("dualpipev", 2), ("zbv", 4)])
def test_gloo_processes_compute_random_pipelines(schedule: str, ranks: int, tmp_path: Path) -> None:
    expected = emit_case(0, schedule, ranks, tmp_path)
    with sd.cpu_devices(16):
        count = random_case(0, schedule, ranks).devices
    check_processes(expected, tmp_path, count)


def check_processes(expected: list[np.ndarray], folder: Path, count: int) -> None:
    """Run the program in a folder with processes, and compare its results with those expected."""
    done = run_program(folder, "-m", "torch.distributed.run", f"--nproc-per-node={count}")
    assert done.returncode == 0, done.stderr
    assert_results(folder, expected)


@pytest.mark.long
def test_a_killed_process_names_its_action(tmp_path: Path) -> None:
    emit_step("mlp", "1f1b", tmp_path)
    (program,) = tmp_path.glob("*.py")
    text = program.read_text("utf-8")
    head = "def stage_1B(comm, "
    assert head in text
    start = text.index("\n", text.index("):\n", text.index(head))) + 1
    killed = "    if comm.rank == 3:\n        import os\n        os.kill(os.getpid(), 9)\n"
    program.write_text(text[:start] + killed + text[start:], "utf-8")
    done = run_program(tmp_path, "-m", "torch.distributed.run", "--nproc-per-node=4")
    assert done.returncode != 0
    assert (
        "shardir: process 3 of 4 was killed while rank 1 ran 1B0 of the pipeline "
        "(stage 1, microbatch 0)"
    ) in done.stderr


def test_a_schedule_that_needs_buffered_sends_is_refused(tmp_path: Path) -> None:
    rows = (
        "0F0,0F1,0SEND_F1,0SEND_F0,0RECV_B0,0RECV_B1,0B0,0B1",
        "1RECV_F0,1RECV_F1,1F0,1F1,1B0,1B1,1SEND_B0,1SEND_B1",
    )
    path = tmp_path / "rows.csv"
    path.write_text("\n".join(rows) + "\n")
    loss, _ = MODELS["mlp"]
    with sd.cpu_devices(4):
        arguments = place_arguments("mlp", sd.make_mesh((2, 2), ("pipe", "data")), 2)
        step = sd.value_and_grad(sd.pipeline(loss, microbatches=2, schedule=str(path)))
        with pytest.raises(
            EmissionError,
            match="on GPUs, a send may wait for its receive, and the schedule never ends, because "
            "of a cyclic wait: rank 0 stops at 0SEND_F1, which needs 1RECV_F1 of rank 1; rank 1 "
            "stops at 1RECV_F0, which needs 0SEND_F0 of rank 0; change the order of the transfers",
        ):
            sd.jit(step).lower(*arguments).emit("gpu", tmp_path / "out")


def test_an_edited_schedule_is_checked() -> None:
    with pytest.raises(CommError, match="'0X1' in the row of rank 2 is not an action"):
        read_row("0F0,0X1", 2)
    pipeline = Pipeline("pipe", 1, (), ("0F0", "1F0"), {}, (), (), (), (), 1.0)
    with pytest.raises(CommError, match="the schedule has 2 rows, and the mesh has 1 rows"):
        run_pipeline(LocalComm(Mesh({"pipe": 1}), 0, "cpu", None), pipeline)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (
            ("0F0,0SEND_F0", "1F0"),
            "rank 0 has 0SEND_F0 of the pipeline (stage 0, microbatch 0), and no other row has "
            "1RECV_F0 of the pipeline (stage 1, microbatch 0)",
        ),
        (
            ("0F0", "1RECV_F0,1F0,1B0,1SEND_B0"),
            "rank 1 has 1RECV_F0 of the pipeline (stage 1, microbatch 0), and no other row has "
            "0SEND_F0 of the pipeline (stage 0, microbatch 0)",
        ),
        (
            ("0F0,0SEND_F0,0SEND_F0", "1RECV_F0,1F0"),
            "rank 0 has 0SEND_F0 of the pipeline (stage 0, microbatch 0), which rank 0 has too; "
            "remove one",
        ),
        (
            ("0F0,0F1,0SEND_F1,0SEND_F0", "1RECV_F0,1F0,1RECV_F1,1F1"),
            "the rows of the schedule wait for each other: rank 0 at 0SEND_F1, rank 1 at "
            "1RECV_F0; change the order of the transfers",
        ),
    ],
)
def test_the_transfers_of_an_edited_schedule_are_checked(
    rows: tuple[str, ...], message: str
) -> None:
    with pytest.raises(CommError) as caught:
        read_rows(rows, 2)
    assert str(caught.value) == message


def run_one_row(row: str, stages: int = 1, microbatches: int = 2) -> tuple[torch.Tensor, ...]:
    """Return the loss of a schedule of one row. Each stage adds 1."""
    passes = {
        f"{stage}F": Pass(
            lambda comm, x: (x + 1,),
            ("x" if stage else "argument 0",),
            ("loss" if stage + 1 == stages else "y",),
        )
        for stage in range(stages)
    }
    forward = ((Sent("y", "x", "f32", ()),),) * (stages - 1)
    combined = (Combined(stages - 1, "loss", "f32", ()),)
    pipeline = Pipeline("pipe", microbatches, (0,), (row,), passes, forward, (), combined, (), 1.0)
    comm = LocalComm(Mesh({"pipe": 1}), 0, "cpu", None)
    return run_pipeline(comm, pipeline, torch.arange(2.0))


def test_an_edited_schedule_has_each_microbatch_once() -> None:
    (loss,) = run_one_row("0F0,1F0,0F1,1F1", stages=2)
    assert loss == 5
    with pytest.raises(
        CommError,
        match="the schedule gives 'loss' of microbatch 0 more than once; while rank 0 ran 0F0 of",
    ):
        run_one_row("0F0,0F0")
    with pytest.raises(CommError, match="gives 1 terms of 'loss', and there are 2 microbatches"):
        run_one_row("0F1")
    with pytest.raises(
        CommError,
        match=r"rank 0 has 0F2 of the pipeline \(stage 0, microbatch 2\), and the microbatches are "
        "0 to 1; remove the action, or emit a program with more",
    ):
        run_one_row("0F0,0F1,0F2")
