"""Predicted and measured times of training steps of GPT models.

The steps are written as Megatron does: f16 with Adam in f32, tensor parallelism inside of layers,
pipeline parallelism (1F1B, or interleaved), data parallelism, and accumulation of gradients over
microbatches. The file has one row per measured step in the format of vTrain (VIA-Research/vTrain,
data/ground_truth_*.csv):

    python benchmarks/simulation.py ground_truth_single.csv --machine a100x8-eager
    python benchmarks/simulation.py ground_truth_multi.csv --recompute --pairs
    python benchmarks/simulation.py

`published_steps.csv` has the steps of Narayanan et al. (2021, arXiv:2104.04473, tables 1 and 2:
their TFLOP/s, with the paper's formula for the flops of a step; the microbatches of table 1 are
assumed, because it does not state them) and of Korthikanti et al. (2022, arXiv:2205.05198, table
5). It has four more columns: `recomputation` (`full`, or `selective` for the attention scores),
`stages per rank` of the interleaved schedule, `sequence parallelism` (1 or 0), and `ZeRO stage` (3,
or 0).

Steps with sequence parallelism run with the pass `overlap`: the backward pass sends while it
computes the gradients of weights, as the paper states in section 4.2.2, and as
apex/transformer/tensor_parallel/layers.py (NVIDIA/apex) does.

A step with a pipeline is the sum of two predictions: the schedule of the passes of all stages, and
the update of the weights of one stage, which begins with the sum of the gradients over `data`.
Megatron keeps each stage's weights on its own devices; `sd.pipeline` gives all gradients to all
devices, which the prediction omits.

`--pairs` prints how often two steps of one model that differ in the size of the microbatch, or in
the degree of tensor parallelism, are predicted in the measured order.
`make_recomputed_step` makes the program of a row for
`shardir calibrate FILE --program simulation:make_recomputed_step`.
"""

import argparse
import csv
import math
import re
import statistics
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, fields, replace
from itertools import combinations
from pathlib import Path
from typing import Any

import shardir as sd
import shardir.numpy as snp
from shardir import lax
from shardir.frontend.dispatch.stages.step_simulation import simulate_step
from shardir.machine import load_machine
from shardir.passes import Pipeline
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


