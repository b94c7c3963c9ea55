"""Training steps compute the reference's numbers under data, tensor and sharded parallelism."""

from typing import Any

import shardir as sd
from tests.backends.ipu.host_model_execution import Case, check
from tests.backends.ipu.model_steps import (
    PERCEPTRON,
    PERCEPTRON_SPECS,
    draw,
    grid,
    perceptron_step,
    placed,
    put,
)
from tests.backends.ipu.training_steps import perceptrons, transformers


def test_perceptrons() -> None:
    check(dict(perceptrons()))


def test_transformers_that_donate_their_state() -> None:
    check(dict(transformers()))


def test_donated_arguments_are_what_the_next_step_begins_with() -> None:
    mesh = grid(2, 2)
    params = placed(mesh, PERCEPTRON, PERCEPTRON_SPECS["tp"])
    x, y = put(mesh, draw(16, 8), "data"), put(mesh, draw(16, 4), "data")
    donating = sd.jit(perceptron_step, donate_argnums=0).lower(params, x, y)

    def thrice(params: Any, x: Any, y: Any) -> Any:
        for _ in range(3):
            value, params = perceptron_step(params, x, y)
        return value, params

    plain = sd.jit(thrice).lower(params, x, y)
    case = Case.of(donating, (params, x, y))
    check({"thrice": Case(case.emission, plain.module, case.arguments, {})}, steps=3)
