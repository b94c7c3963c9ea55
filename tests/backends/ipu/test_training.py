"""Training steps under data, tensor and fully sharded parallelism give the reference results."""

from typing import Any

import shardir as sd
from tests.backends.ipu.host_model_execution import Case, check
from tests.backends.ipu.model_steps import (
    PERCEPTRON,
    PERCEPTRON_SPECS,
    mesh_of,
    normal_array,
    perceptron_step,
    put_on_mesh,
    sharded_params,
)
from tests.backends.ipu.training_steps import perceptron_cases, transformer_cases


def test_perceptron_steps_match_the_reference() -> None:
    check(dict(perceptron_cases()))


def test_transformer_steps_with_donated_state_match_the_reference() -> None:
    check(dict(transformer_cases()))


def test_results_replace_donated_arguments_for_the_next_step() -> None:
    mesh = mesh_of(2, 2)
    params = sharded_params(mesh, PERCEPTRON, PERCEPTRON_SPECS["tp"])
    x, y = (
        put_on_mesh(mesh, normal_array(16, 8), "data"),
        put_on_mesh(mesh, normal_array(16, 4), "data"),
    )
    donating_step = sd.jit(perceptron_step, donate_argnums=0).lower(params, x, y)

    def three_steps(params: Any, x: Any, y: Any) -> Any:
        for _ in range(3):
            value, params = perceptron_step(params, x, y)
        return value, params

    three_plain_steps = sd.jit(three_steps).lower(params, x, y)
    case = Case.of(donating_step, (params, x, y))
    check(
        {"three steps": Case(case.emission, three_plain_steps.module, case.arguments, {})}, steps=3
    )