PAIRS = {
    "the size of the microbatch": ("micro",),
    "the degree of tensor parallelism": ("tensor", "data", "pipeline"),
}
"""The fields in which the steps of a pair differ."""
COLUMNS = {
    "# GPUs": "gpus",
    "global batch": "batch",
    "micro batch": "micro",
    "hidden size": "hidden",
    "attention heads": "heads",
    "# layers": "layers",
    "sequence length": "sequence",
    "tensor parallelism": "tensor",
    "data parallelism": "data",
    "pipeline parallelism": "pipeline",
    "iteration time (ms)": "milliseconds",
    "recomputation": "recomputation",
    "stages per rank": "stages_per_rank",
    "sequence parallelism": "sequence_parallelism",
    "ZeRO stage": "zero_stage",
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
    milliseconds: float = math.nan
    recomputation: str = "none"
    stages_per_rank: int = 1
    sequence_parallelism: int = 0
    zero_stage: int = 0
    """3 if weights and their state are sharded along `data` too."""

    @classmethod
    def parse(cls, row: Mapping[str, str]) -> "Measurement":
        """Return the measurement of a row; other columns are ignored."""
        given: dict[str, Any] = {
            COLUMNS[name]: value for name, value in row.items() if name in COLUMNS
        }
        for name, value in given.items():
            if name != "recomputation":
                given[name] = float(value) if name == "milliseconds" else int(float(value))
        return cls(**given)

    @property
    def stages(self) -> int:
        """The number of stages of all ranks."""
        return self.pipeline * self.stages_per_rank

    @property
    def microbatches(self) -> int:
        """The number of microbatches of each replica."""
        return self.batch // (self.data * self.micro)

    @property
    def mesh(self) -> AbstractMesh:
        """The devices, pipelines outermost."""
        return AbstractMesh((self.pipeline, self.data, self.tensor), ("pipe", "data", "model"))


def normalized(x: Any, scale: Any) -> Any:
    x = x.astype("float32")
    mean = snp.mean(x, axis=-1, keepdims=True)
    variance = snp.mean((x - mean) ** 2, axis=-1, keepdims=True)
    return ((x - mean) * lax.rsqrt(variance + 1e-5)).astype("float16") * scale


def attended(q: Any, k: Any, v: Any) -> Any:
    scores = snp.einsum("bhsk,bhtk->bhst", q, k) * q.shape[-1] ** -0.5
    causal = snp.tril(snp.ones(scores.shape[-2:], bool))
    scores = snp.where(causal, scores, -1e4).astype("float32")
    raised = snp.exp(scores - lax.stop_gradient(snp.max(scores, axis=-1, keepdims=True)))
    weights = (raised / snp.sum(raised, axis=-1, keepdims=True)).astype("float16")
    return snp.einsum("bhst,bhtk->bshk", weights, v)


def make_layer(given: Measurement) -> Callable[[Any, Any], Any]:
    """Return a layer, which recomputes what the row states."""
    attention = sd.checkpoint(attended) if given.recomputation == "selective" else attended

    def placed(x: Any, *axes: str | None) -> Any:
        """Return an activation with the sharding that sequence parallelism or ZeRO states: the
        batch along `data`, the sequence along `model` between the products, and heads or features
        in between."""
        if not given.sequence_parallelism and not given.zero_stage:
            return x
        rows = None if given.pipeline > 1 else "data"
        return lax.with_sharding_constraint(x, NamedSharding(given.mesh, P(rows, *axes)))

    def layer(x: Any, w: Any) -> Any:
        x = placed(x, "model")
        whole = placed(normalized(x, w["scale1"]))
        qkv = snp.einsum("bsd,dchk->cbhsk", whole, w["qkv"])
        mixed = placed(attention(*(placed(each, "model") for each in qkv)), None, "model")
        x = x + placed(placed(snp.einsum("bshk,hkd->bsd", mixed, w["out"])), "model")
        whole = placed(normalized(x, w["scale2"]))
        h = placed(sd.nn.gelu(whole @ w["up"] + w["up_bias"]), None, "model")
        return x + placed(h @ w["down"], "model") + w["down_bias"]

    return sd.checkpoint(layer) if given.recomputation == "full" else layer


def make_loss(given: Measurement) -> Any:
    layer = make_layer(given)

    def stage(number: int) -> Any:
        return sd.stage(number) if given.pipeline > 1 else nullcontext()

    def loss(w: Any, words: Any, targets: Any) -> Any:
        with stage(0):
            x = w["embedding"][words]
        for number, layers in enumerate(w["layers"]):
            with stage(number):
                x, _ = lax.scan(lambda x, one: (layer(x, one), None), x, layers)
        with stage(given.stages - 1):
            logits = snp.einsum("bsd,vd->bsv", x, w["embedding"]).astype("float32")
            logits = logits - lax.stop_gradient(snp.max(logits, axis=-1, keepdims=True))
            total = snp.log(snp.sum(snp.exp(logits), axis=-1))
            hits = snp.arange(logits.shape[-1]) == targets[..., None]
            return snp.mean(total - snp.sum(snp.where(hits, logits, 0), axis=-1))

    return loss


def adam(gradient: Any, state: Any) -> tuple[Any, Any]:
    """Return weights in f16, and the state: weights in f32, and both moments."""

    def update(g: Any, copy: Any, m: Any, v: Any) -> Any:
        g = g.astype("float32")
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
        copy = copy - 1e-4 * m / (snp.sqrt(v) + 1e-8)
        return copy.astype("float16"), copy, m, v

    leaves, structure = sd.tree.flatten(gradient)
    new = [
        update(*each) for each in zip(leaves, *(sd.tree.leaves(one) for one in state), strict=True)
    ]
    w, *state = (structure.unflatten(list(each)) for each in zip(*new, strict=True))
    return w, tuple(state)


def make_step(given: Measurement) -> Any:
    loss = make_loss(given)

    def step(w: Any, state: Any, words: Any, targets: Any) -> Any:
        def accumulate(total: Any, microbatch: Any) -> Any:
            value, gradient = sd.value_and_grad(loss)(w, *microbatch)
            return sd.tree.map(snp.add, total, (value, gradient)), None

        zeros = snp.zeros((), "float32"), sd.tree.map(snp.zeros_like, w)
        (value, gradient), _ = lax.scan(accumulate, zeros, (words, targets))
        return *adam(gradient, state), value

    return sd.jit(step, donate_argnums=(0, 1))


def struct(mesh: AbstractMesh, shape: tuple[int, ...], spec: P, dtype: str) -> Any:
    return sd.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(mesh, spec))


