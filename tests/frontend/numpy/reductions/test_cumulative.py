"""Cumulative functions, differences and integrals against NumPy."""

from typing import Any

import numpy as np
import pytest

from shardir.frontend.errors import ArgumentError, AxisError, ShapeError
from shardir.frontend.numpy import api as snp
from tests.namespace import check, ops, run

GENERATOR = np.random.default_rng(9)
FLOATS = GENERATOR.normal(size=(3, 4, 5)).astype("f")
HOLES = np.where(GENERATOR.random((3, 4, 5)) < 0.2, np.nan, FLOATS).astype("f")
WHOLE = GENERATOR.integers(-9, 9, (3, 4)).astype("i4")
TRUTH = WHOLE > 0
LINE = np.cumsum(np.abs(FLOATS[0, 0])) + 1


@pytest.mark.parametrize("axis", [None, 0, 1, -1])
@pytest.mark.parametrize("name", ["cumsum", "cumprod", "nancumsum", "nancumprod"])
def test_cumulative_functions(name: str, axis: Any) -> None:
    check(name, HOLES if name.startswith("nan") else FLOATS, axis=axis)
    if axis != -1:
        check(name, WHOLE, axis=axis)
        check(name, TRUTH, axis=axis)


def test_dtype_argument() -> None:
    assert run(snp.cumsum, WHOLE, axis=0, dtype=float).dtype == np.float32
    check("cumsum", FLOATS[:0])


@pytest.mark.parametrize("include_initial", [False, True])
@pytest.mark.parametrize("name", ["cumulative_sum", "cumulative_prod"])
def test_the_array_api_names(name: str, include_initial: bool) -> None:
    check(name, FLOATS, axis=1, include_initial=include_initial)
    check(name, WHOLE[0], include_initial=include_initial)
    check(name, FLOATS[:0], axis=0, include_initial=include_initial)
    with pytest.raises(ArgumentError, match=f"{name} of an array of rank 2 needs axis="):
        run(getattr(snp, name), WHOLE)


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("n", [0, 1, 2, 7])
def test_differences(n: int, axis: int) -> None:
    check("diff", FLOATS, n, axis)
    check("diff", WHOLE, n, axis % 2)
    check("diff", TRUTH, n, axis % 2)


def test_differences_with_ends() -> None:
    check("diff", FLOATS, prepend=0)
    check("diff", WHOLE, axis=0, append=WHOLE)
    check("diff", WHOLE, axis=1, prepend=WHOLE[:, :1].copy(), append=2)
    check("ediff1d", FLOATS)
    check("ediff1d", WHOLE, to_end=np.array([1, 2], "i4"), to_begin=7)
    with pytest.raises(ArgumentError, match="diff takes differences n=-1 times; n must not be"):
        run(snp.diff, WHOLE, -1)
    with pytest.raises(AxisError):
        run(snp.diff, WHOLE, axis=5)


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_integrals(axis: int) -> None:
    check("trapezoid", FLOATS, axis=axis)
    check("trapezoid", FLOATS, dx=0.5, axis=axis)
    check("trapezoid", FLOATS, FLOATS + 1, axis=axis)
    check("trapezoid", WHOLE, axis=axis % 2, reference=lambda y, axis: np.trapezoid(
        y.astype("f"), axis=axis))  # fmt: skip
    check("trapezoid", FLOATS, LINE, axis=-1)


def test_gradient() -> None:
    check("gradient", FLOATS)
    check("gradient", FLOATS, 2.0)
    check("gradient", FLOATS, 2.0, 3.0, axis=(0, 2))
    check("gradient", FLOATS, axis=1)
    check("gradient", LINE.astype("f") ** 2, LINE.astype("f"))
    check("gradient", FLOATS, LINE.astype("f"), axis=2)
    check("gradient", WHOLE, reference=lambda f: np.gradient(f.astype("f")))
    with pytest.raises(ShapeError, match="gradient needs two elements along axis 0"):
        run(snp.gradient, FLOATS[:1])
    with pytest.raises(
        ArgumentError, match=r"gradient takes no spacing, one, or one for each of 3 axes, got 2"
    ):
        run(snp.gradient, FLOATS, 1.0, 2.0)


def test_unwrapped_angles() -> None:
    angles = (np.arange(20) * 2.1 % (2 * np.pi)).astype("f").reshape(4, 5)
    check("unwrap", angles)
    check("unwrap", angles, axis=0)
    check("unwrap", angles * 10, period=7.0)
    check("unwrap", angles, discont=4.0)


@pytest.mark.parametrize("period", [2, 3, 5, 6])
@pytest.mark.parametrize("discont", [None, 1, 2.5])
def test_unwrapped_signed_integers_remain_integers(period: int, discont: float | None) -> None:
    numbers = np.random.default_rng(0).integers(-9, 9, (3, 20)).astype(np.int16)
    found = np.asarray(snp.unwrap(numbers, period=period, discont=discont))
    assert found.dtype == np.int16
    assert found.tolist() == np.unwrap(numbers, period=period, discont=discont).tolist()


def test_operations() -> None:
    assert ops(snp.cumsum, FLOATS, axis=0) == ["cumsum"]
    assert ops(snp.diff, FLOATS) == ["slice", "slice", "sub"]
