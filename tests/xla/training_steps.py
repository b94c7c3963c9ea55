"""Training steps as StableHLO text: their numbers and collectives beside those of XLA.

    python -m tests.xla.training_steps rnn moe

Each name is a step of JAX, Flax or Equinox on a mesh of four devices. Prints one line of JSON per
name: the largest difference from JAX's results relative to their size, and the all-gathers of our
plan and of XLA's program.
"""

import json
import os
import re
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

RNG = np.random.default_rng(0)
DEVICES = 4
LEARNING_RATE = 0.1


def draw(*shape: int) -> Any:
    return RNG.normal(size=shape).astype("float32")


def whole(high: int, *shape: int) -> Any:
    return RNG.integers(0, high, shape).astype("int32")


Step = tuple[Callable[..., Any], tuple[Any, ...], tuple[Any, ...]]
"""A function, its arguments, and the mesh axis along which each one is sharded."""


def descend(loss: Callable[..., Any], params: Any) -> Any:
    """Return the parameters after one step of gradient descent, and the loss."""
    import jax

    value, slope = jax.value_and_grad(loss)(params)
    return jax.tree.map(lambda p, g: p - LEARNING_RATE * g, params, slope), value


def transformer() -> Step:
    import jax
    import optax

    from tests.frontend.interop.models_flax import Encoder

    model, text = Encoder(words=11, layers=2), whole(11, 8, 7)
    params = model.init(jax.random.key(0), text[:, :-1], train=False)
    optimizer = optax.adamw(1e-3)

    def step(params: Any, state: Any, text: Any) -> Any:
        def loss(params: Any) -> Any:
            scores = model.apply(params, text[:, :-1], train=False)
            return optax.softmax_cross_entropy_with_integer_labels(scores, text[:, 1:]).mean()

        value, slope = jax.value_and_grad(loss)(params)
        updates, state = optimizer.update(slope, state, params)
        return optax.apply_updates(params, updates), state, value

    return step, (params, optimizer.init(params), text), (None, None, "data")


def convolutions() -> Step:
    import equinox as eqx
    import jax
    import jax.numpy as jnp
    import optax

    keys = jax.random.split(jax.random.key(0), 3)
    net = eqx.nn.Sequential(
        [
            eqx.nn.Conv2d(1, 4, 3, key=keys[0]),
            eqx.nn.Lambda(jax.nn.relu),
            eqx.nn.MaxPool2d(2, 2),
            eqx.nn.Conv2d(4, 8, 3, stride=2, key=keys[1]),
            eqx.nn.GroupNorm(2, 8),
            eqx.nn.Lambda(jax.nn.silu),
            eqx.nn.Lambda(jnp.ravel),
            eqx.nn.Linear(32, 5, key=keys[2]),
        ]
    )
    params, static = eqx.partition(net, eqx.is_inexact_array)

    def step(params: Any, images: Any, labels: Any) -> Any:
        def loss(params: Any) -> Any:
            scores = jax.vmap(eqx.combine(params, static))(images)
            return optax.softmax_cross_entropy_with_integer_labels(scores, labels).mean()

        return descend(loss, params)

    return step, (params, draw(8, 1, 12, 12), whole(5, 8)), (None, "data", "data")


def rnn() -> Step:
    import jax.numpy as jnp
    from jax import lax

    params = {"in": draw(5, 8) * 0.3, "state": draw(8, 8) * 0.3, "out": draw(8, 3) * 0.3}

    def step(params: Any, x: Any, y: Any) -> Any:
        def loss(p: Any) -> Any:
            def cell(state: Any, row: Any) -> Any:
                return jnp.tanh(row @ p["in"] + state @ p["state"]), None

            state, _ = lax.scan(cell, jnp.zeros((8, 8)), x.swapaxes(0, 1))
            return jnp.mean((state @ p["out"] - y) ** 2)

        return descend(loss, params)

    return step, (params, draw(8, 6, 5), draw(8, 3)), (None, "data", "data")


def fourier() -> Step:
    import jax
    import jax.numpy as jnp

    params = {"real": draw(9, 4) * 0.3, "imag": draw(9, 4) * 0.3, "out": draw(4, 4)}

    def step(params: Any, x: Any, y: Any) -> Any:
        def loss(p: Any) -> Any:
            spectrum = jnp.fft.rfft(x, axis=1) * (p["real"] + 1j * p["imag"])
            mixed = jax.nn.gelu(jnp.fft.irfft(spectrum, n=16, axis=1) @ p["out"])
            return jnp.mean((mixed - y) ** 2)

        return descend(loss, params)

    return step, (params, draw(8, 16, 4), draw(8, 16, 4)), (None, "data", "data")


