"""Predicted and published activations of training steps of GPT models.

The published ones are those of Korthikanti et al. (2022, arXiv:2205.05198): the activations of the
first device in figure 1, and the shares of the memory without sequence parallelism and
recomputation in figure 7.

    python benchmarks/activations.py

The layer is the one of Megatron-LM with dropout. A checkpoint saves the values that Megatron-LM
saves. The activations of a layer are the difference between two programs with two and three layers;
the schedule (1F1B, or interleaved) states how many microbatches the first device holds.
"""

from typing import Any

from gpt_programs import Measurement, layer_weights, normalized, struct

import shardir as sd
import shardir.numpy as snp
from shardir import lax
from shardir.ad_checkpoint import checkpoint_name, checkpoint_policies
from shardir.passes.pipeline_parallelism.named_schedules import make_schedule
from shardir.passes.pipeline_parallelism.simulation import simulate_schedule
from shardir.passes.simulation.argument_kinds import MemoryKind
from shardir.sharding import NamedSharding, PartitionSpec as P

SAVED = ("norm", "qkv", "context", "middle", "up", "gelu", "mask")
"""The values of a layer that Megatron-LM saves, other than those of the attention scores."""
SCORES = ("softmax", "scores mask", "dropped")
"""The saved values of the attention scores, which selective recomputation computes again."""
KEPT = 0.9
"""The probability that dropout keeps an element."""
MODES: dict[str, tuple[bool, tuple[str, ...]]] = {
    "none": (False, (*SAVED, *SCORES)),
    "sequence parallelism": (True, (*SAVED, *SCORES)),
    "selective": (False, SAVED),
    "both": (True, SAVED),
    "full": (False, ()),
}
"""The columns of figure 7: a flag for a sharded sequence, and the values that are saved."""
MODELS = {
    "22B": (4, 6144, 64, 48, 1, 1, 4),
    "175B": (1, 12288, 96, 96, 8, 3, 64),
    "530B": (1, 20480, 128, 105, 35, 3, 280),
    "1T": (1, 25600, 160, 128, 64, 1, 512),
}
"""The microbatch, hidden size, heads, layers, pipeline, stages per rank and batch of each model."""
FIGURE_1 = {
    "22B": (59.25, 9.5625),
    "175B": (66.84375, 12.3515625),
    "530B": (114.0234375, 23.0761719),
    "1T": (131.25, 26.5625),
}
"""Published GiB of activations with `none` and `both`."""
FIGURE_7 = {
    "22B": (66.84, 49.42, 16.18, 7.64),
    "175B": (62.04, 56.53, 18.49, 8.71),
    "530B": (58.31, 62.04, 20.27, 9.42),
    "1T": (58.31, 62.04, 20.27, 9.42),
}
"""Published shares of `none` in percent, in the order of `MODES`."""


def dropout(x: Any, key: Any, name: str) -> Any:
    mask = checkpoint_name(sd.random.bernoulli(key, KEPT, x.shape), name)
    return snp.where(mask, x * (1 / KEPT), 0).astype(x.dtype)


@sd.custom_vjp
def causal_softmax(scores: Any) -> Any:
    """Return the softmax of scores with a causal mask; the gradient needs nothing but the result,
    as in `ScaledUpperTriangMaskedSoftmax` of Megatron-LM (megatron/model/fused_softmax.py)."""
    causal = snp.tril(snp.ones(scores.shape[-2:], bool))
    scores = snp.where(causal, scores, -1e4).astype("float32")
    raised = snp.exp(scores - snp.max(scores, axis=-1, keepdims=True))
    return (raised / snp.sum(raised, axis=-1, keepdims=True)).astype("float16")


def causal_softmax_forward(scores: Any) -> tuple[Any, Any]:
    softmax = checkpoint_name(causal_softmax(scores), "softmax")
    return softmax, softmax


def causal_softmax_backward(softmax: Any, gradient: Any) -> tuple[Any]:
    weighted = softmax.astype("float32") * gradient
    total = snp.sum(weighted, axis=-1, keepdims=True)
    return ((weighted - softmax * total).astype("float16"),)


causal_softmax.defvjp(causal_softmax_forward, causal_softmax_backward)


def attended(q: Any, k: Any, v: Any, key: Any) -> Any:
    scores = snp.einsum("bhsk,bhtk->bhst", q, k) * q.shape[-1] ** -0.5
    weights = dropout(causal_softmax(scores), key, "scores mask")
    return snp.einsum("bhst,bhtk->bshk", checkpoint_name(weights, "dropped"), v)


