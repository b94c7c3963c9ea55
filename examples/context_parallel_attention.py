"""Causal attention over a sequence that is sharded by position, on eight virtual devices.

`gathered_attention` gathers the keys and values of all positions on each device (the context
parallelism of Llama 3, arXiv 2407.21783). `ring_attention` sends them from device to device, and a
device has those of one other device at a time (Liu et al. 2023, arXiv 2310.01889).

With a causal mask, a device with late positions computes more than one with early positions. Each
device therefore has one chunk from the beginning of the sequence and one from the end: device 1 of
4 has chunks 1 and 6 of 8. All devices then compute equally much, and the ring computes only scores
that the mask keeps, except on the diagonal.

    python examples/context_parallel_attention.py
"""

from typing import Any

import numpy as np

import shardir as sd
import shardir.numpy as jnp
from shardir import lax, nn, testing
from shardir.sharding import NamedSharding, PartitionSpec as P

BATCH, LENGTH, HEADS, SIZE = 2, 512, 4, 16

State = tuple[Any, Any, Any]
"""An unfinished softmax of each query: maximum of the scores, sum of weights, weighted values."""


def chunk_order(devices: int) -> list[int]:
    """Return the chunks of the sequence, two for each device, in the order of the devices."""
    return [chunk for i in range(devices) for chunk in (i, 2 * devices - 1 - i)]


def permute_chunks(x: Any, order: Any) -> Any:
    """Return `x` with the chunks of its positions (dimension 1) in the given order."""
    chunks = x.reshape(x.shape[0], len(order), -1, *x.shape[2:])
    return chunks[:, np.asarray(order)].reshape(x.shape)


def attend(state: State | None, q: Any, k: Any, v: Any, *, is_diagonal: bool = False) -> State:
    """Return the state of the queries after more keys; `None` is the state without keys.

    In a diagonal block, the queries have the positions of the keys.
    """
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) * SIZE**-0.5
    if is_diagonal:
        scores = jnp.where(jnp.tril(jnp.ones(scores.shape[-2:], bool)), scores, -1e30)
    top = scores.max(-1)
    if state is not None:
        top = jnp.maximum(top, state[0])
    weights = jnp.exp(scores - top[..., None])
    total, out = weights.sum(-1), jnp.einsum("bhqk,bkhd->bhqd", weights, v)
    if state is not None:
        factor = jnp.exp(state[0] - top)
        total, out = state[1] * factor + total, state[2] * factor[..., None] + out
    return top, total, out


def ring_attention(q: Any, k: Any, v: Any, axis: str) -> Any:
    """Return the attention of the queries of this device to all earlier positions.

    Use it inside of `shard_map`; the arrays are [batch, positions, heads, size], and the chunks of
    the positions have the order of `chunk_order`.
    """
    devices, index = lax.axis_size(axis), lax.axis_index(axis)
    next_device = [(i, (i + 1) % devices) for i in range(devices)]
    early_q, late_q = jnp.split(q, 2, axis=1)
    early_k, late_k = jnp.split(k, 2, axis=1)
    early_v, late_v = jnp.split(v, 2, axis=1)
    early = attend(None, early_q, early_k, early_v, is_diagonal=True)
    late = attend(None, late_q, early_k, early_v)
    late = attend(late, late_q, late_k, late_v, is_diagonal=True)

    def advance(carry: Any, step: Any) -> tuple[Any, None]:
        k, v, early, late = carry
        k, v = lax.ppermute((k, v), axis, next_device)
        early_k, late_k = jnp.split(k, 2, axis=1)
        early_v, late_v = jnp.split(v, 2, axis=1)
        late = attend(late, late_q, early_k, early_v)
        # One more block is unmasked: the early chunks if the keys come from a device with a lower
        # number, otherwise the late chunks.
        is_lower = (index - step) % devices < index

        def choose(a: Any, b: Any) -> Any:
            return sd.tree.map(lambda x, y: jnp.where(is_lower, x, y), a, b)

        both = attend(
            choose(early, late),
            choose(early_q, late_q),
            choose(early_k, late_k),
            choose(early_v, late_v),
        )
        return (k, v, choose(both, early), choose(late, both)), None

    (_, _, early, late), _ = lax.scan(advance, (k, v, early, late), jnp.arange(1, devices))
    out = [out / total[..., None] for _, total, out in (early, late)]
    return jnp.concatenate(out, axis=2).swapaxes(1, 2)


