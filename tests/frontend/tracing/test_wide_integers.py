"""A Python integer keeps its value in a requested 64-bit dtype, even without `enable_x64`."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import shardir as sd
import shardir.numpy as snp
from shardir import lax
from shardir.frontend.errors import NumberRangeError

HALF, ALL = 2**31, 2**32 - 1
ZEROS = np.zeros(2, np.uint32)
PLACES = np.array([5])

CASES: list[tuple[Callable[[], Any], Any]] = [
    (lambda: snp.uint32(HALF), np.uint32(HALF)),
    (lambda: snp.uint32([HALF, ALL]), np.array([HALF, ALL], np.uint32)),
    (lambda: snp.uint32(np.int64(HALF)), np.uint32(HALF)),
    (lambda: snp.float32(2**40), np.float32(2**40)),
    (lambda: snp.float32(10**40), np.float32(np.inf)),
    (lambda: snp.complex64(2**40), np.complex64(2**40)),
    (lambda: snp.bool_(2**40), np.bool_(True)),
    (lambda: snp.asarray(HALF, dtype="uint32"), np.uint32(HALF)),
    (lambda: snp.array(ALL, dtype="uint32"), np.uint32(ALL)),
    (lambda: snp.array([[ALL, 0]], dtype="uint32"), np.array([[ALL, 0]], np.uint32)),
    (lambda: snp.asarray([2**40], dtype="float32"), np.array([2**40], np.float32)),
    (lambda: snp.asarray(np.array([2**40]), dtype="float32"), np.array([2**40], np.float32)),
    (lambda: snp.asarray(np.array([HALF]), dtype="uint32"), np.array([HALF], np.uint32)),
    (lambda: snp.full(2, HALF, "uint32"), np.full(2, HALF, np.uint32)),
    (lambda: snp.full_like(ZEROS, ALL), np.full(2, ALL, np.uint32)),
    (lambda: snp.full_like(np.zeros(2, "f"), HALF, dtype="uint32"), np.full(2, HALF, np.uint32)),
    (lambda: snp.arange(HALF, HALF + 2, dtype="uint32"), np.array([HALF, HALF + 1], np.uint32)),
    (lambda: snp.linspace(0, HALF, 3, dtype="uint32"), np.array([0, 2**30, HALF], np.uint32)),
    (lambda: snp.where(ZEROS == 0, ZEROS, HALF), ZEROS),
    (lambda: snp.clip(ZEROS, HALF, ALL), np.full(2, HALF, np.uint32)),
    (lambda: snp.asarray(ZEROS).at[0].set(HALF), np.array([HALF, 0], np.uint32)),
    (lambda: snp.asarray(ZEROS).at[snp.array([0])].add(HALF), np.array([HALF, 0], np.uint32)),
    (lambda: snp.asarray(ZEROS).at[0].max(ALL), np.array([ALL, 0], np.uint32)),
    (lambda: lax.full((2,), HALF, "uint32"), np.full(2, HALF, np.uint32)),
    (lambda: lax.full_like(snp.asarray(ZEROS), HALF), np.full(2, HALF, np.uint32)),
    (lambda: lax.convert_element_type(HALF, "uint32"), np.uint32(HALF)),
    (lambda: snp.asarray(ZEROS) + HALF, np.full(2, HALF, np.uint32)),
    (lambda: snp.asarray(ZEROS) ^ ALL, np.full(2, ALL, np.uint32)),
    (lambda: snp.pad(ZEROS, 1, constant_values=HALF), np.array([HALF, 0, 0, HALF], np.uint32)),
    (lambda: snp.take(ZEROS, PLACES, mode="fill", fill_value=HALF), np.array([HALF], np.uint32)),
    (lambda: snp.insert(ZEROS, 0, HALF), np.array([HALF, 0, 0], np.uint32)),
]


@pytest.mark.parametrize("case", range(len(CASES)))
def test_an_integer_keeps_its_value(case: int) -> None:
    make, expected = CASES[case]
    for found in (make(), sd.jit(make)()):
        array = np.asarray(found)
        assert array.dtype == expected.dtype
        np.testing.assert_array_equal(array, expected)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: snp.uint32(2**32), "the number 4294967296 does not fit into u32"),
        (lambda: snp.uint32(-1), "the number -1 does not fit into u32"),
        (lambda: snp.int32(HALF), "the number 2147483648 does not fit into i32"),
        (lambda: snp.int32(1e10), "the number 10000000000 does not fit into i32"),
        (lambda: snp.asarray([HALF]), "the number 2147483648, which does not fit into int32"),
        (lambda: snp.asarray(HALF), "the number 2147483648 does not fit into int32"),
        (lambda: snp.full(2, HALF), "the number 2147483648 does not fit into int32"),
        (lambda: snp.zeros(2, int) + HALF, "the number 2147483648 does not fit into int32"),
    ],
)
def test_an_integer_out_of_range_of_the_dtype_is_an_error(
    make: Callable[[], Any], says: str
) -> None:
    with pytest.raises(NumberRangeError, match=says):
        make()


def test_different_integers_have_separate_programs() -> None:
    x = snp.asarray(ZEROS)
    for number in (HALF, HALF + 1, 3, HALF + 2, HALF):
        for _ in range(3):
            assert np.asarray(x + number).tolist() == [number, number]
