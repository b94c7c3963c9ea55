"""Training on several devices without changing the training: Equinox's example on shardir.

The document "Autoparallelism (running on multiple GPUs)" trains a small network whose batches are
sharded over all devices; the step is written as for one device, and the computation follows the
data. Equinox's model is here a plain dataclass registered as a container of arrays, Optax's Adam
is the one of `shardir.optim`. The same training runs on one device, on eight, and on a grid of
four by two that also shards the model: all three must result in the same model.

    python examples/seeds/autoparallelism.py
    mpiexec -n 2 python examples/seeds/autoparallelism.py
"""

import contextlib
import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

import shardir as sd
import shardir.numpy as snp
import shardir.random as srandom
from shardir import nn, optim
from shardir.experimental import mesh_utils
from shardir.sharding import Mesh, NamedSharding, PartitionSpec as P, PositionalSharding

DATASET_SIZE = 64
CHANNEL_SIZE = 4
HIDDEN_SIZE = 32
DEPTH = 1
LEARNING_RATE = 3e-4
STEPS = 10
BATCH_SIZE = 16
"""A multiple of the number of devices."""


@sd.tree.register_dataclass
@dataclass(frozen=True)
class Linear:
    """A matrix and a bias, of one vector."""

    weight: Any
    bias: Any

    @staticmethod
    def init(inputs: int, outputs: int, key: Any) -> "Linear":
        for_weight, for_bias = srandom.split(key)
        bound = inputs**-0.5
        return Linear(
            srandom.uniform(for_weight, (outputs, inputs), minval=-bound, maxval=bound),
            srandom.uniform(for_bias, (outputs,), minval=-bound, maxval=bound),
        )

    def __call__(self, x: Any) -> Any:
        return self.weight @ x + self.bias


@sd.tree.register_dataclass
@dataclass(frozen=True)
class Perceptron:
    """Linear layers with relu between them. A container: its leaves are the layers' arrays."""

    layers: tuple[Linear, ...]

    @staticmethod
    def init(inputs: int, outputs: int, width: int, depth: int, key: Any) -> "Perceptron":
        sizes = [inputs, *(width for _ in range(depth)), outputs]
        keys = srandom.split(key, depth + 1)
        return Perceptron(tuple(map(Linear.init, sizes[:-1], sizes[1:], keys)))

    def __call__(self, x: Any) -> Any:
        for layer in self.layers[:-1]:
            x = nn.relu(layer(x))
        return self.layers[-1](x)


adam = optim.adam(LEARNING_RATE)


def compute_loss(model: Perceptron, x: Any, y: Any) -> Any:
    # The model is written for one vector; `vmap` makes a batch of it.
    predicted = sd.vmap(model)(x)
    return snp.mean((y - predicted) ** 2)


def step(model: Perceptron, state: Any, x: Any, y: Any) -> tuple[Perceptron, Any]:
    gradients = sd.grad(compute_loss)(model, x, y)
    updates, state = adam.update(gradients, state)
    return optim.apply_updates(model, updates), state


make_step = sd.jit(step)


def dataloader(arrays: tuple[Any, ...], seed: int) -> Iterator[tuple[Any, ...]]:
    """Batches of the rows, in an order that is shuffled every time all have been seen."""
    generator = np.random.default_rng(seed)
    while True:
        order = generator.permutation(DATASET_SIZE)
        for start in range(0, DATASET_SIZE - BATCH_SIZE + 1, BATCH_SIZE):
            yield tuple(array[order[start : start + BATCH_SIZE]] for array in arrays)


XS = np.random.default_rng(0).normal(size=(DATASET_SIZE, CHANNEL_SIZE)).astype(np.float32)
YS = np.sin(XS)


