"""Matrices with a traced diagonal number."""

from typing import Any

import numpy as np
import pytest

from shardir import jit, numpy as snp
from shardir.errors import OperationTypeError
from tests.error_assertions import error_line


def test_an_array_without_dimensions_is_the_number_of_a_diagonal() -> None:
    one: Any = np.array(1)
    np.testing.assert_array_equal(snp.eye(3, k=one), np.eye(3, k=1))


@pytest.mark.parametrize("k", [0, -1, 2, 9, np.int8(1), np.uint32(2**32 - 1)])
def test_traced_diagonals_are_those_of_numpy(k: Any) -> None:
    x = np.arange(12).reshape(3, 4)
    known = min(int(k), 100)
    for name in ("eye", "tri"):
        found = jit(lambda k: getattr(snp, name)(3, 4, k))(k)  # noqa: B023
        np.testing.assert_array_equal(found, getattr(np, name)(3, 4, known))
    for name in ("tril", "triu"):
        found = jit(lambda k: getattr(snp, name)(x, k))(k)  # noqa: B023
        np.testing.assert_array_equal(found, getattr(np, name)(x, known))


def test_a_traced_diagonal_is_one_integer() -> None:
    assert error_line(OperationTypeError, lambda: jit(lambda k: snp.eye(3, k=k))(1.5)) == (
        "eye takes one integer as the diagonal k, got f32[]"
    )
