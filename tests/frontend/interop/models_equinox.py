"""Models in the style of Equinox's examples, as losses of arrays.

Each function returns `(loss, params, data)`: the loss is differentiated with respect to `params`
and evaluated on `data`.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

Made = tuple[Any, Any, tuple[Any, ...]]


def draw(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype("float32")


class Block(eqx.Module):
    """Attention and a multilayer perceptron, each with a normalization and a residual
    connection.
    """

    attention: eqx.nn.MultiheadAttention
    mlp: eqx.nn.MLP
    norms: list[eqx.nn.LayerNorm]
    dropout: eqx.nn.Dropout

    def __init__(self, width: int, heads: int, key: Any) -> None:
        first, second = jr.split(key)
        self.attention = eqx.nn.MultiheadAttention(heads, width, key=first)
        self.mlp = eqx.nn.MLP(width, width, 2 * width, 1, activation=jax.nn.gelu, key=second)
        self.norms = [eqx.nn.LayerNorm(width), eqx.nn.LayerNorm(width)]
        self.dropout = eqx.nn.Dropout(0.1)

    def __call__(self, x: Any, mask: Any, key: Any) -> Any:
        y = jax.vmap(self.norms[0])(x)
        x = x + self.dropout(self.attention(y, y, y, mask), key=key)
        return x + jax.vmap(self.mlp)(jax.vmap(self.norms[1])(x))


class LanguageModel(eqx.Module):
    """A small transformer that predicts the next token."""

    tokens: eqx.nn.Embedding
    places: Any
    blocks: list[Block]
    out: eqx.nn.Linear

    def __init__(self, words: int, length: int, width: int, key: Any) -> None:
        keys = jr.split(key, 5)
        self.tokens = eqx.nn.Embedding(words, width, key=keys[0])
        self.places = jr.normal(keys[1], (length, width)) * 0.02
        self.blocks = [Block(width, 2, each) for each in keys[2:3]]
        self.out = eqx.nn.Linear(width, words, key=keys[4])

    def __call__(self, text: Any, key: Any) -> Any:
        x = jax.vmap(self.tokens)(text) + self.places
        mask = jnp.tril(jnp.ones((len(text), len(text)), bool))
        for block, each in zip(self.blocks, jr.split(key, len(self.blocks)), strict=True):
            x = block(x, mask, each)
        return jax.vmap(self.out)(x)


def transformer() -> Made:
    model = LanguageModel(11, 8, 16, jr.PRNGKey(0))
    params, static = eqx.partition(model, eqx.is_inexact_array)

    def loss(params: Any, text: Any, key: Any) -> Any:
        model = eqx.combine(params, static)
        logits = jax.vmap(model)(text[:, :-1], jr.split(key, text.shape[0]))
        logp = jax.nn.log_softmax(logits)
        return -jnp.mean(jnp.take_along_axis(logp, text[:, 1:, None], -1))

    text = np.random.default_rng(0).integers(0, 11, (8, 9)).astype("int32")
    return loss, params, (text, np.array([0, 5], np.uint32))


class Images(eqx.Module):
    """A convolutional network with normalization, pooling and dropout."""

    layers: list[Any]

    def __init__(self, key: Any) -> None:
        a, b, c = jr.split(key, 3)
        self.layers = [
            eqx.nn.Conv2d(1, 8, 3, padding=1, key=a),
            eqx.nn.GroupNorm(2, 8),
            eqx.nn.Lambda(jax.nn.silu),
            eqx.nn.MaxPool2d(2, 2),
            eqx.nn.Conv2d(8, 16, 3, stride=2, padding=1, key=b),
            jax.nn.relu,
            eqx.nn.AdaptiveAvgPool2d(1),
            jnp.ravel,
            eqx.nn.Linear(16, 10, key=c),
        ]

    def __call__(self, x: Any) -> Any:
        for layer in self.layers:
            x = layer(x)
        return x


def convolutional() -> Made:
    params, static = eqx.partition(Images(jr.PRNGKey(1)), eqx.is_inexact_array)

    def loss(params: Any, images: Any, labels: Any) -> Any:
        logits = jax.vmap(eqx.combine(params, static))(images)
        chosen = jnp.take_along_axis(jax.nn.log_softmax(logits), labels[:, None], 1)
        return -jnp.mean(chosen)

    labels = np.arange(8, dtype="int32") % 10
    return loss, params, (draw(8, 1, 12, 12), labels)


class Recurrent(eqx.Module):
    """A gated recurrent unit over a sequence, and a linear layer on its last state."""

    cell: eqx.nn.GRUCell
    out: eqx.nn.Linear

    def __init__(self, key: Any) -> None:
        first, second = jr.split(key)
        self.cell = eqx.nn.GRUCell(3, 16, key=first)
        self.out = eqx.nn.Linear(16, 1, key=second)

    def __call__(self, xs: Any) -> Any:
        def step(state: Any, x: Any) -> Any:
            return self.cell(x, state), None

        last, _ = jax.lax.scan(step, jnp.zeros(16), xs)
        return jax.nn.sigmoid(self.out(last))[0]


def recurrent() -> Made:
    params, static = eqx.partition(Recurrent(jr.PRNGKey(2)), eqx.is_inexact_array)

    def loss(params: Any, xs: Any, ys: Any) -> Any:
        said = jax.vmap(eqx.combine(params, static))(xs)
        return -jnp.mean(ys * jnp.log(said) + (1 - ys) * jnp.log(1 - said))

    return loss, params, (draw(8, 10, 3), (np.arange(8) % 2).astype("float32"))


def differential_equation() -> Made:
    """Return a vector field given by a network, integrated with Runge-Kutta steps."""
    field = eqx.nn.MLP(2, 2, 16, 2, activation=jax.nn.softplus, key=jr.PRNGKey(3))
    params, static = eqx.partition(field, eqx.is_inexact_array)

    def loss(params: Any, starts: Any, ends: Any) -> Any:
        field = eqx.combine(params, static)

        def step(y: Any, _: Any) -> Any:
            h = 0.1
            k1 = field(y)
            k2 = field(y + h / 2 * k1)
            k3 = field(y + h / 2 * k2)
            k4 = field(y + h * k3)
            return y + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4), y

        def solve(start: Any) -> Any:
            return jax.lax.scan(step, start, None, length=6)[0]

        return jnp.mean((jax.vmap(solve)(starts) - ends) ** 2)

    return loss, params, (draw(8, 2), draw(8, 2, seed=1))


def physics() -> Made:
    """Return a network trained on an equation between its own derivatives: u'' = -u."""
    model = eqx.nn.MLP("scalar", "scalar", 16, 2, activation=jnp.tanh, key=jr.PRNGKey(4))
    params, static = eqx.partition(model, eqx.is_inexact_array)

    def loss(params: Any, ts: Any) -> Any:
        u = eqx.combine(params, static)
        bent = jax.vmap(jax.grad(jax.grad(u)))(ts)
        return jnp.mean((bent + jax.vmap(u)(ts)) ** 2) + (u(0.0) - 1) ** 2

    return loss, params, (np.linspace(0, 3, 8, dtype="float32"),)


MODELS = {
    "transformer (Equinox)": transformer,
    "convolutional network (Equinox)": convolutional,
    "recurrent network (Equinox)": recurrent,
    "differential equation (Equinox)": differential_equation,
    "physics (Equinox)": physics,
}
