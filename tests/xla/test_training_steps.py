"""The StableHLO text of training steps computes JAX's numbers, with no more all-gathers."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("jax")

from tests.xla.training_steps import STEPS

SHORT = ("rnn", "moe")
LONG = tuple(name for name in STEPS if name not in SHORT)
ROOT = Path(__file__).parents[2]
TOLERANCES = {"transformer": 2e-3}
"""Adam divides gradients by their size, which amplifies rounding errors of vanishing gradients."""


@pytest.mark.parametrize("names", [SHORT, pytest.param(LONG, marks=pytest.mark.long)])
def test_training_steps_compute_the_numbers_of_jax(names: tuple[str, ...]) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.xla.training_steps", *names],
        capture_output=True,
        text=True,
        cwd=ROOT,
    )
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [line["name"] for line in lines] == list(names), done.stderr
    for line in lines:
        assert line["unknown"] == []
        assert line["difference"] < TOLERANCES.get(line["name"], 1e-5), line
        assert line["all-gathers"] <= line["all-gathers of XLA"], line
