"""`reduce` and `reduce_window` of pytrees, with any computation and any initial value."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import shardir as sd
from shardir import lax

X = np.arange(24, dtype="float32").reshape(4, 6) - 7
I = (np.arange(24) * 7 % 11).reshape(4, 6).astype("int32")  # noqa: E741
STARTS = (np.float32(-np.inf), np.int32(-1))


def larger(api: Any) -> Callable[[Any, Any], Any]:
    """Return the computation that selects the larger number and its index."""

    def computation(a: Any, b: Any) -> Any:
        is_first = api.ge(a[0], b[0])
        return api.select(is_first, a[0], b[0]), api.select(is_first, a[1], b[1])

    return computation


def add_and_max(api: Any) -> Callable[[Any, Any], Any]:
    return lambda a, b: {"a": a["a"] + b["a"], "b": api.max(a["b"], b["b"])}


PROGRAMS: dict[str, Callable[[Any], Any]] = {
    "same": lambda api: api.reduce_window((X, I), STARTS, larger(api), (2, 2), (1, 2), "SAME"),
    "pairs": lambda api: api.reduce_window(
        (X, I), STARTS, larger(api), (2, 2), (1, 2), ((1, 0), (0, 1)), (1, 2), (2, 1)
    ),
    "dict": lambda api: api.reduce_window(
        {"a": X, "b": I}, {"a": np.float32(0), "b": np.int32(0)}, add_and_max(api), (1, 2)
    ),
    "start": lambda api: api.reduce_window(X, np.float32(5), api.add, (2, 2), (1, 1), "SAME"),
    "gaps": lambda api: api.reduce_window(
        X, np.float32(5), api.add, (2, 2), (1, 1), "SAME", base_dilation=(2, 1)
    ),
    "cropped": lambda api: api.reduce_window(
        X, np.float32(0), lambda a, b: api.max(a, b) + 0, (2, 1), (1, 1), ((-1, 1), (2, -1))
    ),
    "empty": lambda api: api.reduce_window(X, np.float32(2), api.add, (5, 1)),
    "too large": lambda api: api.reduce_window(X, np.float32(2), api.add, (9, 9)),
    "empty operand": lambda api: api.reduce_window(
        X[:, :0], np.float32(2), api.add, (2, 3), (1, 2), "SAME"
    ),
    "padding of an empty operand": lambda api: api.reduce_window(
        X[:, :0], np.float32(0), api.add, (2, 2), (1, 2), ((1, 2), (0, 3))
    ),
    "dilated same": lambda api: api.reduce_window(
        X, np.float32(0), api.add, (2, 2), (2, 1), "SAME", base_dilation=(2, 1)
    ),
    "reduce": lambda api: api.reduce(
        {"a": X, "b": I}, {"a": np.float32(1), "b": np.int32(1)}, add_and_max(api), (1,)
    ),
    "reduce pair": lambda api: api.reduce((X, I), STARTS, larger(api), (0, 1)),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_results_are_those_of_jax(name: str) -> None:
    jax = pytest.importorskip("jax")
    expected = jax.tree.map(np.asarray, PROGRAMS[name](jax.lax))
    for made in (PROGRAMS[name](lax), sd.jit(lambda: PROGRAMS[name](lax))()):
        assert jax.tree.structure(made) == jax.tree.structure(expected)
        for got, known in zip(sd.tree.leaves(made), jax.tree.leaves(expected), strict=True):
            assert got.dtype == known.dtype
            np.testing.assert_array_equal(np.asarray(got), known)


def test_a_traced_initial_value_and_derivatives() -> None:
    def total(x: Any, start: Any) -> Any:
        return lax.reduce_window(x, start, lax.add, (2, 2), (2, 2)).sum()

    value, (dx, dstart) = sd.jit(sd.value_and_grad(total, (0, 1)))(X, np.float32(3))
    assert float(value) == X.sum() + 6 * 3
    np.testing.assert_array_equal(np.asarray(dx), np.ones_like(X))
    assert float(dstart) == 6
