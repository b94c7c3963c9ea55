"""Radix selection of elements at a few positions of sorted lines, without sorting."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import pytest

import shardir as sd
import shardir.numpy as snp
from shardir.backends.cpu.kernels.selection.radix_select import radix_select_phases
from shardir.ir.types import NUMPY_DTYPES
from tests.backends.cpu.kernels.random_layouts import random_array
from tests.backends.cpu.phase_runner import RuleHarness

pytestmark = pytest.mark.sample(2)

REAL_DTYPES = (
    "bool",
    "i8",
    "u8",
    "i16",
    "u16",
    "i32",
    "u32",
    "i64",
    "u64",
    "f16",
    "bf16",
    "f32",
    "f64",
)
RNG = np.random.default_rng(7)


def random_elements(dtype: str, shape: tuple[int, ...], spread: float = 100.0) -> Any:
    numbers = RNG.normal(size=shape) * spread
    if dtype[0] == "u":
        numbers = abs(numbers)
    return numbers.astype(np.int64 if dtype[0] in "iu" else float).astype(NUMPY_DTYPES[dtype])


def select_from_sorted(x: Any, positions: Sequence[int]) -> list[Any]:
    compiled = sd.jit(lambda x: [snp.sort(x)[k] for k in positions]).lower(x).compile()
    assert "select positions: " in compiled.as_text("schedule")
    return [np.asarray(each) for each in compiled(x)]


def select_rows(positions: Sequence[int], x: Any) -> list[Any]:
    return [snp.sort(x)[..., k] for k in positions]


@pytest.mark.parametrize("dtype", REAL_DTYPES)
def test_selection_matches_numpy_for_every_type(dtype: str) -> None:
    size = 2501
    positions = [0, size // 3, size // 2, size // 2 + 1, size - 1]
    with sd.enable_x64():
        x = random_elements(dtype, (size,))
        want = np.sort(x)[positions]
        for each, number in zip(select_from_sorted(x, positions), want, strict=True):
            assert each.dtype == number.dtype
            assert each == number


@pytest.mark.parametrize("dtype", REAL_DTYPES)
@pytest.mark.parametrize("shape", [(2501,), (3, 5000), (150_001,)])
def test_selection_by_counts_matches_numpy(dtype: str, shape: tuple[int, ...]) -> None:
    """Elements are compared as numbers: either of two equal zeros may be selected."""
    x, last = random_array(dtype, shape), shape[-1] - 1
    wanted = [0, last // 3, last // 2, last // 2 + 1, last]
    bench, out = RuleHarness(2), np.zeros_like(x)
    source, target = bench.view(x, dtype), bench.view(out, dtype)
    phases = radix_select_phases(source, target, len(shape) - 1, wanted, bench)
    assert phases is not None
    bench.run(phases)
    with np.errstate(invalid="ignore"):
        got, want = (each[..., wanted].astype(float) for each in (out, np.sort(x.astype(float))))
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("dtype", ["f16", "f32", "f64"])
def test_selection_orders_nan_last_and_includes_infinities(dtype: str) -> None:
    with sd.enable_x64():
        x = random_elements(dtype, (999,))
        x[::3], x[1:30:3], x[2:30:3], x[100:200] = np.nan, np.inf, -np.inf, 0
        x[100:200:2] = -0.0
        x[3] = -x[0]  # NaN with a sign bit
        positions = [0, 5, 200, 400, 655, 664, 666, 998]
        for each, number in zip(
            select_from_sorted(x, positions), np.sort(x)[positions], strict=True
        ):
            np.testing.assert_array_equal(each, number)


def test_counts_of_parts_of_long_lines_are_combined() -> None:
    for x in (
        random_elements("f32", (150_001,)),
        random_elements("f32", (150_001,), 0.0),
        random_elements("i32", (3, 140_001)),
    ):
        positions = [0, 70_000, 70_001, x.shape[-1] - 1]
        compiled = sd.jit(partial(select_rows, positions))
        for got, k in zip(compiled(x), positions, strict=True):
            np.testing.assert_array_equal(got, np.sort(x)[..., k])


@pytest.mark.parametrize("function", ["median", "percentile", "quantile"])
def test_median_and_quantiles_match_numpy(function: str) -> None:
    x = random_elements("f32", (3, 501))
    cases: dict[str, list[Any]] = {
        "median": [()],
        "percentile": [(30.0,), ([10, 50, 90],), (np.array([99.0]),)],
        "quantile": [(0.3,), ((0.1, 0.0, 1.0),), ([0.25] * 9,)],
    }
    given = cases[function]
    for arguments in given:
        choices: list[dict[str, Any]] = [{}, {"axis": 1}, {"axis": 0, "keepdims": True}]
        for options in choices:
            got = getattr(snp, function)(x, *arguments, **options)
            want = getattr(np, function)(x, *arguments, **options)
            assert got.shape == want.shape
            np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-4)
    x[1, 7] = np.nan
    found = getattr(snp, function)(x, *given[-1], axis=1)
    assert np.isnan(np.asarray(found)).any(axis=0).tolist() in ([False, True, False], True)


def test_gradients_and_batches_equal_those_of_a_sort() -> None:
    x = random_elements("f32", (5, 41))
    slope = sd.vmap(sd.grad(snp.median))(x)
    np.testing.assert_array_equal(np.asarray(slope).sum(1), np.ones(5))
    np.testing.assert_array_equal((np.asarray(slope) * x).sum(1), np.median(x, axis=1))