def weight(given: Measurement, shape: tuple[int, ...], spec: P, dtype: str) -> Any:
    axes: list[str | None] = [*spec, *(None,) * (len(shape) - len(spec))]
    if given.zero_stage == 3:
        axes[max(dim for dim, size in enumerate(shape) if size % given.hidden == 0)] = "data"
    return struct(given.mesh, shape, P(*axes), dtype)


def layer_weights(given: Measurement, dtype: str) -> Any:
    """Return the weights of the layers of one stage."""
    width = given.hidden // given.heads
    shapes = {name: make(given.hidden) for name, (_, make) in LAYER.items()}
    shapes["qkv"] = (given.hidden, 3, given.heads, width)
    shapes["out"] = (given.heads, width, given.hidden)
    count = given.layers // given.stages
    return {
        name: weight(given, (count, *shape), P(None, *LAYER[name][0]), dtype)
        for name, shape in shapes.items()
    }


def weights(given: Measurement, dtype: str, stages: int) -> Any:
    return {
        "embedding": weight(given, (WORDS, given.hidden), P("model", None), dtype),
        "layers": [layer_weights(given, dtype) for _ in range(stages)],
    }


def lower_step(given: Measurement) -> sd.stages.Lowered:
    """Return the step of a row without a pipeline."""
    tokens = (given.microbatches, given.data * given.micro, given.sequence)
    words = struct(given.mesh, tokens, P(None, "data"), "int32")
    state = tuple(weights(given, "float32", 1) for _ in range(3))
    lowered: sd.stages.Lowered = make_step(given).lower(
        weights(given, "float16", 1), state, words, words
    )
    return lowered


def lower_pipeline(given: Measurement) -> sd.stages.Lowered:
    """Return the loss and its gradient for the batch of one replica, in a pipeline."""
    is_interleaved = given.stages_per_rank > 1
    pipelined = sd.pipeline(
        make_loss(given),
        microbatches=given.microbatches,
        schedule="interleaved-1f1b" if is_interleaved else "1f1b",
        stages_per_rank=given.stages_per_rank if is_interleaved else None,
    )
    words = struct(given.mesh, (given.microbatches * given.micro, given.sequence), P(), "int32")
    lowered: sd.stages.Lowered = sd.jit(sd.value_and_grad(pipelined)).lower(
        weights(given, "float16", given.stages), words, words
    )
    return lowered


def lower_update(given: Measurement) -> sd.stages.Lowered:
    """Return the update of the weights of a rank with the embedding, after the sum of the gradients
    of all replicas."""

    def update(gradients: Any, state: Any) -> Any:
        return adam(sd.tree.map(lambda each: snp.sum(each, axis=0), gradients), state)

    def of_replicas(each: Any) -> Any:
        shape, spec = (given.data, *each.shape), P("data", *each.sharding.spec)
        return struct(given.mesh, shape, spec, "float16")

    own = weights(given, "float32", given.stages_per_rank)
    lowered: sd.stages.Lowered = sd.jit(update, donate_argnums=(0, 1)).lower(
        sd.tree.map(of_replicas, own), (own,) * 3
    )
    return lowered


