"""Emitted programs on four processes and as threads give the results of the reference.

One launch of four processes runs all programs, with the Triton interpreter.
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
from shardir.frontend.dispatch.stages import emission as emitting
from shardir.interpret.numeric_comparison import are_close, is_stable, tolerance_of
from tests.backends.gpu.programs import PROGRAMS
from tests.backends.gpu.random_programs import random_emissions

pytestmark = pytest.mark.needs("torch", "triton")  # The programs run in other processes.

ROOT = Path(__file__).parents[3]


def run_on_four_processes(folder: Path, emissions: Mapping[str, Emission]) -> dict[str, str]:
    """Run programs in one launch; return the errors of the programs that failed."""
    for name, emission in emissions.items():
        emitting.write_files(emission, "gpu", folder / name, {})
    completed = subprocess.run(
        [sys.executable, "-m", "tests.backends.gpu.four_process_run", str(folder)],
        cwd=ROOT,
        env={**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert completed.returncode == 0, completed.stderr
    errors: dict[str, str] = json.loads((folder / "errors.json").read_text("utf-8"))
    for name, emission in emissions.items():
        modes = ["threads", *(["gloo"] if emission.mesh.size == 4 else [])]
        for mode in modes:
            if name not in errors:
                differences = differing_results(emission, folder / name / mode)
                errors |= {name: f"{mode}: {differences}"} if differences else {}
    return errors


def differing_results(emission: Emission, folder: Path) -> str:
    """Return the labels of the results in a folder that differ from the reference."""
    assert emission.samples is not None
    expected = emission.samples.results
    actual = []
    for name, boundary, array in zip(
        file_names(emission.results), emission.results, expected, strict=True
    ):
        loaded = np.load(folder / f"{name}.npy")
        loaded = loaded.view(array.dtype) if loaded.dtype.kind == "V" else loaded
        if (loaded.dtype, loaded.shape) != (array.dtype, array.shape):
            return f"{boundary.label} is {loaded.dtype}{list(loaded.shape)}"
        actual.append(loaded)
    module, tolerance = emission.module, tolerance_of(emission.module)
    if are_close(expected, actual, tolerance) or not is_stable(
        module, emission.samples.arguments, expected, tolerance
    ):
        return ""
    return ", ".join(
        boundary.label
        for boundary, a, b in zip(emission.results, expected, actual, strict=True)
        if not are_close([a], [b], tolerance)
    )


def test_programs_give_the_reference_results(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """The test includes a few random programs, which need no launch of their own."""
    names = list(PROGRAMS) if request.config.getoption("--long") else list(PROGRAMS)[::4]
    with sd.cpu_devices(4):
        emissions = {name: PROGRAMS[name]().emission("gpu", selftest=True) for name in names}
    random = dict(random_emissions(1, 10))
    assert len(random) > 4
    assert emissions.keys().isdisjoint(random)
    assert run_on_four_processes(tmp_path, emissions | random) == {}


@pytest.mark.long
@pytest.mark.parametrize("seed", range(1, 7))
def test_random_programs_give_the_reference_results(seed: int, tmp_path: Path) -> None:
    """The test omits random programs that cannot be emitted."""
    assert run_on_four_processes(tmp_path, dict(random_emissions(seed, 150))) == {}
