"""Features of Equinox beyond JAX: states of modules, and loops and checks with its own
primitives.
"""

from typing import Any

import equinox as eqx
import equinox.internal as eqxi
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

import shardir as sd
from shardir.interop.jax import from_jax

X = np.random.default_rng(0).uniform(0.2, 0.8, (4, 6)).astype("float32")


class Normed(eqx.Module):
    """A batch normalization, which has a state, and a dropout that can be switched off."""

    norm: eqx.nn.BatchNorm
    dropout: eqx.nn.Dropout
    heads: int

    def __call__(self, x: Any, state: Any, key: Any) -> Any:
        y, state = self.norm(x, state)
        return self.dropout(y, key=key) * self.heads, state


def test_module_states_are_arguments_and_results() -> None:
    norm, state = eqx.nn.make_with_state(eqx.nn.BatchNorm)(6, axis_name="batch", mode="batch")
    model = Normed(norm, eqx.nn.Dropout(0.5), 3)

    def run(model: Any, state: Any, x: Any, key: Any) -> Any:
        mapped = jax.vmap(model, axis_name="batch", in_axes=(0, None, 0), out_axes=(0, None))
        return mapped(x, state, jr.split(key, len(x)))

    key = np.array([0, 1], np.uint32)
    found, after = from_jax(run)(model, state, X, key)
    expected, later = eqx.filter_jit(run)(model, state, X, key)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    assert type(after) is type(later)
    for a, b in zip(jax.tree.leaves(after), jax.tree.leaves(later), strict=True):
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=1e-4, atol=1e-5)
    # `inference` is a bool of the module, which is concrete while tracing.
    still = eqx.nn.inference_mode(model)
    same, _ = from_jax(run)(still, state, X, key)
    np.testing.assert_allclose(same, eqx.filter_jit(run)(still, state, X, key)[0], rtol=1e-4)


def test_python_scalars_of_a_module_stay_static() -> None:
    norm, _ = eqx.nn.make_with_state(eqx.nn.BatchNorm)(6, axis_name="batch", mode="batch")
    model = Normed(norm, eqx.nn.Dropout(0.5), 3)
    found = from_jax(lambda model: model)(model)
    assert found.heads == 3
    assert type(found.heads) is int
    assert found.dropout.inference is False


def test_checkpointed_loops_and_runtime_checks() -> None:
    def f(x: Any) -> Any:
        x = eqx.error_if(x, x.sum() > 1e6, "too much")
        carry = (0, x)
        loop = eqxi.while_loop(
            lambda c: c[0] < 3,
            lambda c: (c[0] + 1, c[1] * x),
            carry,
            kind="checkpointed",
            max_steps=4,
        )
        return jnp.sum(loop[1])

    np.testing.assert_allclose(from_jax(f)(X), f(X), rtol=1e-5)
    np.testing.assert_allclose(from_jax(jax.grad(f))(X), jax.grad(f)(X), rtol=1e-4)


def test_modules_are_pytrees() -> None:
    model = eqx.nn.Linear(6, 3, key=jr.PRNGKey(0))

    def loss(model: Any, x: Any) -> Any:
        return jnp.sum(jax.vmap(model)(x) ** 2)

    found = sd.jit(sd.grad(from_jax(loss)))(model, X)
    expected = jax.grad(loss)(model, X)
    assert type(found) is eqx.nn.Linear
    np.testing.assert_allclose(np.asarray(found.weight), expected.weight, rtol=1e-4)
    assert [path[-1] for path in sd.tree.structure(model).paths()] == ["weight", "bias"]
