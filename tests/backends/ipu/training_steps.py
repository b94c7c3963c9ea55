"""Training steps on several meshes, to be emitted."""

from collections.abc import Iterator

import shardir as sd
from tests.backends.ipu.host_model_execution import Case
from tests.backends.ipu.model_steps import (
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
