"""Arithmetic of the host model: all types, conversions and operations give NumPy's results."""

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import numpy as np
import pytest

from tests.backends.ipu.host_model.compiled_programs import Array, programs, rng, run_program

pytestmark = pytest.mark.sample(5)

INTEGER_DTYPES = ("int8", "uint8", "int16", "uint16", "int32", "uint32")
FLOAT_DTYPES = ("float16", "float32")
HALF_COUNT = 65536


def every_half() -> Array:
    return np.arange(HALF_COUNT, dtype=np.uint16).view(np.float16)


@cache
def conversions() -> tuple[dict[str, Array], dict[str, Array]]:
    """Return arguments and results: all halves; floats at, between and beside halves; and
    others."""
    halves = every_half().astype(np.float32)
    finite = np.sort(halves[np.isfinite(halves)])
    between = ((finite[:-1].astype(np.float64) + finite[1:]) / 2).astype(np.float32)
    beside = np.concatenate([np.nextafter(between, np.float32(s)) for s in (-np.inf, np.inf)])
    special = [0.0, -0.0, np.inf, -np.inf, np.nan, 65504, 65519.996, 65520, -65520, 1e30, 3e9, -3e9]
    floats = np.concatenate([special, rng().choice(np.concatenate([between, beside]), 60000)])
    floats = np.concatenate([floats, rng().normal(size=HALF_COUNT - len(floats)) * 1e6])
    arguments = {
        name: rng().integers(
            np.iinfo(name).min, np.iinfo(name).max, HALF_COUNT, name, endpoint=True
        )
        for name in INTEGER_DTYPES
    }
    arguments |= {
        "bool": rng().integers(0, 2, HALF_COUNT).astype(bool),
        "float16": every_half(),
        "float32": floats.astype(np.float32),
    }
    return arguments, run_program("conversions", arguments)


def expected_conversion(value: Array, to: str) -> Array:
    """Return the conversion that the model defines: truncation, saturated to the limits of the
    type."""
    if value.dtype.kind != "f" or to in (*FLOAT_DTYPES, "bool"):
        with np.errstate(over="ignore"):
            return value.astype(to)
    limits = np.iinfo(to)
    clear = np.where(np.isnan(value), 0, value.astype(np.float64))
    fitting: Array = np.trunc(np.clip(clear, limits.min, limits.max)).astype(to)
    return fitting


@pytest.mark.parametrize("to", ["bool", *INTEGER_DTYPES, *FLOAT_DTYPES])
@pytest.mark.parametrize("given", ["bool", *INTEGER_DTYPES, *FLOAT_DTYPES])
def test_casts_equal_those_of_numpy(given: str, to: str) -> None:
    arguments, results = conversions()
    np.testing.assert_array_equal(
        results[f"{given}_{to}"], expected_conversion(arguments[given], to)
    )


def test_every_half_survives_the_conversion_to_float_and_back() -> None:
    _, results = conversions()
    halves = every_half()
    number = ~np.isnan(halves)
    np.testing.assert_array_equal(
        results["float16_float16"].view("u2")[number], np.arange(HALF_COUNT)[number]
    )
    np.testing.assert_array_equal(
        results["float16_float32"].view("u4")[number], halves.astype("f4").view("u4")[number]
    )


def test_reinterpret_preserves_bits() -> None:
    arguments, results = conversions()
    np.testing.assert_array_equal(results["bits"], arguments["float32"].view(np.uint32))


@cache
def operands() -> dict[str, Array]:
    made: dict[str, Array] = {}
    for letter, dtype in (("f", np.float32), ("h", np.float16)):
        x = rng().normal(size=64) * 3
        x[:6] = [0.5, -0.5, 1.5, 2.5, -2.5, 0.0]
        special = np.resize([0.0, np.nan, np.inf, -np.inf, 1.0], 64)
        made |= {
            f"{letter}_x": x.astype(dtype),
            f"{letter}_y": rng().permutation(x).astype(dtype),
            f"{letter}_p": rng().uniform(1.5, 4, 64).astype(dtype),
            f"{letter}_t": rng().uniform(-1, 1, 64).astype(dtype),
            f"{letter}_s": special.astype(dtype),
        }
    for letter, name in (("i", "int32"), ("u", "uint32")):
        limits = np.iinfo(name)
        whole = rng().integers(limits.min, limits.max, (3, 64), name, endpoint=True)
        whole[:, :8] = rng().integers(0, 9, (3, 8), name)
        whole[2] |= 1
        made |= {f"{letter}_{last}": row for last, row in zip("abn", whole, strict=True)}
        made[f"{letter}_k"] = rng().integers(0, 32, 64).astype(name)
    made |= {name: rng().integers(0, 2, 64).astype(bool) for name in ("c", "d")}
    made["d"] = ~made["d"] ^ (np.arange(64) % 3 == 0)
    return made


