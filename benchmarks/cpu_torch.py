"""The workloads of `cpu.py` in torch, which runs them eagerly or through `torch.compile`.

torch has one CPU device: a workload that shardir and JAX shard over eight devices is here the same
computation on the whole arrays. Collectives and reshardings have no counterpart.
"""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from cpu_models import BATCH, HEADS, SIZES, WIDTH, numbers, sentences
from cpu_workloads import ATTENTION_SHAPE, IMAGE_SHAPE, N, Run
from torch.nn import functional

Compile = Callable[[Callable[..., Any]], Callable[..., Any]]
"""The identity, or `torch.compile`."""
Make = Callable[[Compile], Run]


def normal(*shape: int) -> torch.Tensor:
    """Return the normal numbers that the other libraries compute with."""
    return torch.from_numpy(np.random.default_rng(0).standard_normal(shape, np.float32))


def of_matrix(function: Callable[[Any], Any], positive: bool = False) -> Make:
    """Return a workload that calls a function with a matrix of 4096 x 4096 elements."""

    def make(compiled: Compile) -> Run:
        x = normal(N, N)
        return applied(compiled(function), x.abs() + 0.01 if positive else x)

    return make


def of_normal(
    function: Callable[..., Any], *shapes: tuple[int, ...], dtype: torch.dtype = torch.float32
) -> Make:
    """Return a workload that calls a function with arrays of normal numbers."""

    def make(compiled: Compile) -> Run:
        return applied(compiled(function), *(normal(*shape).to(dtype) for shape in shapes))

    return make


def applied(function: Callable[..., Any], *arguments: Any) -> Run:
    """Return a call that records nothing for derivatives."""

    def run() -> Any:
        with torch.no_grad():
            return function(*arguments)

    return run


def gradient(loss: Callable[..., Any], parameters: list[Any], *arguments: Any) -> Run:
    """Return a call that computes the gradient of a loss by its parameters."""
    for each in parameters:
        each.requires_grad_()
    return lambda: torch.autograd.grad(loss(parameters, *arguments), parameters)


def descent(loss: Callable[..., Any], parameters: list[Any], *arguments: Any) -> Run:
    """Return a call that computes new parameters from the gradient, with a step size of 0.01."""
    slope = gradient(loss, parameters, *arguments)

    def run() -> Any:
        slopes = slope()
        with torch.no_grad():
            return [p - 0.01 * each for p, each in zip(parameters, slopes, strict=True)]

    return run


def softmax(x: Any) -> Any:
    return functional.softmax(x, -1)


def layer_norm(x: Any) -> Any:
    return functional.layer_norm(x, (N,), eps=1e-5)


def mlp(compiled: Compile) -> Run:
    def loss(parameters: list[Any], x: Any, labels: Any) -> Any:
        *hidden, w, b = parameters
        for weights, bias in zip(hidden[::2], hidden[1::2], strict=True):
            x = functional.relu(torch.addmm(bias, x, weights))
        return functional.cross_entropy(torch.addmm(b, x, w), labels)

    parameters = []
    for inner, outer in pairwise(SIZES):
        parameters += [torch.from_numpy(numbers(inner, outer)), torch.zeros(outer)]
    x = torch.from_numpy(numbers(BATCH, SIZES[0]))
    return gradient(compiled(loss), parameters, x, torch.arange(BATCH) % 10)


def transformer(compiled: Compile) -> Run:
    size = WIDTH // HEADS

    def heads(x: Any, weights: Any) -> Any:
        return (x @ weights).unflatten(-1, (HEADS, size)).transpose(1, 2)

    def loss(parameters: list[Any], x: Any) -> Any:
        q, k, v, out, up, down = parameters
        normalized = functional.layer_norm(x, (WIDTH,), eps=1e-5)
        attention = functional.scaled_dot_product_attention(
            *(heads(normalized, each) for each in (q, k, v))
        )
        x = x + attention.transpose(1, 2).flatten(-2) @ out
        hidden = functional.layer_norm(x, (WIDTH,), eps=1e-5) @ up
        return (x + functional.gelu(hidden, approximate="tanh") @ down).square().mean()

    shapes = [(WIDTH, WIDTH)] * 4 + [(WIDTH, 4 * WIDTH), (4 * WIDTH, WIDTH)]
    parameters = [torch.from_numpy(numbers(*shape) * np.float32(0.1)) for shape in shapes]
    return descent(compiled(loss), parameters, torch.from_numpy(sentences()))


