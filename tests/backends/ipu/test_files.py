"""What is written beside a program: the headers, the arrays it refers to, and its samples."""

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
from tests.backends.ipu.training import draw, grid, put

HEADERS = [
    "shardir_ipu_files.hpp",
    "shardir_ipu_host.hpp",
    "shardir_ipu_npy.hpp",
    "shardir_ipu_session.hpp",
]


def load(content: str | bytes) -> Any:
    assert isinstance(content, bytes)
    return np.load(BytesIO(content))


def test_a_program_comes_with_the_headers_it_includes() -> None:
    lowered = sd.jit(lambda x: x + 1).lower(draw(4))
    files = TARGET.emit(lowered.emission("ipu"), {})
    assert sorted(files) == ["lambda.cpp", *HEADERS]


def test_arrays_that_a_function_refers_to_are_its_arguments() -> None:
    mesh = grid(2, 2)
    table = put(mesh, draw(8, 4), "data")

    @sd.jit
    def shifted(x: Any) -> Any:
        return x + table

    files = TARGET.emit(shifted.lower(draw(8, 4, seed=1)).emission("ipu"), {})
    (name,) = [name for name in files if name.startswith("arguments/")]
    np.testing.assert_array_equal(load(files[name]), draw(8, 4))


def test_samples_are_checked_by_a_script(tmp_path: Path) -> None:
    def noise(key: Any, x: Any) -> Any:
        return x + random.uniform(key, (3,), np.float32), random.split(key)

    lowered = sd.jit(noise).lower(random.key(0), draw(3))
    paths = lowered.emit("ipu", tmp_path, selftest=True)
    text = next(path for path in paths if path.suffix == ".cpp").read_text()
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