@cache
def expressions() -> dict[str, Array]:
    return run_program("expressions", operands())


erf = np.vectorize(__import__("math").erf)
Values = Mapping[str, Array]

FLOAT_OPERATIONS: dict[str, Callable[[Values], Any]] = {
    "abs": lambda v: np.abs(v["x"]),
    "asin": lambda v: np.arcsin(v["t"]),
    "cbrt": lambda v: np.cbrt(v["x"]),
    "ceil": lambda v: np.ceil(v["x"]),
    "cos": lambda v: np.cos(v["x"]),
    "erf": lambda v: erf(v["x"]),
    "exp": lambda v: np.exp(v["x"]),
    "exp2": lambda v: np.exp2(v["x"]),
    "expm1": lambda v: np.expm1(v["x"]),
    "floor": lambda v: np.floor(v["x"]),
    "gelu": lambda v: v["x"] * (1 + erf(v["x"] / np.sqrt(2.0))) / 2,
    "inv": lambda v: 1 / v["p"],
    "isfinite": lambda v: np.isfinite(v["s"]),
    "isinf": lambda v: np.isinf(v["s"]),
    "isnan": lambda v: np.isnan(v["s"]),
    "log": lambda v: np.log(v["p"]),
    "log1p": lambda v: np.log1p(v["p"]),
    "nearby": lambda v: np.rint(v["x"]),
    "neg": lambda v: -v["x"],
    "relu": lambda v: np.maximum(v["x"], 0),
    "round": lambda v: np.trunc(v["x"] + np.copysign(0.5, v["x"])),
    "rsqrt": lambda v: 1 / np.sqrt(v["p"]),
    "sigmoid": lambda v: 1 / (1 + np.exp(-v["x"])),
    "signum": lambda v: np.sign(v["x"]),
    "sin": lambda v: np.sin(v["x"]),
    "sqrt": lambda v: np.sqrt(v["p"]),
    "square": lambda v: np.square(v["x"]),
    "tan": lambda v: np.tan(v["t"]),
    "tanh": lambda v: np.tanh(v["x"]),
    "trunc": lambda v: np.trunc(v["x"]),
    "add": lambda v: v["x"] + v["y"],
    "atan2": lambda v: np.arctan2(v["x"], v["y"]),
    "divide": lambda v: v["x"] / v["p"],
    "equal": lambda v: v["x"] == v["y"],
    "greater": lambda v: v["x"] > v["y"],
    "greater_equal": lambda v: v["x"] >= v["y"],
    "less": lambda v: v["x"] < v["y"],
    "less_equal": lambda v: v["x"] <= v["y"],
    "maximum": lambda v: np.maximum(v["x"], v["y"]),
    "minimum": lambda v: np.minimum(v["x"], v["y"]),
    "multiply": lambda v: v["x"] * v["y"],
    "not_equal": lambda v: v["x"] != v["y"],
    "power": lambda v: np.power(v["p"], v["t"]),
    "remainder": lambda v: np.fmod(v["x"], v["p"]),
    "subtract": lambda v: v["x"] - v["y"],
    "select": lambda v: np.where(v["c"], v["x"], v["y"]),
    "clamp": lambda v: np.clip(v["x"], v["t"], v["p"]),
}
"""The host model computes these in double precision and rounds once."""

