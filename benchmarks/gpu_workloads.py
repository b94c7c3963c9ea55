"""The workloads of `gpu.py`: one function for shardir and JAX, and one for torch.

They are a fused chain, two row-wise normalizations, two training steps, and attention with its
gradient.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Workload:
    """`ours` makes a function of a library like NumPy with `grad`, `theirs` of torch.

    `shapes` are those of the arguments, `dtype` theirs. `moves` is how many times the bytes of the
    first argument have to be read and written, where memory alone decides; otherwise 0.
    """

    name: str
    ours: Callable[[Any], Callable[..., Any]]
    theirs: Callable[[Any], Callable[..., Any]]
    shapes: tuple[tuple[int, ...], ...]
    dtype: str = "float32"
    moves: int = 0

    def arguments(self) -> list[Any]:
        """Normal numbers, scaled as weights are; f32, to be converted to `dtype`."""
        rng = np.random.default_rng(0)
        return [
            rng.standard_normal(shape, np.float32) * np.float32(max(shape[0], 1) ** -0.5)
            for shape in self.shapes
        ]


def chain(lib: Any) -> Callable[..., Any]:
    def run(x: Any) -> Any:
        y = lib.numpy.tanh(x) * x + lib.numpy.exp(-x * x)
        return lib.numpy.where(y > 0.5, y * 2 - 1, y / (1 + lib.numpy.abs(x)))

    return run


def chain_torch(torch: Any) -> Callable[..., Any]:
    def run(x: Any) -> Any:
        y = torch.tanh(x) * x + torch.exp(-x * x)
        return torch.where(y > 0.5, y * 2 - 1, y / (1 + torch.abs(x)))

    return run


def softmax(lib: Any) -> Callable[..., Any]:
    return lambda x: lib.nn.softmax(x, axis=-1)


def softmax_torch(torch: Any) -> Callable[..., Any]:
    return lambda x: torch.softmax(x, -1)


def layer_norm(lib: Any) -> Callable[..., Any]:
    def run(x: Any, scale: Any, shift: Any) -> Any:
        mean = lib.numpy.mean(x, axis=-1, keepdims=True)
        centred = x - mean
        variance = lib.numpy.mean(centred * centred, axis=-1, keepdims=True)
        return centred / lib.numpy.sqrt(variance + 1e-5) * scale + shift

    return run


def layer_norm_torch(torch: Any) -> Callable[..., Any]:
    norm = torch.nn.functional.layer_norm
    return lambda x, scale, shift: norm(x, x.shape[-1:], scale, shift, 1e-5)


def mlp_step(lib: Any) -> Callable[..., Any]:
    def loss(params: Any, x: Any) -> Any:
        for w in params[:-1]:
            x = lib.nn.gelu(x @ w)
        return lib.numpy.mean((x @ params[-1]) ** 2)

    def step(x: Any, *params: Any) -> Any:
        grads = lib.top.grad(loss)(params, x)
        return tuple(w - 0.1 * g for w, g in zip(params, grads, strict=True))

    return step


def mlp_step_torch(torch: Any) -> Callable[..., Any]:
    def loss(params: Any, x: Any) -> Any:
        for w in params[:-1]:
            x = torch.nn.functional.gelu(x @ w, approximate="tanh")
        return ((x @ params[-1]) ** 2).mean()

    def step(x: Any, *params: Any) -> Any:
        grads = torch.func.grad(loss)(params, x)
        return tuple(w - 0.1 * g for w, g in zip(params, grads, strict=True))

    return step


HEADS = 16


def block_step(lib: Any) -> Callable[..., Any]:
    np_ = lib.numpy

    def normalized(x: Any) -> Any:
        mean = np_.mean(x, axis=-1, keepdims=True)
        return (x - mean) / np_.sqrt(np_.mean((x - mean) ** 2, axis=-1, keepdims=True) + 1e-5)

    def loss(params: Any, x: Any) -> Any:
        wq, wk, wv, wo, up, down = params
        batch, length, width = x.shape

        def heads(w: Any) -> Any:
            projected = (normalized(x) @ w).reshape(batch, length, HEADS, width // HEADS)
            return projected.transpose(0, 2, 1, 3)

        q, k, v = heads(wq), heads(wk), heads(wv)
        scores = (q @ k.transpose(0, 1, 3, 2)) * (width // HEADS) ** -0.5
        mixed = (lib.nn.softmax(scores, axis=-1) @ v).transpose(0, 2, 1, 3)
        x = x + mixed.reshape(batch, length, width) @ wo
        return np_.mean((x + lib.nn.gelu(normalized(x) @ up) @ down) ** 2)

    def step(x: Any, *params: Any) -> Any:
        grads = lib.top.grad(loss)(params, x)
        return tuple(w - 0.1 * g for w, g in zip(params, grads, strict=True))

    return step


def block_step_torch(torch: Any) -> Callable[..., Any]:
    F = torch.nn.functional

    def loss(params: Any, x: Any) -> Any:
        wq, wk, wv, wo, up, down = params
        batch, length, width = x.shape
        h = F.layer_norm(x, (width,))

        def heads(w: Any) -> Any:
            return (h @ w).reshape(batch, length, HEADS, width // HEADS).transpose(1, 2)

        q, k, v = heads(wq), heads(wk), heads(wv)
        scores = (q @ k.transpose(-1, -2)) * (width // HEADS) ** -0.5
        mixed = (torch.softmax(scores, -1) @ v).transpose(1, 2).reshape(batch, length, width)
        x = x + mixed @ wo
        hidden = F.gelu(F.layer_norm(x, (width,)) @ up, approximate="tanh")
        return ((x + hidden @ down) ** 2).mean()

    def step(x: Any, *params: Any) -> Any:
        grads = torch.func.grad(loss)(params, x)
        return tuple(w - 0.1 * g for w, g in zip(params, grads, strict=True))

    return step


def attention(lib: Any) -> Callable[..., Any]:
    return lambda q, k, v: lib.nn.dot_product_attention(q, k, v)


def attention_torch(torch: Any) -> Callable[..., Any]:
    def run(*qkv: Any) -> Any:
        q, k, v = (x.transpose(1, 2) for x in qkv)
        return torch.nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2)

    return run


def causal_attention(lib: Any) -> Callable[..., Any]:
    return lambda q, k, v: lib.nn.dot_product_attention(q, k, v, is_causal=True)


def causal_attention_torch(torch: Any) -> Callable[..., Any]:
    def run(*qkv: Any) -> Any:
        q, k, v = (x.transpose(1, 2) for x in qkv)
        attend = torch.nn.functional.scaled_dot_product_attention
        return attend(q, k, v, is_causal=True).transpose(1, 2)

    return run


def gradient_of(
    forward: Callable[[Any], Callable[..., Any]],
) -> Callable[[Any], Callable[..., Any]]:
    """Return the gradient, with respect to three operands, of the sum of weighted results."""

    def make(lib: Any) -> Callable[..., Any]:
        function = forward(lib)

        def loss(q: Any, k: Any, v: Any, weights: Any) -> Any:
            return (function(q, k, v) * weights).sum()

        grad = lib.top.grad if hasattr(lib, "top") else lib.func.grad
        gradient: Callable[..., Any] = grad(loss, (0, 1, 2))
        return gradient

    return make


def workloads(scale: int) -> list[Workload]:
    """Return all workloads; `scale` 1 fills a large GPU, larger values are for short tests."""
    many, rows, width = 1 << 27, 1 << 15, 4096
    many, rows, width = many // scale**2, max(rows // scale, 1), max(width // scale, HEADS)
    batch, length = max(16 // scale, 1), max(1024 // scale, 1)
    plain = [
        Workload("elementwise chain", chain, chain_torch, ((many,),), moves=2),
        Workload("softmax", softmax, softmax_torch, ((rows, width),), moves=2),
        Workload(
            "layer norm", layer_norm, layer_norm_torch, ((rows, width), (width,), (width,)), moves=2
        ),
    ]
    half = width // 2
    steps = [
        Workload(
            "MLP step",
            mlp_step,
            mlp_step_torch,
            ((rows // 4 or 1, width), (width, width), (width, width), (width, width)),
            dtype,
        )
        for dtype in ("float32", "bfloat16")
    ]
    blocks = [
        Workload(
            "transformer block step",
            block_step,
            block_step_torch,
            (
                (batch, length, half),
                *(((half, half),) * 4),
                (half, 4 * half),
                (4 * half, half),
            ),
            dtype,
        )
        for dtype in ("float32", "bfloat16")
    ]
    operand = (max(4 // scale, 1), max(4096 // scale, 1), HEADS, max(128 // scale, 1))
    products = [
        Workload(name, change(ours), change(theirs), (operand,) * count, dtype)
        for suffix, ours, theirs in (
            ("attention", attention, attention_torch),
            ("causal attention", causal_attention, causal_attention_torch),
        )
        for name, change, count in (
            (suffix, lambda function: function, 3),
            (f"{suffix} gradient", gradient_of, 4),
        )
        for dtype in ("float32", "bfloat16")
    ]
    return [*plain, *steps, *blocks, *products]
