"""Reads and writes out of bounds have the derivatives of JAX.

The expected derivatives are written in NumPy: an index out of bounds contributes only in mode
"clip". The last tests compare the same cases with JAX.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import shardir as sd
import shardir.numpy as snp

pytestmark = pytest.mark.sample(4)

X = np.arange(1, 9, dtype=np.float32)
M = X.reshape(4, 2)
I = np.array([0, 7, 99, -99, -1, -8, 8], np.int32)  # noqa: E741
S = np.arange(1, 8, dtype=np.float32)

Case = Callable[..., Any]

READS: dict[str, Case] = {
    "x[i]": lambda p, lib, x, m, i: x[i],
    "get": lambda p, lib, x, m, i: x.at[i].get(),
    "get clip": lambda p, lib, x, m, i: x.at[i].get(mode="clip"),
    "get fill": lambda p, lib, x, m, i: x.at[i].get(mode="fill", fill_value=0),
    "get promise": lambda p, lib, x, m, i: x.at[i].get(mode="promise_in_bounds"),
    "take": lambda p, lib, x, m, i: p.take(x, i, fill_value=0),
    "take clip": lambda p, lib, x, m, i: p.take(x, i, mode="clip"),
    "take wrap": lambda p, lib, x, m, i: p.take(x, i, mode="wrap"),
    "along": lambda p, lib, x, m, i: p.take_along_axis(x, i, 0, fill_value=0),
    "along clip": lambda p, lib, x, m, i: p.take_along_axis(x, i, 0, mode="clip"),
    "rows": lambda p, lib, x, m, i: m[i],
    "column": lambda p, lib, x, m, i: m[i, 0],
    "pairs": lambda p, lib, x, m, i: m[i, i],
    "behind": lambda p, lib, x, m, i: m[:, i],
    "scalar": lambda p, lib, x, m, i: x[i[2]],
    "scalar and vector": lambda p, lib, x, m, i: m[i[2], i],
    "rows clip": lambda p, lib, x, m, i: m.at[i].get(mode="clip"),
    "pairs clip": lambda p, lib, x, m, i: m.at[i, i].get(mode="clip"),
    "slice": lambda p, lib, x, m, i: lib.lax.dynamic_slice(x, (i[2],), (3,)),
    "windows": lambda p, lib, x, m, i: lib.lax.gather(
        x, i[:, None], lib.lax.GatherDimensionNumbers((0,), (), (0,)), (3,)
    ),
    "windows clip": lambda p, lib, x, m, i: lib.lax.gather(
        x, i[:, None], lib.lax.GatherDimensionNumbers((0,), (), (0,)), (3,), mode="clip"
    ),
}
WRITES: dict[str, Case] = {
    "set drop": lambda x, i, s: x.at[i].set(s, mode="drop"),
    "add": lambda x, i, s: x.at[i].add(s),
    "add clip": lambda x, i, s: x.at[i].add(s, mode="clip"),
    "add promise": lambda x, i, s: x.at[i].add(s, mode="promise_in_bounds"),
    "scalar": lambda x, i, s: x.at[i[2]].add(s[0]),
    "scalar clip": lambda x, i, s: x.at[i[2]].add(s[0], mode="clip"),
}


def read(p: Any, lib: Any, name: str) -> list[Any]:
    """Return the elements, and the derivatives of their weighted sum with respect to `x` and
    `m`.
    """

    def numbers(x: Any, m: Any, i: Any) -> Any:
        return READS[name](p, lib, x, m, i)

    def loss(x: Any, m: Any, i: Any) -> Any:
        found = numbers(x, m, i)
        return (found * p.arange(1.0, found.size + 1).reshape(found.shape)).sum()

    return [lib.jit(numbers)(X, M, I), *lib.jit(lib.grad(loss, (0, 1)))(X, M, I)]


def write(p: Any, lib: Any, name: str) -> list[Any]:
    def numbers(x: Any, i: Any, s: Any) -> Any:
        return WRITES[name](x, i, s)

    def loss(x: Any, s: Any) -> Any:
        return (numbers(x, p.asarray(I), s) * p.arange(1.0, 9.0)).sum()

    return [lib.jit(numbers)(X, I, S), *lib.jit(lib.grad(loss, (0, 1)))(X, S)]


def added(at: Any, weights: Any, size: int) -> Any:
    made = np.zeros(size, np.float32)
    np.add.at(made, at, weights)
    return made


WEIGHTS = np.arange(1, 8)
INSIDE = (I >= -8) & (I < 8)


@pytest.mark.parametrize("name", ["x[i]", "get", "get fill", "get promise", "take", "along"])
def test_a_row_out_of_bounds_has_no_derivative(name: str) -> None:
    expected = added(I[INSIDE], WEIGHTS[INSIDE], 8)
    np.testing.assert_array_equal(read(snp, sd, name)[1], expected)


def test_a_clamped_row_has_a_derivative_in_mode_clip() -> None:
    nearest = np.clip(np.where(I < 0, I + 8, I), 0, 7)
    for name in ("get clip", "along clip"):
        np.testing.assert_array_equal(read(snp, sd, name)[1], added(nearest, WEIGHTS, 8))
    # In this mode, `take` does not count negative indices from the end.
    np.testing.assert_array_equal(
        read(snp, sd, "take clip")[1], added(np.clip(I, 0, 7), WEIGHTS, 8)
    )


def test_an_update_out_of_bounds_is_dropped_unless_it_is_clamped() -> None:
    at = np.where(I < 0, I + 8, I)
    dropped = X + added(at[INSIDE], S[INSIDE], 8)
    for name in ("add", "add promise"):
        numbers, by_x, by_s = write(snp, sd, name)
        np.testing.assert_array_equal(numbers, dropped)
        np.testing.assert_array_equal(by_x, np.arange(1, 9))
        np.testing.assert_array_equal(by_s, np.where(INSIDE, np.clip(at, 0, 7) + 1, 0))
    numbers, _, by_s = write(snp, sd, "add clip")
    np.testing.assert_array_equal(numbers, X + added(np.clip(at, 0, 7), S, 8))
    np.testing.assert_array_equal(by_s, np.clip(at, 0, 7) + 1)


@pytest.mark.parametrize("name", READS)
def test_reads_agree_with_jax(name: str) -> None:
    jax: Any = pytest.importorskip("jax")
    for mine, theirs in zip(read(snp, sd, name), read(jax.numpy, jax, name), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-6)


# The result of a broken promise is undefined: JAX drops such an update, and still gives it a
# derivative.
@pytest.mark.parametrize("name", [name for name in WRITES if name != "add promise"])
def test_writes_agree_with_jax(name: str) -> None:
    jax: Any = pytest.importorskip("jax")
    for mine, theirs in zip(write(snp, sd, name), write(jax.numpy, jax, name), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-6)
