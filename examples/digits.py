"""Train a classifier of handwritten digits four times: the same code with four shardings.

The 1,797 images are part of scikit-learn. Each example states how the batch and the parameters are
sharded over eight virtual CPU devices; propagation determines all other shardings. The tables show
that the results are equal and the communication differs.

    python examples/digits.py            (or `make demo`, which installs what it needs)
"""

import argparse
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Column, Table
from sklearn.datasets import load_digits

import shardir as sd
import shardir.numpy as snp
from shardir.display.byte_sizes import show_bytes
from shardir.sharding import NamedSharding, PartitionSpec as P

SIZES = (64, 256, 10)
BATCH = 128
RATE = 0.5
Layer = dict[str, Any]
Params = list[Layer]


# ---- the model, written for one device -------------------------------------------------------


def predict(params: Params, images: Any) -> Any:
    """Logits, one row an image."""
    hidden = images
    for layer in params[:-1]:
        hidden = snp.maximum(hidden @ layer["w"] + layer["b"], 0)
    return hidden @ params[-1]["w"] + params[-1]["b"]


def loss(params: Params, images: Any, labels: Any) -> Any:
    """Mean cross-entropy; `labels` are one-hot rows."""
    logits = predict(params, images)
    logits = logits - snp.max(logits, axis=1, keepdims=True)
    log_probabilities = logits - snp.log(snp.sum(snp.exp(logits), axis=1, keepdims=True))
    return -snp.mean(snp.sum(labels * log_probabilities, axis=1))


@sd.jit
def train_step(params: Params, images: Any, labels: Any) -> tuple[Params, Any]:
    """One step of gradient descent."""
    value, gradients = sd.value_and_grad(loss)(params, images, labels)
    new = [
        {name: layer[name] - RATE * gradient[name] for name in layer}
        for layer, gradient in zip(params, gradients, strict=True)
    ]
    return new, value


# ---- four shardings of the model ----------------------------------------------------------------


@dataclass(frozen=True)
class Placement:
    """A mesh, the sharding of the batch, and the shardings of each layer's arrays."""

    name: str
    mesh: sd.Mesh
    batch: P
    weights: Callable[[int], P]
    biases: Callable[[int], P]

    def put_batch(self, array: np.ndarray[Any, Any]) -> Any:
        return sd.device_put(array, NamedSharding(self.mesh, self.batch))

    def put_params(self, params: Params) -> Params:
        return [
            {
                "w": sd.device_put(layer["w"], NamedSharding(self.mesh, self.weights(i))),
                "b": sd.device_put(layer["b"], NamedSharding(self.mesh, self.biases(i))),
            }
            for i, layer in enumerate(params)
        ]


def placements() -> list[Placement]:
    one = sd.make_mesh((1,), ("data",), devices=sd.devices()[:1])
    flat = sd.make_mesh((8,), ("data",))
    grid = sd.make_mesh((4, 2), ("data", "model"))
    whole, rows = P(), P("data", None)

    def columns_then_rows(layer: int) -> P:
        return (P(None, "model"), P("model", None))[layer]

    return [
        Placement("one device", one, whole, lambda i: whole, lambda i: whole),
        Placement("data parallel, 8", flat, rows, lambda i: whole, lambda i: whole),
        Placement(
            "data x tensor parallel, 4x2",
            grid,
            rows,
            columns_then_rows,
            lambda i: P("model") if i == 0 else whole,
        ),
        Placement("fully sharded, 8", flat, rows, lambda i: rows, lambda i: whole),
    ]


# ---- the data, and the run --------------------------------------------------------------------


@dataclass(frozen=True)
class Data:
    images: np.ndarray[Any, Any]
    labels: np.ndarray[Any, Any]
    test_images: np.ndarray[Any, Any]
    test_digits: np.ndarray[Any, Any]


def load() -> Data:
    """1,536 images to train on, 261 to test with; pixels from 0 to 1."""
    images, digits = load_digits(return_X_y=True)
    images = (images / 16).astype(np.float32)
    order = np.random.default_rng(0).permutation(len(images))
    images, digits = images[order], digits[order]
    one_hot = np.eye(10, dtype=np.float32)[digits]
    return Data(images[:1536], one_hot[:1536], images[1536:], digits[1536:])


def initial_params() -> Params:
    """He initialisation, the same numbers for every placement."""
    params = []
    for key, rows, columns in zip(
        sd.random.split(sd.random.key(0), len(SIZES) - 1), SIZES[:-1], SIZES[1:], strict=True
    ):
        w = sd.random.normal(key, (rows, columns)) * np.sqrt(2 / rows).astype(np.float32)
        params.append({"w": np.asarray(w), "b": np.zeros(columns, np.float32)})
    return params


