"""Models in stages for the tests of pipelines, and their arguments on a mesh pipe x data."""

from collections.abc import Callable
from typing import Any

import numpy as np

import shardir as sd
import shardir.numpy as jnp
from shardir import nn

Params = list[dict[str, Any]]

BATCH, LENGTH, WIDTH, VOCABULARY = 32, 8, 16, 32


def place(mesh: sd.Mesh, params: Any, *batch: Any) -> tuple[Any, ...]:
    """Return the arguments on a mesh: replicated parameters, and a batch sharded over `data`."""
    replicated = sd.NamedSharding(mesh, sd.P())
    sharded = sd.NamedSharding(mesh, sd.P("data"))
    return (sd.device_put(params, replicated), *(sd.device_put(x, sharded) for x in batch))


def mlp_loss(params: list[Any], x: Any, y: Any) -> Any:
    """Return the loss of a multilayer perceptron with one layer in each stage."""
    for i, w in enumerate(params):
        x = sd.stage(i)(lambda w, x: jnp.tanh(x @ w))(w, x)
    return jnp.mean((x - y) ** 2)


def place_stacked(mesh: sd.Mesh, params: Any, *batch: Any) -> tuple[Any, ...]:
    """Return the arguments of `stacked_loss` on a mesh, each layer on the row of its stage."""
    layers = sd.device_put(params["layers"], sd.NamedSharding(mesh, sd.P("pipe")))
    scale, *rest = place(mesh, params["scale"], *batch)
    return ({"layers": layers, "scale": scale}, *rest)


def stacked_loss(params: dict[str, Any], x: Any, y: Any) -> Any:
    """Return the loss of a perceptron with stacked weights and a scale that all stages use."""
    last = len(params["layers"]) - 1
    for i in range(last + 1):
        with sd.stage(i):
            x = jnp.tanh(x @ params["layers"][i]) * params["scale"]
    with sd.stage(last):
        return jnp.mean((x - y) ** 2)


def stacked_arguments(stages: int) -> tuple[Any, ...]:
    """Return the weights and a batch for `stacked_loss`."""
    params, x, y = mlp_arguments(stages)
    return {"layers": np.stack(params), "scale": np.linspace(1, 2, 8, dtype=np.float32)}, x, y


def listed_loss(params: list[Any], x: Any, y: Any) -> Any:
    """Return the loss of a perceptron with two layers in each stage, whose weights are entries of
    lists, dictionaries and tuples; all stages use a scale."""
    *layers, scale = params
    for i, (layer, (bias,)) in enumerate(layers):
        with sd.stage(i // 2):
            x = jnp.tanh(x @ layer["w"] + bias) * scale
    with sd.stage(len(layers) // 2 - 1):
        return jnp.mean((x - y) ** 2)


def listed_arguments(stages: int) -> tuple[Any, ...]:
    """Return the weights and a batch for `listed_loss`."""
    weights, x, y = mlp_arguments(2 * stages)
    bias = np.linspace(0, 1, 8, dtype=np.float32)
    return [*(({"w": w}, (bias * i,)) for i, w in enumerate(weights)), np.ones(8, np.float32)], x, y


def place_listed(mesh: sd.Mesh, params: Any, *batch: Any) -> tuple[Any, ...]:
    """Return the arguments of `listed_loss` on a mesh; the rows of its stages divide each layer."""
    layers = sd.device_put(params[:-1], sd.NamedSharding(mesh, sd.P("pipe")))
    scale, *rest = place(mesh, params[-1], *batch)
    return ([*layers, scale], *rest)


def mlp_arguments(stages: int) -> tuple[Any, ...]:
    """Return the weights and a batch for `mlp_loss`."""
    rng = np.random.default_rng(0)
    params = [rng.standard_normal((8, 8)).astype(np.float32) / 3 for _ in range(stages)]
    x, y = rng.standard_normal((2, 16, 8)).astype(np.float32)
    return params, x, y


def transformer_block(p: dict[str, Any], x: Any) -> Any:
    """Return the result of one block with two heads of causal attention."""
    b, s, h = x.shape
    q, k, v = (
        part.reshape(b, s, 2, h // 2).transpose(0, 2, 1, 3)
        for part in jnp.split(_normalize(x) @ p["qkv"], 3, axis=-1)
    )
    scores = q @ k.transpose(0, 1, 3, 2) / np.sqrt(h // 2).astype(np.float32)
    scores = jnp.where(jnp.tril(jnp.ones((s, s), bool)), scores, -1e9)
    mixed = (nn.softmax(scores) @ v).transpose(0, 2, 1, 3).reshape(b, s, h)
    x = x + mixed @ p["out"]
    return x + nn.gelu(_normalize(x) @ p["up"]) @ p["down"]


def _normalize(x: Any) -> Any:
    mean = x.mean(-1, keepdims=True)
    return (x - mean) / jnp.sqrt(((x - mean) ** 2).mean(-1, keepdims=True) + 1e-5)


def transformer_loss(params: dict[str, Any], tokens: Any) -> Any:
    """Return the loss of a transformer with tied embeddings and one block in each stage."""
    last = len(params["blocks"]) - 1
    with sd.stage(0):
        x = params["embedding"][tokens[:, :-1]]
    for i, p in enumerate(params["blocks"]):
        x = sd.stage(i)(transformer_block)(p, x)
    with sd.stage(last):
        scores = nn.log_softmax(_normalize(x) @ params["embedding"].T)
        chosen = jnp.take_along_axis(scores, tokens[:, 1:, None], axis=-1)
        return -jnp.mean(chosen)


def transformer_arguments(stages: int) -> tuple[Any, ...]:
    """Return the weights and a batch of tokens for `transformer_loss`."""
    rng = np.random.default_rng(0)

    def weight(*shape: int) -> Any:
        return (rng.standard_normal(shape) / np.sqrt(shape[0])).astype(np.float32)

    blocks = [
        {
            "qkv": weight(WIDTH, 3 * WIDTH),
            "out": weight(WIDTH, WIDTH),
            "up": weight(WIDTH, 4 * WIDTH),
            "down": weight(4 * WIDTH, WIDTH),
        }
        for _ in range(stages)
    ]
    params = {"embedding": weight(VOCABULARY, WIDTH), "blocks": blocks}
    tokens = rng.integers(0, VOCABULARY, (BATCH, LENGTH + 1)).astype(np.int32)
    return params, tokens


MODELS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "mlp": (mlp_loss, mlp_arguments),
    "stacked": (stacked_loss, stacked_arguments),
    "listed": (listed_loss, listed_arguments),
    "transformer": (transformer_loss, transformer_arguments),
}
"""The loss and the function of the arguments of each model."""


def place_arguments(model: str, mesh: sd.Mesh, stages: int) -> tuple[Any, ...]:
    """Return the arguments of a model on a mesh."""
    _, make_arguments = MODELS[model]
    placing = {"stacked": place_stacked, "listed": place_listed}.get(model, place)
    return placing(mesh, *make_arguments(stages))
