"""Emitted programs, run on four processes and as threads, compute what the reference does.

All are run in one launch of four processes, with Triton's interpreter.
"""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

import shardir as sd
from shardir.backends.emission import Emission
from shardir.backends.gpu.runtime_files import file_names
from shardir.frontend.dispatch import emission as emitting
from shardir.interpret.numeric_comparison import are_close, is_stable, tolerance_of
from tests.backends.gpu.programs import PROGRAMS
from tests.backends.gpu.random_programs import emissions as random_emissions

ROOT = Path(__file__).parents[3]


def launched(folder: Path, emissions: Mapping[str, Emission]) -> dict[str, str]:
    """Run programs in one launch; returns what was wrong with each that went wrong."""
    for name, emission in emissions.items():
        emitting.write_files(emission, "gpu", folder / name, {})
    ran = subprocess.run(
        [sys.executable, "-m", "tests.backends.gpu.four_process_run", str(folder)],
        cwd=ROOT,
        env={**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    wrong: dict[str, str] = json.loads((folder / "errors.json").read_text("utf-8"))
    for name, emission in emissions.items():
        modes = ["threads", *(["gloo"] if emission.mesh.size == 4 else [])]
        for mode in modes:
            if name not in wrong:
                differences = compared(emission, folder / name / mode)
                wrong |= {name: f"{mode}: {differences}"} if differences else {}
    return wrong


def compared(emission: Emission, folder: Path) -> str:
    """Which of the results in a folder are not those of the reference."""
    assert emission.samples is not None
    want = emission.samples.results
    got = []
    for name, boundary, array in zip(
        file_names(emission.results), emission.results, want, strict=True
    ):
        made = np.load(folder / f"{name}.npy")
        made = made.view(array.dtype) if made.dtype.kind == "V" else made
        if (made.dtype, made.shape) != (array.dtype, array.shape):
            return f"{boundary.label} is {made.dtype}{list(made.shape)}"
        got.append(made)
    module, tolerance = emission.module, tolerance_of(emission.module)
    if are_close(want, got, tolerance) or not is_stable(
        module, emission.samples.arguments, want, tolerance
    ):
        return ""
    return ", ".join(
        boundary.label
        for boundary, a, b in zip(emission.results, want, got, strict=True)
        if not are_close([a], [b], tolerance)
    )


def test_programs_compute_what_the_reference_does(tmp_path: Path) -> None:
    with sd.cpu_devices(4):
        emissions = {name: make().emission("gpu", selftest=True) for name, make in PROGRAMS.items()}
    assert launched(tmp_path, emissions) == {}


def test_random_programs_do_so_too(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """Of those that are drawn some cannot be emitted."""
    draws = [(number, 150) for number in range(1, 7)]
    for number, count in draws if request.config.getoption("--long") else [(1, 40)]:
        emissions = dict(random_emissions(number, count))
        assert launched(tmp_path / str(number), emissions) == {}
