"""Modes, ranks and standard errors, compared with SciPy's definitions."""

import numpy as np
import pytest

from shardir import NamedSharding, P, device_put, make_mesh
from shardir.frontend.config import config
from shardir.frontend.errors import ArgumentError
from shardir.frontend.scipy import stats
from tests.error_assertions import error_line

NUMBERS = np.array([[3, 1, 3, 2], [0, 0, 5, 2], [1, 1, 1, 1], [4, 3, 2, 1]])


def test_mode_is_the_smallest_of_the_most_frequent() -> None:
    found = stats.mode(NUMBERS, axis=1)
    np.testing.assert_array_equal(found.mode, [3, 0, 1, 1])
    np.testing.assert_array_equal(found.count, [2, 2, 4, 1])
    everything = stats.mode(NUMBERS, axis=None, keepdims=True)
    np.testing.assert_array_equal(everything.mode, [[1]])
    np.testing.assert_array_equal(everything.count, [[6]])


def test_mode_of_no_elements_and_of_nan() -> None:
    empty = stats.mode(np.zeros((0, 2), np.float32))
    assert np.isnan(np.asarray(empty.mode)).all()
    np.testing.assert_array_equal(empty.count, [0, 0])
    assert int(stats.mode([np.nan, np.nan, 1.0]).count) == 2


def test_the_count_of_a_mode_has_the_default_integer_type() -> None:
    for wide, dtype in ((False, np.int32), (True, np.int64)):
        with config(enable_x64=wide):
            assert stats.mode(NUMBERS, axis=1).count.dtype == dtype


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("method", "expected"),
    [
        ("average", [4, 1.5, 4, 4, 1.5]),
        ("min", [3, 1, 3, 3, 1]),
        ("max", [5, 2, 5, 5, 2]),
        ("dense", [2, 1, 2, 2, 1]),
        ("ordinal", [3, 1, 4, 5, 2]),
    ],
)
def test_ranks_of_equal_elements(method: str, expected: list[float]) -> None:
    ranks = stats.rankdata([7, 2, 7, 7, 2], method)
    assert ranks.dtype == np.float32
    np.testing.assert_array_equal(ranks, expected)


def test_ranks_along_a_sharded_dimension() -> None:
    mesh = make_mesh((4, 2), ("a", "b"))
    sharded = device_put(NUMBERS, NamedSharding(mesh, P("a", "b")))
    for axis in (0, 1):
        expected = stats.rankdata(NUMBERS, axis=axis)
        np.testing.assert_array_equal(stats.rankdata(sharded, axis=axis), expected)
    np.testing.assert_array_equal(expected[1], [1.5, 1.5, 4, 3])


def test_ranks_of_nan_are_nan() -> None:
    ranks = np.asarray(stats.rankdata([[1.0, np.nan], [2.0, 1.0]], axis=1))
    np.testing.assert_array_equal(ranks, [[np.nan, np.nan], [2, 1]])


def test_standard_error_of_the_mean() -> None:
    expected = NUMBERS.std(axis=0, ddof=1) / 2
    np.testing.assert_allclose(stats.sem(NUMBERS), expected, rtol=1e-6)
    holes = np.where(NUMBERS == 5, np.nan, NUMBERS)
    assert np.isnan(np.asarray(stats.sem(holes))[2])
    column = np.array([3, 1, 2])
    omitted = np.asarray(stats.sem(holes, nan_policy="omit"))
    np.testing.assert_allclose(omitted[2], column.std(ddof=1) / np.sqrt(3), rtol=1e-6)


def test_unknown_options_are_errors() -> None:
    assert error_line(ArgumentError, lambda: stats.rankdata([1], "first")) == (
        "rankdata has no method 'first'; the methods are average, min, max, dense, ordinal"
    )
    assert error_line(ArgumentError, lambda: stats.mode([1], nan_policy="omit")) == (
        "mode has no nan_policy 'omit': it is 'propagate'; remove or replace elements that are NaN "
        "before the call"
    )
