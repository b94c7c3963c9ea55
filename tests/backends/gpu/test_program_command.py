"""The command line of emitted programs: self-test, timing, files, launchers, and errors."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import shardir as sd
from shardir.backends.gpu.runtime_files import runtime_files
from shardir.backends.gpu.vendored.comm import CommError
from shardir.backends.gpu.vendored.command import choose_gpu, connect_processes, run
from shardir.backends.gpu.vendored.launchers import LaunchedProcess
from shardir.backends.gpu.vendored.program_description import Program

TEXT = """
import torch
from shardir_runtime import Program, Tensor, run

def main(comm, x, w, table):
    y = comm.all_reduce(x * table[:, None] + w, "add", axes=("data",))
    return y, comm.all_gather(x, dim=0, axes=("data",)).to(torch.bfloat16), x + 1

PROGRAM = Program(
    title="step",
    mesh={"data": 2},
    arguments=(
        Tensor("x", "f32", (3, 2), (("data",), ())),
        Tensor("w", "f32", (2, 2), label="params.w", donated=True),
        Tensor("table", "f32", (2,), value="values/table.npy"),
    ),
    results=(
        Tensor("y", "f32", (2, 2)),
        Tensor("all", "bf16", (4, 2)),
        Tensor("more", "f32", (3, 2), (("data",), ())),
    ),
    groups=(("data",),),
    file=__file__,
)

if __name__ == "__main__":
    run(main, PROGRAM)
"""
X = np.arange(6, dtype=np.float32).reshape(3, 2)
W = np.ones((2, 2), np.float32)
TABLE = np.array([1, 10], np.float32)
PADDED_X = np.concatenate([X, np.zeros((1, 2), np.float32)])
Y = (PADDED_X.reshape(2, 2, 2) * TABLE[:, None] + W).sum(0)
LAUNCHER_VARIABLES = {"RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Write a program, its runtime files, its data and its samples to a folder."""
    files: dict[str, Any] = {"step.py": TEXT, **runtime_files()}
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text, "utf-8")
    arrays = {
        "values/table": TABLE,
        "selftest/arguments/x": X,
        "selftest/arguments/w": W,
        "selftest/results/y": Y,
        "selftest/results/all": PADDED_X.astype(ml_dtypes.bfloat16),
        "selftest/results/more": X + 1,
    }
    for name, array in arrays.items():
        (tmp_path / f"{name}.npy").parent.mkdir(exist_ok=True, parents=True)
        np.save(tmp_path / f"{name}.npy", array)
    return tmp_path