def convolution_step(compiled: Compile) -> Run:
    """Return the step in torch's layout of channels on CPUs, `channels_last`."""

    def loss(filters: list[Any], x: Any) -> Any:
        for each in filters:
            x = functional.relu(functional.conv2d(x, each, padding="same"))
        return x.square().mean()

    channels = (3, 32, 64, 64)
    filters = [
        torch.from_numpy(numbers(3, 3, a, b) * np.float32(0.2)).permute(3, 2, 0, 1).contiguous()
        for a, b in pairwise(channels)
    ]
    x = torch.from_numpy(numbers(64, 32, 32, 3)).permute(0, 3, 1, 2)
    return descent(compiled(loss), filters, x.contiguous(memory_format=torch.channels_last))


def convolution(compiled: Compile) -> Run:
    def function(x: Any, filters: Any) -> Any:
        return functional.conv2d(x, filters, padding="same")

    batch, height, width, channels = IMAGE_SHAPE
    x = normal(batch, channels, height, width).contiguous(memory_format=torch.channels_last)
    return applied(compiled(function), x, normal(channels, channels, 3, 3))


def attention(is_causal: bool) -> Callable[..., Any]:
    def function(q: Any, k: Any, v: Any) -> Any:
        return functional.scaled_dot_product_attention(q, k, v, is_causal=is_causal)

    return function


def of_heads(is_causal: bool) -> Make:
    """Return a workload of attention; torch has the heads before the positions."""
    batch, length, heads, size = ATTENTION_SHAPE
    return of_normal(attention(is_causal), *[(batch, heads, length, size)] * 3)


def attention_gradient(compiled: Compile) -> Run:
    def loss(parameters: list[Any]) -> Any:
        return attention(True)(*parameters).square().sum()

    batch, length, heads, size = ATTENTION_SHAPE
    return gradient(compiled(loss), [normal(batch, heads, length, size) for _ in range(3)])


def tree(compiled: Compile) -> Run:
    from torch.utils import _pytree as pytree

    def function(nested: Any) -> Any:
        return pytree.tree_map(lambda x: x + 1, nested)

    leaf = normal(8)
    nested = {f"layer{i}": {"w": leaf, "b": {"inner": leaf}} for i in range(10)}
    return applied(compiled(function), nested)


def add_one(x: Any) -> Any:
    return x + 1


def product(a: Any, b: Any) -> Any:
    return a @ b


SQUARE_PRODUCT = of_normal(product, (2048, 2048), (2048, 2048))
BATCHED_PRODUCT = of_normal(product, (8, 512, 512), (8, 512, 512))

PROGRAMS: dict[str, Make] = {
    "x + 1": of_matrix(add_one),
    "tanh(2x + 1) exp(-x^2)": of_matrix(lambda x: torch.tanh(2 * x + 1) * torch.exp(-x * x)),
    "sin": of_matrix(torch.sin),
    "erf": of_matrix(torch.erf),
    "log": of_matrix(torch.log, positive=True),
    "pow": of_matrix(lambda x: x**1.7, positive=True),
    "sum": of_matrix(torch.sum),
    "softmax": of_matrix(softmax),
    "layer norm": of_matrix(layer_norm),
    "transpose": of_matrix(lambda x: x.T.contiguous()),
    "cumsum along rows": of_matrix(lambda x: torch.cumsum(x, 1)),
    "sort along rows": of_matrix(lambda x: torch.sort(x, 1).values),
    "vdot of 10M x 3": of_normal(lambda x: torch.dot(x, x), (30_000_000,)),
    "dot, free dims sharded": SQUARE_PRODUCT,
    "dot, contracting dim sharded": SQUARE_PRODUCT,
    "8 x 512^2 by pmap": BATCHED_PRODUCT,
    "8 x 512^2 by jit": BATCHED_PRODUCT,
    "dot of bf16": of_normal(product, (1024, 1024), (1024, 1024), dtype=torch.bfloat16),
    "convolution": convolution,
    "attention": of_heads(is_causal=False),
    "attention, causal": of_heads(is_causal=True),
    "attention gradient, causal": attention_gradient,
    "MLP gradient, 1 device": mlp,
    "MLP gradient, 8 data": mlp,
    "MLP gradient, 4 x 2": mlp,
    "transformer step, 1 device": transformer,
    "transformer step, 4 x 2": transformer,
    "convolution step, batch sharded": convolution_step,
    "convolution step, space sharded": convolution_step,
    "call of x + 1, 1 device": of_normal(add_one, (8,)),
    "call of x + 1, 8 devices": of_normal(add_one, (8,)),
    "call on a tree of 20 arrays": tree,
}
"""Makers of runs by the names of workloads."""
