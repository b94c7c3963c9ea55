"""Training steps on several meshes, for the IPU target."""

from collections.abc import Iterator

import shardir as sd
from tests.backends.ipu.host_model_execution import Case
from tests.backends.ipu.model_steps import (
    PERCEPTRON,
    PERCEPTRON_SPECS,
    TRANSFORMER,
    TRANSFORMER_SPECS,
    mesh_of,
    normal_array,
    perceptron_step,
    put_on_mesh,
    sharded_params,
    token_batch,
    transformer_step,
)

MESHES = {"dp": (4, 1), "tp": (1, 4), "dp_tp": (2, 2), "fsdp": (4, 2)}
PARAMETER_SHARDINGS = {"dp": "dp", "tp": "tp", "dp_tp": "tp", "fsdp": "fsdp"}


def perceptron_cases() -> Iterator[tuple[str, Case]]:
    for name, sizes in MESHES.items():
        mesh = mesh_of(*sizes)
        params = sharded_params(mesh, PERCEPTRON, PERCEPTRON_SPECS[PARAMETER_SHARDINGS[name]])
        args = (
            params,
            put_on_mesh(mesh, normal_array(16, 8), "data"),
            put_on_mesh(mesh, normal_array(16, 4), "data"),
        )
        yield name, Case.of(sd.jit(perceptron_step).lower(*args), args)


def transformer_cases() -> Iterator[tuple[str, Case]]:
    for name, sizes in (("dp", (4, 1)), ("dp_tp", (2, 2)), ("fsdp", (2, 2))):
        mesh, specs = mesh_of(*sizes), TRANSFORMER_SPECS[PARAMETER_SHARDINGS[name]]
        params = sharded_params(mesh, TRANSFORMER, specs, 0.3)
        args = (
            params,
            params,
            put_on_mesh(mesh, token_batch(0), "data"),
            put_on_mesh(mesh, token_batch(1), "data"),
        )
        step = sd.jit(transformer_step, donate_argnums=(0, 1))
        yield name, Case.of(step.lower(*args), args)
