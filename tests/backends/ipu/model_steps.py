"""Training steps of a perceptron and a transformer with several shardings."""

from collections.abc import Mapping
from typing import Any

import numpy as np

import shardir as sd
import shardir.numpy as snp
from shardir import lax, nn
from shardir.sharding import NamedSharding, PartitionSpec as P

Spec = tuple[Any, ...]
Specs = Mapping[str, Spec]

PERCEPTRON = {"w1": (8, 16), "b1": (16,), "w2": (16, 4)}
PERCEPTRON_SPECS: Mapping[str, Specs] = {
    "dp": {},
    "tp": {"w1": (None, "model"), "b1": ("model",), "w2": ("model", None)},
    "fsdp": {"w1": ("data", None), "w2": ("data", None)},
}
D, H, K, F, V, S, B = 8, 2, 4, 16, 12, 6, 4
TRANSFORMER = {
    "emb": (V, D), "wq": (D, H, K), "wk": (D, H, K), "wv": (D, H, K), "wo": (H, K, D),
    "g1": (D,), "g2": (D,), "w1": (D, F), "b1": (F,), "w2": (F, D),
}  # fmt: skip
HEADS = (None, "model")
TRANSFORMER_SPECS: Mapping[str, Specs] = {
    "dp": {},
    "tp": {
        "wq": HEADS, "wk": HEADS, "wv": HEADS, "wo": ("model",), "w1": HEADS, "b1": ("model",),
        "w2": ("model",),
    },
    "fsdp": {name: ("data",) for name in ("emb", "wq", "wk", "wv", "w1", "w2", "g1", "g2", "b1")},
}  # fmt: skip


def mesh_of(*sizes: int, names: tuple[str, ...] = ("data", "model")) -> Any:
    """Return a mesh of the first devices."""
    count = int(np.prod(sizes))
    return sd.make_mesh(sizes, names[: len(sizes)], devices=sd.devices()[:count])


def normal_array(*shape: int, seed: int = 0) -> Any:
    """Return normally distributed f32 elements, which depend only on the shape and the seed."""
    rng = np.random.default_rng([seed, *shape])
    return rng.standard_normal(shape).astype(np.float32)


def put_on_mesh(mesh: Any, array: Any, *spec: Any, **options: Any) -> Any:
    """Return an array sharded over a mesh."""
    return sd.device_put(array, NamedSharding(mesh, P(*spec)), **options)


def perceptron_step(params: Any, x: Any, y: Any) -> Any:
    def loss(params: Any) -> Any:
        hidden = snp.tanh(x @ params["w1"] + params["b1"])
        return ((hidden @ params["w2"] - y) ** 2).mean()

    value, grads = sd.value_and_grad(loss)(params)
    return value, {name: params[name] - 0.1 * grads[name] for name in params}


def _attention(params: Any, x: Any) -> Any:
    q, k, v = (snp.einsum("bsd,dhk->bhsk", x, params[name]) for name in ("wq", "wk", "wv"))
    scores = snp.einsum("bhsk,bhtk->bhst", q, k) / np.float32(np.sqrt(K))
    seen = snp.tril(snp.ones((S, S), bool))
    weights = nn.softmax(snp.where(seen, scores, np.float32(-1e9)), -1)
    return snp.einsum("bhsk,hkd->bsd", snp.einsum("bhst,bhtk->bhsk", weights, v), params["wo"])


def _normalize_layer(x: Any, scale: Any) -> Any:
    centred = x - x.mean(-1, keepdims=True)
    return centred * lax.rsqrt((centred**2).mean(-1, keepdims=True) + 1e-5) * scale


def transformer_loss(params: Any, tokens: Any, targets: Any) -> Any:
    """Return the cross entropy of one layer with tied embeddings."""
    x = params["emb"][tokens]
    x = x + _attention(params, _normalize_layer(x, params["g1"]))
    hidden = nn.gelu(_normalize_layer(x, params["g2"]) @ params["w1"] + params["b1"])
    x = x + hidden @ params["w2"]
    logs = nn.log_softmax(x @ params["emb"].T)
    return -snp.take_along_axis(logs, targets[..., None], -1).mean()


def transformer_step(params: Any, momentum: Any, tokens: Any, targets: Any) -> Any:
    """Return a step of gradient descent with momentum."""
    value, grads = sd.value_and_grad(transformer_loss)(params, tokens, targets)
    momentum = {name: 0.9 * momentum[name] + grads[name] for name in params}
    return value, {name: params[name] - 0.1 * momentum[name] for name in params}, momentum


def sharded_params(mesh: Any, shapes: Mapping[str, Spec], specs: Specs, scale: float = 1.0) -> Any:
    """Return parameters of these shapes, sharded according to the specs."""
    return {
        name: put_on_mesh(mesh, np.float32(scale) * normal_array(*shape), *specs.get(name, ()))
        for name, shape in shapes.items()
    }


def token_batch(seed: int) -> Any:
    """Return a batch of token ids."""
    return np.random.default_rng(seed).integers(0, V, (B, S)).astype(np.int32)