@pytest.fixture(autouse=True)
def no_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove the variables of launchers from the environment."""
    for name in LAUNCHER_VARIABLES:
        monkeypatch.delenv(name, raising=False)


def run_program(folder: Path, *words: str) -> int:
    """Run the program in this process with command-line arguments; return its exit status."""
    names: dict[str, Any] = {"__name__": "step", "__file__": str(folder / "step.py")}
    runnable_text = TEXT.replace("shardir_runtime", "shardir.backends.gpu.vendored")
    exec(compile(runnable_text, "step.py", "exec"), names)
    try:
        run(names["main"], names["PROGRAM"], ["--device", "cpu", *words])
    except SystemExit as stop:
        return int(stop.code or 0)
    return 0


def test_the_self_test_compares_every_result(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_program(folder, "--selftest") == 0
    assert capsys.readouterr().out == (
        "ok    y: f32[2, 2]: differs by 0, allowed are 0.0002\n"
        "ok    all: bf16[4, 2]: differs by 0, allowed are 0.04\n"
        "ok    more: f32[3@data, 2]: differs by 0, allowed are 0.0002\n"
    )


def test_a_wrong_result_fails_the_self_test(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    np.save(folder / "selftest/results/more.npy", X + 2)
    assert run_program(folder, "--selftest") == 1
    error = capsys.readouterr().err
    assert error.startswith("error: the self-test failed:\nok    y: f32[2, 2]: differs by 0")
    assert "WRONG more: f32[3@data, 2]: differs by 0.2" in error


def test_bench_prints_times(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_program(folder, "--bench", "3") == 0
    assert capsys.readouterr().out.startswith("3 runs on 2 devices: median ")


def test_arguments_and_results_are_files_of_unsharded_arrays(folder: Path) -> None:
    np.save(folder / "x.npy", X + 1)
    np.save(folder / "w.npy", W)
    assert run_program(folder, "--arguments", str(folder), "--results", str(folder / "out")) == 0

    np.testing.assert_array_equal(np.load(folder / "out/more.npy"), X + 2)
    both = np.load(folder / "out/all.npy").view(ml_dtypes.bfloat16).astype(np.float32)
    np.testing.assert_array_equal(both, np.concatenate([X + 1, np.zeros((1, 2))]))


def test_arguments_and_results_are_files_of_shards(folder: Path) -> None:
    for rank in range(2):
        np.save(folder / f"x.{rank}.npy", PADDED_X[2 * rank : 2 * rank + 2])
        np.save(folder / f"w.{rank}.npy", W)
    words = ("--arguments", str(folder), "--results", str(folder / "out"), "--shards")
    assert run_program(folder, *words) == 0

    for rank in range(2):
        part = np.load(folder / f"out/more.{rank}.npy")
        np.testing.assert_array_equal(part, PADDED_X[2 * rank : 2 * rank + 2] + 1)


def test_without_options_the_program_prints_its_description(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_program(folder) == 0
    assert capsys.readouterr().out == (
        "step on the mesh [data=2]\n\narguments:\n  x: f32[3@data, 2]\n  params.w: f32[2, 2]\n\n"
        "results:\n  y: f32[2, 2]\n  all: bf16[4, 2]\n  more: f32[3@data, 2]\n\n"
        "nothing to do: pass --selftest, --bench, or --results DIR\n"
    )


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (
            ("--selftest", "--local", "3"),
            "error: --local 3 differs from the 2 devices of the program's mesh {'data': 2}\n",
        ),
        (
            ("--selftest", "--graph"),
            "error: --graph is not possible: it runs on cpu, and graphs are for CUDA\n",
        ),
        (
            ("--selftest", "--arguments", "nowhere"),
            "error: x: f32[3@data, 2] is read from nowhere/x.npy, which does not exist\n",
        ),
        (
            ("--selftest", "--device", "cuda"),
            "error: torch finds no GPU; run on the CPU with --device cpu\n",
        ),
    ],
)
def test_errors_of_options_state_the_fix(
    folder: Path,
    words: tuple[str, ...],
    error: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert run_program(folder, *words) == 1
    assert capsys.readouterr().err == error


@pytest.mark.parametrize(
    ("array", "given"), [(X[:2], "float32[2, 2]"), (X.astype(np.float64), "float64[3, 2]")]
)
def test_files_of_a_wrong_shape_or_type_are_rejected(
    folder: Path, array: Any, given: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = folder / "selftest/arguments/x.npy"
    np.save(path, array)
    assert run_program(folder, "--selftest") == 1
    assert capsys.readouterr().err == (
        f"error: x: f32[3@data, 2] must be float32[3, 2], but the array in {path} is {given}\n"
    )


def test_a_program_without_samples_requires_arguments(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for path in (folder / "selftest/arguments").iterdir():
        path.unlink()
    (folder / "selftest/arguments").rmdir()
    assert run_program(folder, "--bench") == 1
    assert capsys.readouterr().err == (
        f"error: {folder}/selftest/arguments does not exist, and no --arguments were given; emit "
        "the program with selftest, or name a folder of .npy files\n"
    )


def torchrun_environment(rank: int, size: int, port: int = 0) -> dict[str, str]:
    """Return the environment that torchrun gives a process."""
    variables = {"RANK": rank, "WORLD_SIZE": size, "LOCAL_RANK": rank, "MASTER_PORT": port}
    rest = {**os.environ, "MASTER_ADDR": "127.0.0.1", "OMP_NUM_THREADS": "1"}
    return {**rest, **{name: str(value) for name, value in variables.items()}}


def test_a_wrong_number_of_processes_is_rejected(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def end(code: int) -> None:
        raise SystemExit(code)

    monkeypatch.setattr("os._exit", end)
    for name, value in torchrun_environment(1, 3).items():
        if name in LAUNCHER_VARIABLES:
            monkeypatch.setenv(name, value)
    assert run_program(folder, "--selftest") == 1
    assert capsys.readouterr().err == (
        "process 1 of 3: error: the program is for the 2 devices of the mesh {'data': 2}, and "
        "torchrun started 3 processes; start 2\n"
    )


def test_each_process_of_a_host_uses_another_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    launches = [LaunchedProcess(rank, 3, rank, "here", 1, "torchrun") for rank in range(3)]
    monkeypatch.delenv("NCCL_MULTI_RANK_GPU_ENABLE", raising=False)
    assert [choose_gpu(launch, 3, "nccl") for launch in launches] == [0, 1, 2]
    assert [choose_gpu(launch, 2, "gloo") for launch in launches] == [0, 1, 0]
    with pytest.raises(CommError) as caught:
        choose_gpu(launches[2], 2, "nccl")
    assert str(caught.value) == (
        "process 2 of this host has no GPU of its own: there are 2; start one process per GPU, or "
        "pass --local or --backend gloo (NCCL 2.30 and later share a GPU between processes if "
        "NCCL_MULTI_RANK_GPU_ENABLE=1 is set)"
    )
    monkeypatch.setenv("NCCL_MULTI_RANK_GPU_ENABLE", "1")
    assert choose_gpu(launches[2], 2, "nccl") == 0


def test_a_process_with_one_visible_gpu_uses_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """With `srun --gpus-per-task=1` each process has one visible GPU, whose index is 0."""
    monkeypatch.delenv("NCCL_MULTI_RANK_GPU_ENABLE", raising=False)
    launch = LaunchedProcess(2, 3, 2, "here", 1, "srun")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2")
    assert choose_gpu(launch, 1, "nccl") == 0
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    with pytest.raises(CommError, match="has no GPU of its own: there are 1"):
        choose_gpu(launch, 1, "nccl")


def test_a_gpu_shared_under_nccl_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object, **options: object) -> None:
        raise RuntimeError("NCCL error: Duplicate GPU detected : rank 1 and rank 0 both on 1a000")

    monkeypatch.setattr("torch.distributed.init_process_group", refuse)
    launch = LaunchedProcess(1, 2, 1, "here", 1, "srun")
    with pytest.raises(CommError) as caught:
        connect_processes(launch, Program("p", {"i": 2}, (), ()), "cpu", None, 1.0)
    assert str(caught.value) == (
        "process 1 shares its GPU with another, which NCCL does not support; start "
        "one process per GPU, or pass --local or --backend gloo"
    )


def free_port() -> int:
    import socket

    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


def run_two_processes(folder: Path, *words: str) -> list[subprocess.CompletedProcess[str]]:
    """Run two processes of the program as torchrun does."""
    port = free_port()
    command = [sys.executable, str(folder / "step.py"), "--device", "cpu", *words]
    children = [
        subprocess.Popen(
            command,
            env=torchrun_environment(rank, 2, port),
            cwd=folder,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        for rank in range(2)
    ]
    completed = []
    for child in children:
        out, err = child.communicate(timeout=240)
        completed.append(subprocess.CompletedProcess(command, child.returncode, out, err))
    return completed


def test_two_processes_pass_the_self_test_and_write_results(folder: Path) -> None:
    first, second = run_two_processes(folder, "--selftest", "--results", "out")

    assert (first.returncode, second.returncode) == (0, 0), first.stderr + second.stderr
    assert first.stdout.endswith("results are in out\n")
    assert second.stdout == ""
    np.testing.assert_array_equal(np.load(folder / "out/more.npy"), X + 1)


def test_the_failure_of_one_process_stops_the_other(folder: Path) -> None:
    text = TEXT.replace("    y = ", "    assert comm.rank == 0\n    y = ")
    (folder / "step.py").write_text(text, "utf-8")
    first, second = run_two_processes(folder, "--selftest", "--timeout", "60")

    assert (first.returncode, second.returncode) == (1, 1)
    assert "process 1 of 2: error: step failed" in second.stderr
    assert "AssertionError" in second.stderr
    assert "process 0 of 2: error: device 0 failed at all_reduce of torch.float32[2, 2] with " in (
        first.stderr
    )


def test_missing_packages_are_named(tmp_path: Path) -> None:
    lowered = sd.jit(lambda x: x * 2).lower(np.ones(4, np.float32))
    program, *_ = lowered.emit("gpu", tmp_path, selftest=True)
    # With -S Python has no site-packages: torch, triton and numpy are missing.
    command = [sys.executable, "-S", str(program), "--selftest"]
    completed = subprocess.run(command, capture_output=True, text=True)
    assert completed.returncode == 1
    assert completed.stdout == ""
    assert completed.stderr == (
        "error: torch is not installed; this program needs torch, triton and numpy (pip install "
        "torch triton numpy), and the folder shardir_runtime beside it\n"
    )