def train(
    place: Callable[[Any], Any],
    place_model: Callable[[Perceptron], Perceptron] = lambda model: model,
    update: Any = make_step,
) -> tuple[Perceptron, Any]:
    """Return the trained model and the last batch's rows; `place` shards batches."""
    model = place_model(
        Perceptron.init(CHANNEL_SIZE, CHANNEL_SIZE, HIDDEN_SIZE, DEPTH, srandom.PRNGKey(6789))
    )
    state = adam.init(model)
    batches = dataloader((XS, YS), seed=1)
    for _, batch in zip(range(STEPS), batches, strict=False):
        x, y = place(batch)
        model, state = update(model, state, x, y)
    return model, x


def same(model: Perceptron, wanted: Perceptron) -> None:
    for got, leaf in zip(sd.tree.leaves(model), sd.tree.leaves(wanted), strict=True):
        np.testing.assert_allclose(np.asarray(got), np.asarray(leaf), rtol=1e-4, atol=1e-5)


def picture(array: Any) -> str:
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        sd.debug.visualize_array_sharding(array)
    print(out.getvalue(), end="")
    return out.getvalue()


def one_device() -> Perceptron:
    model, _ = train(lambda batch: batch)
    before = Perceptron.init(CHANNEL_SIZE, CHANNEL_SIZE, HIDDEN_SIZE, DEPTH, srandom.PRNGKey(6789))
    losses = [float(compute_loss(m, XS, YS)) for m in (before, model)]
    print(f"loss {losses[0]:.4f} before, {losses[1]:.4f} after {STEPS} steps")
    assert losses[1] < losses[0]
    return model


def eight_devices(wanted: Perceptron) -> None:
    """Run the document's program: each batch is sharded over all devices."""
    devices = mesh_utils.create_device_mesh((len(sd.devices()), 1))
    shard = PositionalSharding(devices)
    model, x = train(lambda batch: sd.device_put(batch, shard))
    same(model, wanted)
    rows = [line.strip("│ ") for line in picture(x).splitlines()[1::2]]
    assert rows == [f"CPU {i}" for i in range(8)]
    # The program states no sharding of the model. It is replicated on all devices.
    assert all(leaf.sharding.is_fully_replicated for leaf in sd.tree.leaves(model))
    assert all(len(leaf.devices()) == 8 for leaf in sd.tree.leaves(model))


def four_by_two(wanted: Perceptron) -> None:
    """Run the document's outlook: shard the model too, here its hidden layer over two devices."""
    mesh = Mesh(mesh_utils.create_device_mesh((4, 2)), ("batch", "model"))

    def on(*spec: str | None) -> NamedSharding:
        return NamedSharding(mesh, P(*spec))

    where = Perceptron(
        (Linear(on("model", None), on("model")), Linear(on(None, "model"), on())),
    )
    model, _ = train(
        lambda batch: sd.device_put(batch, on("batch")),
        lambda model: sd.device_put(model, where),
    )
    same(model, wanted)
    hidden = model.layers[0].weight
    assert hidden.sharding.is_equivalent_to(on("model", None), 2)
    assert picture(hidden).splitlines()[2].strip("│ ") == "CPU 0,2,4,6"


def donating(wanted: Perceptron) -> None:
    """Donate the old model: the new one uses its memory, and the old one is deleted."""
    mesh = Mesh(sd.devices(), "batch")
    update = sd.jit(step, donate_argnums=(0, 1))
    # Only arguments with the sharding of the program can be donated, so the first model gets it.
    whole = NamedSharding(mesh, P())
    model, x = train(
        lambda batch: sd.device_put(batch, NamedSharding(mesh, P("batch"))),
        lambda model: sd.device_put(model, whole),
        update,
    )
    same(model, wanted)
    update(model, adam.init(model), x, snp.sin(x))
    assert all(leaf.is_deleted() for leaf in sd.tree.leaves(model))


def main() -> None:
    sd.distributed.initialize(gather=True)  # under mpiexec, of several processes
    print("== one device")
    wanted = one_device()
    for part in (eight_devices, four_by_two, donating):
        print(f"== {part.__name__.replace('_', ' ')}")
        part(wanted)


if __name__ == "__main__":
    main()
