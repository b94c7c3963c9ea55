"""Models in the style of Flax's and JAX's examples, as losses of arrays.

Each function returns `(loss, params, data)`: the loss is differentiated with respect to `params`
and evaluated on `data`.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import linen as nn, nnx

from tests.frontend.interop.models_equinox import Made, draw


class Encoder(nn.Module):
    """Layers of self-attention over words."""

    words: int = 13
    width: int = 16
    layers: int = 1

    @nn.compact
    def __call__(self, text: Any, train: bool) -> Any:
        x = nn.Embed(self.words, self.width)(text)
        x = x + self.param("places", nn.initializers.normal(0.02), (text.shape[-1], self.width))
        mask = nn.make_causal_mask(text)
        for _ in range(self.layers):
            y = nn.LayerNorm()(x)
            y = nn.MultiHeadDotProductAttention(num_heads=2)(y, mask=mask)
            x = x + nn.Dropout(0.1, deterministic=not train)(y)
            y = nn.Dense(2 * self.width)(nn.LayerNorm()(x))
            x = x + nn.Dense(self.width)(nn.gelu(y))
        return nn.Dense(self.words)(nn.LayerNorm()(x))


def transformer() -> Made:
    model = Encoder()
    text = np.random.default_rng(0).integers(0, 13, (8, 7)).astype("int32")
    params = model.init(jax.random.PRNGKey(0), text[:, :-1], False)

    def loss(params: Any, text: Any, key: Any) -> Any:
        logits = model.apply(params, text[:, :-1], True, rngs={"dropout": key})
        return optax.softmax_cross_entropy_with_integer_labels(logits, text[:, 1:]).mean()

    return loss, params, (text, np.array([0, 7], np.uint32))


class AutoEncoder(nn.Module):
    """A variational autoencoder, which draws samples around the encoding."""

    latent: int = 4

    @nn.compact
    def __call__(self, x: Any, key: Any) -> Any:
        h = nn.relu(nn.Dense(32)(x))
        mean, logvar = nn.Dense(self.latent)(h), nn.Dense(self.latent)(h)
        z = mean + jnp.exp(0.5 * logvar) * jax.random.normal(key, mean.shape)
        h = nn.relu(nn.Dense(32)(z))
        return nn.Dense(x.shape[-1])(h), mean, logvar


def variational() -> Made:
    model = AutoEncoder()
    x = (draw(8, 20) > 0).astype("float32")
    params = model.init(jax.random.PRNGKey(1), x, jax.random.PRNGKey(2))

    def loss(params: Any, x: Any, key: Any) -> Any:
        logits, mean, logvar = model.apply(params, x, key)
        missed = optax.sigmoid_binary_cross_entropy(logits, x).sum(-1)
        far = -0.5 * jnp.sum(1 + logvar - mean**2 - jnp.exp(logvar), -1)
        return jnp.mean(missed + far)

    return loss, params, (x, np.array([1, 2], np.uint32))


class Characters(nn.Module):
    """A long short-term memory over one-hot characters."""

    @nn.compact
    def __call__(self, x: Any) -> Any:
        return nn.Dense(9)(nn.RNN(nn.OptimizedLSTMCell(16))(jax.nn.one_hot(x, 9)))


def characters() -> Made:
    model = Characters()
    text = np.random.default_rng(2).integers(0, 9, (8, 12)).astype("int32")
    params = model.init(jax.random.PRNGKey(3), text)

    def loss(params: Any, text: Any) -> Any:
        logits = model.apply(params, text[:, :-1])
        return optax.softmax_cross_entropy(logits, jax.nn.one_hot(text[:, 1:], 9)).mean()

    return loss, params, (text,)


class Residual(nnx.Module):
    """Convolutions with batch normalization and residual connections."""

    def __init__(self, channels: int, rngs: nnx.Rngs) -> None:
        self.conv = nnx.Conv(channels, channels, (3, 3), use_bias=False, rngs=rngs)
        self.norm = nnx.BatchNorm(channels, rngs=rngs)
        self.out = nnx.Linear(channels, 5, rngs=rngs)

    def __call__(self, x: Any) -> Any:
        x = x + nnx.relu(self.norm(self.conv(x)))
        x = nnx.avg_pool(x, (2, 2), (2, 2))
        return self.out(x.mean((1, 2)))


def residual() -> Made:
    graph, params, rest = nnx.split(Residual(4, nnx.Rngs(0)), nnx.Param, ...)

    def loss(params: Any, rest: Any, images: Any, labels: Any) -> Any:
        model = nnx.merge(graph, params, rest, copy=True)
        logits = model(images)
        return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()

    return loss, params, (rest, draw(8, 8, 8, 4), np.arange(8, dtype="int32") % 5)


def messages() -> Made:
    """Return a graph network whose nodes pass messages along edges."""
    params = [(draw(6, 6, seed=i) * 0.3, draw(6, 6, seed=i + 9) * 0.3) for i in range(2)]
    rng = np.random.default_rng(3)
    ends = rng.integers(0, 10, (2, 24)).astype("int32")

    def loss(params: Any, nodes: Any, ends: Any, wanted: Any) -> Any:
        sent, received = ends
        degree = jax.ops.segment_sum(jnp.ones(sent.shape), received, nodes.shape[0])
        for own, others in params:
            told = jax.ops.segment_sum(nodes[sent] @ others, received, nodes.shape[0])
            nodes = jax.nn.relu(nodes @ own + told / jnp.maximum(degree, 1)[:, None])
        far = jax.ops.segment_max(nodes[sent], received, nodes.shape[0])
        return jnp.mean((nodes.mean(0) - wanted) ** 2) + jnp.where(far > 0, far, 0).mean()

    return loss, params, (draw(10, 6), ends, draw(6, seed=5))


def experts() -> Made:
    """Return a mixture of experts of limited capacity; a router selects two for each token."""
    params = {
        "router": draw(8, 4) * 0.5,
        "up": draw(4, 8, 16, seed=1) * 0.3,
        "down": draw(4, 16, 8, seed=2) * 0.3,
    }

    def loss(params: Any, x: Any, wanted: Any) -> Any:
        gates = jax.nn.softmax(x @ params["router"])
        weight, chosen = jax.lax.top_k(gates, 2)
        weight = weight / weight.sum(-1, keepdims=True)
        mask = jax.nn.one_hot(chosen, 4)
        order = jnp.cumsum(mask.reshape(-1, 4), 0).reshape(mask.shape) * mask - 1
        room = jax.nn.one_hot(order.astype(jnp.int32), 6) * mask[..., None]
        combine = jnp.einsum("tk,tkec->tec", weight, room)
        sent = jnp.einsum("tec,td->ecd", room.sum(1), x)
        made = jnp.einsum("ecd,edf->ecf", sent, params["up"])
        made = jnp.einsum("ecf,efd->ecd", jax.nn.gelu(made), params["down"])
        out = jnp.einsum("tec,ecd->td", combine, made)
        balance = 4 * jnp.sum(mask[:, 0].mean(0) * gates.mean(0))
        return jnp.mean((out - wanted) ** 2) + 0.01 * balance

    return loss, params, (draw(16, 8, seed=3), draw(16, 8, seed=4))


MODELS = {
    "transformer (Flax)": transformer,
    "variational autoencoder (Flax)": variational,
    "characters by LSTM (Flax)": characters,
    "residual network (Flax nnx)": residual,
    "messages in a graph (JAX)": messages,
    "mixture of experts (JAX)": experts,
}
