"""Files that are written beside a program: headers, captured arrays, and samples."""

import subprocess
import sys
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np

import shardir as sd
from shardir import random
from shardir.backends.ipu import TARGET
from shardir.backends.ipu.host_model import build_and_run
from shardir.backends.ipu.target import CHECK_SCRIPT
from tests.backends.ipu.model_steps import mesh_of, normal_array, put_on_mesh

HEADERS = [
    "shardir_ipu_files.hpp",
    "shardir_ipu_host.hpp",
    "shardir_ipu_npy.hpp",
    "shardir_ipu_session.hpp",
]


def load(content: str | bytes) -> Any:
    assert isinstance(content, bytes)
    return np.load(BytesIO(content))


def test_the_included_headers_are_written() -> None:
    lowered = sd.jit(lambda x: x + 1).lower(normal_array(4))
    files = TARGET.emit(lowered.emission("ipu"), {})
    assert sorted(files) == ["lambda.cpp", *HEADERS]


def test_captured_arrays_are_written_as_arguments() -> None:
    mesh = mesh_of(2, 2)
    table = put_on_mesh(mesh, normal_array(8, 4), "data")

    @sd.jit
    def add_table(x: Any) -> Any:
        return x + table

    files = TARGET.emit(add_table.lower(normal_array(8, 4, seed=1)).emission("ipu"), {})
    (name,) = [name for name in files if name.startswith("arguments/")]
    np.testing.assert_array_equal(load(files[name]), normal_array(8, 4))


def test_the_check_script_compares_sample_results(tmp_path: Path) -> None:
    def noise(key: Any, x: Any) -> Any:
        return x + random.uniform(key, (3,), np.float32), random.split(key)

    lowered = sd.jit(noise).lower(random.key(0), normal_array(3))
    paths = lowered.emit("ipu", tmp_path, selftest=True)
    text = next(path for path in paths if path.suffix == ".cpp").read_text("utf-8")
    given = [np.load(tmp_path / "arguments" / f"{name}.npy") for name in ("key", "x")]
    assert given[0].dtype == np.uint32
    assert given[0].shape == (2,)
    results = build_and_run(text, given)
    (tmp_path / "results").mkdir()
    expected = [path.name for path in paths if path.parent.name == "expected"]
    for name, result in zip(expected, results, strict=True):
        np.save(tmp_path / "results" / name, result)
    command = [sys.executable, "check.py"]
    assert subprocess.run(command, cwd=tmp_path, capture_output=True).returncode == 0
    np.save(tmp_path / "results" / expected[0], results[0] + 1)
    assert subprocess.run(command, cwd=tmp_path, capture_output=True).returncode == 1


def write_expected(folder: Path, **arrays: Any) -> None:
    """Write arrays as the expected results of a program beside the check script."""
    (folder / "check.py").write_text(CHECK_SCRIPT.read_text("utf-8"), "utf-8")
    for name in ("expected", "results"):
        (folder / name).mkdir()
    for name, array in arrays.items():
        np.save(folder / "expected" / f"{name}.npy", array)


def run_check_script(folder: Path, **arrays: Any) -> tuple[int, str]:
    """Write results and run the script; return its exit status and output."""
    for path in (folder / "results").iterdir():
        path.unlink()
    for name, array in arrays.items():
        np.save(folder / "results" / f"{name}.npy", array)
    command = [sys.executable, "check.py"]
    completed = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert completed.stderr == ""
    return completed.returncode, completed.stdout.strip()


def test_the_script_compares_shape_dtype_and_values(tmp_path: Path) -> None:
    want = np.asarray([0.5, -2.0, 1e-9], np.float32)
    write_expected(tmp_path, y=want)
    assert run_check_script(tmp_path, y=want) == (
        0, "ok    y: differs by 0.0e+00 of the largest element (1e-03 allowed)",
    )  # fmt: skip
    close = np.nextafter(want, np.float32(9))
    assert run_check_script(tmp_path, y=close) == (
        0, "ok    y: differs by 6.0e-08 of the largest element (1e-03 allowed)",
    )  # fmt: skip
    assert run_check_script(tmp_path, y=want + np.float32(0.01)) == (
        1, "WRONG y: differs by 5.0e-03 of the largest element (1e-03 allowed)",
    )  # fmt: skip
    for odd in (np.nan, np.inf):
        for wrong in (np.full_like(want, odd), np.where(want > 0.1, np.float32(odd), want)):
            assert run_check_script(tmp_path, y=wrong) == (
                1, "WRONG y: is NaN or infinite where a number is expected",
            )  # fmt: skip
    assert run_check_script(tmp_path, y=want[:1]) == (
        1, "WRONG y: has the shape [1], and [3] is expected",
    )  # fmt: skip
    assert run_check_script(tmp_path, y=np.full((2, 3), want)) == (
        1, "WRONG y: has the shape [2, 3], and [3] is expected",
    )  # fmt: skip
    assert run_check_script(tmp_path, y=want.astype(np.float64)) == (
        1, "WRONG y: has the dtype float64, and float32 is expected",
    )  # fmt: skip
    status, output = run_check_script(tmp_path)
    assert status == 1
    assert output.startswith("WRONG y: cannot be read from results/y.npy: ")


def test_the_script_compares_every_result(tmp_path: Path) -> None:
    half = np.asarray([1, 2], np.float16)
    odd = np.asarray([np.nan, np.inf, -np.inf, 1], np.float32)
    count = np.asarray(7, np.uint32)
    right = {"half": half, "odd": odd, "count": count, "none": np.zeros((2, 0), np.float32)}
    write_expected(tmp_path, **right)
    assert run_check_script(tmp_path, **right)[0] == 0
    assert run_check_script(tmp_path, **{**right, "half": half + np.float16(0.004)})[0] == 0
    assert run_check_script(tmp_path, **{**right, "half": half + np.float16(0.02)})[0] == 1
    assert run_check_script(tmp_path, **{**right, "odd": odd[[0, 2, 1, 3]]})[0] == 1
    assert run_check_script(tmp_path, **{**right, "odd": np.nan_to_num(odd)})[0] == 1
    assert run_check_script(tmp_path, **{**right, "count": count + np.uint32(1)})[0] == 1


def test_the_script_fails_without_expected_results(tmp_path: Path) -> None:
    write_expected(tmp_path)
    assert run_check_script(tmp_path) == (
        1, "there is no expected/*.npy; run this script in the folder of the program",
    )  # fmt: skip
