"""Predicted times, flops and activations of published training steps (`docs/validation.md`)."""

import csv
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from shardir.machine.description_files import read_description

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"
PARAMETERS = ["1.7", "3.6", "7.5", "18.4", "39.1", "76.1", "145.6", "310.1", "529.6", "1008.0"]
"""Billions of parameters, as table 1 of Narayanan et al. (2021) prints them."""


@pytest.fixture(scope="module")
def benchmarks() -> Iterator[Any]:
    """Import modules of the folder `benchmarks`."""
    sys.path.insert(0, str(BENCHMARKS))
    yield import_module
    sys.path.remove(str(BENCHMARKS))


def published(benchmarks: Any) -> list[Any]:
    rows = csv.DictReader((BENCHMARKS / "published_steps.csv").read_text("utf-8").splitlines())
    return list(map(benchmarks("gpt_programs").Measurement.parse, rows))


def error(benchmarks: Any, given: Any) -> float:
    """Return the relative error of the predicted time of a step."""
    machine = read_description("a100x8-megatron")
    seconds: float = benchmarks("simulation").prepare(given).predict(machine)
    return seconds * 1e3 / float(given.milliseconds) - 1


def test_the_parameters_of_each_model_are_those_of_the_table(benchmarks: Any) -> None:
    programs = benchmarks("gpt_programs")
    counts = [programs.count_parameters(one) for one in published(benchmarks)[:10]]
    assert [f"{count / 1e9:.1f}" for count in counts] == PARAMETERS


@pytest.mark.parametrize("recomputation", ["none", "full"])
def test_the_flops_of_a_step_are_those_of_the_published_formula(
    benchmarks: Any, recomputation: str
) -> None:
    programs = benchmarks("gpt_programs")
    given = programs.Measurement(8, 16, 1, 768, 12, 3, 256, 2, 4, 1, recomputation=recomputation)
    simulation = programs.lower_step(given).simulate("a100x8-megatron")
    peak = 8 * 312e12 * simulation.step_seconds
    batch, s, layers, h, words = 16, 256, 3, 768, programs.WORDS
    passes = 4 if recomputation == "full" else 3
    in_layers = passes * 24 * batch * s * layers * h**2 * (1 + s / (6 * h))
    assert simulation.hfu * peak == pytest.approx(in_layers + 6 * batch * s * h * words, rel=1e-9)


@pytest.mark.parametrize(
    ("number", "expected"),
    [(0, -0.003), (10, 0.002), (11, 0.030), (12, 0.207), (22, 0.097), (23, -0.015)],
)
def test_errors_of_steps_without_pipelines(benchmarks: Any, number: int, expected: float) -> None:
    given = published(benchmarks)[number]
    assert error(benchmarks, given) == pytest.approx(expected, abs=0.002)


@pytest.mark.long
def test_errors_of_all_steps_and_the_order_of_zero_and_pipelines(benchmarks: Any) -> None:
    steps = published(benchmarks)
    errors = [error(benchmarks, one) for one in steps]
    assert max(map(abs, errors[:10])) < 0.12
    assert max(map(abs, errors[-8:])) < 0.1
    predicted = [
        one.milliseconds * (1 + each) * one.gpus / one.batch
        for one, each in zip(steps, errors, strict=True)
    ]
    zero = [time for one, time in zip(steps, predicted, strict=True) if one.zero_stage]
    others = [
        time for one, time in zip(steps[10:22], predicted[10:22], strict=True) if not one.zero_stage
    ]
    assert len(zero) == len(others) == 6
    assert all(own > other for own, other in zip(zero, others, strict=True))


@pytest.mark.parametrize("mode", ["none", "sequence parallelism", "selective", "both", "full"])
def test_the_activations_of_a_layer_are_those_of_the_published_formula(
    benchmarks: Any, mode: str
) -> None:
    activations = benchmarks("activations")
    micro, hidden, heads, *_ = activations.MODELS["22B"]
    scores = 5 * heads * 2048 / hidden / 8
    factors = {
        "none": 10 + 24 / 8 + scores,
        "sequence parallelism": 34 / 8 + scores,
        "selective": 10 + 24 / 8,
        "both": 34 / 8,
        "full": 2,
    }
    counted = activations.count_layer(micro, hidden, heads, mode)
    assert counted == pytest.approx(factors[mode] * 2048 * micro * hidden, rel=1e-3)


@pytest.mark.long
def test_errors_of_the_steps_of_llama_3(benchmarks: Any) -> None:
    errors = benchmarks("llama3").find_errors(read_description("h100x8"))
    assert abs(errors[1]) < 0.1
    assert abs(errors[2]) < 0.15
