"""Operands of mixed dtypes are promoted as in JAX."""

import json
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from shardir.errors import OperationTypeError, ShardirError
from shardir.frontend.config import enable_x64
from shardir.frontend.tracing.promotion import (
    KEY,
    canonical_dtype,
    dtype_of,
    inexact_dtype,
    result_type,
    user_dtype,
)

# The result dtype of jax.numpy.where for every pair; `*` marks weak types.
TABLE = json.loads((Path(__file__).parents[2] / "data" / "promotion.json").read_text("utf-8"))
NUMBERS = {"True": ("bool", False), "1": ("i64", True), "1.0": ("f64", True), "1j": ("c128", True)}


def kind(name: str) -> tuple[str, bool]:
    dtype, weak = NUMBERS.get(name, (name, False))
    return canonical_dtype(dtype), weak


@pytest.mark.parametrize("mode", ["x32", "x64"])
def test_every_pair_promotes_as_in_jax(mode: str) -> None:
    with enable_x64(mode == "x64"):
        columns = TABLE[mode]["of"].split()
        for row, cells in TABLE[mode]["rows"].items():
            for column, cell in zip(columns, cells.split(), strict=True):
                expected = (cell.rstrip("*"), cell.endswith("*"))
                assert result_type(kind(row), kind(column)) == expected, (row, column)


def test_three_types_promote_together() -> None:
    assert result_type(("i8", False), ("u8", False), ("i32", True)) == ("i16", False)
    assert result_type(("bf16", False), ("f16", False), ("f32", True)) == ("f32", False)


def test_64_bit_dtypes_are_narrowed_unless_enabled() -> None:
    assert [dtype_of(t) for t in (int, float, complex, bool)] == ["i32", "f32", "c64", "bool"]
    assert dtype_of(np.float64) == dtype_of("float64") == dtype_of(np.dtype("f8")) == "f32"
    with enable_x64():
        assert [dtype_of(t) for t in (int, float, complex)] == ["i64", "f64", "c128"]
        assert dtype_of("uint64") == "u64"


def test_dtypes_are_accepted_in_several_forms() -> None:
    assert dtype_of("bfloat16") == dtype_of(ml_dtypes.bfloat16) == "bf16"
    assert dtype_of(KEY) == "key"
    assert user_dtype("key") == KEY
    assert user_dtype("bf16") == np.dtype(ml_dtypes.bfloat16)


def test_values_that_are_no_dtype_are_errors() -> None:
    with pytest.raises(
        ShardirError, match=r"'float23' is not an element type; the element types are"
    ):
        dtype_of("float23")
    with pytest.raises(ShardirError, match=r"(?s)is not an element type.*test_promotion\.py"):
        dtype_of(object)


def test_keys_do_not_promote_with_numbers() -> None:
    assert result_type(("key", False), ("key", False)) == ("key", False)
    with pytest.raises(OperationTypeError, match="random keys do not mix with numbers"):
        result_type(("key", False), ("i32", True))


def test_integers_become_floats_where_functions_require_it() -> None:
    assert [inexact_dtype(t) for t in ("bool", "i8", "u32", "f16", "c64")] == [
        "f32",
        "f32",
        "f32",
        "f16",
        "c64",
    ]
