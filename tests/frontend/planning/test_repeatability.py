"""Plans do not depend on the hash seed of Python, the process, or the time of the search."""

import os
import subprocess
import sys

import pytest

SCRIPT = """
import numpy as np

import shardir as sd
from shardir.frontend.shardings.devices import virtual_devices
from shardir.nn import relu


def step(params, x, y):
    def loss(params):
        h = x
        for layer in params.values():
            h = relu(h @ layer["w"] + layer["b"])
        return ((h - y) ** 2).mean()

    value, gradients = sd.value_and_grad(loss)(params)
    return value, sd.tree.map(lambda p, g: p - 0.1 * g, params, gradients)


def struct(*shape):
    return sd.ShapeDtypeStruct(shape, np.float32)


params = {name: {"w": struct(64, 64), "b": struct(64)} for name in ("first", "second", "last")}
mesh = sd.make_mesh((4, 2), ("data", "model"), devices=virtual_devices(8))
for machine, memory in ((None, None), ("a100x8", "120KiB")):
    plan = sd.plan(
        step, (params, struct(256, 64), struct(256, 64)), mesh, machine, memory, evaluations=40
    )
    print(plan, plan.as_ir(), plan.as_jax(), plan.evaluation)
    if machine is None:
        print(plan.lower_bound())
        print(plan.why_not("%params.first.w: f32[64@data, 64]"))
"""


def output_with(seed: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        env={**os.environ, "PYTHONHASHSEED": seed},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.long
def test_plans_are_equal_in_processes_with_other_hash_seeds() -> None:
    first = output_with("1")
    assert "plan of @step for data=4, model=2" in first
    for seed in ("2", "3"):
        assert output_with(seed) == first