def gathered_attention(q: Any, k: Any, v: Any, axis: str) -> Any:
    """Return the same as `ring_attention`, computed with the keys and values of all positions."""
    devices, index = lax.axis_size(axis), lax.axis_index(axis)
    size = q.shape[1] // 2
    k, v = lax.all_gather((k, v), axis, axis=1, tiled=True)
    positions = permute_chunks(jnp.arange(2 * devices * size)[None], chunk_order(devices))[0]
    own = lax.dynamic_slice(positions, (2 * index * size,), (2 * size,))
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) * SIZE**-0.5
    weights = nn.softmax(jnp.where(own[:, None] >= positions, scores, -1e30))
    return jnp.einsum("bhqk,bkhd->bqhd", weights, v)


def attention(q: Any, k: Any, v: Any) -> Any:
    """Return the attention of all queries; the program for one device."""
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) * SIZE**-0.5
    weights = nn.softmax(jnp.where(jnp.tril(jnp.ones((LENGTH, LENGTH), bool)), scores, -1e30))
    return jnp.einsum("bhqk,bkhd->bqhd", weights, v)


def main() -> None:
    """Compare both with one device, and check their communication, arithmetic and memory."""
    mesh = sd.make_mesh((8,), ("context",))
    spec = P(None, "context")
    rng = np.random.default_rng(0)
    order = chunk_order(8)
    arrays = [rng.standard_normal((BATCH, LENGTH, HEADS, SIZE)).astype("float32") for _ in range(3)]
    args = sd.device_put([permute_chunks(x, order) for x in arrays], NamedSharding(mesh, spec))

    def sharded(function: Any) -> Any:
        return sd.jit(
            sd.shard_map(
                lambda *qkv: function(*qkv, "context"), mesh=mesh, in_specs=spec, out_specs=spec
            )
        )

    ring, gathered = sharded(ring_attention), sharded(gathered_attention)
    expected = permute_chunks(attention(*arrays), order)
    block = BATCH * LENGTH // 8 * HEADS * SIZE * 4
    testing.assert_collectives(ring, args, collective_permute=2 * 7, all_gather=0, all_reduce=0)
    testing.assert_collectives(gathered, args, all_gather=2, collective_permute=0, all_reduce=0)
    assert {each.nbytes for each in testing.collectives(ring, args)} == {block}
    assert {each.nbytes for each in testing.collectives(gathered, args)} == {8 * block}
    costs = {}
    for name, function in ("ring", ring), ("gathered", gathered):
        assert np.allclose(function(*args), expected, atol=1e-5)
        compiled = function.lower(*args).compile()
        cost, memory = compiled.cost_analysis(), compiled.memory_analysis()
        costs[name] = cost["flops"], memory.peak_memory_in_bytes
        print(
            f"{name:8}  sends {cost['bytes sent']:7,} bytes, computes {cost['flops']:12,} "
            f"operations, holds {memory.peak_memory_in_bytes:9,} bytes"
        )
        assert cost["bytes sent"] == 14 * block
    assert costs["ring"][0] < 0.6 * costs["gathered"][0]
    assert costs["ring"][1] < 0.5 * costs["gathered"][1]

    # The gradients of keys and values return through the ring.
    gradient = sd.jit(sd.grad(lambda *qkv: jnp.sum(ring(*qkv) ** 2), argnums=(0, 1, 2)))
    wanted = sd.grad(lambda *qkv: jnp.sum(attention(*qkv) ** 2), argnums=(0, 1, 2))(*arrays)
    for got, want in zip(gradient(*args), wanted, strict=True):
        assert np.allclose(got, permute_chunks(want, order), atol=1e-4)
    testing.assert_collectives(gradient, args, collective_permute=4 * 7, all_gather=0, all_reduce=0)


if __name__ == "__main__":
    main()
