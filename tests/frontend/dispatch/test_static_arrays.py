"""Arrays as shapes, sizes and axes of functions: their elements determine the program."""

from typing import Any

import numpy as np
import pytest

import shardir.numpy as snp
from shardir import jit, lax, random
from shardir.frontend.errors import ArgumentError, RandomError

X = np.arange(12, dtype="float32").reshape(3, 4)


@pytest.mark.parametrize("make", [np.array, snp.array])
def test_elements_are_static(make: Any) -> None:
    for perm in ([1, 0], [0, 1], [1, 0]):
        np.testing.assert_array_equal(lax.transpose(X, make(perm)), X.transpose(perm))
        np.testing.assert_array_equal(lax.transpose(X, permutation=make(perm)), X.transpose(perm))
        np.testing.assert_array_equal(snp.transpose(X, make(perm)), X.transpose(perm))
    for sizes in ([2, 2], [1, 3]):
        part = X[1 : 1 + sizes[0], 1 : 1 + sizes[1]]
        np.testing.assert_array_equal(lax.dynamic_slice(X, (1, 1), make(sizes)), part)
    made = lax.slice(X, make([1, 1]), make([2, 4]), make([1, 2]))
    np.testing.assert_array_equal(made, X[1:2, 1:4:2])
    assert lax.broadcast_in_dim(X, make([2, 3, 4]), make([1, 2])).shape == (2, 3, 4)
    shape = lax.reshape(X, make([2, 6])).shape
    assert shape == (2, 6)
    assert all(type(size) is int for size in shape)


@pytest.mark.parametrize("make", [np.int32, snp.int32])
def test_integers_of_an_element_type_are_static_inside_of_tuples_and_lists(make: Any) -> None:
    two, one = make(2), make(1)
    key = random.key(0)
    for _ in range(2):
        assert snp.zeros((two, 3)).shape == snp.full(shape=[two, 3], fill_value=1).shape == (2, 3)
        np.testing.assert_array_equal(snp.transpose(X, [one, make(0)]), X.T)
        np.testing.assert_array_equal(lax.dynamic_slice(X, (1, 1), (two, one)), X[1:, 1:2])
        np.testing.assert_array_equal(snp.diag(X, one), np.diag(X, 1))
        np.testing.assert_array_equal(snp.trace(X, two), np.trace(X, 2))
        np.testing.assert_array_equal(lax.iota("int32", two), [0, 1])
        np.testing.assert_array_equal(
            lax.pad(X, np.float32(0), [(one, two, 0), (0, one, 0)]), np.pad(X, ((1, 2), (0, 1)))
        )
        counts, edges = snp.histogram(X, two)
        np.testing.assert_array_equal(counts, [6, 6])
        assert edges.shape == (3,)
        assert random.normal(key, (two, 3)).shape == (2, 3)
        for draw in (random.permutation, random.choice):
            np.testing.assert_array_equal(draw(key, two), draw(key, 2))
            np.testing.assert_array_equal(jit(lambda: draw(key, two))(), draw(key, 2))  # noqa: B023


def test_iota_takes_one_size() -> None:
    for wrong, why in (((2, 3), "must be an integer, got (2, 3)"), (-1, "is at least 0, got -1")):
        given: Any = wrong
        with pytest.raises(ArgumentError) as caught:
            lax.iota("int32", given)
        assert str(caught.value).splitlines()[0] == f"the size of iota {why}"


def test_arrays_and_values_of_other_types_are_no_numbers_of_elements() -> None:
    key = random.key(0)
    np.testing.assert_array_equal(np.sort(random.permutation(key, snp.array([3, 5]))), [3, 5])
    np.testing.assert_array_equal(random.permutation(key, np.array([3])), [3])
    np.testing.assert_array_equal(random.choice(key, snp.array([7, 7]), (3,)), [7, 7, 7])
    for draw in (random.permutation, random.choice):
        for wrong in (True, np.bool_(True), np.float32(3), snp.float32(3), 3.0):
            with pytest.raises(RandomError) as caught:
                draw(key, wrong)
            assert str(caught.value).splitlines()[0] == (
                f"{draw.__name__} takes an array, or a concrete integer"
            )


def test_traced_integers_are_no_numbers_of_elements() -> None:
    for draw in (random.permutation, random.choice):
        with pytest.raises(RandomError) as caught:
            jit(lambda n: draw(random.key(0), n))(3)  # noqa: B023
        assert str(caught.value).splitlines()[0] == (
            f"{draw.__name__} takes an array, or a concrete integer"
        )


def test_an_array_of_floats_inside_of_a_tuple_is_no_shape() -> None:
    wrong: Any = (snp.float32(2), 3)
    with pytest.raises(ArgumentError) as caught:
        snp.zeros(wrong)
    assert str(caught.value).startswith("argument shape of splat is (f32[], 3); it must be known")


def test_an_array_of_floats_is_no_permutation() -> None:
    wrong: Any = snp.array([1.0, 0.0])
    with pytest.raises(ArgumentError) as caught:
        lax.transpose(X, wrong)
    assert str(caught.value).startswith("argument permutation of transpose is f32[2]; it must be ")


def test_errors_show_arrays_as_they_were_given() -> None:
    wrong: Any = np.array([3.0, 4.0])
    with pytest.raises(ArgumentError) as caught:
        snp.reshape(X, wrong)
    assert str(caught.value).startswith("argument shape of reshape is float64[2], and must be ")
