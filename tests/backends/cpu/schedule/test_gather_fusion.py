"""A gather of single elements is one phase with the computations on its indices and elements."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import shardir as sd
import shardir.numpy as snp

pytestmark = pytest.mark.sample(2)

DTYPES = ("f4", "f2", "c8", "i1", "i2", "i4", "u1", "u4", "bool")
SHAPES: tuple[tuple[int, ...], ...] = ((1,), (7,), (300,), (30, 11), (5, 3, 2))
X = np.arange(1000, dtype=np.float32)
I = np.random.default_rng(0).integers(-1000, 1000, 300).astype(np.int32)  # noqa: E741


def phases(function: Any, *args: Any, **options: Any) -> str:
    text = sd.jit(function, **options).lower(*args).compile().as_text("schedule")
    return str(text).partition("phases")[2]


@pytest.mark.parametrize("kind", DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("wide", ["i2", "i4", "i8"])
def test_negative_and_out_of_range_indices_match_numpy(
    kind: str, shape: tuple[int, ...], wide: str
) -> None:
    rng = np.random.default_rng(1)
    x = (rng.random(1000) * 100).astype(kind)
    i = rng.integers(-1200, 1200, shape).astype(wide)
    nonnegative = np.where(i < 0, i + 1000, i)
    inside = (nonnegative >= 0) & (nonnegative < 1000)
    nearest = x[np.clip(nonnegative, 0, 999)]
    placed, indices = snp.asarray(x), snp.asarray(i)
    np.testing.assert_array_equal(placed[indices], nearest)
    filled = snp.take(placed, indices, fill_value=3)
    np.testing.assert_array_equal(filled, np.where(inside, nearest, np.array(3).astype(kind)))
    missing = np.asarray(snp.take(placed, indices))[~inside]
    if x.dtype.kind in "fc":
        assert np.isnan(missing).all()
    elif x.dtype.kind in "iu":
        ends = np.iinfo(x.dtype)
        assert (missing == (ends.min if x.dtype.kind == "i" else ends.max)).all()


def test_take_along_axis_matches_numpy() -> None:
    x = np.random.default_rng(2).random((30, 40)).astype(np.float32)
    i = np.random.default_rng(3).integers(-50, 50, (30, 11)).astype(np.int32)
    inside = (i >= -40) & (i < 40)
    expected = np.where(inside, np.take_along_axis(x, np.clip(i, -40, 39), 1), np.nan)
    np.testing.assert_array_equal(snp.take_along_axis(snp.asarray(x), i, axis=1), expected)


@pytest.mark.parametrize(
    "function",
    [
        lambda x, i: x[i],
        lambda x, i: snp.take(x, i),
        lambda x, i: snp.take(x, i, fill_value=-1),
        lambda x, i: snp.take_along_axis(x, i, 0),
    ],
)
def test_gathers_are_one_phase(function: Callable[..., Any]) -> None:
    found = phases(function, X, I)
    assert "1 phase" in found
    assert "gather" in found
    assert "arena 0 bytes" in sd.jit(function).lower(X, I).compile().as_text("schedule")


def test_indices_with_other_uses_are_still_computed() -> None:
    def both(x: Any, i: Any) -> Any:
        nonnegative = snp.where(i < 0, i + 1000, i)
        found = snp.take(x, nonnegative, mode="clip")
        return found, nonnegative + 1

    found, more = sd.jit(both)(X, I)
    np.testing.assert_array_equal(found, X[I])
    np.testing.assert_array_equal(more, np.where(I < 0, I + 1000, I) + 1)


def test_donated_operands_of_gathers_are_not_overwritten_early() -> None:
    x = np.random.default_rng(4).random(300).astype(np.float32)
    i = np.random.default_rng(5).integers(-300, 300, 300).astype(np.int32)
    for function in (lambda x, i: snp.take(x, i), lambda x, i: x[i]):
        for donated in ((0,), (1,), (0, 1)):
            compiled = sd.jit(function, donate_argnums=donated)
            for _ in range(3):
                result = compiled(snp.asarray(x), snp.asarray(i))
                np.testing.assert_array_equal(result, x[i])


def test_gathers_fuse_with_producers_and_consumers() -> None:
    result = sd.jit(lambda x, i: snp.sum(snp.take(x * 2, i) + 1, axis=0))(X, I)
    np.testing.assert_allclose(result, (X[I] * 2 + 1).sum(), rtol=1e-6)


def test_index_wraparound_by_another_size_is_not_fused() -> None:
    def shorter(x: Any, i: Any) -> Any:
        nonnegative = snp.where(i < 0, i + 500, i)
        return snp.take(x, nonnegative, mode="clip")

    result = sd.jit(shorter)(X, I)
    np.testing.assert_array_equal(result, X[np.clip(np.where(I < 0, I + 500, I), 0, 999)])


TABLE = np.random.default_rng(6).random((1000, 3)).astype(np.float32)
J = np.random.default_rng(7).integers(-3, 3, 300).astype(np.int32)


def wrapped(i: Any, size: int = 1000) -> Any:
    return snp.where(i < 0, i + size, i)


def is_inside(i: Any) -> Any:
    return (wrapped(i) >= 0) & (wrapped(i) < 1000)


def clipped(x: Any, i: Any) -> Any:
    return snp.take(x, wrapped(i), axis=0, mode="clip")


FAR = np.random.default_rng(8).integers(-1200, 1200, 300).astype(np.int32)
NEAREST = np.clip(np.where(FAR < 0, FAR + 1000, FAR), 0, 999)
INSIDE = (FAR >= -1000) & (FAR < 1000)


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("function", "args", "expected"),
    [
        (clipped, (TABLE, FAR), TABLE[NEAREST]),
        (lambda x, i, j: x[wrapped(i), wrapped(j, 3)], (TABLE, I, J), TABLE[I, J]),
        (lambda x, i, j: x[wrapped(i), j], (TABLE, I, np.abs(J) % 3), TABLE[I, np.abs(J) % 3]),
        (
            lambda x, i: snp.take(x, snp.broadcast_to(wrapped(i)[:, None], (300, 2)), mode="clip"),
            (X, FAR),
            np.repeat(X[NEAREST][:, None], 2, 1),
        ),
        (
            lambda x, i: snp.take(x, wrapped(i.T), mode="clip"),
            (X, I.reshape(30, 10)),
            X[I.reshape(30, 10).T],
        ),
        (lambda x, i: snp.where(i > 5, clipped(x, i), 3.0), (X, FAR), (FAR > 5, X[NEAREST], 3)),
        (
            lambda x, i: snp.where(is_inside(i), clipped(x, i) * 2, 3.0),
            (X, FAR),
            (INSIDE, X[NEAREST] * 2, 3),
        ),
        (
            lambda x, i, y: snp.where(is_inside(i), clipped(x, i), y),
            (X, FAR, X[:300]),
            (INSIDE, X[NEAREST], X[:300]),
        ),
        (
            lambda x, i: snp.where(is_inside(i), 3.0, clipped(x, i)),
            (X, FAR),
            (INSIDE, 3, X[NEAREST]),
        ),
        (
            lambda x, i: snp.where(is_inside(i)[:, None], clipped(x, i)[:, None], snp.zeros(2)),
            (X, FAR),
            (INSIDE[:, None], X[NEAREST][:, None], np.zeros(2)),
        ),
        (lambda x, i: clipped(x, i) * 2 + i, (X, FAR), X[NEAREST] * 2 + FAR),
        (lambda x, i: snp.take(x, wrapped(i, 0)), (X[:0], FAR), np.full(300, np.nan)),
    ],
)
def test_similar_programs_compute_what_they_state(
    function: Callable[..., Any], args: tuple[Any, ...], expected: Any
) -> None:
    if isinstance(expected, tuple):
        expected = np.where(*expected)
    choices: list[dict[str, Any]] = [{}, {"donate_argnums": (0, 1)}]
    for options in choices:
        result = sd.jit(function, **options)(*map(snp.asarray, args))
        np.testing.assert_array_equal(result, expected)


def test_wide_elements_have_fill_values() -> None:
    with sd.enable_x64():
        for kind in ("f8", "i8", "c16"):
            x = X.astype(kind)
            result = snp.take(snp.asarray(x), snp.asarray(FAR), fill_value=3)
            np.testing.assert_array_equal(result, np.where(INSIDE, x[NEAREST], 3))