@dataclass(frozen=True)
class Outcome:
    placement: Placement
    params: Params
    losses: list[float]
    accuracy: float
    step_seconds: float
    compiled: Any


def train(placement: Placement, data: Data, epochs: int, advance: Callable[[], None]) -> Outcome:
    params = placement.put_params(initial_params())
    batches = [
        (
            placement.put_batch(data.images[i : i + BATCH]),
            placement.put_batch(data.labels[i : i + BATCH]),
        )
        for i in range(0, len(data.images), BATCH)
    ]
    compiled = train_step.lower(params, *batches[0]).compile()
    losses, seconds = [], []
    order = np.random.default_rng(1)
    for _ in range(epochs):
        for i in order.permutation(len(batches)):
            start = time.perf_counter()
            params, value = train_step(params, *batches[i])
            losses.append(float(value))
            seconds.append(time.perf_counter() - start)
            advance()
    logits = predict([{k: np.asarray(v) for k, v in layer.items()} for layer in params],
                     data.test_images)  # fmt: skip
    accuracy = float(np.mean(np.argmax(np.asarray(logits), axis=1) == data.test_digits))
    return Outcome(placement, params, losses, accuracy, median(seconds), compiled)


def show_collectives(console: Console, outcome: Outcome) -> None:
    found = outcome.compiled.collectives()
    console.print(f"\n[bold]{outcome.placement.name}[/bold]")
    if not found:
        console.print("one step communicates nothing")
        return
    table = Table("collective", "axes", "devices", "count", "bytes per device", title="one step")
    counts: Counter[tuple[str, str, int]] = Counter()
    sizes: Counter[tuple[str, str, int]] = Counter()
    for each in found:
        row = each.kind, ", ".join(each.axes), each.group_size
        counts[row] += each.executions
        sizes[row] += each.nbytes * each.executions
    for row in counts:
        table.add_row(row[0], row[1], str(row[2]), str(counts[row]), show_bytes(sizes[row]))
    console.print(table)


def main() -> None:
    sd.distributed.initialize(gather=True)  # under mpiexec, of several processes
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--epochs", type=int, default=15, help="passes over the data (default 15)")
    epochs = parser.parse_args().epochs
    console = Console()
    data = load()
    steps = epochs * (len(data.images) // BATCH)
    outcomes = []
    columns = (TextColumn("{task.description:<28}"), BarColumn(), MofNCompleteColumn(),
               TimeElapsedColumn())  # fmt: skip
    with Progress(*columns, console=console) as progress:
        for placement in placements():
            task = progress.add_task(placement.name, total=steps)
            outcomes.append(train(placement, data, epochs, partial(progress.advance, task)))
    for outcome in outcomes:
        show_collectives(console, outcome)
        console.print("the first layer's weights, f32[64, 256]:")
        sd.debug.visualize_array_sharding(outcome.params[0]["w"])

    table = Table(
        Column("placement", no_wrap=True), "final\nloss", "test\naccuracy",
        "collectives\nper step", "step\ntime",
        title=f"{epochs} epochs of handwritten digits",
    )  # fmt: skip
    for outcome in outcomes:
        table.add_row(
            outcome.placement.name,
            f"{outcome.losses[-1]:.6f}",
            f"{outcome.accuracy:.4f}",
            str(sum(each.executions for each in outcome.compiled.collectives())),
            f"{outcome.step_seconds * 1e3:.2f} ms",
        )
    console.print()
    console.print(table)
    check(outcomes)
    console.print("the placements agree: first loss to 2e-6, last loss to 1e-3, accuracy >= 0.96")
    if sd.process_index() == 0:
        report = Path("build", "digits.html")
        report.parent.mkdir(exist_ok=True)
        outcomes[2].compiled.report(report)
        console.print(f"the report of {outcomes[2].placement.name!r} is {report.resolve()}",
                      soft_wrap=True)  # fmt: skip


def check(outcomes: list[Outcome]) -> None:
    """Check that all placements compute the same; raise `SystemExit` with the difference."""
    reference = outcomes[0].losses
    for outcome in outcomes:
        for at, tolerance, which in ((0, 2e-6, "first"), (-1, 1e-3, "last")):
            error = abs(outcome.losses[at] - reference[at]) / abs(reference[at])
            if error > tolerance:
                raise SystemExit(
                    f"{outcome.placement.name}: the {which} loss differs by {error:.1e} relative"
                )
        if outcome.accuracy < 0.96:
            raise SystemExit(f"{outcome.placement.name}: test accuracy is {outcome.accuracy:.4f}")


if __name__ == "__main__":
    main()
