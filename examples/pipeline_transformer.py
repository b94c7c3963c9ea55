"""Train a small transformer on text in a pipeline of four stages, on eight virtual CPU devices.

The mesh is pipe 4 x data 2. The losses are those of the same steps without a pipeline.

    python examples/pipeline_transformer.py                    # in one process
    SHARDIR_CPU_DEVICES=8 mpiexec -n 4 python examples/pipeline_transformer.py --processes
"""

import argparse
from pathlib import Path
from typing import Any

import numpy as np

import shardir as sd
import shardir.numpy as jnp
from shardir import nn
from shardir.sharding import NamedSharding, PartitionSpec as P

STAGES, MICROBATCHES = 4, 8
BATCH, LENGTH, WIDTH, HEADS = 32, 32, 32, 2
STEPS, RATE = 10, 0.3
TEXT = Path(__file__).parents[1] / "README.md"


def block(p: dict[str, Any], x: Any) -> Any:
    """Return the result of one block: causal attention and a multilayer perceptron."""
    b, s, h = x.shape
    q, k, v = (
        part.reshape(b, s, HEADS, h // HEADS).transpose(0, 2, 1, 3)
        for part in jnp.split(normalize(x) @ p["qkv"], 3, axis=-1)
    )
    scores = q @ k.transpose(0, 1, 3, 2) * (h // HEADS) ** -0.5
    scores = jnp.where(jnp.tril(jnp.ones((s, s), bool)), scores, -1e9)
    x = x + (nn.softmax(scores) @ v).transpose(0, 2, 1, 3).reshape(b, s, h) @ p["out"]
    return x + nn.gelu(normalize(x) @ p["up"]) @ p["down"]


def normalize(x: Any) -> Any:
    """Return `x` with mean 0 and variance 1 in each row."""
    x = x - x.mean(-1, keepdims=True)
    return x / jnp.sqrt((x * x).mean(-1, keepdims=True) + 1e-5)


def loss(params: dict[str, Any], tokens: Any) -> Any:
    """Return the mean cross-entropy of the next byte. The embedding is tied."""
    with sd.stage(0):
        x = params["embedding"][tokens[:, :-1]]
    for i in range(STAGES):
        x = sd.stage(i)(block)({name: w[i] for name, w in params["blocks"].items()}, x)
    with sd.stage(STAGES - 1):
        scores = nn.log_softmax(normalize(x) @ params["embedding"].T)
        return -jnp.mean(jnp.take_along_axis(scores, tokens[:, 1:, None], axis=-1))


def initial_params(rng: np.random.Generator) -> dict[str, Any]:
    """Return random parameters; those of the blocks are stacked."""

    def weight(*shape: int) -> Any:
        return (rng.standard_normal(shape) / np.sqrt(shape[-2])).astype(np.float32)

    shapes = {"qkv": (WIDTH, 3 * WIDTH), "out": (WIDTH, WIDTH)}
    shapes |= {"up": (WIDTH, 4 * WIDTH), "down": (4 * WIDTH, WIDTH)}
    blocks = {name: weight(STAGES, *shape) for name, shape in shapes.items()}
    return {"embedding": weight(256, WIDTH), "blocks": blocks}


def train(loss: Any, mesh: sd.Mesh) -> list[float]:
    """Return the losses of all steps of gradient descent."""
    rng = np.random.default_rng(0)
    params = initial_params(rng)
    # Each row of devices holds the block of its stage; all rows hold the tied embedding.
    params = {
        "embedding": sd.device_put(params["embedding"], NamedSharding(mesh, P())),
        "blocks": sd.device_put(params["blocks"], NamedSharding(mesh, P("pipe"))),
    }
    text = np.frombuffer(TEXT.read_bytes(), np.uint8).astype(np.int32)

    @sd.jit
    def step(params: Any, tokens: Any) -> tuple[Any, Any]:
        value, gradients = sd.value_and_grad(loss)(params, tokens)
        return sd.tree.map(lambda p, g: p - RATE * g, params, gradients), value

    losses = []
    for _ in range(STEPS):
        starts = rng.integers(0, len(text) - LENGTH - 1, BATCH)
        tokens = np.stack([text[start : start + LENGTH + 1] for start in starts])
        params, value = step(params, sd.device_put(tokens, NamedSharding(mesh, P("data"))))
        losses.append(float(value))
    return losses


def main() -> None:
    """Train with and without a pipeline, and print the losses."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--processes", action="store_true", help="run in the processes of mpiexec")
    parser.add_argument("--schedule", default="1f1b", help="a name, or the path of a .csv file")
    options = parser.parse_args()
    if options.processes:
        sd.distributed.initialize()
    mesh = sd.make_mesh((STAGES, 2), ("pipe", "data"))
    pipelined = sd.pipeline(loss, microbatches=MICROBATCHES, schedule=options.schedule)
    losses = train(pipelined, mesh)
    expected = train(loss, mesh)
    if sd.process_index() == 0:
        print("step  pipeline  without")
        for i, (a, b) in enumerate(zip(losses, expected, strict=True)):
            print(f"{i:4}  {a:8.5f} {b:8.5f}")
    assert np.allclose(losses, expected, rtol=1e-6)
    assert losses[-1] < losses[0]


if __name__ == "__main__":
    main()
