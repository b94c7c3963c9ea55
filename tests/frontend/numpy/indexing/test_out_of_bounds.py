"""Indices out of bounds follow `mode`; integers out of the range of a dtype are errors."""

from typing import Any

import numpy as np
import pytest

import shardir as sd
import shardir.numpy as snp
from shardir import random
from shardir.frontend.errors import IndexingError, NumberRangeError


def test_updates_at_concrete_indices_out_of_bounds_follow_the_mode() -> None:
    x = snp.arange(3.0)
    assert x.at[7].set(9.0, mode="drop").tolist() == [0, 1, 2]
    assert x.at[-4].add(9.0, mode="fill").tolist() == [0, 1, 2]
    assert x.at[7].set(9.0, mode="clip").tolist() == [0, 1, 9]
    assert snp.ones((2, 2)).at[5, 0].multiply(3.0, mode="drop").tolist() == [[1, 1], [1, 1]]
    with pytest.raises(IndexingError, match="index 7 is out of range for dimension 0"):
        x.at[7].set(9.0)


def test_reads_at_concrete_indices_out_of_bounds_follow_the_mode() -> None:
    x = snp.arange(6.0).reshape(3, 2)
    assert x.at[7].get(mode="fill", fill_value=-1).tolist() == [-1, -1]
    assert x.at[7].get(mode="clip").tolist() == [4, 5]
    assert x.at[-9, 1].get(mode="clip").tolist() == 1
    with pytest.raises(IndexingError, match="index 7 is out of range for dimension 0"):
        x.at[7].get()


@pytest.mark.parametrize("call", [lambda f, x: f(x), lambda f, x: sd.jit(f)(x)])
def test_unchecked_integers_out_of_range_follow_the_rules_of_traced_ones(call: Any) -> None:
    x = snp.arange(6.0).reshape(3, 2)
    with pytest.raises(IndexingError, match="index 7 is out of range for dimension 0"):
        call(lambda x: x[7, 1], x)
    with sd.config(check_static_indices=False):
        assert call(lambda x: x[7], x).tolist() == [4, 5]
        assert call(lambda x: x[-7, 5], x).tolist() == 1
        assert call(lambda x: x[7, ::-1], x).tolist() == [5, 4]
        assert call(lambda x: x.at[7].get(), x).tolist() == [4, 5]
        assert call(lambda x: x.at[7].set(9.0), x).tolist() == x.tolist()
        assert call(lambda x: x.at[-4, 0].add(9.0), x).tolist() == x.tolist()
        assert call(lambda x: x[-1], x).tolist() == [4, 5]
    with pytest.raises(IndexingError, match="index 7 is out of range for dimension 0"):
        call(lambda x: x[7], x)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: snp.array(300, "int8"),
            "the number 300 does not fit into i8, which has the range -128 ",
        ),
        (
            lambda: snp.int8(300),
            "the number 300 does not fit into i8, which has the range -128 to 127",
        ),
        (lambda: snp.uint8(-1), "the number -1 does not fit into u8, which has the range 0 to 255"),
    ],
)
def test_a_number_out_of_range_of_a_narrow_dtype_is_an_error(make: Any, message: str) -> None:
    with pytest.raises(NumberRangeError, match=message):
        make()


def test_bounds_of_narrow_random_integers_are_limits_of_the_dtype() -> None:
    key = random.key(1)
    assert random.randint(key, (5,), -3, 300, "int8").tolist() == [43, 22, 76, 74, 116]
    bound = np.array([300, 300, 300, 300, 300], "int32")
    assert random.randint(key, (5,), -3, bound, "int8").tolist() == [43, 22, 76, 74, 116]
    assert random.randint(key, (5,), 0, 256, "uint8").tolist() == [252, 175, 224, 105, 160]


def test_rayleigh_draws_the_numbers_of_jax() -> None:
    drawn = random.rayleigh(random.key(1), 3.0, (5,))
    expected = [3.8514514, 3.3616667, 3.8127615, 3.85271, 1.3961769]
    np.testing.assert_allclose(drawn, expected, rtol=1e-5)
