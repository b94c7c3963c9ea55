"""Training steps of Alpa's tests: attention, experts, convolutions, and their shardings.

A parameter has a shape and the mesh axes that shard its dimensions. Meshes have the axes "data" and
"model", and four devices.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import shardir as sd
import shardir.numpy as snp
from shardir.cost.communication import list_collectives
from shardir.frontend.shardings.devices import virtual_devices
from shardir.ir.module import Module
from shardir.lax import conv_general_dilated, with_sharding_constraint
from shardir.nn import gelu, log_softmax, one_hot, relu, softmax
from shardir.sharding import NamedSharding, PartitionSpec as P
from tests.passes.ground_truth_models import compile_step

Shapes = dict[str, tuple[tuple[int, ...], P]]


def mesh_of(shape: tuple[int, int]) -> Any:
    devices = virtual_devices(shape[0] * shape[1])
    return sd.make_mesh(shape, ("data", "model"), devices=devices)


def structs(mesh: Any, shapes: Shapes, pieces: Mapping[str, P] | None = None) -> Any:
    """Return structs with the shapes `shapes`, sharded as stated there or in `pieces`."""
    pieces = pieces or {}
    return {
        name: sd.ShapeDtypeStruct(
            shape, "float32", sharding=NamedSharding(mesh, pieces.get(name, spec))
        )
        for name, (shape, spec) in shapes.items()
    }


def adam(params: Any, gradients: Any, state: Any, pieces: Any = None) -> tuple[Any, Any]:
    """Compute one update without bias correction; the state is sharded as in `pieces`."""
    first, second = state
    if pieces is not None:
        gradients = sd.tree.map(with_sharding_constraint, gradients, pieces)
    first = sd.tree.map(lambda m, g: 0.9 * m + 0.1 * g, first, gradients)
    second = sd.tree.map(lambda v, g: 0.99 * v + 0.01 * g * g, second, gradients)
    update = sd.tree.map(lambda m, v: 0.01 * m / (snp.sqrt(v) + 1e-8), first, second)
    return sd.tree.map(lambda p, u: p - u, params, update), (first, second)


def train_step(
    loss: Callable[..., Any],
    shape: tuple[int, int],
    shapes: Shapes,
    batch: Sequence[tuple[tuple[int, ...], P, str]],
    pieces: Mapping[str, P] | None = None,
) -> Module:
    """Return a step of Adam with state sharded as in `pieces`, and weights as in `shapes`."""
    mesh = mesh_of(shape)
    params = structs(mesh, shapes)
    moments = structs(mesh, shapes, pieces)
    at = sd.tree.map(lambda leaf: leaf.sharding, moments)

    def step(params: Any, state: Any, batch: Any) -> Any:
        gradients = sd.grad(loss)(params, *batch)
        return adam(params, gradients, state, at)

    places = sd.tree.map(lambda leaf: leaf.sharding, params)
    placed = tuple(
        sd.ShapeDtypeStruct(size, dtype, sharding=NamedSharding(mesh, spec))
        for size, spec, dtype in batch
    )
    return compile_step(step, params, (moments, moments), placed, results=(places, (at, at)))


def count_collectives(module: Module, axes: tuple[str, ...] | None = None) -> dict[str, int]:
    """Return the collectives that a program executes by kind; like Alpa without scalar sums."""
    count: Counter[str] = Counter()
    for each in list_collectives(module):
        assert each.executions is not None
        single = each.kind == "all-reduce" and each.nbytes == 4
        if not single and axes in (None, each.axes):
            count[each.kind] += each.executions
    return dict(count)


def normalized(x: Any, scale: Any, shift: Any) -> Any:
    mean = snp.mean(x, axis=-1, keepdims=True)
    variance = snp.mean((x - mean) ** 2, axis=-1, keepdims=True)
    return (x - mean) / snp.sqrt(variance + 1e-5) * scale + shift


def attention_shapes(at: str, width: int, heads: int, cut: str | None) -> Shapes:
    size = width // heads
    return {
        f"{at}.qkv": ((width, 3, heads, size), P(None, None, cut)),
        f"{at}.qkv_bias": ((3, heads, size), P(None, cut)),
        f"{at}.out": ((heads, size, width), P(cut)),
        f"{at}.out_bias": ((width,), P()),
        f"{at}.scale1": ((width,), P()),
        f"{at}.shift1": ((width,), P()),
        f"{at}.scale2": ((width,), P()),
        f"{at}.shift2": ((width,), P()),
    }


def dense_shapes(at: str, width: int, cut: str | None) -> Shapes:
    return {
        f"{at}.up": ((width, 4 * width), P(None, cut)),
        f"{at}.up_bias": ((4 * width,), P(cut)),
        f"{at}.down": ((4 * width, width), P(cut)),
        f"{at}.down_bias": ((width,), P()),
    }


def attended(params: Any, at: str, x: Any) -> Any:
    qkv = snp.einsum("bsd,dchk->cbshk", x, params[f"{at}.qkv"])
    q, k, v = qkv + params[f"{at}.qkv_bias"][:, None, None]
    weights = softmax(snp.einsum("bshk,bthk->bhst", q, k) * q.shape[-1] ** -0.5)
    mixed = snp.einsum("bhst,bthk->bshk", weights, v)
    x = x + snp.einsum("bshk,hkd->bsd", mixed, params[f"{at}.out"]) + params[f"{at}.out_bias"]
    return normalized(x, params[f"{at}.scale1"], params[f"{at}.shift1"])


def bert_shapes(layers: int, width: int, heads: int, cut: str | None = None) -> Shapes:
    shapes: Shapes = {}
    for i in range(layers):
        shapes |= attention_shapes(str(i), width, heads, cut) | dense_shapes(str(i), width, cut)
    return shapes


def bert_layer(params: Any, at: str, x: Any) -> Any:
    """Compute attention and a perceptron, each normalized after the residual connection."""
    x = attended(params, at, x)
    h = gelu(x @ params[f"{at}.up"] + params[f"{at}.up_bias"])
    x = x + h @ params[f"{at}.down"] + params[f"{at}.down_bias"]
    return normalized(x, params[f"{at}.scale2"], params[f"{at}.shift2"])


def expert_shapes(at: str, width: int, heads: int, experts: int, cut: str) -> Shapes:
    return attention_shapes(at, width, heads, None) | {
        f"{at}.gate": ((width, experts), P()),
        f"{at}.up": ((experts, width, 4 * width), P(cut)),
        f"{at}.down": ((experts, 4 * width, width), P(cut)),
    }


def routed(gates: Any, capacity: int) -> tuple[Any, Any]:
    """Return weights and a mask [group, token, expert, slot]: two experts per token, in order."""
    experts = gates.shape[-1]
    left: Any = gates
    used: Any = 0.0
    combine: Any = 0.0
    for _ in range(2):
        chosen = one_hot(snp.argmax(left, axis=-1), experts)
        slot = snp.cumsum(chosen, axis=1) - chosen + used
        used = used + snp.sum(chosen, axis=1, keepdims=True)
        place = snp.sum(slot * chosen, axis=-1)
        weight = snp.sum(gates * chosen, axis=-1) * (place < capacity)
        at = one_hot(place.astype("int32"), capacity)
        combine = combine + snp.einsum("gse,gsc->gsec", weight[..., None] * chosen, at)
        left = left * (1 - chosen)
    return combine, (combine > 0).astype("float32")


def expert_layer(params: Any, at: str, x: Any, group: int, mesh: Any) -> Any:
    """Compute attention, and experts to which tokens are sent in groups and from which they
    return.
    """
    groups = NamedSharding(mesh, P(None, "data")), NamedSharding(mesh, P("data"))
    x = attended(params, at, x)
    tokens = x.reshape(-1, group, x.shape[-1])
    gates = softmax(snp.einsum("gsm,me->gse", tokens, params[f"{at}.gate"]))
    combine, dispatch = routed(gates, 2 * group // gates.shape[-1])
    entering = snp.einsum("gsec,gsm->egcm", dispatch, tokens)
    for place in groups:
        entering = with_sharding_constraint(entering, place)
    h = relu(snp.einsum("egcm,emh->egch", entering, params[f"{at}.up"]))
    leaving = snp.einsum("egch,ehm->gecm", h, params[f"{at}.down"])
    for place in groups:
        leaving = with_sharding_constraint(leaving, place)
    mixed = snp.einsum("gsec,gecm->gsm", combine, leaving).reshape(x.shape)
    return normalized(x + mixed, params[f"{at}.scale2"], params[f"{at}.shift2"])


def perceptron_shapes(width: int, cut: str | None = None, piece: str | None = None) -> Shapes:
    """Return the shapes of six layers: even ones sharded by columns, odd ones by rows.

    `piece` shards the other dimension.
    """
    shapes: Shapes = {}
    for i in range(0, 6, 2):
        both = P((cut, piece)) if cut and piece else P(cut or piece)
        shapes |= {
            f"{i}.weight": ((width, width), P(piece, cut)),
            f"{i}.bias": ((width,), both),
            f"{i + 1}.weight": ((width, width), P(cut, piece)),
            f"{i + 1}.bias": ((width,), P(piece)),
        }
    return shapes


def perceptron_loss(params: Any, x: Any, target: Any) -> Any:
    for i in range(6):
        x = x @ params[f"{i}.weight"] + params[f"{i}.bias"]
        x = relu(x) if i < 5 else x
    return error(x, target)


def bert_loss(params: Any, x: Any, target: Any) -> Any:
    for i in range(2):
        x = bert_layer(params, str(i), x)
    return error(x, target)


def masked_shapes(words: int, length: int, width: int, heads: int, cut: str | None) -> Shapes:
    names = ("scale", "shift", "head_bias", "head_scale", "head_shift")
    return bert_shapes(2, width, heads, cut) | {
        "words": ((words, width), P(cut)),
        "places": ((length, width), P()),
        "head": ((width, width), P()),
        "bias": ((words,), P(cut)),
        **{name: ((width,), P()) for name in names},
    }


def masked_loss(params: Any, x: Any, y: Any) -> Any:
    h = normalized(params["words"][x] + params["places"], params["scale"], params["shift"])
    for i in range(2):
        h = bert_layer(params, str(i), h)
    h = gelu(h @ params["head"] + params["head_bias"])
    h = normalized(h, params["head_scale"], params["head_shift"])
    return surprise(h @ params["words"].T + params["bias"], y)


def convolution_shapes(layers: int, width: int, cut: str | None = None) -> Shapes:
    shapes: Shapes = {}
    for i in range(layers):
        into, out = (None, cut) if i % 2 == 0 else (cut, None)
        shapes |= {
            f"{i}.kernel": ((3, 3, width, width), P(None, None, into, out)),
            f"{i}.scale": ((width,), P(out)),
            f"{i}.shift": ((width,), P(out)),
        }
    return shapes


def convolution_loss(params: Any, x: Any, target: Any) -> Any:
    """Compute convolutions that halve the image; Alpa's also pool, which moves no data."""
    for i in range(len(params) // 3):
        x = convolved(x, params[f"{i}.kernel"], 2)
        x = relu(batch_normalized(x, params[f"{i}.scale"], params[f"{i}.shift"]))
    return error(x, target)


def error(y: Any, target: Any) -> Any:
    return snp.mean((y - target) ** 2)


def surprise(logits: Any, words: Any) -> Any:
    chosen = one_hot(words, logits.shape[-1])
    return snp.sum(-snp.sum(chosen * log_softmax(logits), axis=-1))


def convolved(x: Any, kernel: Any, stride: int = 1, groups: int = 1) -> Any:
    order = ("NHWC", "HWIO", "NHWC")
    return conv_general_dilated(
        x, kernel, (stride, stride), "SAME", dimension_numbers=order, feature_group_count=groups
    )


def batch_normalized(x: Any, scale: Any, shift: Any) -> Any:
    mean = snp.mean(x, axis=(0, 1, 2))
    variance = snp.mean(x * x, axis=(0, 1, 2)) - mean * mean
    return (x - mean) / snp.sqrt(variance + 1e-5) * scale + shift
