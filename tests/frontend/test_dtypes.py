"""The names of `shardir.dtypes`."""

from typing import Any

import numpy as np
import pytest

import shardir as sd
from shardir import dtypes
from shardir.frontend.errors import NotAnArrayError


def test_canonicalization_follows_enable_x64() -> None:
    assert dtypes.canonicalize_dtype("int64") == np.int32
    assert dtypes.canonicalize_dtype(float) == np.float32
    with sd.enable_x64():
        assert dtypes.canonicalize_dtype(float) == np.float64
    assert dtypes.canonicalize_dtype(dtypes.bfloat16).itemsize == 2
    assert isinstance(dtypes.bfloat16(1), dtypes.bfloat16)  # It is a class, as in JAX.


def test_key_dtypes_are_extended() -> None:
    key = sd.random.key(0).dtype
    assert key == sd.random.key_dtype() == sd.random.key_dtype("threefry2x32")
    for family in (dtypes.prng_key, dtypes.extended, np.generic):
        assert dtypes.issubdtype(key, family)
    assert not dtypes.issubdtype(key, np.number)
    assert not dtypes.issubdtype(np.float32, dtypes.extended)


@pytest.mark.parametrize(
    ("x", "kind"), [(True, bool), (np.uint8(3), int), (1.5, float), (np.complex64(1j), complex)]
)
def test_scalar_types_of_python_numbers(x: Any, kind: type) -> None:
    assert dtypes.scalar_type_of(x) is kind
    assert dtypes.itemsize_bits(np.asarray(x).dtype) in (8, 32, 64)


def test_key_dtypes_are_not_numeric() -> None:
    with pytest.raises(NotAnArrayError, match="key<fry> is not a kind of number"):
        dtypes.scalar_type_of(sd.random.key(0))
