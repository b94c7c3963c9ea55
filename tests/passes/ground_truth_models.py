"""Models with known communication: a decoder with nine weights per layer, and its training steps.

Sizes are those of the published counts (batch 16, sequence 32, width 64, eight heads, hidden 256,
vocabulary 128); counts do not depend on them.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import shardir as sd
import shardir.numpy as snp
from shardir.cost.communication import Collective, list_collectives
from shardir.frontend.shardings.devices import virtual_devices
from shardir.ir.module import Module
from shardir.lax import with_sharding_constraint
from shardir.passes import Pipeline
from shardir.passes.pipeline import DEFAULT_PIPELINE
from shardir.sharding import NamedSharding, PartitionSpec as P

BATCH, SEQUENCE, WIDTH, HEADS, HIDDEN, WORDS = 16, 32, 64, 8, 256, 128
SHAPES = {
    "scale1": (WIDTH,),
    "query": (WIDTH, HEADS, WIDTH // HEADS),
    "key": (WIDTH, HEADS, WIDTH // HEADS),
    "value": (WIDTH, HEADS, WIDTH // HEADS),
    "out": (HEADS, WIDTH // HEADS, WIDTH),
    "scale2": (WIDTH,),
    "up": (WIDTH, HIDDEN),
    "up_bias": (HIDDEN,),
    "down": (HIDDEN, WIDTH),
}
MEGATRON = {
    "query": P(None, "y"),
    "key": P(None, "y"),
    "value": P(None, "y"),
    "out": P("y"),
    "up": P(None, "y"),
    "up_bias": P("y"),
    "down": P("y"),
}
ZERO = {
    "scale1": P("x"),
    "query": P("x"),
    "key": P("x"),
    "value": P("x"),
    "out": P(None, None, "x"),
    "scale2": P("x"),
    "up": P("x"),
    "up_bias": P("x"),
    "down": P(None, "x"),
}
MESH = sd.make_mesh((2, 4), ("x", "y"), devices=virtual_devices(8))


def sharding(*axes: Any) -> NamedSharding:
    return NamedSharding(MESH, P(*axes))


def struct(shape: tuple[int, ...], spec: P | None = None, dtype: str = "float32") -> Any:
    return sd.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(MESH, spec or P()))


def parameters(layers: int, specs: Mapping[str, P], embedding: P | None = None) -> Any:
    layer = {name: struct(shape, specs.get(name)) for name, shape in SHAPES.items()}
    return {
        "embedding": struct((WORDS, WIDTH), embedding),
        "layers": [dict(layer) for _ in range(layers)],
    }


def tokens(spec: P | None = None) -> Any:
    return struct((BATCH, SEQUENCE), spec, "int32")


def normalized(x: Any, scale: Any) -> Any:
    mean = snp.mean(x, axis=-1, keepdims=True)
    variance = snp.mean((x - mean) ** 2, axis=-1, keepdims=True)
    return (x - mean) / snp.sqrt(variance + 1e-5) * scale


def softmax(x: Any) -> Any:
    raised = snp.exp(x - snp.max(x, axis=-1, keepdims=True))
    return raised / snp.sum(raised, axis=-1, keepdims=True)


def constrain_both(*axes: Any) -> "Place":
    """Constrain activations and their cotangents."""
    return lambda x: with_sharding_constraint(x, sharding(*axes))


def unchanged(x: Any) -> Any:
    return x


Place = Callable[[Any], Any]


@dataclass(frozen=True)
class ActivationSpecs:
    """The shardings of the activations of a layer: between the two blocks, at the input of a
    block, and inside, by heads or hidden features.
    """

    between: Place = unchanged
    entering: Place = unchanged
    heads: Place = unchanged
    hidden: Place = unchanged


def block(x: Any, layer: Any, at: ActivationSpecs = ActivationSpecs()) -> Any:
    h = at.entering(normalized(x, layer["scale1"]))
    names = ("query", "key", "value")
    q, k, v = (at.heads(snp.einsum("bsd,dhk->bshk", h, layer[n])) for n in names)
    weights = softmax(snp.einsum("bshk,bthk->bhst", q, k) * (WIDTH // HEADS) ** -0.5)
    attended = at.heads(snp.einsum("bhst,bthk->bshk", weights, v))
    x = x + at.between(snp.einsum("bshk,hkd->bsd", attended, layer["out"]))
    h = at.entering(normalized(x, layer["scale2"]))
    h = snp.tanh(at.hidden(h @ layer["up"] + layer["up_bias"]))
    return x + at.between(at.hidden(h) @ layer["down"])


def body(params: Any, x: Any, at: ActivationSpecs = ActivationSpecs()) -> Any:
    for layer in params["layers"]:
        x = block(x, layer, at)
    return x


def forward(params: Any, words: Any) -> Any:
    return body(params, params["embedding"][words])


def loss(params: Any, words: Any, targets: Any) -> Any:
    x = forward(params, words)
    logits = x @ params["embedding"].T
    logits = logits - snp.max(logits, axis=-1, keepdims=True)
    log_total = snp.log(snp.sum(snp.exp(logits), axis=-1))
    chosen = snp.take_along_axis(logits, targets[..., None], axis=-1)[..., 0]
    return snp.mean(log_total - chosen)


def train(params: Any, words: Any, targets: Any) -> Any:
    value, gradients = sd.value_and_grad(loss)(params, words, targets)
    return value, sd.tree.map(lambda p, g: p - 0.01 * g, params, gradients)


def compile_step(
    function: Callable[..., Any], *args: Any, results: Any = None, passes: str = DEFAULT_PIPELINE
) -> Module:
    step = sd.jit(function) if results is None else sd.jit(function, out_shardings=results)
    return Pipeline.parse(passes)(step.lower(*args).module)


def count_collectives(module: Module) -> dict[str, int]:
    """Return the number of collectives of each kind that a program executes."""
    count: Counter[str] = Counter()
    for each in list_collectives(module):
        assert each.executions is not None
        count[each.kind] += each.executions
    return dict(count)


def places(params: Any) -> Any:
    """Return the shardings of parameters, to request them for the updated parameters."""
    return sd.tree.map(lambda leaf: leaf.sharding, params)


def received_bytes(found: Collective) -> float:
    """Return the bytes that a device receives, by the formulas of the scaling book."""
    n = found.group_size
    part = (n - 1) / n
    match found.kind:
        case "all-reduce":
            return 2 * found.nbytes * part
        case "reduce-scatter":
            return found.nbytes * (n - 1)
        case _:
            return found.nbytes * part
