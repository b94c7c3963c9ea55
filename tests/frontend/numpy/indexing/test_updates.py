"""Updates with values of a dtype other than that of the array."""

from typing import Any

import numpy as np
import pytest

from shardir import numpy as snp
from shardir.errors import OperationTypeError
from shardir.frontend.errors import IndexingError
from tests.error_assertions import error_line
from tests.namespace import eagerly, run

UNSIGNED = ("uint8", "uint16", "uint32")


def subtracted(x: Any, index: Any, values: Any) -> Any:
    return x.at[index].subtract(values)


@pytest.mark.sample(3)
@pytest.mark.parametrize("index", [0, slice(1), np.array([0, 0]), np.array([True, False, True])])
@pytest.mark.parametrize("dtype", UNSIGNED)
@pytest.mark.parametrize("wide", ["uint32", "int32", "float16", "float32", "complex64"])
def test_unsigned_values_are_subtracted_from_wider_dtypes(
    wide: str, dtype: str, index: Any
) -> None:
    x, value = np.array([7, 2, 9], wide), np.array(3, dtype)
    expected = x.copy()
    np.subtract.at(expected, index, value.astype(wide))
    for made in (run(subtracted, x, index, value), eagerly(subtracted, x, index, value)):
        assert made.dtype == x.dtype
        np.testing.assert_array_equal(made, expected)


def test_subtraction_of_bools_is_an_error() -> None:
    flags = snp.array([True, False])
    for index in (0, flags):
        assert error_line(OperationTypeError, lambda at=index: flags.at[at].subtract(True)) == (  # type: ignore[misc]
            "subtract does not take bools; use logical_xor, or .astype(int)"
        )
    np.testing.assert_array_equal(snp.array([5, 2]).at[0].subtract(True), [4, 2])


@pytest.mark.parametrize("mode", ["drop", "fill", "clip"])
def test_apply_out_of_bounds_follows_the_mode(mode: str) -> None:
    x = np.array([1, -2, -3], np.int32)
    expected = np.abs(x) if mode == "clip" else x
    expected[:2] = x[:2]
    for made in (run, eagerly):
        same = made(lambda x: x.at[7].apply(snp.abs, mode=mode), x)
        np.testing.assert_array_equal(same, expected)
    with pytest.raises(IndexingError, match=r"^index 7 is out of range for dimension 0 of shape"):
        snp.array(x).at[7].apply(snp.abs)
