"""Predicted and published steps of Llama 3 405B (arXiv:2407.21783, table 4).

    python benchmarks/llama3.py

The rate of matrix products of `h100x8` is scaled so that the first row is met; the other rows are
predictions. The program follows section 3.3 of the paper: bf16 weights without recomputation,
tensor parallelism with a sharded sequence, context parallelism that gathers keys and values, an
interleaved pipeline of 128 stages (the first has the embedding only, the last the output layer
only), and gradients that are added over microbatches and reduce-scattered in f32 (FSDP). The
kernels are those of `--target gpu`, which fuses attention.

The attention kernels skip masked blocks of keys, and the devices of a context group have equal
work (chunks from both ends of the sequence), so that each device computes (2n + 1) / 4n of the
scores for n chunks of a sequence; a device with a whole sequence is assumed to have 8. The
published TFLOP/s are assumed to count these scores only.
"""

import argparse
import math
from dataclasses import dataclass
from typing import Any

from gpt_programs import cross_entropy, struct
from simulation import PreparedStep

import shardir as sd
import shardir.numpy as snp
from shardir import lax
from shardir.backends.emission import get_target
from shardir.machine import MachineDescription
from shardir.machine.description_files import read_description
from shardir.machine.step_fit import scale_constants
from shardir.sharding import AbstractMesh, NamedSharding, PartitionSpec as P

