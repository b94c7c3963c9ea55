"""The runner of emitted programs: sharding of arguments, command line, files."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from shardir.backends.ipu.host_model import HostModelError, build_executable
from tests.backends.ipu.host_model.compiled_programs import PROGRAMS, Array, programs, rng

Command = Callable[..., subprocess.CompletedProcess[str]]


def uneven_arguments() -> dict[str, Array]:
    return {
        "x": rng().integers(-9, 9, (7, 5)).astype("f2"),
        "scale": np.array(2.5, "f2"),
        "empty": np.zeros((0, 3), "f2"),
    }


def shards_of(x: Array) -> Array:
    """Return the shards of all replicas: rows over the first axis, columns over the third and
    second."""
    padded = np.pad(x, [(0, 1), (0, 3)])
    return np.array(
        [padded[4 * (r // 4) :, 2 * (2 * (r % 2) + r // 2 % 2) :][:4, :2] for r in range(8)]
    )


def test_unsharded_arguments_are_sharded_and_results_joined() -> None:
    arguments = uneven_arguments()
    y, total, none = programs()["uneven"](*arguments.values())
    np.testing.assert_array_equal(y, arguments["x"] * np.float16(2.5))
    assert total == arguments["x"].sum()
    assert none.shape == (0, 3)


def test_shards_of_all_replicas_are_accepted_and_returned() -> None:
    x, scale, empty = uneven_arguments().values()
    parts = shards_of(x)
    y, totals, none = programs()["uneven"](parts, scale, empty, sharded=True)
    np.testing.assert_array_equal(y, parts * np.float16(2.5))
    np.testing.assert_array_equal(totals, np.full(8, x.sum()))
    assert none.shape == (8, 0, 3)


def test_a_program_describes_its_arguments_and_results() -> None:
    program = programs()["uneven"]
    assert (program.title, program.replicas) == ("uneven", 8)
    x = program.arguments[0]
    assert (x.name, x.label, x.dtype) == ("x", "batch['x']", np.dtype("f2"))
    assert (x.whole, x.part) == ((7, 5), (4, 2))
    assert [port.name for port in program.results] == ["y", "sum", "none"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda given: given[:2],
            "uneven takes 3 arguments, 2 are given",
        ),
        (
            lambda given: [given[0].astype("f8"), *given[1:]],
            "the argument batch['x'] of uneven is float64, not float16; convert it with astype",
        ),
        (
            lambda given: [given[0].T, *given[1:]],
            "the argument batch['x'] of uneven has shape (5, 7), not (7, 5), or (8, 4, 2) as the "
            "shards of all replicas",
        ),
    ],
)
def test_wrong_arguments_are_errors(
    change: Callable[[list[Array]], list[Array]], message: str
) -> None:
    with pytest.raises(HostModelError) as caught:
        programs()["uneven"](*change(list(uneven_arguments().values())))
    assert str(caught.value) == message


@pytest.fixture(scope="module")
def executable(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("runner") / "uneven"
    build_executable((PROGRAMS / "uneven.cpp").read_text("utf-8"), path)
    return path


@pytest.fixture
def command(executable: Path, tmp_path: Path) -> Command:
    """Return a function that runs the program in a folder with all its arguments saved."""
    (tmp_path / "arguments").mkdir()
    for name, value in uneven_arguments().items():
        np.save(tmp_path / "arguments" / f"{name}.npy", value)

    def call(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [executable, *words], cwd=tmp_path, capture_output=True, text=True, check=False
        )

    return call


def test_the_command_reads_and_writes_unsharded_arrays(command: Command, tmp_path: Path) -> None:
    done = command()
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    x = uneven_arguments()["x"]
    np.testing.assert_array_equal(np.load(tmp_path / "results" / "y.npy"), x * np.float16(2.5))
    total = np.load(tmp_path / "results" / "sum.npy")
    assert (total.shape, total.dtype, total) == ((), np.dtype("f2"), x.sum())
    assert np.load(tmp_path / "results" / "none.npy").shape == (0, 3)


def test_the_command_reads_and_writes_shards(command: Command, tmp_path: Path) -> None:
    parts = shards_of(uneven_arguments()["x"])
    np.save(tmp_path / "arguments" / "x.npy", parts)
    assert command("--sharded", "--results", "new/out", "--steps", "2").returncode == 0
    out = tmp_path / "new" / "out"
    np.testing.assert_array_equal(np.load(out / "y.npy"), parts * np.float16(2.5))
    assert np.load(out / "sum.npy").shape == (8,)


@pytest.mark.parametrize("device", ["model", "cpu"])
def test_the_command_runs_on_other_devices(command: Command, device: str) -> None:
    assert command("--device", device).returncode == 0


def test_describe_prints_the_contract_as_json(command: Command) -> None:
    contract = json.loads(command("--describe").stdout)
    assert contract["arguments"][0] == {
        "name": "x",
        "label": "batch['x']",
        "dtype": "float16",
        "whole": [7, 5],
        "part": [4, 2],
    }


OPTIONS = (
    "the options are --arguments DIR, --results DIR, --steps N, --sharded, --device ipu|model|cpu "
    "and --describe"
)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--step", "3"], f"there is no option --step; {OPTIONS}"),
        (["--steps"], f"nothing follows --steps; {OPTIONS}"),
        (["--steps", "two"], "--steps takes a number, not 'two'"),
        (["--device", "gpu"], "no device is called 'gpu'; use ipu, model or cpu"),
        (
            ["--arguments", "elsewhere"],
            "'elsewhere/x.npy' does not exist; save the argument batch['x'] there with numpy.save",
        ),
        (
            ["--results", "arguments/x.npy/out"],
            "the folder 'arguments/x.npy/out' cannot be made; name another one with --results",
        ),
    ],
)
def test_wrong_command_line_arguments_are_errors(
    command: Command, words: list[str], message: str
) -> None:
    done = command(*words)
    assert (done.returncode, done.stderr) == (1, f"uneven: {message}\n")


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (
            np.zeros((7, 5)),
            "'arguments/x.npy' holds <f8, but the argument batch['x'] is float16; convert it with "
            "astype",
        ),
        (
            np.zeros((7, 5), "i4"),
            "'arguments/x.npy' holds int32, but the argument batch['x'] is float16; convert it "
            "with astype",
        ),
        (
            np.zeros((5, 7), "f2"),
            "'arguments/x.npy' has shape (5, 7), but the argument batch['x'] has (7, 5), or "
            "(8, 4, 2) as the shards of all replicas",
        ),
        (
            np.zeros((7, 5), "f2", order="F"),
            "'arguments/x.npy' is in Fortran order; save numpy.ascontiguousarray of it",
        ),
        (
            np.zeros(2, [("a", "f2")]),
            "'arguments/x.npy' holds a structure, but the argument batch['x'] is float16; convert "
            "it with astype",
        ),
    ],
)
def test_files_of_a_wrong_type_shape_or_order_are_errors(
    command: Command, tmp_path: Path, value: Array, message: str
) -> None:
    np.save(tmp_path / "arguments" / "x.npy", value)
    done = command()
    assert (done.returncode, done.stderr) == (1, f"uneven: {message}\n")


def test_corrupt_array_files_are_errors(command: Command, tmp_path: Path) -> None:
    file = tmp_path / "arguments" / "x.npy"
    whole = file.read_bytes()
    file.write_bytes(whole[:-2])
    assert command().stderr == "uneven: 'arguments/x.npy' ends too early; save the array again\n"
    file.write_bytes(b"x" * 80)
    expected = "uneven: 'arguments/x.npy' is no .npy file; save it with numpy.save\n"
    assert command().stderr == expected