def make_recomputed_step(**columns: float) -> sd.stages.Lowered:
    """Return the program of a row without a pipeline, from the columns of the file other than the
    time."""
    names = {re.sub(r"\W+", "_", name.lower()).strip("_"): name for name in COLUMNS}
    row = {names[name]: str(value) for name, value in columns.items() if name in names}
    return lower_step(replace(Measurement.parse(row), recomputation="full"))


def predict_seconds(given: Measurement, machine: str, target: str | None) -> float:
    """Return the predicted time of a step."""
    passes = "overlap" if given.sequence_parallelism else "none"
    if given.pipeline == 1:
        lowered = lower_step(given).with_passes(f"default,{passes}")
        step: float = lowered.simulate(machine, target=target).step_seconds
        return step
    (pipeline,) = lower_pipeline(given).pipelines()
    found = load_machine(machine, axes=dict(pipeline.mesh.axes))
    scheduled = Pipeline.parse(passes)
    times = pipeline.pass_times(
        {
            key: simulate_step(scheduled(each.module), found, target=target).step_seconds
            for key, each in pipeline.fragments.items()
        }
    )
    update = lower_update(given).simulate(machine, target=target)
    return float(pipeline.simulate(found, times=times).makespan) + update.step_seconds


def count_ordered_pairs(
    steps: Sequence[Measurement], predicted: Sequence[float], varied: Sequence[str]
) -> tuple[int, int]:
    """Return how many pairs of steps of one model, batch and number of devices that differ in the
    first field of `varied`, and at most in the others, are predicted in the measured order, and how
    many there are."""
    others = [
        field.name for field in fields(Measurement) if field.name not in (*varied, "milliseconds")
    ]
    ordered = total = 0
    for (one, first), (other, second) in combinations(zip(steps, predicted, strict=True), 2):
        is_varied = getattr(one, varied[0]) != getattr(other, varied[0])
        if is_varied and all(getattr(one, name) == getattr(other, name) for name in others):
            total += 1
            ordered += (one.milliseconds < other.milliseconds) == (first < second)
    return ordered, total


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    published = Path(__file__).with_name("published_steps.csv")
    options.add_argument("file", nargs="?", type=Path, default=published, help="measured steps")
    options.add_argument("--machine", default="a100x8-megatron")
    options.add_argument("--target", help="target whose passes form kernels")
    options.add_argument("--recompute", action="store_true", help="recompute all activations")
    options.add_argument("--every", type=int, default=1, help="use each n-th row")
    options.add_argument("--pairs", action="store_true", help="compare the order of pairs")
    chosen = options.parse_args()
    rows = csv.DictReader(chosen.file.read_text("utf-8").splitlines())
    steps = list(map(Measurement.parse, rows))[:: chosen.every]
    if chosen.recompute:
        steps = [replace(one, recomputation="full") for one in steps]
    if not steps:
        raise SystemExit("simulation.py: no step remains; name a CSV file with the row of a step")
    predicted = []
    for one in steps:
        predicted.append(predict_seconds(one, chosen.machine, chosen.target) * 1e3)
        print(
            f"B {one.batch:4} b {one.micro:2} h {one.hidden:5} l {one.layers:3} t {one.tensor:2} "
            f"d {one.data:2} p {one.pipeline:2} {one.recomputation:9}: "
            f"measured {one.milliseconds:8.1f} ms, predicted {predicted[-1]:8.1f} ms "
            f"({predicted[-1] / one.milliseconds - 1:+.0%})",
            flush=True,
        )
    errors = [abs(time / one.milliseconds - 1) for one, time in zip(steps, predicted, strict=True)]
    print(
        f"{len(errors)} steps: MAPE {statistics.mean(errors):.1%}, "
        f"median {statistics.median(errors):.1%}, largest {max(errors):.1%}"
    )
    if chosen.pairs:
        for what, varied in PAIRS.items():
            ordered, total = count_ordered_pairs(steps, predicted, varied)
            print(f"pairs that differ in {what}: {ordered} of {total} in the measured order")


if __name__ == "__main__":
    main()