def make_layer(given: Measurement, is_sharded: bool, saved: tuple[str, ...]) -> Any:
    def placed(x: Any, *axes: str | None) -> Any:
        if not is_sharded:
            return x
        return lax.with_sharding_constraint(x, NamedSharding(given.mesh, P("data", *axes)))

    def norm(x: Any, scale: Any, bias: Any) -> Any:
        """Return the normalized sequence on each device; each saves its own part."""
        part = checkpoint_name(placed(normalized(x, scale, bias), "model"), "norm")
        return placed(placed(part, "model"))

    def layer(x: Any, given: Any) -> Any:
        w, key = given
        scores_key, *keys = sd.random.split(key, 3)
        x = placed(x, "model")
        qkv = snp.einsum("bsd,dchk->cbhsk", norm(x, w["scale1"], w["bias1"]), w["qkv"])
        q, k, v = (placed(each, "model") for each in checkpoint_name(qkv, "qkv"))
        mixed = placed(attended(q, k, v, scores_key), None, "model")
        mixed = checkpoint_name(mixed, "context")
        out = placed(placed(snp.einsum("bshk,hkd->bsd", mixed, w["out"])), "model")
        x = checkpoint_name(x + dropout(out, keys[0], "mask"), "middle")
        up = checkpoint_name(norm(x, w["scale2"], w["bias2"]) @ w["up"] + w["up_bias"], "up")
        h = checkpoint_name(placed(sd.nn.gelu(up), None, "model"), "gelu")
        down = placed(placed(h @ w["down"]), "model") + w["down_bias"]
        return placed(x + dropout(down, keys[1], "mask"), "model")

    return sd.checkpoint(layer, policy=checkpoint_policies.save_only_these_names(*saved))


def count_activations(given: Measurement, is_sharded: bool, saved: tuple[str, ...]) -> int:
    """Return the bytes of the activations of the layers of a program without a pipeline."""
    layer = make_layer(given, is_sharded, saved)

    def loss(w: Any, x: Any, keys: Any) -> Any:
        y, _ = lax.scan(lambda x, each: (layer(x, each), None), x, (w, keys))
        return snp.sum(y.astype("float32"))

    spec = P("data", "model", None) if is_sharded else P("data", None, None)
    x = struct(given.mesh, (given.micro, given.sequence, given.hidden), spec, "float16")
    keys = sd.random.split(sd.random.key(0), given.layers)
    lowered = sd.jit(sd.grad(loss)).lower(layer_weights(given, "float16"), x, keys)
    by_kind: dict[MemoryKind, int] = lowered.simulate("a100x8-megatron").memory.by_kind
    return by_kind[MemoryKind.ACTIVATIONS]


def count_layer(micro: int, hidden: int, heads: int, mode: str) -> int:
    """Return the bytes of the activations that one layer adds on each of 8 devices."""
    is_sharded, saved = MODES[mode]
    fewer, more = (
        count_activations(
            Measurement(8, micro, micro, hidden, heads, layers, 2048, 8, 1, 1), is_sharded, saved
        )
        for layers in (2, 3)
    )
    return more - fewer


def count_held_layers(layers: int, ranks: int, stages_per_rank: int, microbatches: int) -> float:
    """Return for how many layers and microbatches the first device holds activations."""
    if ranks == 1:
        return layers
    is_interleaved = stages_per_rank > 1
    schedule = make_schedule(
        "interleaved-1f1b" if is_interleaved else "1f1b",
        ranks=ranks,
        microbatches=microbatches,
        stages_per_rank=stages_per_rank if is_interleaved else None,
    )
    held = float(simulate_schedule(schedule).peaks[0])
    return held * layers / (ranks * stages_per_rank)


def main() -> None:
    for model, (micro, hidden, heads, layers, ranks, stages_per_rank, batch) in MODELS.items():
        bytes_of = {mode: count_layer(micro, hidden, heads, mode) for mode in MODES}
        held = count_held_layers(layers, ranks, stages_per_rank, batch // micro)
        for mode, published in zip(("none", "both"), FIGURE_1[model], strict=True):
            predicted = bytes_of[mode] * held / 2**30
            print(
                f"{model:4} {mode:20}: published {published:6.2f} GiB, predicted "
                f"{predicted:6.2f} GiB ({predicted / published - 1:+.1%})"
            )
        shares = zip(list(MODES)[1:], FIGURE_7[model], strict=True)
        for mode, share in shares:
            predicted = 100 * bytes_of[mode] / bytes_of["none"]
            print(f"{model:4} {mode:20}: published {share:6.2f} %, predicted {predicted:6.2f} %")


if __name__ == "__main__":
    main()
