"""Mutations of containers by a function: a mutation that would be lost is an error.

Python numbers in containers are traced, as by `jax.jit`.
"""

import dataclasses
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import struct
from flax.training.train_state import TrainState

import shardir as sd
from shardir.interop.jax import from_jax

X = np.ones(3, np.float32)


def appends(items: Any, x: Any) -> Any:
    items.append(x * 2)
    return x


def stores(items: Any, x: Any) -> Any:
    items[0] = x * 2
    return x


def stores_deep(items: Any, x: Any) -> Any:
    items[1]["a"] += x
    return x


def swaps(items: Any, x: Any) -> Any:
    items[0], items[1]["a"] = items[1]["a"], items[0]
    return x


def stores_a_number(items: Any, x: Any) -> Any:
    items[1]["n"] = 3
    return x


@pytest.mark.parametrize(
    ("function", "place"),
    [
        (appends, "items.2"),
        (stores, "items.0"),
        (stores_deep, "items.1.a"),
        (swaps, "items.0"),
        (stores_a_number, "items.1.n"),
    ],
)
@pytest.mark.parametrize("wrap", [lambda f: f, sd.jit])
def test_a_value_that_would_be_lost_is_an_error(
    function: Callable[..., Any], place: str, wrap: Callable[[Any], Any]
) -> None:
    with pytest.raises(sd.ShardirError) as caught:
        wrap(from_jax(function))([X, {"a": X + 1}], X)
    told, _, where = str(caught.value).partition("\n")
    assert told == (
        f"{function.__name__} stores a value in its argument, at {place}, and does not return it; "
        "the container is a copy of the caller's, which would keep the old value: return the new "
        "one, or copy the container before changing it"
    )
    assert "test_mutation_checks.py" in where


def returns_the_container(d: Any, x: Any) -> Any:
    d["a"] = x * 2
    return d


def returns_the_value(d: Any, x: Any) -> Any:
    d["a"] = x * 2
    return {"other": d["a"]}


def copies_first(d: Any, x: Any) -> Any:
    d = dict(d)
    d["a"] = x * 2
    return x


@pytest.mark.parametrize("function", [returns_the_container, returns_the_value, copies_first])
def test_a_value_that_is_returned_is_not_lost(function: Callable[..., Any]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = from_jax(function)({"a": X}, X)
    expected = function({"a": X}, X)
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_array_equal(a, b)


def test_removal_of_an_item_does_not_affect_the_caller() -> None:
    def trained(batch: Any) -> Any:
        labels = batch.pop("labels")
        return batch["x"] - labels

    batch = {"x": X, "labels": X}
    told = (
        "^trained removes batch.labels from its arguments; the containers are copies of the "
        "caller's, which keep it$"
    )
    run = from_jax(trained)
    with pytest.warns(UserWarning, match=told):
        np.testing.assert_array_equal(run(batch), 0 * X)
    np.testing.assert_array_equal(run(batch), 0 * X)
    assert set(batch) == {"x", "labels"}


class Counter:
    """An object that is no registered container."""

    def __init__(self) -> None:
        self.calls = 0

    def __repr__(self) -> str:
        return "Counter()"

    def remembers(self) -> int:
        self.cached = 3
        return self.cached


def counts(counter: Any, x: Any) -> Any:
    counter.calls += 1
    return x


def keeps_a_value(counter: Any, x: Any) -> Any:
    counter.last = x * 2
    return x


@pytest.mark.parametrize(("function", "name"), [(counts, "calls"), (keeps_a_value, "last")])
def test_a_mutation_of_an_object_is_an_error(function: Callable[..., Any], name: str) -> None:
    with pytest.raises(sd.ShardirError) as caught:
        from_jax(function)(Counter(), X)
    assert str(caught.value).partition("\n")[0] == (
        f"{function.__name__} changes the attribute {name!r} of its argument counter, Counter() of "
        "type Counter, which happens once, while it is traced, and not in every call: return the "
        "new value, or make the class a pytree node of JAX (for objects of flax.nnx, "
        "nnx.split and nnx.merge)"
    )


def test_an_object_may_cache_values() -> None:
    run = from_jax(lambda counter, x: x * counter.remembers())
    np.testing.assert_array_equal(run(Counter(), X), 3 * X)


class Pair(NamedTuple):
    """A registered container."""

    step: Any
    rate: Any


@struct.dataclass
class Flax:
    """A node of `flax.struct`."""

    step: Any
    rate: Any


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class Plain:
    """A dataclass that JAX has registered."""

    step: Any
    rate: Any


@pytest.mark.parametrize("kind", [Pair, Flax, Plain, lambda **both: dict(both)])
def test_numbers_in_containers_are_traced(kind: Callable[..., Any]) -> None:
    count = 0

    def advanced(state: Any, x: Any) -> Any:
        nonlocal count
        count += 1
        both = state if isinstance(state, dict) else {"step": state.step, "rate": state.rate}
        return kind(step=both["step"] + 1, rate=both["rate"] * 0.5), x * both["step"] ** -0.5

    run, expected = from_jax(advanced), jax.jit(advanced)
    state = other = kind(step=1, rate=0.5)
    for _ in range(3):
        state, y = run(state, X)
        other, z = expected(other, X)
        np.testing.assert_allclose(y, z)
    for a, b in zip(jax.tree.leaves(state), jax.tree.leaves(other), strict=True):
        assert (a.dtype, a.weak_type) == (b.dtype, b.weak_type)
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b))
    assert count == 2
    for step in range(4):
        run(kind(step=step, rate=0.1 * step), X)
    assert count == 2


def test_python_scalars_in_equinox_modules_are_static() -> None:
    """As for `equinox.filter_jit`, the number is part of the model."""

    class Model(eqx.Module):
        width: int
        weight: Any

        def __call__(self, x: Any) -> Any:
            return jnp.zeros(self.width).at[: x.size].set(x * self.weight)

    def stepped(model: Any, x: Any) -> Any:
        return eqx.tree_at(lambda m: m.weight, model, model.weight + 1), model(x)

    model, y = from_jax(stepped)(Model(5, jnp.float32(2)), X)
    assert model.width == 5
    assert type(model.width) is int
    np.testing.assert_array_equal(y, [2, 2, 2, 0, 0])


def test_a_train_state_counts_its_steps() -> None:
    state = TrainState.create(
        apply_fn=None, params={"w": jnp.ones(2)}, tx=optax.adam(optax.linear_schedule(0.1, 0, 5))
    )
    other, count = state, 0

    def step(state: Any) -> Any:
        nonlocal count
        count += 1
        rate = state.step**-0.5
        return state.apply_gradients(grads={"w": state.params["w"] * 2}), rate

    run = from_jax(step)
    for _ in range(3):
        state, rate = run(state)
    assert count == 1
    for _ in range(3):
        other, expected = jax.jit(step)(other)
    np.testing.assert_allclose(rate, expected)
    assert int(state.step) == 3
    np.testing.assert_allclose(state.params["w"], other.params["w"], rtol=1e-6)


def test_an_out_of_range_number_is_an_error() -> None:
    with pytest.raises(sd.ShardirError, match="the number 1099511627776 does not fit into int32"):
        from_jax(lambda state: state["step"] + 1)({"step": 2**40})
