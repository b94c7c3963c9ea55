"""Predicted and measured times of training steps of GPT models without pipeline parallelism.

The steps are written as Megatron does: f16 with Adam in f32, tensor parallelism inside of layers,
data parallelism, and accumulation of gradients over microbatches. The file has one row per
measured step in the format of vTrain (VIA-Research/vTrain, data/ground_truth_*.csv):

    python benchmarks/simulation.py ground_truth_single.csv --machine a100x8-eager
    python benchmarks/simulation.py ground_truth_multi.csv --machine a100x8-megatron --recompute
    python benchmarks/simulation.py benchmarks/published_steps.csv --machine a100x8-megatron \
        --recompute

`published_steps.csv` has the steps without pipeline parallelism of Narayanan et al. (2021,
arXiv:2104.04473, table 1: their TFLOP/s, with the paper's formula for the flops of a step; the
sizes of their microbatches are assumed, because the table does not state them) and of
Korthikanti et al. (2022, arXiv:2205.05198, table 5: 22B with full recomputation).

Rows with pipeline parallelism are omitted. `make_recomputed_step` makes the program of a row for
`shardir calibrate FILE --program simulation:make_recomputed_step`.
"""

import argparse
import csv
import statistics
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import shardir as sd
import shardir.numpy as snp
from shardir import lax
from shardir.passes.simulation import Simulation
from shardir.sharding import AbstractMesh, NamedSharding, PartitionSpec as P

WORDS = 51200
"""The size of the vocabulary: 50257, padded so that 8 devices divide it."""
LAYER: dict[str, tuple[P, Callable[[int], tuple[int, ...]]]] = {
    "scale1": (P(), lambda h: (h,)),
    "qkv": (P(None, None, "model", None), lambda h: (h, 3, 0, 0)),
    "out": (P("model", None, None), lambda h: (0, 0, h)),
    "scale2": (P(), lambda h: (h,)),
    "up": (P(None, "model"), lambda h: (h, 4 * h)),
    "up_bias": (P("model"), lambda h: (4 * h,)),
    "down": (P("model", None), lambda h: (4 * h, h)),
    "down_bias": (P(), lambda h: (h,)),
}


@dataclass(frozen=True)
class Measurement:
    """One measured step."""

    gpus: int
    batch: int
    micro: int
    hidden: int
    heads: int
    layers: int
    sequence: int
    tensor: int
    data: int
    pipeline: int
    milliseconds: float

    @classmethod
    def parse(cls, row: list[str]) -> "Measurement":
        """Return the measurement of a row; a first column in billions of parameters is ignored."""
        names = [each.name for each in fields(cls)]
        numbers = dict(zip(names, map(float, row[-len(names) :]), strict=True))
        milliseconds = numbers.pop("milliseconds")
        return cls(**{name: int(n) for name, n in numbers.items()}, milliseconds=milliseconds)


def normalized(x: Any, scale: Any) -> Any:
    x = x.astype("float32")
    mean = snp.mean(x, axis=-1, keepdims=True)
    variance = snp.mean((x - mean) ** 2, axis=-1, keepdims=True)
    return ((x - mean) * lax.rsqrt(variance + 1e-5)).astype("float16") * scale


def layer(x: Any, w: Any) -> Any:
    width = w["qkv"].shape[-1]
    qkv = snp.einsum("bsd,dchk->cbhsk", normalized(x, w["scale1"]), w["qkv"])
    q, k, v = qkv[0], qkv[1], qkv[2]
    scores = snp.einsum("bhsk,bhtk->bhst", q, k) * width**-0.5
    causal = snp.tril(snp.ones(scores.shape[-2:], bool))
    scores = snp.where(causal, scores, -1e4).astype("float32")
    raised = snp.exp(scores - lax.stop_gradient(snp.max(scores, axis=-1, keepdims=True)))
    weights = (raised / snp.sum(raised, axis=-1, keepdims=True)).astype("float16")
    attended = snp.einsum("bhst,bhtk->bshk", weights, v)
    x = x + snp.einsum("bshk,hkd->bsd", attended, w["out"])
    h = sd.nn.gelu(normalized(x, w["scale2"]) @ w["up"] + w["up_bias"])
    return x + h @ w["down"] + w["down_bias"]


def make_loss(recompute: bool) -> Any:
    applied = sd.checkpoint(layer) if recompute else layer

    def loss(w: Any, words: Any, targets: Any) -> Any:
        x = w["embedding"][words]
        x, _ = lax.scan(lambda x, one: (applied(x, one), None), x, w["layers"])
        logits = (x @ w["embedding"].T).astype("float32")
        logits = logits - lax.stop_gradient(snp.max(logits, axis=-1, keepdims=True))
        total = snp.log(snp.sum(snp.exp(logits), axis=-1))
        hits = snp.arange(logits.shape[-1]) == targets[..., None]
        return snp.mean(total - snp.sum(snp.where(hits, logits, 0), axis=-1))

    return loss


