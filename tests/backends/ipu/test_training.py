"""Training steps compute the reference's numbers under data, tensor and sharded parallelism."""

from collections.abc import Iterator
from typing import Any

import shardir as sd
from tests.backends.ipu.running import Case, check
from tests.backends.ipu.training import (
    PERCEPTRON,
    PERCEPTRON_SPECS,
    TRANSFORMER,
    TRANSFORMER_SPECS,
    draw,
    grid,
    perceptron_step,
    placed,
    put,
    tokens,
    transformer_step,
)

MESHES = {"dp": (4, 1), "tp": (1, 4), "dp_tp": (2, 2), "fsdp": (4, 2)}
STYLES = {"dp": "dp", "tp": "tp", "dp_tp": "tp", "fsdp": "fsdp"}


def perceptrons() -> Iterator[tuple[str, Case]]:
    for name, sizes in MESHES.items():
        mesh = grid(*sizes)
        params = placed(mesh, PERCEPTRON, PERCEPTRON_SPECS[STYLES[name]])
        args = params, put(mesh, draw(16, 8), "data"), put(mesh, draw(16, 4), "data")
        yield name, Case.of(sd.jit(perceptron_step).lower(*args), args)


def transformers() -> Iterator[tuple[str, Case]]:
    for name, sizes in (("dp", (4, 1)), ("dp_tp", (2, 2)), ("fsdp", (2, 2))):
        mesh, specs = grid(*sizes), TRANSFORMER_SPECS[STYLES[name]]
        params = placed(mesh, TRANSFORMER, specs, 0.3)
        args = params, params, put(mesh, tokens(0), "data"), put(mesh, tokens(1), "data")
        step = sd.jit(transformer_step, donate_argnums=(0, 1))
        yield name, Case.of(step.lower(*args), args)


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
