"""`from_jax` makes shardir functions of JAX functions: calls, derivatives, text and shardings."""

import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.ad_checkpoint import checkpoint_name

import shardir as sd
from shardir.frontend.errors import ShardingError
from shardir.interop.jax import UnknownPrimitiveError, from_jax
from shardir.sharding import NamedSharding, PartitionSpec as P
from tests.error_assertions import assert_raises_exactly

RNG = np.random.default_rng(0)


def draw(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype("float32")


def loss(params: Any, x: Any, y: Any) -> Any:
    h = x
    for layer in params[:-1]:
        h = jax.nn.relu(h @ layer["w"] + layer["b"])
    out = h @ params[-1]["w"] + params[-1]["b"]
    error = jnp.mean((out - y) ** 2)
    return error


PARAMS = [{"w": draw(16, 32), "b": draw(32)}, {"w": draw(32, 8), "b": draw(8)}]
X, Y = draw(64, 16), draw(64, 8)


def agree(found: Any, expected: Any, within: float = 1e-5) -> None:
    """Check that all leaves are equal up to rounding, in equal containers."""
    assert jax.tree.structure(found) == jax.tree.structure(expected)
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=within, atol=within)


def test_value_and_gradient_of_a_perceptron_agree_with_jax() -> None:
    imported = from_jax(loss)
    agree(imported(PARAMS, X, Y), loss(PARAMS, X, Y))
    expected = jax.grad(loss)(PARAMS, X, Y)
    agree(sd.grad(imported)(PARAMS, X, Y), expected)
    agree(from_jax(jax.grad(loss))(PARAMS, X, Y), expected)


def test_sharded_arrays_keep_their_shardings() -> None:
    mesh = sd.make_mesh((4, 2), ("data", "model"))
    x = sd.device_put(X, NamedSharding(mesh, P("data")))
    imported = from_jax(loss)
    agree(sd.jit(sd.grad(imported))(PARAMS, x, Y), jax.grad(loss)(PARAMS, X, Y))
    reduced = sd.jit(imported).lower(PARAMS, x, Y).compile().collectives()
    assert [each.kind for each in reduced] == ["all-reduce"]


def test_values_have_names_and_source_lines() -> None:
    text = from_jax(loss).lower(PARAMS, X, Y).as_text(locations=True)
    line = loss.__code__.co_firstlineno
    assert "%params.0.b: f32[32]" in text
    where = f'loc("tests/frontend/interop/test_from_jax.py":{line + 3}:13)'
    assert f"%h = maximum(%3, %4) : f32[64, 32] {where}" in text
    assert "%error = div(" in text


class Point(NamedTuple):
    """A registered container."""

    x: Any
    y: Any


def test_results_have_the_containers_of_the_function() -> None:
    def turned(point: Point, more: dict[str, Any]) -> Any:
        return {"point": Point(point.y, point.x), "rest": [more["a"], None, (more["b"] + 1,)]}

    args = Point(X, Y), {"a": draw(3), "b": np.int32(2)}
    found = from_jax(turned)(*args)
    assert isinstance(found["point"], Point)
    agree(found, turned(*args))


class Weights(NamedTuple):
    values: Any
    names: tuple[str, ...]


jax.tree_util.register_pytree_node(
    Weights, lambda x: ((x.values,), x.names), lambda names, values: Weights(values[0], names)
)


def test_named_tuples_that_are_registered_in_jax_keep_their_static_fields() -> None:
    def grow(weights: Any) -> Any:
        return {"first": Weights(weights.values * 2, weights.names), "other": weights}

    given = Weights(np.ones(3, "f"), ("a", "b"))
    found = from_jax(grow)(given)
    assert found["first"].names == found["other"].names == ("a", "b")
    np.testing.assert_array_equal(found["first"].values, [2, 2, 2])


def test_results_can_be_named_tuples_that_are_registered_in_jax() -> None:
    class Pair(NamedTuple):
        number: Any
        text: Any

    jax.tree_util.register_pytree_node(
        Pair, lambda x: ((x.number,), x.text), lambda text, numbers: Pair(numbers[0], text)
    )
    found = from_jax(lambda x: Pair(x + 1, object))(np.float32(2))
    assert found.text is object
    assert float(found.number) == 3


