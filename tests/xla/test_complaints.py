"""Explanations of public complaints about XLA's collectives: line, cause, and a remedy that works.

Each program is compiled with and without the remedy; the results are equal.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.optional_dependencies import require
from tests.xla.complaints import COMPLAINTS
from tests.xla.further_complaints import FURTHER_COMPLAINTS, OWN_PROGRAMS

ROOT = Path(__file__).parents[2]
PROGRAMS = {**COMPLAINTS, **FURTHER_COMPLAINTS, **OWN_PROGRAMS}
SHORT = ("grouped convolution", "static scatter", "host function")
"""The complaints that every run of the tests examines."""
LONG = tuple(name for name in PROGRAMS if name not in SHORT)
RANDOM = "random numbers"
"""The remedy of this complaint draws other numbers."""


def explain(names: Sequence[str], folder: Path) -> Mapping[str, Any]:
    require("jax")
    flags = "--xla_force_host_platform_device_count=8"
    done = subprocess.run(
        [sys.executable, "-m", "tests.xla.complaint_runner", str(folder), *names],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"},
    )
    assert done.returncode == 0, done.stderr
    found: Mapping[str, Any] = json.loads(done.stdout)
    return found


@pytest.fixture(scope="module")
def explanations(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Any]:
    """Return a function that explains all complaints of one kind in one process."""
    found: dict[str, Any] = {}

    def of(name: str) -> Any:
        if name not in found:
            names = SHORT if name in SHORT else LONG
            found.update(explain(names, tmp_path_factory.mktemp("complaints")))
        return found[name]

    return of


@pytest.mark.parametrize(
    "name", [*SHORT, *(pytest.param(name, marks=pytest.mark.long) for name in LONG)]
)
def test_a_complaint_is_explained_and_its_remedy_avoids_the_collective(
    name: str, explanations: Callable[[str], Any]
) -> None:
    complaint, found = PROGRAMS[name], explanations(name)
    assert [complaint.cause, complaint.operation, complaint.line] in found["causes"]
    assert [complaint.cause, complaint.operation] in found["causes in a loop"]
    assert (found["before"], found["after"]) == (complaint.before, complaint.after)
    assert found["predicted"] in (None, found["remedied"])
    assert complaint.hint in found["text"]
    assert found["equal"] or name == RANDOM


def test_the_complaints_are_many_and_name_their_threads() -> None:
    complaints = [*COMPLAINTS.values(), *FURTHER_COMPLAINTS.values()]
    assert len(complaints) >= 30
    assert all(complaint.threads for complaint in complaints)
