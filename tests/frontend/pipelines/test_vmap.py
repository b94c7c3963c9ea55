"""`vmap` of pipelines: losses, gradients and auxiliary results of each element."""

from typing import Any

import numpy as np
import pytest

import shardir as sd
import shardir.numpy as jnp
from shardir.frontend.pipelines.recording import record_pipelines
from tests.frontend.pipelines.models import mlp_arguments, mlp_loss, place
from tests.frontend.pipelines.test_pipeline import assert_near

ELEMENTS, MICROBATCHES = 3, 4


@pytest.fixture(scope="module")
def mesh() -> sd.Mesh:
    return sd.make_mesh((2, 2), ("pipe", "data"))


def many(x: Any, count: int = ELEMENTS) -> Any:
    """Return different arrays with the shapes of `x`, stacked along a new first dimension."""
    return sd.tree.map(lambda leaf: np.stack([leaf * (1 + i / 4) for i in range(count)]), x)


def pipelined(loss: Any, schedule: str = "1f1b", **options: Any) -> Any:
    return sd.pipeline(loss, microbatches=MICROBATCHES, schedule=schedule, **options)


@pytest.mark.parametrize("schedule", [pytest.param("1f1b", marks=pytest.mark.long), "zb-h1"])
def test_gradients_of_many_weights_and_batches(mesh: sd.Mesh, schedule: str) -> None:
    params, x, y = mlp_arguments(2)
    batches = many(x)
    params, y = place(mesh, many(params), y)
    x = sd.device_put(batches, sd.NamedSharding(mesh, sd.P(None, "data")))
    axes = (0, 0, None)
    with record_pipelines() as record:
        step = sd.vmap(sd.value_and_grad(pipelined(mlp_loss, schedule)), in_axes=axes)
        made = sd.jit(step)(params, x, y)
    assert_near(made, sd.jit(sd.vmap(sd.value_and_grad(mlp_loss), in_axes=axes))(params, x, y))
    # A microbatch contains its part of the batch of each element.
    sizes = {event.nbytes for event in record.sends}
    assert sizes == {ELEMENTS * x.shape[1] // MICROBATCHES * 8 * 4}
    assert len(record.sends) == 2 * MICROBATCHES


def test_the_gradient_of_a_weighted_sum(mesh: sd.Mesh) -> None:
    """The cotangents of the elements of the loss differ."""
    params, x, y = mlp_arguments(2)
    params, x, y = place(mesh, many(params), x, y)

    def total(loss: Any, params: Any) -> Any:
        losses = sd.vmap(loss, in_axes=(0, None, None))(params, x, y)
        return jnp.sum(losses * jnp.arange(1, ELEMENTS + 1))

    made, expected = (
        sd.jit(sd.value_and_grad(lambda params, f=f: total(f, params)))(params)
        for f in (pipelined(mlp_loss), mlp_loss)
    )
    assert_near(made, expected)


def test_weights_that_all_elements_share(mesh: sd.Mesh) -> None:
    params, x, y = place(mesh, *mlp_arguments(2))
    batches = many(np.asarray(x))
    axes = (None, 0, None)
    losses = sd.jit(sd.vmap(pipelined(mlp_loss), in_axes=axes))(params, batches, y)
    assert_near(losses, sd.jit(sd.vmap(mlp_loss, in_axes=axes))(params, batches, y))
    step = sd.vmap(sd.grad(pipelined(mlp_loss)), in_axes=axes)
    expected = sd.vmap(sd.grad(mlp_loss), in_axes=axes)
    assert_near(sd.jit(step)(params, batches, y), sd.jit(expected)(params, batches, y))


def test_nested_vmap_and_auxiliary_results(mesh: sd.Mesh) -> None:
    def loss(params: Any, x: Any, y: Any) -> Any:
        value = mlp_loss(params, x, y)
        return value, {"norm": jnp.sum(x * x), "rows": x[:, 0], "count": jnp.ones(())}

    params, x, y = place(mesh, *mlp_arguments(2))
    weights, batches = many(many(params, 2)), many(np.asarray(x), 2)

    def mapped(function: Any) -> Any:
        inner = sd.vmap(function, in_axes=(0, 0, None))
        return sd.jit(sd.vmap(inner, in_axes=(0, None, None)))

    run = sd.value_and_grad(pipelined(loss, has_aux=True), has_aux=True)
    (values, auxiliary), gradients = mapped(run)(weights, batches, y)
    expected = mapped(sd.value_and_grad(mlp_loss))(weights, batches, y)
    assert_near((values, gradients), expected)
    parts = np.asarray(batches).reshape(2, MICROBATCHES, -1, 8)
    norms = np.broadcast_to((parts**2).sum((2, 3)), (ELEMENTS, 2, MICROBATCHES))
    np.testing.assert_allclose(auxiliary["norm"], norms, rtol=1e-5)
    np.testing.assert_array_equal(auxiliary["rows"][1], parts[..., 0])
    np.testing.assert_array_equal(auxiliary["count"], np.ones((ELEMENTS, 2, MICROBATCHES)))
