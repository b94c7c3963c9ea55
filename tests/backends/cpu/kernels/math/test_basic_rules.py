"""Operations of a few instructions give the reference's bits, for every element type."""

import numpy as np
import pytest

from shardir.ir.types import COMPLEX, DTYPES, FLOATS, INTEGERS
from tests.backends.cpu.kernels.math.elementwise_runner import (
    Array,
    applied,
    expected,
    pairs,
    same,
    some,
    specials,
)

NUMBERS = (*INTEGERS, *FLOATS, *COMPLEX)
ORDERED = ("bool", *INTEGERS, *FLOATS)
UNARY = {
    "neg": NUMBERS,
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
BINARY = {
    "add": ("bool", *NUMBERS),
    "sub": NUMBERS,
    "mul": ("bool", *INTEGERS, *FLOATS),
    "div": (*INTEGERS, *FLOATS),
    "rem": INTEGERS,
    "pow": INTEGERS,
    "maximum": ORDERED,
    "minimum": ORDERED,
    "and": ("bool", *INTEGERS),
    "or": ("bool", *INTEGERS),
    "xor": ("bool", *INTEGERS),
    "shift_left": INTEGERS,
    "shift_right_logical": INTEGERS,
    "shift_right_arithmetic": INTEGERS,
    "eq": DTYPES,
    "ne": DTYPES,
    "lt": ORDERED,
    "le": ORDERED,
    "gt": ORDERED,
    "ge": ORDERED,
    "nextafter": FLOATS,
    "complex": ("f32", "f64"),
}
TO = {"is_finite": "bool", "eq": "bool", "ne": "bool", "lt": "bool", "le": "bool", "gt": "bool",
      "ge": "bool"}  # fmt: skip
PART = {"c64": "f32", "c128": "f64"}
WHOLE = {"f32": "c64", "f64": "c128"}


def result_of(op: str, dtype: str) -> str:
    if op in ("real", "imag"):
        return PART[dtype]
    return WHOLE[dtype] if op == "complex" else TO.get(op, dtype)


def check(op: str, arrays: list[Array], dtypes: list[str], result: str, lanes: int = 16) -> None:
    wanted = expected(op, arrays, result)
    got = applied(op, arrays, dtypes, result, lanes)
    wrong = np.flatnonzero(~same(got, wanted))[:5]
    shown = [[a[i] for a in (*arrays, got, wanted)] for i in wrong]
    assert not shown, f"{op} of {dtypes}: operands, got, wanted = {shown}"


@pytest.mark.parametrize(("op", "dtype"), [(op, d) for op in UNARY for d in UNARY[op]])
def test_unary(op: str, dtype: str) -> None:
    x = np.concatenate([specials(dtype), some(dtype, 3000)])
    check(op, [x], [dtype], result_of(op, dtype))


@pytest.mark.parametrize(("op", "dtype"), [(op, d) for op in BINARY for d in BINARY[op]])
def test_binary(op: str, dtype: str) -> None:
    x, y = pairs(dtype)
    if op == "pow":
        y = y.astype(x.dtype)
    check(op, [x, y], [dtype, dtype], result_of(op, dtype))


@pytest.mark.parametrize("lanes", [1, 2, 3, 8, 32])
@pytest.mark.parametrize("dtype", ["bool", "i8", "f16", "f32", "c64"])
def test_any_number_of_lanes(dtype: str, lanes: int) -> None:
    x, y = pairs(dtype, 100)
    check("add", [x, y], [dtype, dtype], dtype, lanes)


@pytest.mark.parametrize("dtype", DTYPES)
def test_select(dtype: str) -> None:
    x, y = pairs(dtype)
    check("select", [some("bool", x.size), x, y], ["bool", dtype, dtype], dtype)


@pytest.mark.parametrize("dtype", ORDERED)
def test_clamp(dtype: str) -> None:
    x, y = pairs(dtype)
    check("clamp", [x, np.roll(y, 7), y], [dtype] * 3, dtype)


@pytest.mark.parametrize("to", ["bool", *NUMBERS])
@pytest.mark.parametrize("dtype", ["bool", *NUMBERS])
def test_convert(dtype: str, to: str) -> None:
    x = np.concatenate([specials(dtype), some(dtype, 3000)])
    check("convert", [x], [dtype], to)


def test_random_words() -> None:
    keys, first, second = some("key", 1000), some("u32", 1000, 1), some("u32", 1000, 2)
    check("random_hash", [keys, first, second], ["key", "u32", "u32"], "key")
    check("random_fold_in", [keys, first], ["key", "u32"], "key")
