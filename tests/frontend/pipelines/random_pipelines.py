"""Random losses in stages: their layers, the shardings of their weights, meshes and schedules."""

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import shardir as sd
import shardir.numpy as jnp
from shardir.passes.pipeline_parallelism.named_schedules import NAMED_SCHEDULES

WIDTH, ROWS_OF_MICROBATCH = 8, 4


@dataclass(frozen=True)
class PipelineCase:
    """A loss in stages, its arguments on a mesh, and the options of its pipeline."""

    loss: Callable[..., Any]
    arguments: tuple[Any, ...]
    schedule: str
    microbatches: int
    has_aux: bool
    devices: int

    def pipelined(self) -> Any:
        """Return the loss in a pipeline."""
        return sd.pipeline(
            self.loss,
            microbatches=self.microbatches,
            schedule=self.schedule,
            has_aux=self.has_aux,
        )

    def step(self, function: Any) -> Any:
        """Return the loss and the gradients of `function`, without auxiliary results."""
        step = sd.value_and_grad(function, has_aux=self.has_aux)

        def run(*args: Any) -> Any:
            value, gradients = step(*args)
            return (value[0] if self.has_aux else value), gradients

        return sd.jit(run)


def random_case(seed: int, schedule: str | None = None, ranks: int | None = None) -> PipelineCase:
    """Return the case of a seed; call it with at least 16 devices."""
    rng = random.Random(f"pipeline {seed} {schedule} {ranks}")
    schedule = schedule or rng.choice([*NAMED_SCHEDULES])
    ranks = ranks or rng.choice((2, 4))
    data, model = rng.choice(((1, 1), (2, 1), (1, 2), (2, 2)))
    mesh = sd.make_mesh((ranks, data, model), ("pipe", "data", "model"))
    stages = ranks * (NAMED_SCHEDULES[schedule].stages_per_rank or rng.choice((1, 2)))
    microbatches = ranks * (2 if schedule == "dualpipev" else rng.choice((1, 2)))
    numbers = np.random.default_rng(seed)
    kinds = [rng.choice(("dense", "mlp", "scaled")) for _ in range(stages)]
    if rng.random() < 0.5:
        kinds = [kinds[0]] * stages
    skip = rng.choice((None, *range(1, stages)))
    has_aux = rng.random() < 0.3

    def weight(*shape: int) -> Any:
        return (numbers.standard_normal(shape) / 4).astype(np.float32)

    def put(x: Any, *spec: str | None) -> Any:
        return sd.device_put(x, sd.NamedSharding(mesh, sd.P(*spec)))

    def layer(kind: str) -> Any:
        axis = rng.choice((None, "pipe"))
        if kind == "mlp":
            up, down = weight(WIDTH, 2 * WIDTH), weight(2 * WIDTH, WIDTH)
            return put(up, axis, "model"), put(down, "model", axis)
        dense = put(weight(WIDTH, WIDTH), *rng.choice(((), (axis,), (axis, "model"))))
        return {"w": dense, "b": put(weight(WIDTH))}

    params = {
        "layers": [layer(kind) for kind in kinds],
        "scale": put(1 + weight(WIDTH)),
        "tied": put(weight(WIDTH, WIDTH), rng.choice((None, "model"))),
    }
    batch = ROWS_OF_MICROBATCH * microbatches
    x, y = (put(weight(batch, WIDTH), "data") for _ in range(2))

    def apply(kind: str, p: Any, scale: Any, x: Any) -> Any:
        if kind == "mlp":
            return x + jnp.tanh(x @ p[0]) @ p[1]
        x = jnp.tanh(x @ p["w"] + p["b"])
        return x * scale if kind == "scaled" else x

    def loss(params: Any, x: Any, y: Any) -> Any:
        with sd.stage(0):
            x = start = x @ params["tied"]
        for i, (kind, p) in enumerate(zip(kinds, params["layers"], strict=True)):
            with sd.stage(i):
                x = apply(kind, p, params["scale"], x)
                if i == skip:
                    x = x + start
        with sd.stage(stages - 1):
            value = jnp.mean((x @ params["tied"].T - y) ** 2)
            return (value, {"largest": x.max(), "mean": x.mean(0)}) if has_aux else value

    arguments = (params, x, y)
    return PipelineCase(loss, arguments, schedule, microbatches, has_aux, mesh.size)
