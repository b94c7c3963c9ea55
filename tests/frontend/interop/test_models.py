"""Values and gradients of models of Equinox, Flax and JAX agree with JAX for several shardings."""

from typing import Any

import jax
import numpy as np
import pytest

import shardir as sd
from shardir.interop.jax import from_jax
from shardir.sharding import NamedSharding, PartitionSpec as P
from tests.frontend.interop import models_equinox, models_flax

pytestmark = pytest.mark.sample(5)

MODELS = {**models_equinox.MODELS, **models_flax.MODELS}


def agree(found: Any, expected: Any) -> None:
    assert jax.tree.structure(found) == jax.tree.structure(expected)
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", MODELS)
def test_value_and_gradient_agree_with_jax(name: str, request: pytest.FixtureRequest) -> None:
    loss, params, data = MODELS[name]()
    value, gradient = jax.jit(jax.value_and_grad(loss))(params, *data)
    agree(from_jax(jax.value_and_grad(loss))(params, *data), (value, gradient))
    imported = sd.jit(sd.value_and_grad(from_jax(loss)))
    if request.config.getoption("--long"):
        agree(imported(params, *data), (value, gradient))
    mesh = sd.make_mesh((4, 2), ("data", "model"))
    cut = [
        sd.device_put(x, NamedSharding(mesh, P("data")))
        if isinstance(x, np.ndarray) and x.ndim > 1 and x.shape[0] % 4 == 0
        else x
        for x in data
    ]
    agree(imported(params, *cut), (value, gradient))