def graph() -> Step:
    import jax
    import jax.numpy as jnp

    params = {"in": draw(6, 8) * 0.3, "out": draw(8, 3) * 0.3}

    def step(params: Any, nodes: Any, senders: Any, receivers: Any, y: Any) -> Any:
        def loss(p: Any) -> Any:
            hidden = nodes @ p["in"]
            total = jax.ops.segment_sum(hidden[senders], receivers, 12)
            degree = jax.ops.segment_sum(jnp.ones(32), receivers, 12)
            largest = jax.ops.segment_max(hidden[senders], receivers, 12)
            largest = jnp.where(jnp.isfinite(largest), largest, 0)
            hidden = jax.nn.relu(total / jnp.maximum(degree, 1)[:, None] + hidden)
            return jnp.mean(((hidden + largest) @ p["out"] - y) ** 2)

        return descend(loss, params)

    args = (params, draw(12, 6), whole(12, 32), whole(12, 32), draw(12, 3))
    return step, args, (None, None, "data", "data", None)


def moe() -> Step:
    import jax
    import jax.numpy as jnp
    from jax import lax

    params = {
        "router": draw(6, 4) * 0.5, "in": draw(4, 6, 8) * 0.3, "out": draw(4, 8, 6) * 0.3,
    }  # fmt: skip
    axes = {"router": None, "in": "data", "out": "data"}

    def layer(p: Any, x: Any) -> Any:
        scores = jax.nn.softmax(x @ p["router"])
        expert = jnp.argmax(scores, -1)
        chosen = jax.nn.one_hot(expert, 4)
        place = ((jnp.cumsum(chosen, 0) - 1) * chosen).sum(-1).astype(int)
        sent = jax.nn.one_hot(place, 4)[:, None, :] * chosen[:, :, None]
        rows = lax.all_to_all(jnp.einsum("nec,nd->ecd", sent, x), "data", 0, 1, tiled=True)
        hidden = jax.nn.relu(jnp.einsum("ecd,edh->ech", rows, p["in"]))
        rows = jnp.einsum("ech,ehd->ecd", hidden, p["out"])
        rows = lax.all_to_all(rows, "data", 1, 0, tiled=True)
        return jnp.einsum("nec,ecd->nd", sent, rows) * scores.max(-1, keepdims=True)

    def step(params: Any, x: Any, y: Any) -> Any:
        specs = {name: jax.P(axis) for name, axis in axes.items()}
        mapped = jax.shard_map(
            layer, mesh=make_mesh(), in_specs=(specs, jax.P("data")), out_specs=jax.P("data")
        )
        return descend(lambda p: jnp.mean((mapped(p, x) - y) ** 2), params)

    return step, (params, draw(16, 6), draw(16, 6)), (axes, "data", "data")


STEPS = {step.__name__: step for step in (transformer, convolutions, rnn, fourier, graph, moe)}


def make_mesh() -> Any:
    import jax

    return jax.make_mesh((DEVICES,), ("data",), axis_types=(jax.sharding.AxisType.Auto,))


def compare(name: str) -> dict[str, Any]:
    """Return the comparison of a step with JAX and XLA."""
    import jax

    from shardir.interpret.interpreter import evaluate
    from shardir.ops.opaque import unknown_operations
    from shardir.passes import Pipeline
    from shardir.passes.pipeline import DEFAULT_PIPELINE
    from shardir.stablehlo.reader import read

    step, args, axes = STEPS[name]()
    mesh = make_mesh()
    shardings = jax.tree.map(
        lambda axis: jax.sharding.NamedSharding(mesh, jax.P(axis) if axis else jax.P()), axes,
        is_leaf=lambda x: x is None,
    )  # fmt: skip
    jitted = jax.jit(step, in_shardings=shardings, keep_unused=True)
    lowered = jitted.lower(*args)
    module = read(lowered.as_text(), f"{name}.mlir")
    found = evaluate(module.main, [np.asarray(x) for x in jax.tree.leaves(args)])
    plan = Pipeline.parse(DEFAULT_PIPELINE)(module)
    pairs = zip(found, jax.tree.leaves(jitted(*args)), strict=True)
    return {
        "name": name,
        "unknown": [each.operation for each in unknown_operations(module)],
        "difference": max(map(relative_difference, *zip(*pairs, strict=True))),
        "all-gathers": sum(op.name == "all-gather" for op in plan.main.body.walk()),
        "all-gathers of XLA": len(re.findall(r" all-gather(?:-start)?\(",
                                             lowered.compile().as_text())),
    }  # fmt: skip


def relative_difference(found: Any, expected: Any) -> float:
    """Return the largest difference, relative to the largest element or 1."""
    first, second = (np.asarray(x, np.float64) for x in (found, expected))
    size = max(1.0, np.max(np.abs(second), initial=0))
    return float(np.max(np.abs(first - second), initial=0) / size)


def main(names: list[str]) -> None:
    os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={DEVICES}"
    os.environ["JAX_PLATFORMS"] = "cpu"
    for name in names or STEPS:
        print(json.dumps(compare(name)), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
