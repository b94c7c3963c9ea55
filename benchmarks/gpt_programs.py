"""Programs of training steps of GPT models, as Megatron-LM runs them.

The weights are f16 with Adam in f32, tensor parallelism is inside of layers, pipelines run 1F1B or
interleaved, and gradients accumulate over microbatches. `Measurement` is a row of a file in the
format of vTrain (VIA-Research/vTrain, data/ground_truth_*.csv), with four more columns:
`recomputation` (`full`, or `selective` for the attention scores), `stages per rank` of the
interleaved schedule, `sequence parallelism` (1 or 0), and `ZeRO stage` (3, or 0).
"""

import math
import re
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any

import shardir as sd
import shardir.numpy as snp
from shardir import lax
from shardir.sharding import AbstractMesh, NamedSharding, PartitionSpec as P

WORDS = 51200
"""The size of the vocabulary: 50257, padded so that 8 devices divide it."""
LAYER: dict[str, tuple[P, Callable[[int], tuple[int, ...]]]] = {
    "scale1": (P(), lambda h: (h,)),
    "bias1": (P(), lambda h: (h,)),
    "qkv": (P(None, None, "model", None), lambda h: (h, 3, 0, 0)),
    "qkv_bias": (P(None, "model", None), lambda h: (3, 0, 0)),
    "out": (P("model", None, None), lambda h: (0, 0, h)),
    "out_bias": (P(), lambda h: (h,)),
    "scale2": (P(), lambda h: (h,)),
    "bias2": (P(), lambda h: (h,)),
    "up": (P(None, "model"), lambda h: (h, 4 * h)),
    "up_bias": (P("model"), lambda h: (4 * h,)),
    "down": (P("model", None), lambda h: (4 * h, h)),
    "down_bias": (P(), lambda h: (h,)),
}
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


def recompute(fun: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function with a gradient that runs all of it again, as `checkpoint` of PyTorch
    does. A checkpoint of this library omits operations whose results the gradient does not use."""
    recomputed = sd.custom_vjp(fun)

    def backward(args: Any, gradient: Any) -> Any:
        y, pull = sd.vjp(fun, *lax.optimization_barrier(args))
        _, gradient = lax.optimization_barrier((y, gradient))
        return pull(gradient)

    recomputed.defvjp(lambda *args: (fun(*args), args), backward)
    return recomputed


def normalized(x: Any, scale: Any, bias: Any) -> Any:
    x = x.astype("float32")
    mean = snp.mean(x, axis=-1, keepdims=True)
    variance = snp.mean((x - mean) ** 2, axis=-1, keepdims=True)
    return ((x - mean) * lax.rsqrt(variance + 1e-5)).astype("float16") * scale + bias


def attended(q: Any, k: Any, v: Any) -> Any:
    scores = snp.einsum("bhsk,bhtk->bhst", q, k) * q.shape[-1] ** -0.5
    causal = snp.tril(snp.ones(scores.shape[-2:], bool))
    scores = snp.where(causal, scores, -1e4).astype("float32")
    raised = snp.exp(scores - lax.stop_gradient(snp.max(scores, axis=-1, keepdims=True)))
    weights = (raised / snp.sum(raised, axis=-1, keepdims=True)).astype("float16")
    return snp.einsum("bhst,bhtk->bshk", weights, v)


def multiply(equation: str, x: Any, w: Any, name: str) -> Any:
    return snp.einsum(equation, x, w[name])


def make_layer(given: Measurement, product: Any = multiply) -> Callable[[Any, Any], Any]:
    """Return a layer, which recomputes what the row states.

    `product` multiplies an activation by the weight with a name.
    """
    attention = recompute(attended) if given.recomputation == "selective" else attended

    def placed(x: Any, *axes: str | None) -> Any:
        """Return an activation with the sharding of sequence parallelism: the batch along `data`,
        the sequence along `model` between the products, and heads or features in between."""
        if not given.sequence_parallelism:
            return x
        rows = None if given.pipeline > 1 else "data"
        return lax.with_sharding_constraint(x, NamedSharding(given.mesh, P(rows, *axes)))

    def layer(x: Any, w: Any) -> Any:
        x = placed(x, "model")
        whole = placed(normalized(x, w["scale1"], w["bias1"]))
        qkv = product("bsd,dchk->cbhsk", whole, w, "qkv")
        qkv = qkv + w["qkv_bias"][:, None, :, None, :]
        mixed = placed(attention(*(placed(each, "model") for each in qkv)), None, "model")
        x = x + placed(placed(product("bshk,hkd->bsd", mixed, w, "out")), "model")
        x = x + w["out_bias"]
        whole = placed(normalized(x, w["scale2"], w["bias2"]))
        up = product("bsd,df->bsf", whole, w, "up")
        h = placed(sd.nn.gelu(up + w["up_bias"]), None, "model")
        return x + placed(product("bsf,fd->bsd", h, w, "down"), "model") + w["down_bias"]

    return recompute(layer) if given.recomputation == "full" else layer


def cross_entropy(logits: Any, targets: Any) -> Any:
    logits = logits.astype("float32")
    logits = logits - lax.stop_gradient(snp.max(logits, axis=-1, keepdims=True))
    total = snp.log(snp.sum(snp.exp(logits), axis=-1))
    hits = snp.arange(logits.shape[-1]) == targets[..., None]
    return snp.mean(total - snp.sum(snp.where(hits, logits, 0), axis=-1))


def make_loss(given: Measurement) -> Any:
    layer = make_layer(given)

    def stage(number: int) -> Any:
        return sd.stage(number) if given.pipeline > 1 else nullcontext()

    def loss(w: Any, words: Any, targets: Any) -> Any:
        with stage(0):
            x = w["embedding"][words] + w["positions"]
        for number, layers in enumerate(w["layers"]):
            with stage(number):
                x, _ = lax.scan(lambda x, one: (layer(x, one), None), x, layers)
        with stage(given.stages - 1):
            return cross_entropy(multiply("bsd,vd->bsv", x, w, "embedding"), targets)

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


def layer_shapes(given: Measurement) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the weights of one layer."""
    width = given.hidden // given.heads
    shapes = {name: make(given.hidden) for name, (_, make) in LAYER.items()}
    shapes["qkv"] = (given.hidden, 3, given.heads, width)
    shapes["qkv_bias"] = (3, given.heads, width)
    shapes["out"] = (given.heads, width, given.hidden)
    return shapes


def count_parameters(given: Measurement) -> int:
    """Return the number of parameters of a model."""
    in_layer = sum(map(math.prod, layer_shapes(given).values()))
    return given.layers * in_layer + (WORDS + given.sequence) * given.hidden


def layer_weights(given: Measurement, dtype: str) -> Any:
    """Return the weights of the layers of one stage."""
    count = given.layers // given.stages
    return {
        name: struct(given.mesh, (count, *shape), P(None, *LAYER[name][0]), dtype)
        for name, shape in layer_shapes(given).items()
    }


def weights(given: Measurement, dtype: str, stages: int) -> Any:
    return {
        "embedding": struct(given.mesh, (WORDS, given.hidden), P("model", None), dtype),
        "positions": struct(given.mesh, (given.sequence, given.hidden), P(), dtype),
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