LAYERS, HIDDEN, INNER, WORDS = 126, 16384, 53248, 128256
HEADS, KEY_HEADS, WIDTH = 128, 8, 128
RANKS, STAGES_PER_RANK = 16, 8
MIN_CHUNKS = 8
"""The smallest number of chunks into which an attention kernel divides a sequence."""
LAYER = {
    "scale1": ((HIDDEN,), P()),
    "q": ((HIDDEN, KEY_HEADS, HEADS // KEY_HEADS, WIDTH), P(None, "model")),
    "k": ((HIDDEN, KEY_HEADS, WIDTH), P(None, "model")),
    "v": ((HIDDEN, KEY_HEADS, WIDTH), P(None, "model")),
    "out": ((KEY_HEADS, HEADS // KEY_HEADS, WIDTH, HIDDEN), P("model")),
    "scale2": ((HIDDEN,), P()),
    "gate": ((HIDDEN, INNER), P(None, "model")),
    "up": ((HIDDEN, INNER), P(None, "model")),
    "down": ((INNER, HIDDEN), P("model")),
}
ENDS = {
    "embedding": ((WORDS, HIDDEN), P("model")),
    "scale": ((HIDDEN,), P()),
    "head": ((HIDDEN, WORDS), P(None, "model")),
}


@dataclass(frozen=True)
class Row:
    """A row of table 4; `sequences` are those of one data-parallel group."""

    gpus: int
    context: int
    data: int
    sequence: int
    sequences: int
    teraflops: float

    @property
    def mesh(self) -> AbstractMesh:
        """The devices, pipelines outermost."""
        return AbstractMesh(
            (RANKS, self.data, self.context, 8), ("pipe", "data", "context", "model")
        )

    @property
    def visible_keys(self) -> int:
        """The number of keys whose scores one row of an attention kernel computes on average."""
        chunks = max(self.context, MIN_CHUNKS)
        return self.sequence * (2 * chunks + 1) // (4 * chunks)

    @property
    def seconds(self) -> float:
        """The published time of a step."""
        in_layers = sum(math.prod(shape) for shape, _ in LAYER.values())
        products = LAYERS * in_layers + HIDDEN * WORDS
        scores = LAYERS * HEADS * WIDTH * self.visible_keys * 2
        tokens = self.data * self.sequences * self.sequence
        return 6 * tokens * (products + scores) / (self.gpus * self.teraflops * 1e12)


ROWS = (
    Row(8192, 1, 64, 8192, 32, 430),
    Row(16384, 1, 128, 8192, 16, 400),
    Row(16384, 16, 8, 131072, 16, 380),
)


def normalized(x: Any, scale: Any) -> Any:
    x = x.astype("float32")
    x = x * lax.rsqrt(snp.mean(x * x, -1, keepdims=True) + 1e-5)
    return x.astype("bfloat16") * scale[:, None]


@sd.checkpoint
def attended(q: Any, k: Any, v: Any) -> Any:
    """Return the result of attention, whose gradient computes the scores again, as
    FlashAttention does."""
    scores = snp.einsum("bcksgd,bktd->bcksgt", q, k).astype("float32") * WIDTH**-0.5
    raised = snp.exp(scores - lax.stop_gradient(snp.max(scores, axis=-1, keepdims=True)))
    weights = (raised / snp.sum(raised, axis=-1, keepdims=True)).astype("bfloat16")
    return snp.einsum("bcksgt,bktd->bcksgd", weights, v)


def make_loss(given: Row) -> Any:
    """Return the loss. The devices of a context group have weights of their own (the dimension
    `c`), so that their gradients are not added in each microbatch."""

    def placed(x: Any, *axes: Any) -> Any:
        return lax.with_sharding_constraint(x, NamedSharding(given.mesh, P(None, *axes)))

    def keys(x: Any, w: Any) -> Any:
        """Return keys or values of the whole sequence."""
        gathered = placed(snp.einsum("bcsd,cdkh->bkcsh", x, w), "model")
        batch, heads, *_, width = gathered.shape
        return gathered.reshape(batch, heads, -1, width)[:, :, : given.visible_keys]

    def layer(x: Any, w: Any) -> Any:
        x = placed(x, "context", "model")
        whole = placed(normalized(x, w["scale1"]), "context")
        q = placed(snp.einsum("bcsd,cdkgh->bcksgh", whole, w["q"]), "context", "model")
        mixed = attended(q, keys(whole, w["k"]), keys(whole, w["v"]))
        mixed = placed(mixed, "context", "model")
        x = x + placed(snp.einsum("bcksgh,ckghd->bcsd", mixed, w["out"]), "context", "model")
        whole = placed(normalized(x, w["scale2"]), "context")
        gate, up = (snp.einsum("bcsd,cdf->bcsf", whole, w[name]) for name in ("gate", "up"))
        h = placed(sd.nn.silu(gate) * up, "context", None, "model")
        return x + placed(snp.einsum("bcsf,cfd->bcsd", h, w["down"]), "context", "model")

    def loss(w: Any, words: Any, targets: Any) -> Any:
        with sd.stage(0):
            look_up = sd.vmap(lambda table, row: table[row], in_axes=(0, 1), out_axes=1)
            x = placed(look_up(w["embedding"], words), "context", "model")
        for number, one in enumerate(w["layers"]):
            with sd.stage(number + 1):
                x = layer(x, one)
        with sd.stage(LAYERS + 1):
            whole = placed(normalized(x, w["scale"]), "context")
            return cross_entropy(snp.einsum("bcsd,cdv->bcsv", whole, w["head"]), targets)

    return loss


def lower_pipeline(given: Row) -> sd.stages.Lowered:
    """Return the loss and its gradient for the batch of one data-parallel group."""

    def of(entries: Any) -> Any:
        return {
            name: struct(given.mesh, (given.context, *shape), P("context", *spec), "bfloat16")
            for name, (shape, spec) in entries.items()
        }

    pipelined = sd.pipeline(
        make_loss(given),
        microbatches=given.sequences,
        schedule="interleaved-1f1b",
        stages_per_rank=STAGES_PER_RANK,
    )
    tokens = (given.sequences, given.context, given.sequence // given.context)
    words = struct(given.mesh, tokens, P(None, "context"), "int32")
    weights = {**of(ENDS), "layers": [of(LAYER) for _ in range(LAYERS)]}
    lowered: sd.stages.Lowered = sd.jit(sd.value_and_grad(pipelined)).lower(weights, words, words)
    return lowered


def lower_update(given: Row) -> sd.stages.Lowered:
    """Return the update of the weights of one rank: the sum of the gradients over the groups, Adam
    on the part of each device, and the collection of the new weights."""
    replicas = ("data", "context")
    shapes = [each for _ in range(STAGES_PER_RANK) for each in LAYER.values()]

    def part(shape: tuple[int, ...], spec: P) -> P:
        dim = shape.index(HIDDEN)
        axes = [*spec, *(None for _ in shape[len(spec) :])]
        return P(*axes[:dim], replicas, *axes[dim + 1 :])

    def update(gradients: Any, state: Any) -> Any:
        new_weights, new_state = [], []
        for (_, spec), gradient, (copy, m, v) in zip(shapes, gradients, state, strict=True):
            g = snp.sum(gradient, axis=0)
            m, v = 0.9 * m + 0.1 * g, 0.95 * v + 0.05 * g * g
            copy = copy - 1e-4 * m / (snp.sqrt(v) + 1e-8)
            whole = NamedSharding(given.mesh, spec)
            new_weights.append(lax.with_sharding_constraint(copy.astype("bfloat16"), whole))
            new_state.append((copy, m, v))
        return new_weights, new_state

    count = given.data * given.context
    gradients = [
        struct(given.mesh, (count, *shape), P(replicas, *spec), "float32") for shape, spec in shapes
    ]
    state = [
        (struct(given.mesh, shape, part(shape, spec), "float32"),) * 3 for shape, spec in shapes
    ]
    lowered: sd.stages.Lowered = sd.jit(update, donate_argnums=(0, 1)).lower(gradients, state)
    return lowered


def prepare(given: Row) -> PreparedStep:
    fusion = get_target("gpu").pipeline
    return PreparedStep.of_pipeline(lower_pipeline(given), lower_update(given), f"overlap,{fusion}")


def scale_products(first: PreparedStep, base: MachineDescription) -> MachineDescription:
    """Return a machine on which the first row takes the published time."""
    low, high = 0.3, 1 / max(fraction for _, fraction in base.matmul["bf16"].efficiency)
    while high - low > 1e-3:
        factor = (low + high) / 2
        is_slow = first.predict(scale_constants(base, {"matmul": factor})) > ROWS[0].seconds
        low, high = (factor, high) if is_slow else (low, factor)
    print(f"matrix products at {low:.3f} times the rate of {base.name}, from the first row")
    return scale_constants(base, {"matmul": low})


def find_errors(base: MachineDescription) -> list[float]:
    """Print the predicted times of all rows, and return their relative errors."""
    first = prepare(ROWS[0])
    machine = scale_products(first, base)
    errors = []
    for row in ROWS:
        predicted = (first if row is ROWS[0] else prepare(row)).predict(machine)
        errors.append(predicted / row.seconds - 1)
        print(
            f"{row.gpus:5} GPUs, context {row.context:2}, sequences of {row.sequence:6}: "
            f"published {row.seconds:5.2f} s, predicted {predicted:5.2f} s ({errors[-1]:+.1%})",
            flush=True,
        )
    return errors


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--machine", default="h100x8")
    find_errors(read_description(options.parse_args().machine))


if __name__ == "__main__":
    main()
