"""Training steps of Equinox, Flax and Optax, on one device and on several."""

from collections.abc import Callable, Iterator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
import pytest
from flax.training.train_state import TrainState

import shardir as sd
from shardir.interop.jax import from_jax
from shardir.sharding import NamedSharding, PartitionSpec as P
from tests.frontend.interop import models_flax

pytestmark = pytest.mark.sample(2)

Batches = Callable[[], Iterator[tuple[Any, Any]]]


def batches() -> Iterator[tuple[Any, Any]]:
    """Return shuffled batches of sixteen."""
    rng = np.random.default_rng(0)
    xs = rng.normal(size=(64, 4))
    ys = np.sin(xs)
    while True:
        order = rng.permutation(64)
        for start in range(0, 64, 16):
            chosen = order[start : start + 16]
            yield xs[chosen], ys[chosen]


def shardings() -> dict[str, Callable[[Any], Any]]:
    """Return shardings of a batch: on one device, on eight, and on four by two."""

    def on(sizes: tuple[int, ...], names: tuple[str, ...], spec: P) -> Callable[[Any], Any]:
        return lambda x: sd.device_put(x, NamedSharding(sd.make_mesh(sizes, names), spec))

    return {
        "1": lambda x: x,
        "8": on((8,), ("data",), P("data")),
        "4x2": on((4, 2), ("data", "model"), P("data", "model")),
    }


@pytest.mark.parametrize("place", shardings())
def test_training_of_an_equinox_module_agrees_with_jax(place: str) -> None:
    model = eqx.nn.MLP(4, 4, 32, 1, key=jr.PRNGKey(6789))
    optim = optax.adam(3e-4)
    state = optim.init(eqx.filter(model, eqx.is_inexact_array))

    def compute_loss(model: Any, x: Any, y: Any) -> Any:
        pred_y = jax.vmap(model)(x)
        return jnp.mean((y - pred_y) ** 2)

    def make_step(model: Any, state: Any, x: Any, y: Any) -> Any:
        loss, grads = eqx.filter_value_and_grad(compute_loss)(model, x, y)
        updates, state = optim.update(grads, state)
        return loss, eqx.apply_updates(model, updates), state

    def losses(step: Callable[..., Any], put: Callable[[Any], Any]) -> list[float]:
        trained, kept, found = model, state, []
        for _, (x, y) in zip(range(10), batches(), strict=False):
            loss, trained, kept = step(trained, kept, put(x), put(y))
            found.append(float(loss))
        assert isinstance(trained, eqx.nn.MLP)
        assert trained.activation is model.activation
        return found

    expected = losses(eqx.filter_jit(make_step), lambda x: x)
    found = losses(from_jax(make_step), shardings()[place])
    assert abs(found[0] - expected[0]) < 2e-6
    assert abs(found[-1] - expected[-1]) < 1e-3


def spec_of(path: Any, leaf: Any) -> P:
    """Return the spec of weights: perceptrons and heads are sharded over `model`, as in
    Megatron.
    """
    name = jax.tree_util.keystr(path)
    if "kernel" not in name:
        return P()
    if "Dense_" in name and leaf.ndim == 2:
        return P(None, "model") if leaf.shape[0] < leaf.shape[1] else P("model", None)
    return P(None, "model") if any(each in name for each in ("query", "key", "value")) else P()


@pytest.mark.long
def test_training_of_a_flax_transformer_on_four_by_two_devices() -> None:
    loss, params, (text, key) = models_flax.transformer()
    state = TrainState.create(apply_fn=None, params=params, tx=optax.adamw(1e-2, eps=1e-3))

    def train_step(state: Any, text: Any, key: Any) -> Any:
        value, grads = jax.value_and_grad(loss)(state.params, text, key)
        return state.apply_gradients(grads=grads), value

    def losses(step: Callable[..., Any], state: Any, text: Any) -> Any:
        found = []
        for _ in range(4):
            state, value = step(state, text, key)
            found.append(float(value))
        return state, found

    expected, first = losses(jax.jit(train_step), state, text)
    mesh = sd.make_mesh((4, 2), ("data", "model"))
    placed = jax.tree_util.tree_map_with_path(
        lambda path, x: sd.device_put(np.asarray(x), NamedSharding(mesh, spec_of(path, x))),
        state.params,
    )
    imported = from_jax(train_step)
    cut = sd.device_put(text, NamedSharding(mesh, P("data")))
    found, second = losses(imported, state.replace(params=placed), cut)
    np.testing.assert_allclose(second, first, rtol=2e-5)
    assert isinstance(found, TrainState)
    assert int(found.step) == 4
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), atol=1e-4)
    kinds = {each.kind for each in imported.lower(found, cut, key).compile().collectives()}
    assert "all-reduce" in kinds
