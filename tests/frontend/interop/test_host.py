"""JAX programs with callbacks."""

from typing import Any

import jax
import jax.experimental
import jax.numpy as jnp
import numpy as np
import pytest

import shardir as sd
from shardir.interop.jax import from_jax
from shardir.sharding import NamedSharding, PartitionSpec as P

X = np.arange(6, dtype="float32").reshape(2, 3)


def test_pure_callbacks_execute_on_the_host() -> None:
    def host(x: Any) -> Any:
        return np.asarray(x) * 2

    def f(x: Any) -> Any:
        return jax.pure_callback(host, jax.ShapeDtypeStruct(x.shape, x.dtype), x) + 1

    np.testing.assert_array_equal(from_jax(f)(X), X * 2 + 1)


@pytest.mark.parametrize("method", [None, "expand_dims", "sequential"])
def test_pure_callbacks_execute_once_per_device(method: str | None) -> None:
    shapes = []

    def host(x: Any) -> Any:
        shapes.append(x.shape)
        return np.asarray(x) * 2

    def f(x: Any) -> Any:
        return jax.pure_callback(
            host, jax.ShapeDtypeStruct(x.shape, x.dtype), x, vmap_method=method
        )

    mesh = jax.sharding.AbstractMesh((2,), ("i",))
    mapped = jax.shard_map(f, mesh=mesh, in_specs=jax.P("i"), out_specs=jax.P("i"))
    with sd.make_mesh((2,), ("i",)):
        np.testing.assert_array_equal(from_jax(mapped)(X), X * 2)
    assert shapes == [(1, 3)] * 2


def test_callbacks_with_a_device() -> None:
    one = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    like = jax.ShapeDtypeStruct(X.shape, X.dtype)

    def f(x: Any) -> Any:
        y = jax.pure_callback(lambda v: np.asarray(v) + 1, like, x, sharding=one)
        return jax.experimental.io_callback(lambda v: np.asarray(v) * 2, like, y, sharding=one)

    np.testing.assert_array_equal(from_jax(f)(X), (X + 1) * 2)


def test_io_callbacks_return_results() -> None:
    seen = []

    def host(x: Any) -> Any:
        seen.append(float(x))
        return np.int32(len(seen))

    def f(x: Any) -> Any:
        return jax.experimental.io_callback(host, jax.ShapeDtypeStruct((), jnp.int32), x.sum())

    assert int(from_jax(f)(X)) == 1
    assert seen == [15.0]


def test_debugging_prints_and_calls(capsys: pytest.CaptureFixture[str]) -> None:
    seen = []

    def f(x: Any) -> Any:
        jax.debug.print("sum {s} of {n}", s=x.sum(), n=2)
        jax.debug.callback(lambda y: seen.append(float(y)), x[0, 1])
        return x

    from_jax(f)(X).block_until_ready()
    assert capsys.readouterr().out == "sum 15.0 of 2\n"
    assert seen == [1.0]


def test_callbacks_execute_inside_of_gradients() -> None:
    seen = []

    def f(x: Any) -> Any:
        jax.debug.callback(lambda y: seen.append(float(y)), x.sum())
        return jnp.sum(jnp.sin(x))

    np.testing.assert_allclose(sd.grad(from_jax(f))(X), np.cos(X), rtol=1e-6)
    assert seen == [15.0]


def test_inspect_array_sharding_calls_back() -> None:
    told: list[Any] = []

    def looked_at(x: Any) -> Any:
        jax.debug.inspect_array_sharding(x * 2, callback=told.append)
        return x + 1

    mesh = sd.make_mesh((4, 2), ("data", "model"))
    cut = sd.device_put(np.ones((8, 4), "float32"), NamedSharding(mesh, P("data", "model")))
    np.testing.assert_array_equal(from_jax(looked_at)(cut), np.full((8, 4), 2))
    assert [each.spec for each in told] == [P("data", "model")]
