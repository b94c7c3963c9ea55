"""Functions that mutate objects of Flax's nnx have the same effect as under `nnx.jit`."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

import shardir as sd
from shardir.interop.jax import from_jax
from shardir.sharding import NamedSharding, PartitionSpec as P

pytestmark = pytest.mark.sample(4)

X = np.random.default_rng(0).standard_normal((8, 3)).astype("float32")
Y = np.random.default_rng(1).standard_normal((8, 2)).astype("float32")


class Perceptron(nnx.Module):
    """A module with nested modules, dropout and batch statistics."""

    def __init__(self, rngs: nnx.Rngs) -> None:
        self.first = nnx.Linear(3, 4, use_bias=False, rngs=rngs)
        self.norm = nnx.BatchNorm(4, rngs=rngs)
        self.dropout = nnx.Dropout(0.3, rngs=rngs)
        self.rest = nnx.List([nnx.Linear(4, 4, rngs=rngs), nnx.Linear(4, 2, rngs=rngs)])

    def __call__(self, x: Any) -> Any:
        x = self.dropout(nnx.relu(self.norm(self.first(x))))
        for layer in self.rest:
            x = layer(x)
        return x


class Tied(nnx.Module):
    """Two layers that share one kernel."""

    def __init__(self, rngs: nnx.Rngs) -> None:
        self.one = nnx.Linear(3, 3, rngs=rngs)
        self.two = nnx.Linear(3, 3, rngs=rngs)
        self.two.kernel = self.one.kernel

    def __call__(self, x: Any) -> Any:
        return self.two(nnx.tanh(self.one(x)))[:, :2]


class Count(nnx.Variable):
    """A variable that counts calls."""


class Growing(nnx.Module):
    """A module that creates a Variable at its first call, and counts."""

    def __init__(self, rngs: nnx.Rngs) -> None:
        self.layer = nnx.Linear(3, 2, rngs=rngs)
        self.calls = Count(jnp.zeros((), jnp.int32))
        self.seen = nnx.data(None)
        self.mode = "new"

    def __call__(self, x: Any) -> Any:
        out = self.layer(x)
        self.calls[...] += 1
        if self.seen is None:
            self.seen = nnx.BatchStat(jnp.abs(out).max())
        self.seen[...] = jnp.maximum(self.seen[...], jnp.abs(out).max())
        self.mode = "old"
        return out


def loss_of(model: Any, x: Any, y: Any) -> Any:
    return jnp.mean((model(x) - y) ** 2)


def step(model: Any, optimizer: Any, x: Any, y: Any) -> Any:
    loss, grads = nnx.value_and_grad(loss_of)(model, x, y)
    optimizer.update(model, grads)
    return loss


def in_containers(both: Any, batch: Any) -> Any:
    loss, grads = nnx.value_and_grad(loss_of)(both["model"], *batch)
    both["optimizer"].update(both["model"], grads)
    return {"loss": loss, "grads": grads}


def returns_the_model(model: Any, optimizer: Any, x: Any, y: Any) -> Any:
    return step(model, optimizer, x, y), model


def with_aux(model: Any, optimizer: Any, x: Any, y: Any) -> Any:
    def loss_fn(model: Any) -> Any:
        out = model(x)
        return jnp.mean((out - y) ** 2), out

    (loss, out), grads = nnx.value_and_grad(loss_fn, has_aux=True)(model)
    optimizer.update(model, grads)
    return loss, out


def by_state(model: Any, optimizer: Any, x: Any, y: Any) -> Any:
    """Compute gradients with respect to the state, by JAX."""
    graph, params, rest = nnx.split(model, nnx.Param, ...)

    def loss_fn(params: Any) -> Any:
        return loss_of(nnx.merge(graph, params, rest, copy=True), x, y)

    loss, grads = jax.value_and_grad(loss_fn)(params)
    optimizer.update(model, grads)
    return loss


def in_a_loop(model: Any, optimizer: Any, x: Any, y: Any) -> Any:
    @nnx.scan(in_axes=(nnx.Carry, 0, 0), out_axes=(nnx.Carry, 0))
    def several(both: Any, x: Any, y: Any) -> Any:
        model, optimizer = both
        return both, step(model, optimizer, x, y)

    _, losses = several((model, optimizer), jnp.stack([x, x + 1]), jnp.stack([y, y]))
    return losses


MODELS: dict[str, Callable[[Any], Any]] = {
    "perceptron": Perceptron,
    "tied": Tied,
    "growing": Growing,
    "linear": lambda rngs: nnx.Linear(3, 2, rngs=rngs),
}
OPTIMIZERS = {
    "sgd": optax.sgd(0.1),
    "adamw": optax.adamw(1e-2),
    "clipped momentum": optax.chain(optax.clip_by_global_norm(1.0), optax.sgd(0.1, momentum=0.9)),
    "schedule": optax.adam(optax.cosine_decay_schedule(1e-2, 5)),
}
STEPS: dict[str, Callable[..., Any]] = {
    "plain": step,
    "nnx.jit": nnx.jit(step),
    "returns the model": returns_the_model,
    "aux": with_aux,
    "by state": by_state,
}


def state_of(objects: Any) -> Any:
    return jax.tree.map(np.asarray, nnx.to_pure_dict(nnx.state(objects, nnx.Not(nnx.RngKey))))


def agree(found: Any, expected: Any) -> None:
    one, other = state_of(found), state_of(expected)
    assert jax.tree.structure(one) == jax.tree.structure(other)
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-6)


def train(run: Callable[..., Any], model: str, optimizer: str) -> tuple[Any, list[float]]:
    made = MODELS[model](nnx.Rngs(0, dropout=1))
    trained = nnx.Optimizer(made, OPTIMIZERS[optimizer], wrt=nnx.Param)
    losses = [
        float(np.asarray(jax.tree.leaves(run(made, trained, X, Y))[0]).sum()) for _ in range(3)
    ]
    return (made, trained), losses


@pytest.mark.parametrize(
    ("model", "optimizer", "name"),
    [
        ("perceptron", "adamw", "plain"),
        ("perceptron", "clipped momentum", "nnx.jit"),
        ("tied", "sgd", "plain"),
        ("tied", "schedule", "by state"),
        ("growing", "sgd", "nnx.jit"),
        ("growing", "sgd", "returns the model"),
        ("linear", "sgd", "aux"),
    ],
)
def test_a_step_trains_as_under_nnx_jit(model: str, optimizer: str, name: str) -> None:
    function = STEPS[name]
    expected, losses = train(nnx.jit(function), model, optimizer)
    found, ours = train(from_jax(function), model, optimizer)
    np.testing.assert_allclose(ours, losses, rtol=2e-5)
    assert ours[0] != ours[1]
    agree(found, expected)


def test_a_loop_over_steps_trains_as_under_nnx_jit() -> None:
    expected, losses = train(nnx.jit(in_a_loop), "linear", "sgd")
    found, ours = train(from_jax(in_a_loop), "linear", "sgd")
    np.testing.assert_allclose(ours, losses, rtol=2e-5)
    agree(found, expected)


def test_objects_in_containers_are_updated() -> None:
    found = []
    for wrap in (nnx.jit, from_jax):
        model = Perceptron(nnx.Rngs(0))
        both = {"model": model, "optimizer": nnx.Optimizer(model, optax.adam(0.1), wrt=nnx.Param)}
        run = wrap(in_containers)
        losses = [float(run(both, (X, Y))["loss"]) for _ in range(3)]
        assert both["model"] is model
        found.append((both, losses))
    (expected, first), (ours, second) = found
    np.testing.assert_allclose(second, first, rtol=2e-5)
    agree(ours, expected)


def test_shared_references_stay_shared() -> None:
    (model, _), _ = train(from_jax(step), "tied", "sgd")
    assert model.two.kernel is model.one.kernel


def test_a_returned_object_is_the_object_of_the_caller() -> None:
    model = Perceptron(nnx.Rngs(0))
    optimizer = nnx.Optimizer(model, optax.sgd(0.1), wrt=nnx.Param)
    _, returned = from_jax(returns_the_model)(model, optimizer, X, Y)
    assert returned is model


def test_graph_changes_of_a_function_update_the_object() -> None:
    model = Growing(nnx.Rngs(0))
    run = from_jax(lambda model, x: model(x))
    expected = Growing(nnx.Rngs(0))
    for x in (X, 2 * X):
        nnx.jit(lambda model, x: model(x))(expected, x)
        run(model, x)
    assert model.mode == "old"
    assert isinstance(model.seen, nnx.BatchStat)
    agree(model, expected)


def test_one_object_in_two_arguments_is_one_object() -> None:
    def twice(one: Any, other: Any) -> Any:
        one.calls[...] += 1
        other.calls[...] += 1
        return one.calls[...]

    model = Growing(nnx.Rngs(0))
    assert int(from_jax(twice)(model, model)) == 2
    assert int(model.calls[...]) == 2


def test_metrics_and_rngs_are_updated() -> None:
    def measured(metrics: Any, rngs: Any, x: Any, y: Any) -> Any:
        noise = jax.random.normal(rngs.noise(), x.shape)
        metrics.update(loss=jnp.mean((x + noise) ** 2), logits=x, labels=y)
        return noise

    found = []
    for wrap in (nnx.jit, from_jax):
        metrics = nnx.MultiMetric(loss=nnx.metrics.Average("loss"), accuracy=nnx.metrics.Accuracy())
        rngs, run = nnx.Rngs(0, noise=3), wrap(measured)
        noises = [np.asarray(run(metrics, rngs, X, Y.argmax(-1))) for _ in range(2)]
        assert not np.array_equal(noises[0], noises[1])
        found.append((noises, jax.tree.map(float, metrics.compute())))
        metrics.reset()
        assert int(rngs.noise.count[...]) == 2
    (first, expected), (second, ours) = found
    np.testing.assert_allclose(second, first, rtol=1e-6)
    assert ours == pytest.approx(expected)


def test_variables_are_updated() -> None:
    def count(counter: Any, x: Any) -> Any:
        counter[...] += x.sum()
        return counter[...]

    counter = nnx.Variable(jnp.zeros(()))
    for i in range(1, 3):
        assert float(from_jax(count)(counter, np.ones(3, "float32"))) == 3 * i
    assert float(counter[...]) == 6


def test_64_bit_values_are_kept() -> None:
    def count(counter: Any) -> None:
        counter[...] += 2.0**-40

    with sd.enable_x64():
        counter = nnx.Variable(np.ones((), np.float64))
        for _ in range(2):
            from_jax(count)(counter)
        assert counter[...].dtype == np.float64
        assert float(counter[...]) == 1 + 2.0**-39


def test_another_graph_structure_is_traced_again() -> None:
    count = 0

    def counted(model: Any, x: Any) -> Any:
        nonlocal count
        count += 1
        return model(x)

    run, model = from_jax(counted), Perceptron(nnx.Rngs(0))
    for _ in range(3):
        run(model, X)
    assert count == 1
    model.eval()
    before = state_of(model)
    for _ in range(2):
        run(model, X)
    assert count == 2
    for a, b in zip(jax.tree.leaves(before), jax.tree.leaves(state_of(model)), strict=True):
        np.testing.assert_array_equal(a, b)


def test_objects_are_usable_with_jax_after_a_step() -> None:
    (model, optimizer), _ = train(from_jax(step), "linear", "sgd")
    (expected, other), _ = train(nnx.jit(step), "linear", "sgd")
    np.testing.assert_allclose(model(X), expected(X), rtol=1e-5)
    nnx.jit(step)(model, optimizer, X, Y)
    nnx.jit(step)(expected, other, X, Y)
    agree((model, optimizer), (expected, other))


def test_sharded_values_keep_their_shardings() -> None:
    model = nnx.Linear(3, 2, rngs=nnx.Rngs(0))
    expected = nnx.Linear(3, 2, rngs=nnx.Rngs(0))
    mesh = sd.make_mesh((2,), ("model",))
    cut = NamedSharding(mesh, P(None, "model"))
    run, optimizer = from_jax(step), nnx.Optimizer(model, optax.adam(0.1), wrt=nnx.Param)
    model.kernel.set_value(sd.device_put(np.asarray(model.kernel[...]), cut))
    other = nnx.Optimizer(expected, optax.adam(0.1), wrt=nnx.Param)
    for _ in range(2):
        run(model, optimizer, X, Y)
        nnx.jit(step)(expected, other, X, Y)
    assert model.kernel[...].sharding.is_equivalent_to(cut, 2)
    agree((model, optimizer), (expected, other))


def test_lowering_with_objects_has_no_effect() -> None:
    model = Perceptron(nnx.Rngs(0))
    optimizer = nnx.Optimizer(model, optax.sgd(0.1), wrt=nnx.Param)
    before = state_of((model, optimizer))
    text = from_jax(step).lower(model, optimizer, X, Y).as_text()
    assert "%model.first.kernel: f32[3, 4]" in text
    assert from_jax(step).eval_shape(model, optimizer, X, Y).shape == ()
    for a, b in zip(
        jax.tree.leaves(before), jax.tree.leaves(state_of((model, optimizer))), strict=True
    ):
        np.testing.assert_array_equal(a, b)


def test_a_split_state_is_not_mutated() -> None:
    """With the functional API, results are new objects."""

    def functional(state: Any, x: Any, y: Any) -> Any:
        model, optimizer = nnx.merge(graph, state)
        loss = step(model, optimizer, x, y)
        return loss, nnx.state((model, optimizer))

    model = Perceptron(nnx.Rngs(0))
    optimizer = nnx.Optimizer(model, optax.sgd(0.1), wrt=nnx.Param)
    graph, state = nnx.split((model, optimizer))
    before = nnx.to_pure_dict(jax.tree.map(jnp.copy, state))
    expected = jax.jit(functional)(state, X, Y)
    found = from_jax(functional)(state, X, Y)
    agree_leaves(found, expected)
    agree_leaves(nnx.to_pure_dict(state), before)


def agree_leaves(found: Any, expected: Any) -> None:
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        if not jnp.issubdtype(b.dtype, jax.dtypes.prng_key):
            np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("wrap", [sd.jit, lambda f: sd.value_and_grad(f, allow_int=True)])
def test_an_update_that_would_be_lost_is_an_error(wrap: Callable[[Any], Any]) -> None:
    with pytest.raises(sd.ShardirError) as caught:
        wrap(from_jax(loss_of))(Perceptron(nnx.Rngs(0)), X, Y)
    assert str(caught.value).partition("\n")[0] == (
        "loss_of changes an object of flax.nnx in place, and inside of jit, grad and other "
        "transformations that object is a copy of the caller's, which would keep its state; call "
        "it outside of them (from_jax compiles it, and nnx.grad works inside of it), or give it "
        "the graph and the state of nnx.split and return the new state after nnx.merge"
    )


def test_unmodified_objects_are_allowed_in_transformations() -> None:
    model = nnx.Linear(3, 2, rngs=nnx.Rngs(0))
    expected = nnx.grad(loss_of)(model, X, Y)
    found = sd.grad(from_jax(loss_of))(model, X, Y)
    agree_leaves(found, expected)


def test_objects_created_inside_a_trace_may_be_mutated() -> None:
    graph, state = nnx.split(Growing(nnx.Rngs(0)))
    run = from_jax(lambda model, x: model(x))

    @sd.jit
    def twice(state: Any, x: Any) -> Any:
        model = nnx.merge(graph, state)
        run(model, x)
        run(model, x)
        return model.calls[...]

    assert int(twice(state, X)) == 2
