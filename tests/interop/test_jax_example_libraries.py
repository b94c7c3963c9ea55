"""Example libraries in JAX's package, which use only its public names, run by shardir."""

from typing import Any

import jax
import numpy as np
import pytest

import shardir as sd
from shardir.interop.in_place_of_jax import Program

PROGRAM = """
import jax
import jax.numpy as jnp
from jax import grad, jit, random
from jax.{place} import optimizers, stax

init, apply = stax.serial(
    stax.Conv(2, (3, 3), padding="SAME"), stax.Relu, stax.Flatten, stax.Dense(3), stax.LogSoftmax,
)
shape, params = init(random.PRNGKey(0), (-1, 4, 4, 1))
start, update, params_of = optimizers.momentum(step_size=1e-2, mass=0.9)
x = random.normal(random.PRNGKey(1), (4, 4, 4, 1))
y = jax.nn.one_hot(jnp.arange(4) % 3, 3)

def loss(params):
    return -jnp.mean(jnp.sum(apply(params, x) * y, axis=1))

@jit
def step(i, state):
    return update(i, grad(loss)(params_of(state)), state)

state = start(params)
for i in range(2):
    state = step(i, state)
last = loss(params_of(state))
"""


@pytest.mark.long
def test_training_with_stax_and_an_example_optimizer() -> None:
    ours: dict[str, Any] = {}
    Program().execute(PROGRAM.format(place="experimental"), ours)
    theirs: dict[str, Any] = {}
    exec(PROGRAM.format(place="example_libraries"), theirs)
    assert isinstance(ours["last"], sd.Array)
    assert isinstance(theirs["last"], jax.Array)
    np.testing.assert_allclose(ours["last"], theirs["last"], rtol=1e-4)
    assert repr(ours["stax"]).startswith("<module 'jax.example_libraries.stax'")
