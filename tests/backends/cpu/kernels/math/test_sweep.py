"""Sweeps over millions of bit patterns: native errors equal those of NumPy and are within the
bounds."""

from typing import Any

import numpy as np
import pytest

from shardir.ir.types import NUMPY_DTYPES
from tests.backends.cpu.kernels.math.accuracy import (
    EXACT_FUNCTIONS,
    F32_BOUNDS_ULP,
    f32_patterns,
    ulp_errors,
)
from tests.backends.cpu.kernels.math.elementwise_runner import run_operation, special_values
from tests.backends.cpu.kernels.math.error_search import errors_in_ulp, largest_error
from tests.backends.cpu.kernels.math.sweep import UNARY, main, number_of_pattern

pytestmark = pytest.mark.sample(2)

ONE_ROUNDING_ULP = 0.5001
"""The error of a single rounding to f16 or bf16 of an f32 result."""


@pytest.mark.parametrize("op", UNARY)
def test_f32_errors_over_many_patterns_are_within_the_bound(
    op: str, request: pytest.FixtureRequest
) -> None:
    """With --long every 7th pattern is tested; `sweep` tests all."""
    stride = 7 if request.config.getoption("--long") else 3001
    error, pattern = largest_error(op, "f32", stride, stride // 2)
    assert error <= F32_BOUNDS_ULP[op], number_of_pattern(pattern, "f32")


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
@pytest.mark.parametrize("op", UNARY)
def test_all_16_bit_numbers_are_rounded_once(op: str, dtype: str) -> None:
    error, pattern = largest_error(op, dtype)
    assert error <= ONE_ROUNDING_ULP, number_of_pattern(pattern, dtype)


@pytest.mark.parametrize("op", ["exp", "sinh", "log1p", "tan"])
def test_native_errors_equal_those_of_numpy(op: str) -> None:
    edges, x = special_values("f32"), f32_patterns(40009)
    arguments = np.concatenate([x, edges])
    got = run_operation(op, [arguments], ["f32"], "f32")
    with np.errstate(all="ignore"):
        exact = EXACT_FUNCTIONS[op](arguments.astype(np.float64))
    expected = ulp_errors(got, exact)
    np.testing.assert_allclose(errors_in_ulp(got, exact, "f32"), expected, rtol=1e-12)
    error, pattern = largest_error(op, "f32", 40009)
    assert pattern == 40009 * int(expected[: x.size].argmax())
    assert error == pytest.approx(expected[: x.size].max(), abs=1e-5)


SPECIAL_CASES = [
    (np.nan, 1.0, np.inf),
    (1.0, np.nan, np.inf),
    (np.nan, np.nan, 0.0),
    (-0.0, 0.0, np.inf),
    (0.0, 1e-60, 0.0),
    (np.inf, 1.0, np.inf),
    (1.0, np.inf, np.inf),
    (np.inf, -np.inf, np.inf),
    (np.inf, 1e300, 0.0),
    (3.4028234663852886e38, np.inf, 0.0),
    (2.0**-149, 0.0, 1.0),
    (1.0 + 2.0**-23, 1.0, 1.0),
    (1.0 - 2.0**-24, 1.0, 0.5),
]


@pytest.mark.parametrize(("got", "exact", "error"), SPECIAL_CASES)
def test_errors_of_special_numbers(got: float, exact: float, error: float) -> None:
    (found,) = errors_in_ulp(np.array([got]), np.array([exact]), "f32")
    assert found == pytest.approx(error)


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16"])
def test_sweeps_include_the_last_pattern(dtype: str) -> None:
    """The sweep includes the last pattern, a NaN with all bits set, which has no error."""
    last = (1 << 8 * NUMPY_DTYPES[dtype].itemsize) - 1
    assert np.isnan(number_of_pattern(last, dtype)).all()
    error, pattern = largest_error("sqrt", dtype, 1 << 12, 7)
    assert error <= 0.5
    assert pattern % (1 << 12) == 7


def test_the_tool_prints_one_line_per_function_and_type(capsys: Any) -> None:
    assert main(["exp", "sqrt", "--patterns", "1000003", "--numpy"]) == 0
    lines = capsys.readouterr().out.splitlines()[2:]
    assert [line.split(" | ")[:2] for line in lines] == [
        [f"| {op}", dtype] for op in ("exp", "sqrt") for dtype in ("f32", "f16", "bf16")
    ]
    with pytest.raises(SystemExit):
        main(["sine"])
    assert "no function 'sine'; there are exp, exp2" in capsys.readouterr().err
