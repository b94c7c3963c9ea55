"""Simple operations equal the reference bit by bit for every element type."""

import numpy as np
import pytest

from shardir.ir.types import COMPLEX
from tests.backends.cpu.kernels.math.elementwise_runner import (
    Array,
    have_equal_bits,
    operand_pairs,
    random_values,
    reference_result,
    run_operation,
    special_values,
)
from tests.dtype_groups import DTYPES, FLOATS, INTEGERS

pytestmark = pytest.mark.sample(3)

NUMERIC_DTYPES = (*INTEGERS, *FLOATS, *COMPLEX)
ORDERED_DTYPES = ("bool", *INTEGERS, *FLOATS)
UNARY_DTYPES = {
    "neg": NUMERIC_DTYPES,
    "abs": (*INTEGERS, *FLOATS),
    "sign": (*INTEGERS, *FLOATS),
    "floor": FLOATS,
    "ceil": FLOATS,
    "round": FLOATS,
    "sqrt": FLOATS,
    "is_finite": (*FLOATS, *COMPLEX),
    "not": ("bool", *INTEGERS),
    "popcnt": INTEGERS,
    "clz": INTEGERS,
    "conj": COMPLEX,
    "real": COMPLEX,
    "imag": COMPLEX,
    "stop_gradient": DTYPES,
}
BINARY_DTYPES = {
    "add": ("bool", *NUMERIC_DTYPES),
    "sub": NUMERIC_DTYPES,
    "mul": ("bool", *INTEGERS, *FLOATS),
    "div": (*INTEGERS, *FLOATS),
    "rem": INTEGERS,
    "pow": INTEGERS,
    "maximum": ORDERED_DTYPES,
    "minimum": ORDERED_DTYPES,
    "and": ("bool", *INTEGERS),
    "or": ("bool", *INTEGERS),
    "xor": ("bool", *INTEGERS),
    "shift_left": INTEGERS,
    "shift_right_logical": INTEGERS,
    "shift_right_arithmetic": INTEGERS,
    "eq": DTYPES,
    "ne": DTYPES,
    "lt": ORDERED_DTYPES,
    "le": ORDERED_DTYPES,
    "gt": ORDERED_DTYPES,
    "ge": ORDERED_DTYPES,
    "nextafter": FLOATS,
    "complex": ("f32", "f64"),
}
RESULT_DTYPES = {
    "is_finite": "bool",
    "eq": "bool",
    "ne": "bool",
    "lt": "bool",
    "le": "bool",
    "gt": "bool",
    "ge": "bool",
}
PART_DTYPES = {"c64": "f32", "c128": "f64"}
COMPLEX_DTYPES = {"f32": "c64", "f64": "c128"}


def result_dtype(op: str, dtype: str) -> str:
    if op in ("real", "imag"):
        return PART_DTYPES[dtype]
    return COMPLEX_DTYPES[dtype] if op == "complex" else RESULT_DTYPES.get(op, dtype)


def check(op: str, arrays: list[Array], dtypes: list[str], result: str, lanes: int = 16) -> None:
    expected = reference_result(op, arrays, result)
    got = run_operation(op, arrays, dtypes, result, lanes)
    wrong = np.flatnonzero(~have_equal_bits(got, expected))[:5]
    mismatches = [[a[i] for a in (*arrays, got, expected)] for i in wrong]
    assert not mismatches, f"{op} of {dtypes}: operands, got, wanted = {mismatches}"


@pytest.mark.parametrize(
    ("op", "dtype"), [(op, d) for op in UNARY_DTYPES for d in UNARY_DTYPES[op]]
)
def test_unary_operations_equal_the_reference(op: str, dtype: str) -> None:
    x = np.concatenate([special_values(dtype), random_values(dtype, 3000)])
    check(op, [x], [dtype], result_dtype(op, dtype))


@pytest.mark.parametrize(
    ("op", "dtype"), [(op, d) for op in BINARY_DTYPES for d in BINARY_DTYPES[op]]
)
def test_binary_operations_equal_the_reference(op: str, dtype: str) -> None:
    x, y = operand_pairs(dtype)
    if op == "pow":
        y = y.astype(x.dtype)
    check(op, [x, y], [dtype, dtype], result_dtype(op, dtype))


@pytest.mark.parametrize("lanes", [1, 2, 3, 8, 32])
@pytest.mark.parametrize("dtype", ["bool", "i8", "f16", "f32", "c64"])
def test_operations_accept_any_lane_count(dtype: str, lanes: int) -> None:
    x, y = operand_pairs(dtype, 100)
    check("add", [x, y], [dtype, dtype], dtype, lanes)


@pytest.mark.parametrize("dtype", DTYPES)
def test_select_equals_the_reference(dtype: str) -> None:
    x, y = operand_pairs(dtype)
    check("select", [random_values("bool", x.size), x, y], ["bool", dtype, dtype], dtype)


@pytest.mark.parametrize("dtype", ORDERED_DTYPES)
def test_clamp_equals_the_reference(dtype: str) -> None:
    x, y = operand_pairs(dtype)
    check("clamp", [x, np.roll(y, 7), y], [dtype] * 3, dtype)


@pytest.mark.parametrize("to", ["bool", *NUMERIC_DTYPES])
@pytest.mark.parametrize("dtype", ["bool", *NUMERIC_DTYPES])
def test_convert_equals_the_reference(dtype: str, to: str) -> None:
    x = np.concatenate([special_values(dtype), random_values(dtype, 3000)])
    check("convert", [x], [dtype], to)


def test_random_operations_equal_the_reference() -> None:
    keys, first, second = (
        random_values("key", 1000),
        random_values("u32", 1000, 1),
        random_values("u32", 1000, 2),
    )
    check("random_hash", [keys, first, second], ["key", "u32", "u32"], "key")
    check("random_fold_in", [keys, first], ["key", "u32"], "key")
