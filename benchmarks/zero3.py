"""The step of a row with ZeRO stage 3, as DeepSpeed runs it.

Each device holds a part of each weight, which is padded so that all parts are equal. The layers
collect a weight before each use: in the forward computation, when the backward computation repeats
it, and for the gradient (ZeRO-Infinity, arXiv:2104.07857, section 4.1: three loads of the weights
and one transfer of the gradients). Weights of at most 100,000 elements are collected once in a step
(the default of `stage3_param_persistence_threshold`). Gradients are reduce-scattered, one weight at
a time.

`torch.distributed.all_gather` copies the part of each device out of the buffer of NCCL with a
kernel of its own, and `reduce_scatter` copies it into that buffer in the same way (PyTorch 1.8,
torch/lib/c10d/ProcessGroupNCCL.cpp).
"""

import math
from typing import Any

from gpt_programs import (
    WORDS,
    Measurement,
    adam,
    cross_entropy,
    layer_shapes,
    make_layer,
    struct,
)

import shardir as sd
import shardir.numpy as snp
from shardir import lax
from shardir.sharding import PartitionSpec as P

MAX_PERSISTENT_ELEMENTS = 100_000
"""The number of elements of the largest weight that is collected once in a step."""


class PartitionedWeight:
    """A weight of a shape, of which each of `count` devices holds one part."""

    def __init__(self, shape: tuple[int, ...], count: int) -> None:
        self.shape, self.count = shape, count
        self.size = math.prod(shape)
        self.part_size = -(-self.size // count)

    def collect(self, part: Any) -> Any:
        """Return the whole weight; its gradient is reduce-scattered."""
        return self._use(part, None)

    def use_collected(self, part: Any, whole: Any) -> Any:
        """Return a weight that was collected before; its gradient is reduce-scattered."""
        return self._use(part, lax.stop_gradient(whole))

    def _use(self, part: Any, whole: Any) -> Any:
        def forward(part: Any) -> Any:
            if whole is not None:
                return whole
            gathered = self._copy_parts(lax.all_gather(part, "data", tiled=True))
            return gathered[: self.size].reshape(self.shape)

        def backward(_: Any, gradient: Any) -> tuple[Any]:
            padding = self.part_size * self.count - self.size
            flat = snp.pad(gradient.reshape(-1), (0, padding)) if padding else gradient.reshape(-1)
            return (lax.psum_scatter(self._copy_parts(flat), "data", tiled=True),)

        use = sd.custom_vjp(forward)
        use.defvjp(lambda part: (forward(part), ()), backward)
        return use(part)

    def _copy_parts(self, buffer: Any) -> Any:
        """Return a copy of a buffer, made by one kernel for each part."""

        def copy(_: None, row: Any) -> tuple[None, Any]:
            return None, lax.dynamic_slice(buffer, (row,), (self.part_size,))

        starts = self.part_size * snp.arange(self.count, dtype="uint32")
        return lax.scan(copy, None, starts)[1].reshape(-1)


def lower_zero_step(given: Measurement) -> sd.stages.Lowered:
    """Return the step of a row whose devices form one data-parallel group."""
    layer_weights = {
        name: PartitionedWeight(shape, given.data) for name, shape in layer_shapes(given).items()
    }
    persistent = {
        name: each for name, each in layer_weights.items() if each.size <= MAX_PERSISTENT_ELEMENTS
    }
    embedding = PartitionedWeight((WORDS, given.hidden), given.data)
    positions = PartitionedWeight((given.sequence, given.hidden), given.data)

    def product(equation: str, x: Any, w: Any, name: str) -> Any:
        @sd.checkpoint
        def collect_and_multiply(x: Any, part: Any) -> Any:
            return snp.einsum(
                equation, x, {**layer_weights, "embedding": embedding}[name].collect(part)
            )

        return collect_and_multiply(x, w[name])

    plain_layer = make_layer(given, product)

    def loss(w: Any, words: Any, targets: Any) -> Any:
        x = embedding.collect(w["embedding"])[words] + positions.collect(w["positions"])
        collected = {
            name: lax.all_gather(w["layers"][name], "data", axis=1, tiled=True)
            for name in persistent
        }

        def run_layer(x: Any, weights: Any) -> tuple[Any, None]:
            parts, whole = weights
            used = {
                name: each.use_collected(parts[name], whole[name][: each.size].reshape(each.shape))
                for name, each in persistent.items()
            }
            return plain_layer(x, {**parts, **used}), None

        x, _ = lax.scan(run_layer, x, (w["layers"], collected))
        return cross_entropy(product("bsd,vd->bsv", x, w, "embedding"), targets)

    def step(w: Any, state: Any, words: Any, targets: Any) -> Any:
        value, gradient = sd.value_and_grad(loss)(w, words, targets)
        return *adam(gradient, state), lax.pmean(value, "data")

    def weights(dtype: str) -> Any:
        def part(each: PartitionedWeight, *layers: int) -> Any:
            shape = (*layers, each.part_size * each.count)
            return struct(given.mesh, shape, P(*(None for _ in layers), "data"), dtype)

        return {
            "embedding": part(embedding),
            "positions": part(positions),
            "layers": {name: part(each, given.layers) for name, each in layer_weights.items()},
        }

    specs = sd.tree.map(lambda each: each.sharding.spec, weights("float16"))
    state = (specs,) * 3
    run = sd.shard_map(
        step,
        mesh=given.mesh,
        in_specs=(specs, state, P("data"), P("data")),
        out_specs=(specs, state, P()),
    )
    words = struct(given.mesh, (given.batch, given.sequence), P("data"), "int32")
    lowered: sd.stages.Lowered = sd.jit(run, donate_argnums=(0, 1)).lower(
        weights("float16"), (weights("float32"),) * 3, words, words
    )
    return lowered
