"""Programs that are emitted, run on four processes, and compared with the reference.

Each is a function that returns a lowered function on a mesh of four devices: training steps with
several shardings, data movement, and operations without GPU kernels.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

import shardir as sd
import shardir.numpy as snp
from shardir import PartitionSpec as P, lax, nn, random

Program = Callable[[], Any]
PROGRAMS: dict[str, Program] = {}
MESHES = {"dp": (4, 1), "tp": (1, 4), "dp_tp": (2, 2), "fsdp": (4, 1)}


def program(make: Program) -> Program:
    """Register a program under the name of the function that lowers it."""
    PROGRAMS[make.__name__.strip("_")] = make
    return make


def mesh_of(*sizes: int) -> Any:
    """Return a mesh of four devices, with the axes `data` and `model` or only the first."""
    return sd.make_mesh(sizes, ("data", "model")[: len(sizes)])


def sharded_argument(mesh: Any, spec: tuple[Any, ...], *shape: int, dtype: str = "float32") -> Any:
    """Return the description of a sharded argument."""
    return sd.ShapeDtypeStruct(shape, np.dtype(dtype), sharding=sd.NamedSharding(mesh, P(*spec)))


def mlp_loss(params: Any, x: Any, y: Any) -> Any:
    h = nn.gelu(x @ params["w1"] + params["b1"])
    out = h @ params["w2"] + params["b2"]
    return snp.mean((out - y) ** 2)


def mlp_step(params: Any, x: Any, y: Any) -> Any:
    value, grads = sd.value_and_grad(mlp_loss)(params, x, y)
    return {name: params[name] - 0.1 * grads[name] for name in params}, value


def mlp(kind: str) -> Any:
    """Return a training step; the parameters are sharded along features (tp) or rows (fsdp)."""
    mesh = mesh_of(*MESHES[kind])
    up, down = (("data",), ("data",)) if kind == "fsdp" else ((None, "model"), ("model",))
    params = {
        "w1": sharded_argument(mesh, up, 16, 32),
        "b1": sharded_argument(mesh, ("model",) if kind != "fsdp" else (), 32),
        "w2": sharded_argument(mesh, down, 32, 8),
        "b2": sharded_argument(mesh, (), 8),
    }
    x, y = sharded_argument(mesh, ("data",), 8, 16), sharded_argument(mesh, ("data",), 8, 8)
    return sd.jit(mlp_step).lower(params, x, y)


def normalize_layer(x: Any, scale: Any) -> Any:
    centred = x - snp.mean(x, axis=-1, keepdims=True)
    return centred / snp.sqrt(snp.mean(centred**2, axis=-1, keepdims=True) + 1e-5) * scale


def transformer_loss(params: Any, tokens: Any, targets: Any) -> Any:
    x = params["embed"][tokens]
    h = normalize_layer(x, params["scale"])
    q, k, v = (snp.einsum("btd,dhk->bthk", h, params[name]) for name in ("q", "k", "v"))
    scores = snp.einsum("bthk,bshk->bhts", q, k) / 2.0
    length = tokens.shape[1]
    mask = snp.tril(snp.ones((length, length), bool))
    attention = nn.softmax(snp.where(mask, scores, -1e9), axis=-1)
    mixed = snp.einsum("bhts,bshk->bthk", attention, v)
    x = x + snp.einsum("bthk,hkd->btd", mixed, params["o"])
    h = nn.silu(normalize_layer(x, params["scale"]) @ params["up"])
    x = x + h @ params["down"]
    logits = x @ params["embed"].T
    logs = nn.log_softmax(logits, axis=-1)
    chosen = snp.take_along_axis(logs, targets[..., None], axis=-1)
    return -snp.mean(chosen)


def transformer_step(params: Any, tokens: Any, targets: Any) -> Any:
    value, grads = sd.value_and_grad(transformer_loss)(params, tokens, targets)
    return {name: params[name] - 0.1 * grads[name] for name in params}, value


def transformer(kind: str) -> Any:
    mesh = mesh_of(*MESHES[kind])
    fsdp = kind == "fsdp"
    heads: tuple[Any, ...] = ("data",) if fsdp else (None, "model")
    params = {
        "embed": sharded_argument(mesh, ("data",) if fsdp else (), 16, 8),
        "scale": sharded_argument(mesh, (), 8),
        "q": sharded_argument(mesh, heads, 8, 4, 4),
        "k": sharded_argument(mesh, heads, 8, 4, 4),
        "v": sharded_argument(mesh, heads, 8, 4, 4),
        "o": sharded_argument(mesh, ("data",) if fsdp else ("model",), 4, 4, 8),
        "up": sharded_argument(mesh, ("data",) if fsdp else (None, "model"), 8, 16),
        "down": sharded_argument(mesh, ("data",) if fsdp else ("model",), 16, 8),
    }
    tokens = sharded_argument(mesh, ("data",), 4, 6, dtype="int32")
    return sd.jit(transformer_step).lower(params, tokens, tokens)


def _training_programs() -> Iterator[tuple[str, Program]]:
    for kind in MESHES:
        yield f"mlp_{kind}", partial(mlp, kind)
        yield f"transformer_{kind}", partial(transformer, kind)


PROGRAMS.update(_training_programs())


@program
def pmap_means() -> Any:
    def normalize(x: Any) -> Any:
        return x / lax.psum(snp.sum(x * x), "i"), lax.pmax(x, "i"), lax.axis_index("i")

    return sd.pmap(normalize, axis_name="i").lower(np.zeros((4, 6), np.float32))


@program
def pmap_permutes() -> Any:
    def f(x: Any) -> Any:
        left = lax.ppermute(x, "i", [(i, (i + 1) % 4) for i in range(4)])
        some = lax.ppermute(x, "i", [(0, 2), (3, 1)])
        return left ^ some

    return sd.pmap(f, axis_name="i").lower(np.zeros((4, 6), bool))


@program
def manual_collectives() -> Any:
    mesh = mesh_of(2, 2)

    def f(x: Any) -> Any:
        whole = lax.all_gather(x, "model", axis=0, tiled=True)
        turned = lax.all_to_all(whole, "data", 1, 0, tiled=True)
        return lax.psum_scatter(turned, "model", scatter_dimension=0, tiled=True)

    mapped = sd.shard_map(f, mesh=mesh, in_specs=P("data", "model"), out_specs=P("data", "model"))
    return sd.jit(mapped).lower(np.zeros((8, 8), np.float32))


@program
def reshards() -> Any:
    mesh = mesh_of(2, 2)

    def f(x: Any, y: Any) -> Any:
        turned = lax.with_sharding_constraint(x * 2, sd.NamedSharding(mesh, P(None, "data")))
        both = lax.with_sharding_constraint(turned, sd.NamedSharding(mesh, P(("model", "data"))))
        whole = lax.with_sharding_constraint(both + 1, sd.NamedSharding(mesh, P()))
        swapped = lax.with_sharding_constraint(y, sd.NamedSharding(mesh, P("model", "data")))
        return turned, both, whole, swapped

    given = (
        sharded_argument(mesh, ("data", "model"), 8, 8),
        sharded_argument(mesh, ("data", "model"), 4, 4, dtype="i8"),
    )
    return sd.jit(f).lower(*given)


@program
def uneven_shapes() -> Any:
    mesh = mesh_of(2, 2)

    def f(x: Any, w: Any) -> Any:
        x = lax.with_sharding_constraint(x, sd.NamedSharding(mesh, P("data", "model")))
        h = snp.tanh(x @ w)
        h = lax.with_sharding_constraint(h, sd.NamedSharding(mesh, P(("data", "model"))))
        return snp.sum(h, axis=0), snp.max(h, axis=1), snp.concatenate([h[1:], h[:1]])

    return sd.jit(f).lower(np.zeros((7, 5), np.float32), np.zeros((5, 3), np.float32))


@program
def halos() -> Any:
    mesh = mesh_of(4)

    def f(x: Any) -> Any:
        smooth = (snp.roll(x, 1, 0) + x + snp.roll(x, -1, 0)) / 3
        return smooth, smooth[::-1], snp.pad(smooth, ((2, 3), (0, 0))), snp.cumsum(smooth, axis=0)

    return sd.jit(f).lower(sharded_argument(mesh, ("data",), 8, 3))


@program
def random_numbers() -> Any:
    mesh = mesh_of(2, 2)

    def f(seed: Any) -> Any:
        key = random.fold_in(random.key(seed), 7)
        first, second = random.split(key)
        bits = random.bits(first, (8, 6))
        noise = random.normal(second, (8, 6))
        cut = sd.NamedSharding(mesh, P("data", "model"))
        return lax.with_sharding_constraint(bits, cut), lax.with_sharding_constraint(noise, cut)

    return sd.jit(f).lower(np.uint32(3))


@program
def recurrent() -> Any:
    """Return a scan with its gradient."""
    mesh = mesh_of(2, 2)

    def loss(w: Any, xs: Any) -> Any:
        def step(h: Any, x: Any) -> Any:
            h = snp.tanh(h @ w + x)
            return h, snp.sum(h * h)

        last, sums = lax.scan(step, snp.zeros((4, 8), np.float32), xs)
        return snp.sum(last) + snp.sum(sums)

    given = (
        sharded_argument(mesh, (None, "model"), 8, 8),
        sharded_argument(mesh, (None, "data"), 5, 4, 8),
    )
    return sd.jit(sd.value_and_grad(loss)).lower(*given)


@program
def conditionals() -> Any:
    mesh = mesh_of(2, 2)

    def choose(x: Any, choice: Any) -> Any:
        picked = lax.switch(choice, [snp.sin, lambda v: v * v, lambda v: v - snp.mean(v)], x)
        flipped = lax.cond(snp.sum(x) > 0, lambda v: v + 1, lambda v: -v, picked)

        def halve(state: Any) -> Any:
            count, v = state
            return count + 1, v * 0.5

        return flipped, lax.while_loop(lambda s: snp.max(snp.abs(s[1])) > 0.1, halve, (0, picked))

    return sd.jit(choose).lower(sharded_argument(mesh, ("data", "model"), 4, 6), np.int32(1))


@program
def convolutions() -> Any:
    """Return the training step of a small convolutional network."""
    mesh = mesh_of(2, 2)

    def loss(w: Any, v: Any, x: Any) -> Any:
        h = lax.conv_general_dilated(
            x, w, (2, 2), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
        )
        h = nn.relu(h)
        h = lax.reduce_window(h, -np.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
        return snp.mean((h.reshape(x.shape[0], -1) @ v) ** 2)

    given = (
        sharded_argument(mesh, (None, None, None, "model"), 3, 3, 3, 4),
        sharded_argument(mesh, (), 16, 5),
        sharded_argument(mesh, ("data",), 4, 8, 8, 3),
    )
    return sd.jit(sd.grad(loss, (0, 1))).lower(*given)


@program
def lookups() -> Any:
    """Return embedding lookups, scatters, sorts and top-k of sharded data."""
    mesh = mesh_of(2, 2)

    def f(table: Any, ids: Any) -> Any:
        rows = table[ids]
        counts = snp.zeros(8, np.int32).at[ids].add(1)
        best, where = lax.top_k(table, 3)
        return rows, counts, best, where, snp.sort(table, axis=0), snp.argmax(table, axis=0)

    given = (
        sharded_argument(mesh, ("model", "data"), 8, 6),
        sharded_argument(mesh, ("data",), 10, dtype="int32"),
    )
    return sd.jit(f).lower(*given)


@program
def narrow_types() -> Any:
    """Return arithmetic and collectives of 16-bit floats and integers."""
    mesh = mesh_of(2, 2)

    def f(x: Any, y: Any, i: Any, u: Any, b: Any) -> Any:
        h = nn.softmax(x @ y, axis=-1)
        return (
            h,
            snp.sum(x.astype(np.float16), axis=0),
            snp.sum(i, axis=1, dtype=np.int16),
            snp.max(u, axis=0),
            snp.any(b, axis=1),
            (u >> 3) // 3 + u % 5,
        )

    given = (
        sharded_argument(mesh, ("data", "model"), 4, 8, dtype="bfloat16"),
        sharded_argument(mesh, ("model",), 8, 4, dtype="bfloat16"),
        sharded_argument(mesh, ("data", "model"), 4, 8, dtype="int16"),
        sharded_argument(mesh, ("data", "model"), 4, 8, dtype="uint32"),
        sharded_argument(mesh, ("data", "model"), 4, 8, dtype="bool"),
    )
    return sd.jit(f).lower(*given)


@program
def transforms() -> Any:
    """Return Fourier transforms and linear algebra of sharded batches."""
    mesh = mesh_of(4)

    def f(x: Any, a: Any) -> Any:
        spectrum = snp.fft.rfft(x, axis=-1)
        square = a @ snp.swapaxes(a, -1, -2) + 3 * snp.eye(3, dtype=np.float32)
        return spectrum, snp.linalg.cholesky(square), snp.linalg.solve(square, a)

    return sd.jit(f).lower(
        sharded_argument(mesh, ("data",), 4, 6), sharded_argument(mesh, ("data",), 4, 3, 3)
    )


@program
def constants() -> Any:
    """Return a function with captured arrays and constants."""
    mesh = mesh_of(2, 2)
    table = np.arange(2048, dtype=np.float32).reshape(8, 256) / 100

    def f(x: Any) -> Any:
        return x * table + snp.arange(256), snp.cos(x) * snp.asarray([[0.25], [4.0]] * 4)

    return sd.jit(f).lower(sharded_argument(mesh, ("data", "model"), 8, 256))


@program
def alone() -> Any:
    """Return a training step for one device."""
    params = {
        "w1": np.zeros((16, 32), np.float32),
        "b1": np.zeros(32, np.float32),
        "w2": np.zeros((32, 8), np.float32),
        "b2": np.zeros(8, np.float32),
    }
    x, y = np.zeros((8, 16), np.float32), np.zeros((8, 8), np.float32)
    return sd.jit(mlp_step, donate_argnums=0).lower(params, x, y)


@program
def causal_attention() -> Any:
    """Return attention and its gradient, with heads on different devices."""
    mesh = mesh_of(2, 2)

    def loss(query: Any, key: Any, value: Any) -> Any:
        return snp.sum(nn.dot_product_attention(query, key, value, is_causal=True) ** 2)

    heads = ("data", None, "model")
    given = (
        sharded_argument(mesh, heads, 2, 20, 4, 5, dtype="bfloat16"),
        *(sharded_argument(mesh, heads, 2, 20, 2, 5, dtype="bfloat16") for _ in range(2)),
    )
    return sd.jit(sd.value_and_grad(loss, (0, 1, 2))).lower(*given)


@program
def boards() -> Any:
    """Return steps of rule 30, whose cells read neighbouring devices."""
    mesh = mesh_of(4)

    def step(board: Any) -> Any:
        def next_row(row: Any, _: Any) -> Any:
            left = lax.ppermute(row[-1:], "data", [(i, (i + 1) % 4) for i in range(4)])
            right = lax.ppermute(row[:1], "data", [(i, (i - 1) % 4) for i in range(4)])
            wide = snp.concatenate([left, row, right])
            made = wide[:-2] ^ (wide[1:-1] | wide[2:])
            return made, made

        return lax.scan(next_row, board, None, length=6)

    mapped = sd.shard_map(
        step, mesh=mesh, in_specs=P("data"), out_specs=(P("data"), P(None, "data"))
    )
    return sd.jit(mapped).lower(np.zeros(16, bool))