def test_values_that_are_not_arrays_are_static() -> None:
    def scaled(x: Any, how: str, twice: bool, by: Callable[[Any], Any]) -> Any:
        made = by(x) if how == "by" else x
        return (made * 2 if twice else made), how

    found, how = from_jax(scaled)(X, "by", twice=True, by=jnp.sin)
    agree(found, jnp.sin(X) * 2)
    assert how == "by"


def test_keyword_arguments_may_be_static() -> None:
    def repeated(x: Any, times: int) -> Any:
        return jnp.tile(x, times)

    x = draw(3)
    imported = from_jax(repeated, static_argnames="times")
    agree(imported(x, 2), jnp.tile(x, 2))
    agree(imported(x, times=3), jnp.tile(x, 3))


def test_static_values_have_separate_programs() -> None:
    imported = from_jax(lambda x, by: x / by, static_argnames="by")
    for by in (0.0, -0.0, 2, 2.0):
        expected = np.divide(1, by, dtype="float32") if by else np.copysign(np.inf, by)
        np.testing.assert_array_equal(imported(np.float32(1), by=by), expected)


def test_vmap_of_an_imported_function() -> None:
    def norm(x: Any) -> Any:
        return jnp.sqrt(jnp.sum(x * x))

    agree(sd.vmap(from_jax(norm))(X), jax.vmap(norm)(X))


def test_jax_arrays_are_arguments() -> None:
    def shifted(x: Any, key: Any) -> Any:
        return x + jax.random.normal(key, x.shape)

    x, key = jnp.asarray(X), jax.random.key(3)
    agree(from_jax(shifted)(x, key), shifted(x, key))


def test_captured_keys_are_keys() -> None:
    key = jax.random.key(3)

    def drawn(x: Any) -> Any:
        return x + jax.random.normal(key, x.shape)

    agree(from_jax(drawn)(X), drawn(X))


def test_sharded_jax_arrays_keep_their_shardings() -> None:
    code = """
import jax, numpy as np
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P
from shardir.interop.jax import from_jax
mesh = jax.make_mesh((4, 2), ("data", "model"), axis_types=(AxisType.Auto,) * 2)
x = jax.device_put(np.ones((8, 8), "float32"), NamedSharding(mesh, P("data", "model")))
w = jax.device_put(np.ones((8, 16), "float32"), NamedSharding(mesh, P("model")))
print(from_jax(lambda x: x @ w)(x).sharding)
cut = NamedSharding(mesh, P(None, "data"))
print(from_jax(jax.jit(lambda x: x * 2, out_shardings=cut))(np.ones((8, 8), "float32")).sharding)
"""
    flags = {"XLA_FLAGS": "--xla_force_host_platform_device_count=8", "JAX_PLATFORMS": "cpu"}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, **flags}
    )
    mesh = "mesh=Mesh('data': 4, 'model': 2, axis_types=(Auto, Auto))"
    assert done.stdout.splitlines() == [
        f"NamedSharding({mesh}, spec=P('data',), memory_kind=device)",
        f"NamedSharding({mesh}, spec=P(None, 'data'), memory_kind=device)",
    ], done.stderr


def test_large_captured_arrays_are_parameters() -> None:
    table = jnp.asarray(X)

    def looked_up(i: Any) -> Any:
        return table[i]

    lowered = from_jax(looked_up).lower(np.int32(3))
    assert len(lowered.captured) == 1
    agree(from_jax(looked_up)(np.int32(3)), X[3])


def test_a_function_is_traced_once_per_signature() -> None:
    count = 0

    def counted(x: Any) -> Any:
        nonlocal count
        count += 1
        return x + 1

    imported = from_jax(counted)
    for x in (X, X + 1, Y, X):
        imported(x)
    assert count == 2


