"""The training steps among the workloads of `cpu.py`."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
from cpu_library import Library

SIZES = (784, 1024, 1024, 1024, 10)
BATCH = 1024
WIDTH, HEADS, SEQUENCE, SENTENCES = 512, 8, 256, 8


def numbers(*shape: int, seed: int = 0) -> Any:
    """Normal numbers, scaled as weights are."""
    scale = np.float32(shape[0] ** -0.5)
    return np.random.default_rng(seed).standard_normal(shape, np.float32) * scale


def sentences() -> Any:
    """Return the embedded input of the transformer: [sentences, positions, width]."""
    return numbers(SENTENCES, SEQUENCE, WIDTH)


def mesh_of(library: Library, shape: tuple[int, int] | None) -> Any:
    return None if shape is None else library.mesh_of(shape, ("data", "model"))


def placed(library: Library, mesh: Any, array: Any, *spec: Any) -> Any:
    return library.put(array, mesh, *(spec if mesh is not None else ()))


def mlp_loss(library: Library, params: Any, x: Any, y: Any) -> Any:
    snp = library.numpy
    for w, b in params[:-1]:
        x = snp.maximum(x @ w + b, 0)
    w, b = params[-1]
    logits = x @ w + b
    shifted = logits - snp.max(logits, axis=-1, keepdims=True)
    return -snp.mean(
        snp.sum((shifted - snp.log(snp.sum(snp.exp(shifted), -1, keepdims=True))) * y, -1)
    )


def mlp_arguments(library: Library, mesh: Any) -> tuple[Any, Any, Any]:
    """Weights sharded over `model` by columns and by rows in turn, the batch over `data`."""
    params = []
    for i, (inner, outer) in enumerate(pairwise(SIZES)):
        by_columns = i % 2 == 0 and outer % 2 == 0 and i < 3
        spec = (None, "model") if by_columns else ("model", None)
        params.append((
            placed(library, mesh, numbers(inner, outer), *spec),
            placed(library, mesh, np.zeros(outer, np.float32), *(spec[1:] if by_columns else ())),
        ))  # fmt: skip
    labels = np.eye(10, dtype=np.float32)[np.arange(BATCH) % 10]
    x = placed(library, mesh, numbers(BATCH, SIZES[0]), "data")
    return params, x, placed(library, mesh, labels, "data")


def mlp_gradient(shape: tuple[int, int] | None) -> Callable[[Library], Callable[[], Any]]:
    def make(library: Library) -> Callable[[], Any]:
        arguments = mlp_arguments(library, mesh_of(library, shape))
        slope = library.top.jit(library.top.grad(lambda *args: mlp_loss(library, *args)))
        return lambda: library.top.block_until_ready(slope(*arguments))

    return make


def transformer_loss(library: Library, p: Any, x: Any) -> Any:
    """A block of attention and two dense layers, and a sum of squares."""
    snp = library.numpy

    def normalized(x: Any) -> Any:
        mean = snp.mean(x, axis=-1, keepdims=True)
        return (x - mean) / snp.sqrt(snp.mean((x - mean) ** 2, axis=-1, keepdims=True) + 1e-5)

    q, k, v = (snp.einsum("bsd,dhk->bhsk", normalized(x), p[name]) for name in ("q", "k", "v"))
    scores = snp.einsum("bhsk,bhtk->bhst", q, k) * (WIDTH // HEADS) ** -0.5
    raised = snp.exp(scores - snp.max(scores, axis=-1, keepdims=True))
    weights = raised / snp.sum(raised, axis=-1, keepdims=True)
    x = x + snp.einsum("bhst,bhtk,hkd->bsd", weights, v, p["o"])
    hidden = normalized(x) @ p["up"]
    hidden = 0.5 * hidden * (1 + snp.tanh(0.7978845608 * (hidden + 0.044715 * hidden**3)))
    return snp.mean((x + hidden @ p["down"]) ** 2)


def transformer_step(shape: tuple[int, int] | None) -> Callable[[Library], Callable[[], Any]]:
    def make(library: Library) -> Callable[[], Any]:
        mesh, part = mesh_of(library, shape), WIDTH // HEADS
        shapes = {
            **dict.fromkeys("qkv", ((WIDTH, HEADS, part), (None, "model"))),
            "o": ((HEADS, part, WIDTH), ("model",)),
            "up": ((WIDTH, 4 * WIDTH), (None, "model")), "down": ((4 * WIDTH, WIDTH), ("model",)),
        }  # fmt: skip
        p = {name: placed(library, mesh, numbers(*size) * np.float32(0.1), *spec)
             for name, (size, spec) in shapes.items()}  # fmt: skip
        x = placed(library, mesh, sentences(), "data")

        def step(p: Any, x: Any) -> Any:
            slope = library.top.grad(lambda p: transformer_loss(library, p, x))(p)
            return {name: p[name] - 0.01 * slope[name] for name in p}

        compiled = library.top.jit(step)
        return lambda: library.top.block_until_ready(compiled(p, x))

    return make


def convolution_loss(library: Library, filters: Any, x: Any) -> Any:
    for each in filters:
        x = library.numpy.maximum(
            library.lax.conv_general_dilated(
                x, each, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
            ),
            0,
        )
    return library.numpy.mean(x**2)


def convolution_step(by: str) -> Callable[[Library], Callable[[], Any]]:
    """Three layers on 64 images of 32 x 32, sharded by images or by rows of pixels."""

    def make(library: Library) -> Callable[[], Any]:
        mesh = library.mesh_of((8,), ("d",))
        channels = (3, 32, 64, 64)
        filters = [library.put(numbers(3, 3, a, b) * np.float32(0.2), mesh)
                   for a, b in pairwise(channels)]  # fmt: skip
        x = library.put(numbers(64, 32, 32, 3), mesh, *(("d",) if by == "batch" else (None, "d")))

        def step(filters: Any, x: Any) -> Any:
            slope = library.top.grad(lambda f: convolution_loss(library, f, x))(filters)
            return [f - 0.01 * g for f, g in zip(filters, slope, strict=True)]

        compiled = library.top.jit(step)
        return lambda: library.top.block_until_ready(compiled(filters, x))

    return make
