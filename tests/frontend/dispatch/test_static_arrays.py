"""Arrays as shapes, sizes and axes of functions: their elements determine the program."""

from typing import Any

import numpy as np
import pytest

import shardir.numpy as snp
from shardir import lax
from shardir.frontend.errors import ArgumentError

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


def test_an_array_of_floats_is_no_permutation() -> None:
    wrong: Any = snp.array([1.0, 0.0])
    with pytest.raises(ArgumentError) as caught:
        lax.transpose(X, wrong)
    assert str(caught.value).startswith("argument permutation of transpose is f32[2]; it must be ")