INTEGER_OPERATIONS: dict[str, Callable[[Values], Any]] = {
    "bitwise_not": lambda v: ~v["a"],
    "square": lambda v: v["a"] * v["a"],
    "ones": lambda v: [(int(a) & 0xFFFFFFFF).bit_count() for a in v["a"]],
    "leading": lambda v: [32 - (int(a) & 0xFFFFFFFF).bit_length() for a in v["a"]],
    "add": lambda v: v["a"] + v["b"],
    "bitwise_and": lambda v: v["a"] & v["b"],
    "bitwise_or": lambda v: v["a"] | v["b"],
    "bitwise_xor": lambda v: v["a"] ^ v["b"],
    "bitwise_xnor": lambda v: ~(v["a"] ^ v["b"]),
    "divide": lambda v: [
        int(abs(int(a)) // abs(int(n)) * np.sign(int(a) * int(n)))
        for a, n in zip(v["a"], v["n"], strict=True)
    ],
    "remainder": lambda v: np.fmod(v["a"], v["n"]),
    "equal": lambda v: v["a"] == v["b"],
    "greater": lambda v: v["a"] > v["b"],
    "less_equal": lambda v: v["a"] <= v["b"],
    "maximum": lambda v: np.maximum(v["a"], v["b"]),
    "minimum": lambda v: np.minimum(v["a"], v["b"]),
    "multiply": lambda v: v["a"] * v["b"],
    "subtract": lambda v: v["a"] - v["b"],
    "shift_left": lambda v: v["a"] << v["k"],
    "shift_right": lambda v: (v["a"].view("u4") >> v["k"].view("u4")).view(v["a"].dtype),
    "select": lambda v: np.where(v["c"], v["a"], v["b"]),
    "abs": lambda v: np.abs(v["a"]),
    "neg": lambda v: -v["a"],
    "signum": lambda v: np.sign(v["a"]),
    "shift_sign": lambda v: v["a"] >> v["k"],
    "power": lambda v: np.power(v["a"], v["k"]),
    "clamp": lambda v: np.minimum(np.maximum(v["a"], v["k"]), v["b"]),
}
"""These wrap around in the integer type."""

BOOL_OPERATIONS: dict[str, Callable[[Values], Any]] = {
    "not": lambda v: ~v["c"],
    "and": lambda v: v["c"] & v["d"],
    "or": lambda v: v["c"] | v["d"],
    "equal": lambda v: v["c"] == v["d"],
    "less": lambda v: v["c"] < v["d"],
}


def operands_of_type(letter: str) -> dict[str, Array]:
    """Return the operands of a type, by the last letter of their names."""
    return {name[-1]: x for name, x in operands().items() if name[0] == letter or name in "cd"}


def test_every_operation_has_an_expected_result() -> None:
    integers = set(INTEGER_OPERATIONS) - {"abs", "neg", "signum", "shift_sign", "power", "clamp"}
    expected = {f"{letter}_{name}" for letter in "fh" for name in FLOAT_OPERATIONS}
    expected |= {f"i_{name}" for name in INTEGER_OPERATIONS} | {f"u_{name}" for name in integers}
    expected |= {f"b_{name}" for name in BOOL_OPERATIONS}
    expected |= {"mixed", "half_constant", "unsigned_constant"}
    assert {port.name for port in programs()["expressions"].results} == expected


@pytest.mark.parametrize("name", FLOAT_OPERATIONS)
@pytest.mark.parametrize("letter", "fh")
def test_a_float_operation_rounds_once(letter: str, name: str) -> None:
    got = expressions()[f"{letter}_{name}"]
    values = {
        key: x if x.dtype == bool else x.astype(np.float64)
        for key, x in operands_of_type(letter).items()
    }
    expected = np.asarray(FLOAT_OPERATIONS[name](values))
    if got.dtype == bool:
        np.testing.assert_array_equal(got, expected)
        return
    np.testing.assert_array_max_ulp(got, expected.astype(got.dtype), 1)


@pytest.mark.parametrize("name", ["add", "subtract", "multiply", "divide", "sqrt"])
def test_basic_arithmetic_is_bit_exact(name: str) -> None:
    for letter in "fh":
        expected = FLOAT_OPERATIONS[name](operands_of_type(letter))
        np.testing.assert_array_equal(expressions()[f"{letter}_{name}"], expected)


@pytest.mark.parametrize("name", INTEGER_OPERATIONS)
@pytest.mark.parametrize("letter", "iu")
def test_an_integer_operation_wraps_around(letter: str, name: str) -> None:
    if f"{letter}_{name}" not in expressions():
        assert letter == "u"
        return
    got = expressions()[f"{letter}_{name}"]
    with np.errstate(over="ignore"):
        expected = INTEGER_OPERATIONS[name](operands_of_type(letter))
    np.testing.assert_array_equal(got, np.asarray(expected).astype(got.dtype))


@pytest.mark.parametrize("name", BOOL_OPERATIONS)
def test_bool_operations_give_bools(name: str) -> None:
    np.testing.assert_array_equal(
        expressions()[f"b_{name}"], BOOL_OPERATIONS[name](operands_of_type("b"))
    )


def test_an_expression_of_several_types_inserts_casts() -> None:
    v = operands()
    expected = v["h_x"].astype("f4") * v["f_x"] + np.clip(v["i_a"], -7, 7).astype("f4")
    np.testing.assert_array_equal(expressions()["mixed"], expected)
    np.testing.assert_array_equal(expressions()["half_constant"], v["h_x"] * np.float16(0.1))
    np.testing.assert_array_equal(
        expressions()["unsigned_constant"], v["u_a"] ^ np.uint32(0x1BD11BDA)
    )
