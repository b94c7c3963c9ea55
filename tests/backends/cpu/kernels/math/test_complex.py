"""Functions of complex numbers agree with the reference, and are at least as accurate in c64."""

import mpmath as mp
import numpy as np
import pytest

from tests.backends.cpu.kernels.math.accuracy import errors
from tests.backends.cpu.kernels.math.elementwise_runner import Array, applied, expected, specials

UNARY = (
    "exp", "exp2", "expm1", "log", "log2", "log1p", "sqrt", "rsqrt", "sinh", "cosh", "tanh",
    "sin", "cos", "tan", "asin", "acos", "atan", "asinh", "acosh", "atanh", "logistic", "abs",
    "sign",
)  # fmt: skip
PART = {"c64": "f32", "c128": "f64"}
TYPES = {"c64": np.complex64, "c128": np.complex128}


def numbers(dtype: str, count: int = 3000) -> Array:
    rng = np.random.default_rng(0)
    whole = rng.normal(0, 2, count) + 1j * rng.normal(0, 2, count)
    sizes = 10.0 ** rng.uniform(-6, 6, (2, count)) * rng.choice([-1, 1], (2, count))
    return np.concatenate([whole, sizes[0] + 1j * sizes[1]]).astype(TYPES[dtype])


def check(op: str, arrays: list[Array], dtype: str, ulps: float) -> None:
    """Relative to the size of the result, against the reference in c128."""
    result = PART[dtype] if op == "abs" else dtype
    got = applied(op, arrays, [dtype] * len(arrays), result)
    wanted = expected(
        op, [x.astype(np.complex128) for x in arrays], "f64" if op == "abs" else "c128"
    )
    step = np.finfo(got.dtype).eps * ulps
    ordinary = (
        np.isfinite(wanted)
        & (np.abs(wanted) < np.finfo(got.dtype).max)
        & (np.abs(wanted) > np.finfo(got.dtype).tiny)
    )
    with np.errstate(all="ignore"):
        apart = np.abs(got - wanted) / np.abs(wanted)
    wrong = np.flatnonzero(ordinary & ~(apart <= step))[:3]
    assert not wrong.size, [[x[i] for x in (*arrays, got, wanted)] for i in wrong]


@pytest.mark.parametrize("op", UNARY)
@pytest.mark.parametrize(("dtype", "ulps"), [("c64", 1.0), ("c128", 8.0)])
def test_unary(op: str, dtype: str, ulps: float) -> None:
    x = numbers(dtype)
    if op == "log1p" and dtype == "c128":
        x = x[np.abs(x) > 0.1]  # NumPy loses digits below
    if op == "exp2" and dtype == "c128":
        x = x[np.abs(x) < 4]  # NumPy rounds x log(2)
    check(op, [x], dtype, ulps)


@pytest.mark.parametrize("dtype", ["c64", "c128"])
def test_powers_of_two_turn_by_exact_angles(dtype: str) -> None:
    """However often they turn: 2^(a + bi) is at the angle b log(2)."""
    rng = np.random.default_rng(5)
    turns = 10.0 ** rng.uniform(-3, 38 if dtype == "c64" else 307, 240)
    turns = np.concatenate([turns, 2.0 ** np.arange(60)])
    x: Array = (rng.normal(0, 3, 300) + 1j * turns).astype(TYPES[dtype])
    got = applied("exp2", [x], [dtype], dtype)
    with mp.workdps(400):
        for place, value in zip(x.tolist(), got.tolist(), strict=True):
            wanted = mp.power(2, mp.mpc(place))
            apart = abs(mp.mpc(value) - wanted) / abs(wanted)
            assert apart <= 1.5 * float(np.finfo(got.dtype).eps), place


def test_sizes_are_rounded_once_and_a_little() -> None:
    """Of parts of any size, also those whose squares are no numbers of f32, and of one part."""
    rng = np.random.default_rng(4)
    count = 1 << 16
    parts = rng.normal(size=(2, count)) * 10.0 ** rng.uniform(-45, 38, count)
    parts[1] *= 10.0 ** rng.choice([-9, -4, -1, 0], count)
    parts[:, :64] = 0
    parts[0, 32:64] = 3
    with np.errstate(over="ignore"):
        x = (parts[0] + 1j * parts[1]).astype(np.complex64)
    exact = np.hypot(x.real.astype(np.float64), x.imag.astype(np.float64))
    assert errors(applied("abs", [x], ["c64"], "f32"), exact).max() <= 0.54


@pytest.mark.parametrize(("dtype", "ulps"), [("c64", 4.0), ("c128", 64.0)])
@pytest.mark.parametrize("op", ["mul", "div", "pow"])
def test_binary(op: str, dtype: str, ulps: float) -> None:
    x = numbers(dtype)[:3000]
    check(op, [x, np.roll(x, 5)], dtype, ulps)


@pytest.mark.parametrize("op", UNARY)
@pytest.mark.parametrize("dtype", ["c64", "c128"])
def test_infinities_and_nan(op: str, dtype: str) -> None:
    """Each part is NaN, infinite or finite where the reference's is, where a part is not finite."""
    x = specials(dtype)
    x = x[~np.isfinite(x)]
    result = PART[dtype] if op == "abs" else dtype
    got, wanted = applied(op, [x], [dtype], result), expected(op, [x], result)
    for part in (np.real, np.imag):
        a, b = part(got), part(wanted)
        agree = (np.isnan(a) == np.isnan(b)) & (np.isinf(a) == np.isinf(b))
        wrong = np.flatnonzero(~agree)[:4]
        assert not wrong.size, [(x[i], got[i], wanted[i]) for i in wrong]
