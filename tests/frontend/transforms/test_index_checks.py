"""Index checks of `checkify` against JAX, for each mode of reads and updates."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import shardir as sd
import shardir.numpy as snp
from shardir import lax
from shardir.experimental import checkify
from tests.optional_dependencies import require

require("jax")
import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
from jax.experimental import checkify as jax_checkify  # noqa: E402

X, M = np.arange(4.0, dtype="f"), np.arange(12.0, dtype="f").reshape(3, 4)
ONES = np.ones((2, 1, 2), "f")


def compare_errors(run: Callable[..., Any], *args: Any) -> str | None:
    """Return the error of `run(namespace, numpy, *args)` with shardir; JAX has the same."""
    ours, _ = checkify.checkify(lambda *given: run(sd, snp, *given), errors=checkify.index_checks)(
        *map(snp.asarray, args)
    )
    theirs, _ = jax_checkify.checkify(
        lambda *given: run(jax, jnp, *given), errors=jax_checkify.index_checks
    )(*map(jnp.asarray, args))
    message: str | None = ours.get()
    assert message == theirs.get()
    return message


INDICES: list[Any] = [-4, 7, np.array([7, 0, -9])]
READS = [
    lambda np_, x, i, mode: x.at[1, i].get(mode=mode),
    lambda np_, x, i, mode: x.at[i, i].mul(2.0, mode=mode),
    lambda np_, x, i, mode: x.at[i, ::2].get(mode=mode),
    lambda np_, x, i, mode: x.at[:, i].set(2.0, mode=mode),
]


@pytest.mark.parametrize("mode", [None, "clip", "drop", "promise_in_bounds"])
@pytest.mark.parametrize("number", range(len(READS)))
def test_subscripts(number: int, mode: str | None) -> None:
    found = [
        compare_errors(lambda _, np_, x, i: READS[number](np_, x, i, mode), M, np.int32(i))
        for i in INDICES
    ]
    # Index 7 is out of bounds for both dimensions.
    assert "index 7 is out of bounds" in (found[1] or "")


@pytest.mark.parametrize("mode", [None, "clip", "fill", "wrap"])
def test_functions_that_take_indices(mode: str | None) -> None:
    for i in (np.array([1, -2]), np.array([-9, 7])):
        index = i.astype(np.int32)
        taken = compare_errors(lambda _, np_, x, i: np_.take(x, i, 1, mode=mode), M, index)
        if mode != "wrap":  # JAX refuses it for this function.
            compare_errors(
                lambda _, np_, x, i: np_.take_along_axis(x, i[None], 1, mode=mode), M, index
            )
        assert (taken is None) == (mode == "wrap" or (1 in i and mode != "clip"))
    if mode == "clip":
        assert compare_errors(
            lambda _, np_, x, i: np_.put_along_axis(x, i, x[:2], 0, inplace=False, mode=mode), X,
            np.array([1, 9], np.int32),
        )  # fmt: skip
        for function in (
            lambda _, np_, x, i: np_.put(x, i, x[:2], mode=mode, inplace=False),
            lambda _, np_, x, i: np_.choose(i, [x[:2], x[2:]], mode=mode),
            lambda space, np_, x, i: x[space.lax.clamp(0, i, 3)],
            lambda _, np_, x, i: x[np_.clip(i, 0, 3)],
        ):
            assert compare_errors(function, X, np.array([1, 9], np.int32)) is None


@pytest.mark.parametrize("mode", [None, "clip", "fill", "promise_in_bounds"])
@pytest.mark.parametrize("index", [[[0, 1], [2, 2]], [[0, 9], [9, 0]], [[0, 3], [-1, 1]]])
def test_windows(mode: str | None, index: list[list[int]]) -> None:
    """The first index in the order of the index vectors is reported, not that of a dimension."""
    vectors = np.array(index, np.int32)

    def read(space: Any, _: Any, x: Any, i: Any) -> Any:
        numbers = space.lax.GatherDimensionNumbers((1, 2), (), (0, 1))
        return space.lax.gather(x, i, numbers, (1, 2), mode=mode)

    def update(space: Any, _: Any, x: Any, i: Any, new: Any) -> Any:
        numbers = space.lax.ScatterDimensionNumbers((1, 2), (), (0, 1))
        return space.lax.scatter_add(x, i, new, numbers, mode=mode)

    assert (compare_errors(read, M, vectors) is None) == (index[0] == [0, 1])
    assert (compare_errors(update, M, vectors, ONES) is None) == (index[0] == [0, 1])


@pytest.mark.parametrize(
    "function",
    [
        lambda space, np_, x, i: space.vmap(lambda j: x.at[j].get(mode="clip"))(i),
        lambda space, np_, x, i: space.grad(lambda x: (x.at[i].get(mode="clip") ** 2).sum())(x),
        lambda space, np_, x, i: space.jit(lambda x, i: x.at[i].get(mode="clip"))(x, i),
        lambda space, np_, x, i: space.lax.scan(
            lambda c, j: (c + x.at[j].get(mode="clip"), 0), 0.0, i)[0],
        lambda space, np_, x, i: space.lax.cond(
            i[1] > 2, lambda: x.at[i].get(mode="clip"), lambda: x[:2]),
        lambda space, np_, x, i: space.lax.dynamic_slice(x, (i[1],), (2,)),
        lambda space, np_, x, i: space.lax.dynamic_update_slice(x, x[:2], (i[1],)),
    ],
)  # fmt: skip
def test_transformations(function: Callable[..., Any]) -> None:
    message = compare_errors(function, X, np.array([1, 9], np.int32))
    expected = (
        "out-of-bounds indexing for array of shape (4,): index 9 is out of bounds for axis 0 with "
        "size 4. "
    )
    assert message is not None
    assert expected in message
    assert compare_errors(function, X, np.array([1, 2], np.int32)) is None


def test_traces_of_functions_with_and_without_checks_are_separate() -> None:
    """An inlined function that was traced without checks is traced again with them."""

    @sd.jit
    def inner(x: Any, i: Any) -> Any:
        return x.at[i].get(mode="clip")

    x, i = snp.asarray(X), snp.int32(9)
    text = sd.jit(lambda x, i: inner(x, i)).lower(x, i).as_text()
    error, value = checkify.checkify(lambda x, i: inner(x, i), errors=checkify.index_checks)(x, i)
    assert "index 9 is out of bounds" in (error.get() or "")
    assert float(value) == 3.0
    assert sd.jit(lambda x, i: inner(x, i)).lower(x, i).as_text() == text
    error, _ = checkify.checkify(lambda x, i: inner(x, i), errors=checkify.user_checks)(x, i)
    assert error.get() is None


def test_indices_of_wide_types_are_compared_without_overflow() -> None:
    numbers = lax.GatherDimensionNumbers((), (0,), (0,))
    for dtype, index in ((np.uint32, 2**32 - 1), (np.uint8, 255), (np.int8, -128)):
        error, _ = checkify.checkify(
            lambda x, i: lax.gather(x, i, numbers, (1,), mode="clip"), errors=checkify.index_checks
        )(snp.asarray(X), snp.asarray(np.array([[index]], dtype)))
        assert f"index {index} is out of bounds" in (error.get() or "")


def test_an_empty_array_has_no_elements_to_check() -> None:
    error, out = checkify.checkify(
        lambda x, i: x.at[i].set(1.0, mode="clip"), errors=checkify.index_checks
    )(snp.zeros((0,)), snp.zeros((0,), "int32"))
    assert error.get() is None
    assert out.shape == (0,)
