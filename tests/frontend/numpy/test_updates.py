"""Updates with values of other element types than the array's."""

from typing import Any

import numpy as np
import pytest

from shardir import numpy as snp
from shardir.errors import OperationTypeError
from tests.namespace import eagerly, run
from tests.refusing import refused

UNSIGNED = ("uint8", "uint16", "uint32")


def subtracted(x: Any, index: Any, values: Any) -> Any:
    return x.at[index].subtract(values)


@pytest.mark.parametrize("index", [0, slice(1), np.array([0, 0]), np.array([True, False, True])])
@pytest.mark.parametrize("dtype", UNSIGNED)
@pytest.mark.parametrize("wide", ["uint32", "int32", "float16", "float32", "complex64"])
def test_unsigned_numbers_are_subtracted_from_wider_types(
    wide: str, dtype: str, index: Any
) -> None:
    x, value = np.array([7, 2, 9], wide), np.array(3, dtype)
    wanted = x.copy()
    np.subtract.at(wanted, index, value.astype(wide))
    for made in (run(subtracted, x, index, value), eagerly(subtracted, x, index, value)):
        assert made.dtype == x.dtype
        np.testing.assert_array_equal(made, wanted)


def test_bools_have_no_difference() -> None:
    flags = snp.array([True, False])
    for index in (0, flags):
        assert refused(OperationTypeError, lambda at=index: flags.at[at].subtract(True)) == (  # type: ignore[misc]
            "subtract does not take bools; use logical_xor, or .astype(int)"
        )
    np.testing.assert_array_equal(snp.array([5, 2]).at[0].subtract(True), [4, 2])
