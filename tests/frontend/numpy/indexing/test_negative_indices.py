"""Negative indices that do not count from the end, and repeated and one-hot indices."""

import numpy as np
import pytest

from shardir import jit, numpy as snp
from shardir.frontend.errors import ArgumentError, IndexingError, ShapeError
from tests.error_assertions import error_line
from tests.namespace import eagerly, run

X = np.arange(1, 6, dtype=np.float32)
INDICES = np.array([-1, 4, -5, 0, 9], np.int32)


@pytest.mark.parametrize("indices", [INDICES, INDICES.astype(np.int8), -1, np.int32(-2)])
def test_negative_indices_are_out_of_range_without_wrapping(indices: np.ndarray) -> None:
    is_inside = (np.asarray(indices) >= 0) & (np.asarray(indices) < 5)
    nearest = X[np.clip(indices, 0, 4)]
    filled = np.where(is_inside, nearest, 7)
    options = {"wrap_negative_indices": False}
    for made in (run, eagerly):
        for mode, expected in (("fill", filled), ("clip", nearest), (None, nearest)):
            found = made(lambda x, i: x.at[i].get(mode=mode, fill_value=7, **options), X, indices)  # noqa: B023
            np.testing.assert_array_equal(found, expected)
        dropped = made(lambda x, i: x.at[i].add(10, **options), X, indices)
        added = X.copy()
        np.add.at(added, np.asarray(indices)[is_inside], 10)
        np.testing.assert_array_equal(dropped, added)


@pytest.mark.parametrize("mode", [None, "fill", "clip", "wrap", "one_hot", "promise_in_bounds"])
@pytest.mark.parametrize("wraps", [None, True, False])
def test_take_along_axis_wraps_negative_indices_on_request(
    mode: str | None, wraps: bool | None
) -> None:
    x, indices = np.array([[10, 20, 30]], np.int32), np.array([[-1, 1]], np.int32)
    is_in_range = wraps or (wraps is None and mode != "promise_in_bounds")
    first = {"clip": 10, "promise_in_bounds": 10, "one_hot": 0, "wrap": 30}.get(
        mode or "fill", np.iinfo(np.int32).min
    )
    for made in (run, eagerly):
        found = made(
            lambda x, i: snp.take_along_axis(x, i, 1, mode, wrap_negative_indices=wraps), x, indices
        )
        np.testing.assert_array_equal(found, [[30 if is_in_range else first, 20]])


def test_one_hot_selection_broadcasts_and_keeps_the_dtype() -> None:
    x, indices = np.arange(6).reshape(3, 2) > 2, np.array([[1], [0]], np.int32)
    found = run(lambda x, i: snp.take_along_axis(x, i, 0, "one_hot"), x, indices)
    np.testing.assert_array_equal(found, np.take_along_axis(x, np.tile(indices, (1, 2)), 0))
    assert found.dtype == bool
    assert error_line(ArgumentError, lambda: snp.take_along_axis(x, indices, 0, "hot")) == (
        "take_along_axis has no mode 'hot'; its modes are fill, clip, wrap, promise_in_bounds, "
        "one_hot"
    )


def test_apply_runs_once_per_repetition_of_an_index() -> None:
    indices, expected = np.array([3, 1, 3, -2, 0], np.int32), X.copy()
    np.negative.at(expected, indices)
    for made in (run, eagerly):
        found = made(lambda x, i: x.at[i].apply(snp.negative), X, indices)
        np.testing.assert_array_equal(found, expected)
    once = jit(lambda x, i: x.at[i].apply(snp.negative, unique_indices=True))(X, indices)
    np.testing.assert_array_equal(once, [-1, -2, 3, -4, 5])


def test_apply_passes_single_elements_to_the_function() -> None:
    for made in (run, eagerly):
        found = made(lambda x: x.at[np.array([0, 1, 1])].apply(lambda v: v.sum() + 1), X)
        np.testing.assert_array_equal(found, X + np.array([1, 2, 0, 0, 0]))
    assert error_line(ShapeError, lambda: snp.array(X).at[1:3].apply(snp.cumsum)) == (
        "the function of at[...].apply is called with one element at a time, and returned f32[1]; "
        "return one element"
    )


def test_an_empty_mask_selects_nothing() -> None:
    x = snp.ones((3, 4))
    assert x[np.zeros((0,), bool)].shape == (0, 4)
    assert x[np.zeros((3, 0), bool)].shape == (0,)
    assert error_line(IndexingError, lambda: x[np.zeros((2, 0), bool)]) == (
        "a mask of shape (2, 0) does not fit dimensions of (3, 4)"
    )
