"""Typed random keys of JAX as arguments."""

import pickle
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest

import shardir as sd
from shardir.frontend.errors import KeyImplementationError
from shardir.interop.jax import from_jax

X = np.linspace(0, 1, 4, dtype="float32")
KEY = jax.random.key(3)
KEYS = jax.random.split(KEY, 2)


def noisy(key: Any, x: Any) -> Any:
    return x * 2 + jax.random.normal(key, x.shape)


ours = from_jax(noisy)

CALLS: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {
    "called": (lambda: ours(KEY, X), lambda: noisy(KEY, X)),
    "jit": (lambda: sd.jit(ours)(KEY, X), lambda: noisy(KEY, X)),
    "in a container": (
        lambda: sd.jit(lambda t: ours(t["key"], t["x"]))({"key": KEY, "x": X}),
        lambda: noisy(KEY, X),
    ),
    "closed over": (lambda: sd.jit(lambda x: ours(KEY, x))(X), lambda: noisy(KEY, X)),
    "vmap": (
        lambda: sd.vmap(ours, (0, None))(KEYS, X),
        lambda: jax.vmap(noisy, (0, None))(KEYS, X),
    ),
    "pmap": (
        lambda: sd.pmap(ours, in_axes=(0, None))(KEYS, X),
        lambda: jax.vmap(noisy, (0, None))(KEYS, X),
    ),
    "grad": (
        lambda: sd.grad(lambda x: ours(KEY, x * x).sum())(X),
        lambda: jax.grad(lambda x: noisy(KEY, x * x).sum())(X),
    ),
    "our functions": (lambda: sd.random.normal(KEY, (3,)), lambda: jax.random.normal(KEY, (3,))),
    "placed": (
        lambda: ours(sd.device_put(KEY, sd.devices()[2]), sd.device_put(X, sd.devices()[2])),
        lambda: noisy(KEY, X),
    ),
    "on a mesh": (
        lambda: sd.jit(sd.vmap(ours, (0, None)))(
            sd.device_put(KEYS, sd.NamedSharding(sd.make_mesh((2,), ("i",)), sd.P("i"))), X
        ),
        lambda: jax.vmap(noisy, (0, None))(KEYS, X),
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_jax_key_is_a_key(name: str) -> None:
    found, expected = CALLS[name]
    np.testing.assert_allclose(found(), expected(), rtol=1e-6, atol=1e-6)


def test_a_struct_of_keys() -> None:
    struct = jax.ShapeDtypeStruct((2,), KEYS.dtype)
    assert "key[]" in ours.lower(jax.ShapeDtypeStruct((), KEY.dtype), X).as_text()
    assert sd.eval_shape(sd.vmap(ours, (0, None)), struct, X).shape == (2, 4)


def test_captured_keys() -> None:
    keys = sd.device_put(KEYS)
    assert repr(pickle.loads(pickle.dumps(keys))) == repr(keys)
    np.testing.assert_array_equal(sd.random.key_data(keys), jax.random.key_data(KEYS))


@pytest.mark.parametrize("call", [ours, sd.jit(ours), sd.vmap(ours, (None, 0))])
def test_keys_of_another_generator_are_errors(call: Callable[..., Any]) -> None:
    with pytest.raises(KeyImplementationError) as caught:
        call(jax.random.key(0, impl="philox4x32"), X)
    assert str(caught.value).startswith(
        "random keys of 'philox4x32' are not supported; make keys of 'threefry2x32', 'rbg' or "
        "'unsafe_rbg' with jax.random.key(seed, impl='threefry2x32')\n"
    )