def test_the_error_of_an_unknown_primitive_states_its_line() -> None:
    def drawn(seed: Any) -> Any:
        return jax.lax.rng_uniform(np.float32(0), np.float32(1), (3,)) + seed

    with pytest.raises(UnknownPrimitiveError) as caught:
        from_jax(drawn)(X[0, 0])
    line = drawn.__code__.co_firstlineno + 1
    told = str(caught.value)
    assert told.startswith(
        "the primitive 'rng_uniform' of JAX has no rule: it draws other numbers in each run; "
        "draw them by jax.random.uniform from a key\n"
    )
    assert f"test_from_jax.py:{line}:16" in told


def test_static_arguments_must_be_hashable() -> None:
    class Odd:
        __hash__ = None  # type: ignore[assignment]

        def __repr__(self) -> str:
            return "Odd()"

    with pytest.raises(sd.ShardirError) as caught:
        from_jax(lambda x, odd: x)(X, Odd())
    assert str(caught.value).startswith(
        "Odd() of type Odd is not an array and cannot be hashed, so it cannot be part of a cache "
        "key; let the function refer to it instead"
    )


def test_mixing_functions_of_both_libraries_is_an_error() -> None:
    def mixed(x: Any) -> Any:
        return sd.numpy.zeros(3)

    with pytest.raises(sd.ShardirError) as caught:
        from_jax(mixed)(X)
    assert str(caught.value).startswith("mixed is written for JAX and returned ")
    assert "a value of shardir; use the functions of only one of the two in it" in str(caught.value)


@pytest.mark.parametrize("ours", [sd.ShapeDtypeStruct((3,), "float32"), sd.numpy.ones(3), P("x")])
def test_shardir_values_in_jax_functions_are_errors(ours: Any) -> None:
    def mixed(x: Any) -> Any:
        return jax.lax.sin(ours) + x

    with pytest.raises(sd.ShardirError) as caught:
        from_jax(mixed)(X)
    kind = type(ours)
    assert str(caught.value).partition("\n")[0] == (
        "mixed is written for JAX and received a value of shardir: Error interpreting argument to "
        f"sin as a JAX value. The problematic value is of type <class '{kind.__module__}."
        f"{kind.__name__}'> and was passed to sin at position 0; give it arrays as arguments, and "
        "use the functions of only one of the two in it"
    )


def offloading(x: Any) -> Any:
    policy = jax.checkpoint_policies.save_and_offload_only_these_names(
        names_which_can_be_saved=[],
        names_which_can_be_offloaded=["s"],
        offload_src="device",
        offload_dst="pinned_host",
    )
    named = jax.checkpoint(lambda x: checkpoint_name(jnp.sin(x), "s") ** 2, policy=policy)
    return jax.grad(named)(x)


HOST = jax.sharding.SingleDeviceSharding(jax.devices()[0], memory_kind="pinned_host")


@pytest.mark.parametrize(
    "function",
    [
        offloading,
        lambda x: jax.device_put(x, HOST) + 1,
        lambda x: jax.device_put(x, jax.memory.Space.Host) + 1,
    ],
)
def test_memory_of_the_host_is_an_error(function: Any) -> None:
    assert_raises_exactly(
        lambda: from_jax(function)(np.float32(2)),
        ShardingError,
        "the memory kind 'pinned_host' of JAX is not supported: arrays are in the memory of their "
        "devices; omit the memory kind, and select values to save by a policy that does not "
        "offload them, such as save_only_these_names",
    )
    on_device = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    assert float(from_jax(lambda x: jax.device_put(x, on_device) + 1)(np.float32(2))) == 3


@pytest.mark.parametrize("impl", ["rbg", "unsafe_rbg"])
def test_programs_that_make_keys_of_other_implementations(impl: str) -> None:
    def drawn(seed: Any) -> Any:
        return jax.random.normal(jax.random.key(seed, impl=impl), (3,))

    got, want = from_jax(drawn)(np.int32(3)), jax.jit(drawn)(np.int32(3))
    np.testing.assert_allclose(got, want, rtol=1e-5)


def test_values_that_are_no_functions_are_errors() -> None:
    with pytest.raises(sd.ShardirError, match=r"^from_jax takes a function, got 3"):
        from_jax(3)  # type: ignore[arg-type]
