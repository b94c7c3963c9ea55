"""Programs imported from JAX lower to StableHLO, and XLA computes equal results."""

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import shardir as sd
from shardir.interop.jax import from_jax
from shardir.passes import Pipeline
from shardir.sharding import NamedSharding, PartitionSpec as P
from tests.xla.execution import XLA

X = np.random.default_rng(0).standard_normal((16, 8)).astype("float32")
W = np.random.default_rng(1).standard_normal((8, 8)).astype("float32")
JP = jax.sharding.PartitionSpec


@pytest.fixture(scope="module")
def xla() -> Iterator[XLA]:
    worker = XLA()
    yield worker
    worker.close()


def check(xla: XLA, lowered: Any, args: list[Any], expected: Any) -> None:
    whole = xla.sharded(Pipeline.parse("propagate")(lowered.module), args)
    pieces = xla.replicas(lowered.compile().module, args)
    for found in (whole, pieces):
        for a, b in zip(found, jax.tree.leaves(expected), strict=True):
            np.testing.assert_allclose(a, np.asarray(b), rtol=1e-4, atol=1e-5)


def test_shard_map_round_trips(xla: XLA) -> None:
    mesh = jax.sharding.AbstractMesh((4, 2), ("data", "model"))

    def moved(x: Any) -> Any:
        there = lax.ppermute(x, "data", [(i, (i + 1) % 4) for i in range(4)])
        whole = lax.all_gather(there, "data", tiled=True)
        mine = lax.psum_scatter(whole, "data", scatter_dimension=0, tiled=True)
        turned = lax.all_to_all(mine, "model", 0, 1, tiled=True)
        number = lax.axis_index("data").astype(jnp.float32)
        return turned + number, lax.psum(x, ("data", "model"))

    function = jax.shard_map(
        moved,
        mesh=mesh,
        in_specs=JP("data", "model"),
        out_specs=(JP(("data", "model"), None), JP()),
    )
    imported = from_jax(function)
    check(xla, imported.lower(X), [X], imported(X))


def test_a_gradient_with_random_numbers_round_trips(xla: XLA) -> None:
    def loss(w: Any, x: Any, key: Any) -> Any:
        kept = jax.random.bernoulli(key, 0.8, x.shape)
        return jnp.mean(jnp.tanh(jnp.where(kept, x / 0.8, 0) @ w) ** 2)

    mesh = sd.make_mesh((4, 2), ("data", "model"))
    x = sd.device_put(X, NamedSharding(mesh, P("data")))
    w = sd.device_put(W, NamedSharding(mesh, P(None, "model")))
    key = np.array([0, 3], np.uint32)
    gradient = jax.grad(loss)
    check(xla, from_jax(gradient).lower(w, x, key), [W, X, key], [gradient(W, X, key)])


def test_a_vmapped_loop_with_different_trip_counts_round_trips(xla: XLA) -> None:
    def each(row: Any, count: Any) -> Any:
        return lax.fori_loop(0, count, lambda i, x: x * 0.9, row)

    mesh = sd.make_mesh((4, 2), ("data", "model"))
    x = sd.device_put(X, NamedSharding(mesh, P("data", "model")))
    counts = np.arange(16, dtype="int32") % 5
    function = jax.vmap(each)
    check(xla, from_jax(function).lower(x, counts), [X, counts], function(X, counts))
