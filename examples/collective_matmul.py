"""Overlap the communication of tensor parallelism with matrix products, on eight virtual devices.

A perceptron has its hidden dimension sharded over `model`, and the rows of its input and of its
result too. Partitioned as a whole, it gathers all rows before the first product, and reduces and
scatters them after the second one. The functions below divide each of these collectives into one
step for each device (Wang et al. 2023, doi 10.1145/3567955.3567959): while a device multiplies one
block of rows, the next block arrives. The bytes are the same.

    python examples/collective_matmul.py
"""

from collections import Counter
from typing import Any

import numpy as np

import shardir as sd
import shardir.numpy as jnp
from shardir import lax, nn, testing
from shardir.sharding import NamedSharding, PartitionSpec as P

ROWS, WIDTH, HIDDEN = 256, 64, 512


def next_device(axis: str) -> list[tuple[int, int]]:
    """Return the source and the target of each message of a ring."""
    size = lax.axis_size(axis)
    return [(i, (i + 1) % size) for i in range(size)]


def all_gather_matmul(x: Any, w: Any, axis: str) -> Any:
    """Return `all_gather(x, axis, tiled=True) @ w`, multiplying each block of rows as it arrives.

    Use it inside of `shard_map`; `x` has the rows of this device.
    """
    size, index, rows = lax.axis_size(axis), lax.axis_index(axis), x.shape[0]
    out = lax.pvary(jnp.zeros((size * rows, w.shape[1]), x.dtype), axis)
    for step in range(size):
        # The message of the next step does not depend on the product of this one.
        following = lax.ppermute(x, axis, next_device(axis)) if step < size - 1 else x
        owner = (index - step) % size
        out = lax.dynamic_update_slice(out, x @ w, (owner * rows, 0))
        x = following
    return out


def matmul_reduce_scatter(x: Any, w: Any, axis: str) -> Any:
    """Return `psum_scatter(x @ w, axis, tiled=True)`, sending each block of rows when it is ready.

    Use it inside of `shard_map`; `w` has the rows that belong to the columns of `x`.
    """
    size, index, rows = lax.axis_size(axis), lax.axis_index(axis), x.shape[0] // lax.axis_size(axis)
    total: Any = None
    for step in range(size):
        # The partial sum that arrives belongs to the block which this device adds to next.
        owner = (index - step - 1) % size
        block = lax.dynamic_slice(x, (owner * rows, 0), (rows, x.shape[1])) @ w
        total = block if total is None else lax.ppermute(total, axis, next_device(axis)) + block
    return total


def perceptron(x: Any, w1: Any, w2: Any) -> Any:
    """Return the result of two layers; the program for one device."""
    return nn.gelu(x @ w1) @ w2


def main() -> None:
    """Compare numbers and collectives of both programs, also those of the gradients."""
    mesh = sd.make_mesh((8,), ("model",))
    rows, columns = P("model"), P(None, "model")
    rng = np.random.default_rng(0)
    shapes = ((ROWS, WIDTH), (WIDTH, HIDDEN), (HIDDEN, WIDTH))
    arrays = [rng.standard_normal(shape).astype("float32") / 8 for shape in shapes]
    shardings = [NamedSharding(mesh, spec) for spec in (rows, columns, rows)]
    args = sd.device_put(arrays, shardings)

    def two_layers(x: Any, w1: Any, w2: Any) -> Any:
        return matmul_reduce_scatter(nn.gelu(all_gather_matmul(x, w1, "model")), w2, "model")

    overlapped = sd.jit(
        sd.shard_map(two_layers, mesh=mesh, in_specs=(rows, columns, rows), out_specs=rows)
    )
    partitioned = sd.jit(perceptron, out_shardings=shardings[0])
    expected = perceptron(*arrays)
    for function in (partitioned, overlapped):
        assert np.allclose(function(*args), expected, atol=1e-4)
    show("partitioned", partitioned, args)
    show("overlapped", overlapped, args)

    block = ROWS // 8 * WIDTH * 4
    testing.assert_collectives(partitioned, args, all_gather=1, reduce_scatter=1, all_reduce=0)
    testing.assert_collectives(
        overlapped, args, collective_permute=2 * 7, all_gather=0, reduce_scatter=0, all_reduce=0
    )
    assert {each.nbytes for each in testing.collectives(overlapped, args)} == {block}
    assert count_bytes(partitioned, args) == count_bytes(overlapped, args) == 14 * block

    # The gradient of a message is a message in the opposite direction.
    def total(x: Any, w1: Any, w2: Any) -> Any:
        return jnp.sum(overlapped(x, w1, w2) ** 2)

    gradient = sd.jit(sd.grad(total, argnums=(0, 1, 2)))
    wanted = sd.grad(lambda *a: jnp.sum(perceptron(*a) ** 2), argnums=(0, 1, 2))(*arrays)
    for got, want in zip(gradient(*args), wanted, strict=True):
        assert np.allclose(got, want, atol=1e-3)
    assert {each.kind for each in testing.collectives(gradient, args)} == {"collective-permute"}
    assert count_bytes(gradient, args) == 2 * 14 * block

    # A pass divides the collectives of the program for one device in the same way, into loops. It
    # leaves products with fewer than `minimum` bytes (1 MiB by default) as they are.
    passes = "default,after:partition,collective-matmul{minimum=1}"
    automatic = sd.jit(perceptron, out_shardings=shardings[0], passes=passes)
    assert np.allclose(automatic(*args), expected, atol=1e-4)
    show(f"partitioned with {passes}", automatic, args)
    assert {each.kind for each in testing.collectives(automatic, args)} == {"collective-permute"}


def show(name: str, function: Any, args: Any) -> None:
    """Print the collectives of a program, equal ones once."""
    print(name)
    found: Counter[tuple[str, int]] = Counter()
    for each in testing.collectives(function, args):
        found[each.kind, each.nbytes] += each.counted_executions
    for (kind, nbytes), count in found.items():
        print(f"  {count:2} x {kind} of {nbytes} bytes")
    print(f"  each device sends {count_bytes(function, args)} bytes")


def count_bytes(function: Any, args: Any) -> int:
    """Return the bytes that each device sends."""
    found = testing.collectives(function, args)
    return sum(each.sent * each.counted_executions for each in found)


if __name__ == "__main__":
    main()