def make_step(recompute: bool) -> Any:
    loss = make_loss(recompute)

    def step(w: Any, state: Any, words: Any, targets: Any) -> Any:
        def accumulate(total: Any, microbatch: Any) -> Any:
            value, gradient = sd.value_and_grad(loss)(w, *microbatch)
            return sd.tree.map(snp.add, total, (value, gradient)), None

        zeros = snp.zeros((), "float32"), sd.tree.map(snp.zeros_like, w)
        (value, gradient), _ = lax.scan(accumulate, zeros, (words, targets))

        def adam(g: Any, copy: Any, m: Any, v: Any) -> Any:
            g = g.astype("float32")
            m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
            copy = copy - 1e-4 * m / (snp.sqrt(v) + 1e-8)
            return copy.astype("float16"), copy, m, v

        leaves, structure = sd.tree.flatten(gradient)
        new = [
            adam(*each)
            for each in zip(leaves, *(sd.tree.leaves(one) for one in state), strict=True)
        ]
        w, *state = (structure.unflatten(list(each)) for each in zip(*new, strict=True))
        return w, tuple(state), value

    return sd.jit(step, donate_argnums=(0, 1))


def arguments(given: Measurement, mesh: AbstractMesh) -> tuple[Any, ...]:
    width = given.hidden // given.heads

    def struct(shape: tuple[int, ...], spec: P, dtype: str) -> Any:
        return sd.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(mesh, spec))

    def weights(dtype: str) -> Any:
        shapes = {name: make(given.hidden) for name, (_, make) in LAYER.items()}
        shapes["qkv"] = (given.hidden, 3, given.heads, width)
        shapes["out"] = (given.heads, width, given.hidden)
        return {
            "embedding": struct((WORDS, given.hidden), P("model", None), dtype),
            "layers": {
                name: struct((given.layers, *shape), P(None, *LAYER[name][0]), dtype)
                for name, shape in shapes.items()
            },
        }

    microbatches = given.batch // (given.data * given.micro)
    tokens = (microbatches, given.data * given.micro, given.sequence)
    words = struct(tokens, P(None, "data"), "int32")
    state = tuple(weights("float32") for _ in range(3))
    return weights("float16"), state, words, words


def lower_step(given: Measurement, recompute: bool) -> sd.stages.Lowered:
    mesh = AbstractMesh((given.data, given.tensor), ("data", "model"))
    lowered: sd.stages.Lowered = make_step(recompute).lower(*arguments(given, mesh))
    return lowered


def make_recomputed_step(**columns: float) -> sd.stages.Lowered:
    """Return the program of a row, from the columns of the file other than the time."""
    row = [str(value) for value in columns.values()]
    return lower_step(Measurement.parse([*row, "nan"]), recompute=True)


def simulate(given: Measurement, machine: str, recompute: bool, target: str | None) -> Simulation:
    simulation: Simulation = lower_step(given, recompute).simulate(machine, target=target)
    return simulation


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("file", type=Path, help="measured steps")
    options.add_argument("--machine", default="a100x8")
    options.add_argument("--target", help="target whose passes form kernels")
    options.add_argument("--recompute", action="store_true", help="recompute all activations")
    options.add_argument("--every", type=int, default=1, help="use each n-th row")
    options.add_argument("--show", action="store_true", help="print each simulation")
    chosen = options.parse_args()
    rows = list(csv.reader(chosen.file.read_text().splitlines()))[1:]
    steps = [one for one in map(Measurement.parse, rows) if one.pipeline == 1][:: chosen.every]
    errors = []
    for one in steps:
        simulation = simulate(one, chosen.machine, chosen.recompute, chosen.target)
        predicted = simulation.step_seconds * 1e3
        errors.append(abs(predicted / one.milliseconds - 1))
        print(
            f"B {one.batch:4} b {one.micro:2} h {one.hidden:5} l {one.layers:2} t {one.tensor:2} "
            f"d {one.data:2}: measured {one.milliseconds:8.1f} ms, predicted {predicted:8.1f} ms "
            f"({predicted / one.milliseconds - 1:+.0%}), MFU {simulation.mfu:.0%}",
            flush=True,
        )
        if chosen.show:
            print(simulation)
    print(
        f"{len(errors)} steps: MAPE {statistics.mean(errors):.1%}, "
        f"median {statistics.median(errors):.1%}, largest {max(errors):.1%}"
    )


if __name__ == "__main__":
    main()
