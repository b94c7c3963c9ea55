"""Complex functions match the reference, and have at least its accuracy in c64."""

import mpmath as mp
import numpy as np
import pytest

from tests.backends.cpu.kernels.math.accuracy import ulp_errors
from tests.backends.cpu.kernels.math.elementwise_runner import (
    Array,
    reference_result,
    run_operation,
    special_values,
)

UNARY = (
    "exp", "exp2", "expm1", "log", "log2", "log1p", "sqrt", "rsqrt", "sinh", "cosh", "tanh",
    "sin", "cos", "tan", "asin", "acos", "atan", "asinh", "acosh", "atanh", "logistic", "abs",
    "sign",
)  # fmt: skip
PART_DTYPES = {"c64": "f32", "c128": "f64"}
NUMPY_TYPES = {"c64": np.complex64, "c128": np.complex128}


def random_complex(dtype: str, count: int = 3000) -> Array:
    rng = np.random.default_rng(0)
    normal_values = rng.normal(0, 2, count) + 1j * rng.normal(0, 2, count)
    sizes = 10.0 ** rng.uniform(-6, 6, (2, count)) * rng.choice([-1, 1], (2, count))
    return np.concatenate([normal_values, sizes[0] + 1j * sizes[1]]).astype(NUMPY_TYPES[dtype])


def check(op: str, arrays: list[Array], dtype: str, ulps: float) -> None:
    """Check errors relative to the magnitude of the result, against the reference in c128."""
    result = PART_DTYPES[dtype] if op == "abs" else dtype
    got = run_operation(op, arrays, [dtype] * len(arrays), result)
    expected = reference_result(
        op, [x.astype(np.complex128) for x in arrays], "f64" if op == "abs" else "c128"
    )
    step = np.finfo(got.dtype).eps * ulps
    ordinary = (
        np.isfinite(expected)
        & (np.abs(expected) < np.finfo(got.dtype).max)
        & (np.abs(expected) > np.finfo(got.dtype).tiny)
    )
    with np.errstate(all="ignore"):
        distance = np.abs(got - expected) / np.abs(expected)
    wrong = np.flatnonzero(ordinary & ~(distance <= step))[:3]
    assert not wrong.size, [[x[i] for x in (*arrays, got, expected)] for i in wrong]


@pytest.mark.parametrize("op", UNARY)
@pytest.mark.parametrize(("dtype", "ulps"), [("c64", 1.0), ("c128", 8.0)])
def test_unary_complex_functions_match_the_reference(op: str, dtype: str, ulps: float) -> None:
    x = random_complex(dtype)
    if op == "log1p" and dtype == "c128":
        x = x[np.abs(x) > 0.1]  # NumPy loses digits for smaller numbers
    if op == "exp2" and dtype == "c128":
        x = x[np.abs(x) < 4]  # NumPy rounds x log(2)
    check(op, [x], dtype, ulps)


@pytest.mark.parametrize("dtype", ["c64", "c128"])
def test_complex_exp2_has_exact_angles(dtype: str) -> None:
    """The argument of 2^(a + bi) is b log(2), for any magnitude of b."""
    rng = np.random.default_rng(5)
    imaginary_parts = 10.0 ** rng.uniform(-3, 38 if dtype == "c64" else 307, 240)
    imaginary_parts = np.concatenate([imaginary_parts, 2.0 ** np.arange(60)])
    x: Array = (rng.normal(0, 3, 300) + 1j * imaginary_parts).astype(NUMPY_TYPES[dtype])
    got = run_operation("exp2", [x], [dtype], dtype)
    with mp.workdps(400):
        for argument, value in zip(x.tolist(), got.tolist(), strict=True):
            expected = mp.power(2, mp.mpc(argument))
            distance = abs(mp.mpc(value) - expected) / abs(expected)
            assert distance <= 1.5 * float(np.finfo(got.dtype).eps), argument


def test_complex_abs_is_nearly_correctly_rounded() -> None:
    """The parts have any magnitude, also those whose squares overflow or underflow f32, or one part
    is zero."""
    rng = np.random.default_rng(4)
    count = 1 << 16
    parts = rng.normal(size=(2, count)) * 10.0 ** rng.uniform(-45, 38, count)
    parts[1] *= 10.0 ** rng.choice([-9, -4, -1, 0], count)
    parts[:, :64] = 0
    parts[0, 32:64] = 3
    with np.errstate(over="ignore"):
        x = (parts[0] + 1j * parts[1]).astype(np.complex64)
    exact = np.hypot(x.real.astype(np.float64), x.imag.astype(np.float64))
    assert ulp_errors(run_operation("abs", [x], ["c64"], "f32"), exact).max() <= 0.54


@pytest.mark.parametrize(("dtype", "ulps"), [("c64", 4.0), ("c128", 64.0)])
@pytest.mark.parametrize("op", ["mul", "div", "pow"])
def test_binary_complex_functions_match_the_reference(op: str, dtype: str, ulps: float) -> None:
    x = random_complex(dtype)[:3000]
    check(op, [x, np.roll(x, 5)], dtype, ulps)


@pytest.mark.parametrize("op", UNARY)
@pytest.mark.parametrize("dtype", ["c64", "c128"])
def test_nonfinite_complex_arguments_match_the_reference(op: str, dtype: str) -> None:
    """If a part of the operand is not finite, each part of the result is NaN, infinite or finite as
    in the reference."""
    x = special_values(dtype)
    x = x[~np.isfinite(x)]
    result = PART_DTYPES[dtype] if op == "abs" else dtype
    got, expected = run_operation(op, [x], [dtype], result), reference_result(op, [x], result)
    for part in (np.real, np.imag):
        a, b = part(got), part(expected)
        agree = (np.isnan(a) == np.isnan(b)) & (np.isinf(a) == np.isinf(b))
        wrong = np.flatnonzero(~agree)[:4]
        assert not wrong.size, [(x[i], got[i], expected[i]) for i in wrong]
