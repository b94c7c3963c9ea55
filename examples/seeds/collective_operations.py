"""Patterns of distributed computing: the note "Parallelization across devices" on shardir.

The file contains the program of the note (random vectors from one key and their dot product) and,
in its order, a program for each transformation, collective operation and pattern that it names. The
result of a collective does not depend on whether `vmap` maps the axis on one device or `pmap` over
eight: every program runs in both ways, and the results must agree. The note draws ten million
vectors, this file ten thousand.

    SHARDIR_CPU_DEVICES=8 python examples/seeds/collective_operations.py
    mpiexec -n 2 python examples/seeds/collective_operations.py
"""

from collections.abc import Callable
from typing import Any

import numpy as np

import shardir as sd
import shardir.numpy as snp
from shardir import lax, pmap, vmap

ROWS = 10_000


def dot(v1: Any, v2: Any) -> Any:
    return snp.vdot(v1, v2)


def both_ways(function: Callable[[Any], Any], x: Any) -> Any:
    """Return `function` of the rows of `x`, mapped on one device and over eight."""
    together = vmap(function, axis_name="i")(x)
    apart = pmap(function, axis_name="i")(x)
    np.testing.assert_array_equal(np.asarray(together), np.asarray(apart))
    return np.asarray(apart).tolist()


def vectors() -> None:
    key = sd.random.PRNGKey(1234)
    v1 = sd.random.normal(key, shape=(ROWS, 3))
    v2 = sd.random.normal(key, shape=(ROWS, 3))
    whole = dot(v1, v2)
    print("dot product", whole)
    # One key draws the same numbers twice, so that this is a sum of squares.
    np.testing.assert_array_equal(np.asarray(v1), np.asarray(v2))
    np.testing.assert_allclose(float(whole), (np.asarray(v1, np.float64) ** 2).sum(), rtol=1e-5)

    by_row = vmap(dot)(v1, v2)
    assert by_row.shape == (ROWS,)
    by_device = pmap(dot)(v1.reshape(8, -1, 3), v2.reshape(8, -1, 3))
    assert by_device.shape == (8,)
    for parts in (by_row, by_device):
        np.testing.assert_allclose(float(parts.sum()), float(whole), rtol=1e-5)


def broadcast() -> None:
    """Check values that all devices share: arguments without an axis, and Python constants."""
    x = snp.arange(8.0)
    scaled = pmap(lambda x, factor: factor * x, in_axes=(0, None))(x, 3.0)
    assert scaled.tolist() == [0, 3, 6, 9, 12, 15, 18, 21]
    # A static argument is concrete while the function is traced: Python's `range` accepts it.
    cubes = pmap(
        lambda x, power: sum((x for _ in range(power - 1)), x), static_broadcasted_argnums=1
    )(x, 3)
    assert cubes.tolist() == scaled.tolist()


def scatter() -> None:
    """Check that each device receives its part of a mapped axis."""
    rows = pmap(lambda row: row)(snp.arange(16.0).reshape(8, 2))
    assert [np.asarray(piece.data).tolist() for piece in rows.addressable_shards] == [
        [[2.0 * device.id, 2.0 * device.id + 1]] for device in sd.local_devices()
    ]


def reduce() -> None:
    """Check all-reduces: all devices receive the combined results."""
    x = snp.arange(8.0)
    assert both_ways(lambda x: lax.psum(x, "i"), x) == [28.0] * 8
    assert both_ways(lambda x: lax.pmax(x, "i"), x) == [7.0] * 8
    assert both_ways(lambda x: lax.pmin(x, "i"), x) == [0.0] * 8
    assert both_ways(lambda x: lax.pmean(x, "i"), x) == [3.5] * 8


def permute() -> None:
    """Check exchanges along a ring, and by a list of sources."""
    x = snp.arange(8.0)
    ring = [(i, (i + 1) % 8) for i in range(8)]
    assert both_ways(lambda x: lax.ppermute(x, "i", ring), x) == [7, 0, 1, 2, 3, 4, 5, 6]
    # A device that receives nothing has zeros.
    assert both_ways(lambda x: lax.ppermute(x, "i", [(7, 0)]), x) == [7, 0, 0, 0, 0, 0, 0, 0]
    backwards = list(reversed(range(8)))
    assert both_ways(lambda x: lax.pshuffle(x, "i", backwards), x) == backwards


def gather() -> None:
    """Check all-gathers: all devices receive all values."""
    x = snp.arange(8.0)
    assert both_ways(lambda x: lax.all_gather(x, "i"), x) == [list(range(8))] * 8
    pairs = snp.arange(16.0).reshape(8, 2)
    joined = both_ways(lambda x: lax.all_gather(x, "i", tiled=True), pairs)
    assert joined == [list(range(16))] * 8


def exchange() -> None:
    """Check all-to-alls: rows that were sharded become columns."""
    x = snp.arange(64.0).reshape(8, 8)
    transposed = np.asarray(x).T.tolist()
    assert both_ways(lambda row: lax.all_to_all(row, "i", 0, 0), x) == transposed
    assert both_ways(lambda row: lax.pswapaxes(row, "i", 0), x) == transposed


def main() -> None:
    sd.distributed.initialize(gather=True)  # under mpiexec, of several processes
    for part in (vectors, broadcast, scatter, reduce, permute, gather, exchange):
        print(f"== {part.__name__}")
        part()


if __name__ == "__main__":
    main()
