"""Searches in bool arrays give NumPy's results, and read no more than necessary."""

from functools import partial

import numpy as np
import pytest

import shardir as sd
import shardir.numpy as snp
from shardir.backends.cpu.kernels.selection import bool_search
from tests.backends.cpu.guard_pages import copy_before_guard_page

FUNCTIONS = ("any", "all", "max", "min", "argmax", "argmin")


def check(x: np.ndarray) -> None:
    for name in FUNCTIONS:
        for numbers in (x, ~x):
            assert getattr(snp, name)(snp.asarray(numbers)) == getattr(np, name)(numbers), name


@pytest.mark.parametrize("size", [1, 3, 63, 64, 65, 128, 1001])
def test_a_single_different_element_is_found(size: int) -> None:
    for place in (None, 0, size // 3, size - 1):
        x = np.zeros(size, bool)
        if place is not None:
            x[place] = True
        check(x)


def test_pieces_are_searched_by_separate_tasks() -> None:
    x = np.zeros((3, bool_search.MIN_TASK_BYTES // 2), bool)
    check(x)
    x[2, -1] = True
    check(x)
    text = sd.jit(snp.any).lower(x).compile().as_text("schedule")
    assert text.count("any: 1 task") == 2


def test_matches_in_any_task_are_found() -> None:
    size = 3 * bool_search.MIN_TASK_BYTES + 70
    for place in (5, bool_search.MIN_TASK_BYTES + 5, size - 1):
        x = np.zeros(size, bool)
        x[place] = True
        for function, numbers in ((snp.any, x), (snp.all, ~x)):
            for _ in range(2):
                assert bool(function(snp.asarray(numbers))) == (function is snp.any)
    x = np.zeros(bool_search.MIN_TASK_BYTES * (bool_search.MAX_TASKS + 3), bool)
    check(x)
    x[-1] = True
    check(x)


@pytest.mark.parametrize("size", [64, 256, 320, 4096, 2 * bool_search.MIN_TASK_BYTES])
def test_searches_read_nothing_beyond_the_array(size: int) -> None:
    none, all_ = (
        copy_before_guard_page(np.zeros(size, bool)),
        copy_before_guard_page(np.ones(size, bool)),
    )
    assert not snp.any(none)
    assert snp.all(all_)
    assert not snp.vdot(none, all_)
    assert snp.argmax(none) == 0
    assert snp.argmin(all_) == 0


def test_nonzero_bytes_are_true_in_both_arrays() -> None:
    for size in (5, 64, 1000):
        x, y = np.zeros((2, size), np.uint8)
        x[size // 2], y[size // 2] = 2, 1
        for _ in range(3):
            assert snp.vdot(x.view(bool), y.view(bool))
            assert snp.any(x.view(bool))
            assert snp.argmax(x.view(bool)) == size // 2


def test_searches_in_lines_and_strided_arrays_match_numpy() -> None:
    x = np.random.default_rng(0).integers(0, 5, (30, 70)) > 3
    for numbers in (x, x.T, x[:, ::2], x[::-1]):
        for name in FUNCTIONS:
            for axis in (None, 0, 1):
                expected = getattr(np, name)(numbers, axis=axis)
                function = partial(getattr(snp, name), axis=axis)
                np.testing.assert_array_equal(sd.jit(function)(numbers), expected)


def test_transposed_intermediate_arrays_are_searched_correctly() -> None:
    x = np.zeros((40, 70), bool)
    x[3, 60] = x[30, 2] = True
    for name in FUNCTIONS:
        function = getattr(snp, name)
        made = sd.jit(lambda x, function=function: (function(x.T), function(x.T, axis=1)))(x)
        expected = getattr(np, name)(x.T), getattr(np, name)(x.T, axis=1)
        assert made[0] == expected[0], name
        np.testing.assert_array_equal(made[1], expected[1])


@pytest.mark.parametrize("size", [3, 65, 1001, bool_search.MIN_TASK_BYTES + 70])
def test_any_of_a_product_of_two_masks_matches_numpy(size: int) -> None:
    x, y = np.zeros(size, bool), np.ones(size, bool)
    for place in (None, size - 1, size // 3):
        if place is not None:
            x[place] = True
        for function in (snp.vdot, snp.dot, snp.inner):
            assert function(snp.asarray(x), snp.asarray(y)) == x.any()
    y[size // 3] = y[-1] = False
    assert not snp.vdot(x, y)
    text = sd.jit(snp.vdot).lower(x, y).compile().as_text("schedule")
    assert "any of and" in text
    assert snp.vdot(x[::-1], y).dtype == bool
